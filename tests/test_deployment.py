"""The Dockerfile, systemd unit and YAML files: what they copy, mount and run exists, and their commands are accepted.

Their probes are asked of a server in test_serving_operators.py.
"""

import configparser
import os
import re
import shlex
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest
import yaml

from bertkit.cli import app
from bertkit.serving.settings import ServerSettings

ROOT = Path(__file__).resolve().parents[1]
DOCKERFILE, UNIT = ROOT / "deploy" / "Dockerfile", ROOT / "deploy" / "bertkit.service"


def steps() -> list[tuple[str, str]]:
    """Instructions of the Dockerfile with their arguments, continued lines joined."""
    text = DOCKERFILE.read_text().replace("\\\n", " ")
    return [(line.split()[0], line.partition(" ")[2].strip()) for line in text.splitlines() if re.match(r"[A-Z]", line)]


def arguments_of(name: str) -> list[str]:
    return [argument for step, argument in steps() if step == name]


def is_accepted(words: list[str]) -> None:
    """A command line of bertkit that its parser takes."""
    assert words[0].rpartition("/")[2] == "bertkit"
    app().parse_args(words[1:], exit_on_error=False, print_error=False)


def test_the_image_copies_what_exists_and_starts_a_command_that_is_accepted() -> None:
    assert {step for step, _ in steps()} <= {
        "ARG",
        "FROM",
        "COPY",
        "RUN",
        "USER",
        "EXPOSE",
        "HEALTHCHECK",
        "ENTRYPOINT",
        "CMD",
    }
    for copied in arguments_of("COPY"):
        *sources, _ = copied.split()
        assert all((ROOT / source).exists() for source in sources), copied
    version = re.search(r"python:(\d+\.\d+)", arguments_of("FROM")[0])
    assert version and f">={version[1]}" >= re.search(r'requires-python = "(>=\S+)"', _project())[1]  # type: ignore[index]
    (entry,), (command,) = arguments_of("ENTRYPOINT"), arguments_of("CMD")
    is_accepted([*eval(entry), *eval(command)])
    (check,) = arguments_of("HEALTHCHECK")
    assert "/ready" in check and f":{arguments_of('EXPOSE')[0]}/" in check
    compile(eval(check[check.index("[") :])[2], "health check", "exec")
    header = DOCKERFILE.read_text().splitlines()[0]
    is_accepted(["bertkit", "serve", *header.partition("bertkit --")[2].join(["--", ""]).split()])
    (user,), (run,) = arguments_of("USER"), arguments_of("RUN")
    assert user.isdigit() and f"--uid {user} " in run, "a number: Kubernetes refuses names with runAsNonRoot"
    assert int(re.search(r"--stop-timeout (\d+)", header)[1]) > ServerSettings().drain_timeout_seconds  # type: ignore[index]
    (cache,) = re.findall(r"-v \S+:(\S+/\.cache)", header)
    assert f"--owner bertkit {cache}" in run, "a volume that the user can write, for compiled kernels"


def test_kubernetes_runs_the_image_as_it_is_made() -> None:
    deployment, service = yaml.safe_load_all((ROOT / "deploy" / "kubernetes.yaml").read_text())
    assert (deployment["apiVersion"], deployment["kind"]) == ("apps/v1", "Deployment")
    spec, template = deployment["spec"], deployment["spec"]["template"]
    labels = template["metadata"]["labels"]
    assert labels == spec["selector"]["matchLabels"] == service["spec"]["selector"]
    (container,) = template["spec"]["containers"]
    (entry,), (port,) = arguments_of("ENTRYPOINT"), arguments_of("EXPOSE")
    is_accepted([*eval(entry), *container["args"]])
    assert container["ports"] == [{"name": "http", "containerPort": int(port)}]
    assert template["metadata"]["annotations"]["prometheus.io/port"] == port
    for kind in ("startup", "readiness", "liveness"):
        assert container[f"{kind}Probe"]["httpGet"]["port"] == "http", kind
    assert [each["targetPort"] for each in service["spec"]["ports"]] == ["http"]
    delay = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    seconds = template["spec"]["terminationGracePeriodSeconds"]
    assert seconds > delay + ServerSettings().drain_timeout_seconds
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    assert set(mounts) == {each["name"] for each in template["spec"]["volumes"]}
    check_mounts(container["args"], list(mounts.values()))
    assert str(template["spec"]["securityContext"]["fsGroup"]) == arguments_of("USER")[0]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    threads = {each["name"]: each["value"] for each in container["env"]}["OMP_NUM_THREADS"]
    assert threads == container["resources"]["limits"]["cpu"], "more threads than cores wait for each other"


