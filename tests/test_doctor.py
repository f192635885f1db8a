"""`bertkit doctor`: its output, and detection of each kind of problem."""

import importlib.metadata
import json
import platform
import re
from types import SimpleNamespace

import pytest
import torch

from bertkit.cli import doctor, run
from bertkit.device import CPU_PRECISIONS
from bertkit.inference import equality
from bertkit.transformer.few_rows import weights
from bertkit.transformer.kernels import dispatch, instruction_sets
from bertkit.transformer.kernels.linear import CompiledBFloat16Linear, CompiledInt8Linear

ARM = "processor\t: 0\nFeatures\t: fp asimd asimddp sve bf16 i8mm\n"


@pytest.fixture
def quick(monkeypatch):
    """Skip what takes seconds: the check of bits, and oneDNN's instruction sets, which another process finds out."""
    check = equality.EqualityCheck("float32", 24, 0, 0.0)
    monkeypatch.setattr(equality, "check_equality", lambda precision, device: check)
    monkeypatch.setattr(doctor, "_onednn_instruction_sets", lambda: "AVX-512")


def call(capsys) -> tuple[int, dict[tuple[str, str], dict], str]:
    """Exit code, the findings by part and name, and stderr."""
    try:
        code = run(["doctor"])
    except SystemExit as stop:
        code = stop.code
    captured = capsys.readouterr()
    rows = [json.loads(line) for line in captured.out.splitlines()]
    return code, {(row["part"], row["name"]): row for row in rows}, captured.err


@pytest.mark.full
def test_doctor_on_healthy_installation(capsys):
    code, results, said = call(capsys)
    assert code == 0 and said.startswith("0 errors, ")
    assert {status for row in results.values() for status in [row["status"]]} <= {"ok", "note", "warning"}
    assert {row["part"] for row in results.values()} == {
        "machine", "software", "libraries", "kernels", "equality", "extras", "caches",
    }  # fmt: skip
    assert results["software", "python"]["value"].startswith(platform.python_version())
    assert f"torch {torch.__version__}".startswith(
        results["extras", "torch"]["value"]
    )  # "2.15.0+cu132": some builds name it
    assert results["libraries", "oneDNN uses"]["value"] != "not known"
    assert [name for part, name in results if part == "kernels"] == [*CPU_PRECISIONS, "attention", "short texts"]
    assert [name for part, name in results if part == "equality"] == list(CPU_PRECISIONS)
    assert all("bit-identical" in row["value"] for (part, _), row in results.items() if part == "equality")


@pytest.mark.full
def test_doctor_reports_batch_dependent_vectors(capsys, monkeypatch):
    embed_one = equality.embed_one
    monkeypatch.setattr(equality, "embed_one", lambda *arguments: embed_one(*arguments) * (1 + 2**-23))
    check = equality.check_equality("bfloat16")
    monkeypatch.setattr(equality, "check_equality", lambda precision, device: check)
    code, results, said = call(capsys)
    row = results["equality", "float32"]
    assert code == 1 and row["status"] == "error" and said.startswith("4 errors, ")
    assert re.search(r"depend on the other texts of a batch: 24 of 24 differ, by up to \d\.\de-\d\d", row["value"])


@pytest.mark.full
def test_non_finite_numbers_are_not_equal(monkeypatch):
    monkeypatch.setattr(equality, "_vectors_and_logits", lambda runner, texts: torch.full((24, 387), torch.nan).numpy())
    assert equality.check_equality("float32").num_different == 24


def test_requirements_are_read_from_the_package():
    installed = importlib.metadata.distribution("bertkit")
    requirements = doctor._requirements(installed)
    assert {*requirements} == {"", *installed.metadata.get_all("Provides-Extra")}
    assert sum(map(len, requirements.values())) == len(installed.requires)
    for extra, wanted in (("", "numpy>=1.26"), ("torch", "torch>=2.10"), ("sklearn", "scikit-learn>=1.4")):
        assert wanted in [f"{one.name}{one.specifier}" for one in requirements[extra]]


@pytest.mark.full(sample=1)
@pytest.mark.parametrize(
    ("name", "here", "code", "status", "value"),
    [
        ("numpy", None, 1, "error", "is not installed: pip install 'numpy>=1.26'"),
        ("numpy", "1.25.9+cpu", 1, "error", "1.25.9+cpu is too old: pip install 'numpy>=1.26'"),
        ("numpy", "1.26.0rc1", 1, "error", "1.26.0rc1 is too old: pip install 'numpy>=1.26'"),
        ("numpy", "1.26", 0, "ok", "1.26"),
        ("numpy", "1.26.0+cpu", 0, "ok", "1.26.0+cpu"),
        ("numpy", "3.0.0rc1", 0, "ok", "3.0.0rc1"),
        ("scikit-learn", None, 0, "note", "scikit-learn missing: pip install 'bertkit[sklearn]'"),
        ("scikit-learn", "1.3.9", 0, "note", "scikit-learn too old: pip install 'bertkit[sklearn]'"),
        ("scikit-learn", "1.10", 0, "ok", "scikit-learn 1.10"),
    ],
)
def test_missing_or_outdated_packages(capsys, monkeypatch, quick, name, here, code, status, value):
    def version(asked: str) -> str:
        if asked == name and here is None:
            raise importlib.metadata.PackageNotFoundError(asked)
        return here if asked == name else importlib.metadata.version(asked)

    monkeypatch.setattr(doctor, "version", version)
    ended, results, _ = call(capsys)
    row = results["extras", "sklearn"] if name == "scikit-learn" else results["software", name]
    assert (ended, row["status"], row["value"]) == (code, status, value)