def test_compose_builds_and_runs_the_image() -> None:
    file = ROOT / "deploy" / "compose.yaml"
    content = yaml.safe_load(file.read_text())
    services = content["services"]
    server = services["bertkit"]
    build = (file.parent / server["build"]["context"]).resolve()
    assert build == ROOT and build / server["build"]["dockerfile"] == DOCKERFILE
    (entry,), (port,) = arguments_of("ENTRYPOINT"), arguments_of("EXPOSE")
    is_accepted([*eval(entry), *server["command"]])
    assert server["ports"] == [f"127.0.0.1:{port}:{port}"]
    volumes = dict(each.split(":")[:2] for each in server["volumes"])
    check_mounts(server["command"], [*volumes.values(), *server["tmpfs"]])
    assert {name for name in volumes if not name.startswith(".")} == set(content["volumes"])
    assert int(server["stop_grace_period"].removesuffix("s")) > ServerSettings().drain_timeout_seconds
    assert server["environment"]["OMP_NUM_THREADS"] == str(server["cpus"])
    (check,) = arguments_of("HEALTHCHECK")
    assert server["healthcheck"]["test"][1:] == eval(check[check.index("[") :]), "that of the image"
    for service in services.values():
        for each in service.get("configs", []):
            assert each["source"] in content["configs"]
        local = [each.split(":")[0] for each in service.get("volumes", []) if each.startswith("./")]
        assert all((file.parent / each).exists() for each in local if each != "./models"), local
    configs = {name: yaml.safe_load(each["content"]) for name, each in content["configs"].items()}
    (scraped,) = configs["prometheus"]["scrape_configs"]
    assert scraped["static_configs"] == [{"targets": [f"bertkit:{port}"]}] and scraped["metrics_path"] == "/metrics"
    (source,) = configs["datasource"]["datasources"]
    assert source["url"].removeprefix("http://").split(":") == ["prometheus", "9090"]
    (mounted,) = services["grafana"]["volumes"]
    (provider,) = configs["dashboards"]["providers"]
    assert mounted.split(":")[1].startswith(provider["options"]["path"] + "/")


def check_mounts(arguments: list[str], mounts: list[str]) -> None:
    """Check that the files of a command are in mounts, and that what the server writes is too, where the rest is
    read-only."""
    for path in (each for each in arguments if each.startswith("/")):
        assert any(path.startswith(mount + "/") for mount in mounts), path
    assert {"/tmp", "/home/bertkit/.cache"} <= set(mounts)


def _project() -> str:
    return (ROOT / "pyproject.toml").read_text()


def test_the_unit_starts_a_command_that_is_accepted() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(UNIT.read_text())
    assert set(unit.sections()) == {"Unit", "Service", "Install"}
    service = unit["Service"]
    is_accepted(shlex.split(service["ExecStart"]))
    assert service["ExecReload"].endswith("-HUP $MAINPID") and service["LoadCredential"].startswith("keys:")
    assert int(service["TimeoutStopSec"]) > ServerSettings().drain_timeout_seconds
    assert service["RestartForceExitStatus"] == "SIGHUP", "a reload during the imports, before the server handles it"


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed")
    text = UNIT.read_text().replace("/opt/bertkit/bin/bertkit", sys.executable)
    (tmp_path / "bertkit.service").write_text(text)
    made = subprocess.run([program, "verify", str(tmp_path / "bertkit.service")], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr


@pytest.mark.slow
def test_the_steps_of_the_image_make_a_server_that_answers(tmp_path: Path) -> None:
    """RUN in a new environment, with the files that COPY names; only the user and its folder are not made."""
    image = tmp_path / "bertkit"
    for copied in arguments_of("COPY"):
        *sources, target = copied.split()
        folder = tmp_path / target.strip("/")
        for source in sources:
            here = ROOT / source
            if here.is_dir():
                shutil.copytree(here, folder)
            else:
                folder.mkdir(parents=True, exist_ok=True)
                shutil.copy(here, folder)
    venv.create(tmp_path / "venv", with_pip=True, system_site_packages=False)
    programs = tmp_path / "venv" / "bin"
    name, _, extras = arguments_of("ARG")[0].partition("=")
    environment = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}", name: extras}
    (run,) = arguments_of("RUN")
    commands = [command.strip() for command in run.split("&&")]
    installing = [one for one in commands if not one.startswith(("useradd ", "install "))]
    assert len(installing) == len(commands) - 2
    for command in installing:
        here = command.replace("/bertkit", str(image))
        subprocess.run(["sh", "-c", here], check=True, timeout=3_600, env=environment)
    program = programs / "bertkit"
    shown = subprocess.run([program, "serve", "--help"], capture_output=True, text=True, timeout=120)
    assert shown.returncode == 0 and "--api-key-file" in shown.stdout
    answer = "from bertkit.serving.server import serve; from bertkit.serving.settings import ServerSettings"
    subprocess.run([programs / "python", "-c", answer], check=True, timeout=120)