def test_failed_part_is_an_error_and_the_others_are_shown(capsys, monkeypatch, quick):
    def broken() -> str:
        raise OSError("libtorch_cpu.so: cannot open shared object file")

    monkeypatch.setattr("bertkit.device.cpu_name", broken)
    code, results, _ = call(capsys)
    assert code == 1 and results["machine", "system"]["status"] == "ok" and "caches" in {part for part, _ in results}
    assert results["machine", "failed"]["value"] == "OSError: libtorch_cpu.so: cannot open shared object file"


def test_caches_that_cannot_be_written_are_warnings(capsys, monkeypatch, quick, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(
        "bertkit.transformer.kernels.rows.activate_rows",
        SimpleNamespace(stats=SimpleNamespace(cache_path=None)),
    )
    code, results, said = call(capsys)
    assert code == 0 and ", 2 warnings, " in said
    assert results["caches", "precision='auto'"]["value"].endswith("precision cannot be written")
    assert "set NUMBA_CACHE_DIR" in results["caches", "machine code"]["value"]
    assert results["caches", "models of the hub"] == {
        "part": "caches", "name": "models of the hub", "status": "ok", "value": f"{tmp_path / 'hub'} (not created yet)",
    }  # fmt: skip


@pytest.mark.full
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the variable names x86 instruction sets")
def test_instruction_sets_of_onednn(monkeypatch):
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "SSE41")
    assert doctor._onednn_instruction_sets() == "Intel SSE4.1"
    monkeypatch.setattr(doctor.sys, "executable", "false")
    assert doctor._onednn_instruction_sets() == "not known"


def test_reason_for_slower_kernels(monkeypatch):
    monkeypatch.setattr(dispatch, "multiplies_panels_fast", lambda precision: False)
    monkeypatch.setattr(dispatch, "has_fast_bfloat16", lambda: False)
    monkeypatch.setattr(dispatch, "multiplies_pairs_fast", lambda: False)
    monkeypatch.setattr(dispatch, "_has_exact_int8", lambda: False)
    slower = [dispatch.linear_for(precision) for precision in ("bfloat16", "int8")]
    assert [each.linear for each in slower] == [CompiledBFloat16Linear, CompiledInt8Linear]
    assert "lacks fast bfloat16 instructions" in slower[0].reason and not slower[0].is_fast
    assert slower[1].is_fast and "does not multiply int8 exactly on this processor" in slower[1].reason
    monkeypatch.setattr(dispatch, "has_onednn", lambda operation: False)
    assert "this build of torch lacks onednn::qlinear_pointwise" in dispatch.linear_for("int8").reason
    rows = {name: (status, value) for name, status, value in doctor._kernels()}
    assert rows["float64"][0] == "ok" and rows["float32"][0] == "ok" and "lacks mkldnn" in rows["float32"][1]
    assert re.match("up to (48|128) tokens in float32", rows["short texts"][1])
    for module in (dispatch, weights):
        for name in ("has_fused_multiplication", "has_wide_registers"):
            monkeypatch.setattr(module, name, lambda *feature: False)
    rows = {name: (status, value) for name, status, value in doctor._kernels()}
    for precision in ("float32", "int8"):
        assert rows[precision][0] == "note" and "torch's slower products" in rows[precision][1]
    assert rows["short texts"][1].startswith("layer by layer: this processor lacks fused multiplications")


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the names are those of x86")
def test_instruction_sets(capsys, monkeypatch, quick):
    features = {"avx2": True, "avx512f": True, "fma": False, "amx-bf16": True, "sse4.2": True}
    instruction_sets.instruction_sets.cache_clear()
    monkeypatch.setattr(instruction_sets.llvmlite.binding, "get_host_cpu_features", lambda: features)
    assert call(capsys)[1]["machine", "instruction sets"]["value"] == "avx2 avx512f amx-bf16"
    instruction_sets.instruction_sets.cache_clear()


def test_instruction_sets_of_arm():
    assert instruction_sets.features_of(ARM) == {"fp", "asimd", "asimddp", "sve", "bf16", "i8mm"}
    assert instruction_sets.features_of("") == set()


def test_relevant_variables_are_shown_without_secrets(capsys, monkeypatch, quick):
    monkeypatch.setenv("ONEDNN_VERBOSE", "0")  # harmless where oneDNN first runs here
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    _, results, _ = call(capsys)
    assert "ONEDNN_VERBOSE=0" in results["software", "environment"]["value"]
    assert not any("hf_secret" in row["value"] for row in results.values())


def test_tables_on_a_terminal(capsys, monkeypatch, quick):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert run(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["part", "name", "status", "value"]
    assert len([line for line in lines if not line]) == len(doctor._PARTS)
