"""bertkit doctor"""

import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertkit.cli.output import emit, note
from bertkit.errors import DependencyError
from bertkit.later import torch

if TYPE_CHECKING:
    from packaging.requirements import Requirement

_INSTRUCTION_SETS = (
    "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vnni", "avx512bf16", "avx512fp16", "avxvnni",
    "amx-bf16", "amx-int8", "amx-fp16", "asimd", "asimddp", "i8mm", "bf16", "sve", "sve2", "sme",
)  # fmt: skip
"""Instruction sets that decide which kernels run."""

_VARIABLES = re.compile(
    r"(BERTKIT|ONEDNN|DNNL|ATEN|MKL|OMP|GOMP|KMP|NUMBA|CUDA)_\w+|HF_HOME|HF_HUB_CACHE|HF_HUB_OFFLINE|XDG_CACHE_HOME"
)
"""Environment variables that affect computation, cache folders or speed; none holds a secret."""

_LIBRARIES = {
    "MKL": r"Math Kernel Library Version ([\d.]+)",
    "oneDNN": r"MKL-DNN v?(\S+)",
    "OpenMP": r"OpenMP (\d+)",
}
"""Libraries in torch's build description, and the pattern of their versions."""


@dataclass(frozen=True)
class Finding:
    """One line of the report."""

    part: str
    name: str
    status: str  # "ok"; "note": nothing is wrong, but something optional is missing; "warning"; "error": exit code 1
    value: str


def command() -> None:
    """Check this machine and installation; attach the output to bug reports.

    Shows processor and instruction sets, versions, the kernel of each precision on the CPU and why, missing extras and
    how to install them, and caches; checks that vectors and logits are bit-identical regardless of the other texts of a
    batch. The first run compiles the kernels, which takes about a minute. Ends with exit code 1 if something is wrong.
    """
    counts = dict.fromkeys(("error", "warning", "note"), 0)
    for part in _PARTS:  # print each before checking the next, which may end the process
        findings = list(_findings(part))
        emit(asdict(finding) for finding in findings)
        if sys.stdout.isatty():
            print()
        sys.stdout.flush()
        for status in counts:
            counts[status] += sum(finding.status == status for finding in findings)
    note(", ".join(f"{count} {status}{'' if count == 1 else 's'}" for status, count in counts.items()))
    if counts["error"]:
        sys.exit(1)


def _findings(part: str) -> Iterator[Finding]:
    """The findings of one part; an exception becomes an error row, so that the other parts still run."""
    try:
        for name, status, value in _PARTS[part]():
            yield Finding(part, name, status, value)
    except DependencyError as error:
        yield Finding(part, "torch", "note", str(error))
    except Exception as error:  # a broken installation can raise anything
        yield Finding(part, "failed", "error", f"{type(error).__name__}: {error}")


Look = Callable[[], Iterator[tuple[str, str, str]]]
"""Functions that yield name, status and value."""


def _machine() -> Iterator[tuple[str, str, str]]:
    from bertkit.device import cpu_name
    from bertkit.executor import num_threads
    from bertkit.tokenizer.workspaces import num_processors
    from bertkit.transformer.kernels.instruction_sets import instruction_sets

    yield "system", "ok", platform.platform()
    yield "cores", "ok", f"{num_processors()} usable of {os.cpu_count()}"
    sets = [name for name in _INSTRUCTION_SETS if name in instruction_sets()]
    yield "instruction sets", "ok", " ".join(sets) or f"not known ({platform.machine()})"
    yield "processor", "ok", cpu_name()
    yield "threads", "ok", str(num_threads())
    yield _gpu()


def _gpu() -> tuple[str, str, str]:
    if torch.cuda.is_available():
        devices = [torch.cuda.get_device_properties(number) for number in range(torch.cuda.device_count())]
        shown = ", ".join(f"{device.name}, {device.total_memory / 2**30:.0f} GiB" for device in devices)
        return "GPU", "ok", f"{shown} (CUDA {torch.version.cuda or torch.version.hip})"
    if torch.backends.mps.is_available():
        return "GPU", "ok", "Apple's, as device mps"
    if Path("/dev/nvidiactl").exists():
        return "GPU", "warning", f"torch {torch.__version__} does not see the GPU: install a build of torch for CUDA"
    return "GPU", "ok", "none"


def _software() -> Iterator[tuple[str, str, str]]:
    yield "python", "ok", f"{platform.python_version()} ({sys.executable})"
    installed = distribution("bertkit")
    yield "bertkit", "ok", f"{installed.version} ({Path(__file__).parents[1]})"
    for requirement in _requirements(installed)[""]:
        status, value = _state(requirement)
        yield requirement.name, "ok" if status == "ok" else "error", value
    variables = [f"{name}={value}" for name, value in sorted(os.environ.items()) if _VARIABLES.fullmatch(name)]
    yield "environment", "ok", " ".join(variables) or "no variable that affects the results"


def _libraries() -> Iterator[tuple[str, str, str]]:
    import llvmlite.binding

    yield "numba", "ok", f"compiles for {os.environ.get('NUMBA_CPU_NAME') or llvmlite.binding.get_host_cpu_name()}"
    build = torch.__config__.show()
    for name, pattern in _LIBRARIES.items():
        match = re.search(pattern, build)
        yield name, "ok", match[1] if match else "not in this build of torch"
    yield "oneDNN uses", "ok", _onednn_instruction_sets()


def _onednn_instruction_sets() -> str:
    """Those that oneDNN detects and ONEDNN_MAX_CPU_ISA permits, by the log of another process."""
    result = subprocess.run(
        [sys.executable, "-c", "import torch; torch.ones(2, 2).to_mkldnn()"],
        env={**os.environ, "ONEDNN_VERBOSE": "1"}, capture_output=True, text=True,
    )  # fmt: skip
    match = re.search(r"info,cpu,isa:(.+)", result.stdout)
    return match[1] if match else "not known"


def _state(requirement: "Requirement") -> tuple[str, str]:
    """The status of a package, "ok" or a problem; and the version, or how to install it."""
    asked = f"{requirement.name}{requirement.specifier}"
    try:
        here = version(requirement.name)
    except PackageNotFoundError:
        return "missing", f"is not installed: pip install '{asked}'"
    if not requirement.specifier.contains(here, prereleases=True):
        return "too old", f"{here} is too old: pip install '{asked}'"
    return "ok", here


def _requirements(installed: Distribution) -> "dict[str, list[Requirement]]":
    """Requirements of a package, by extra; "" for those without an extra."""
    from packaging.requirements import Requirement

    extras = installed.metadata.get_all("Provides-Extra", [])
    requirements: dict[str, list[Requirement]] = {extra: [] for extra in ("", *extras)}
    for requirement in map(Requirement, installed.requires or ()):
        marker = requirement.marker
        extra = "" if marker is None else next(one for one in extras if marker.evaluate({"extra": one}))
        requirements[extra].append(requirement)
    return requirements


def _kernels() -> Iterator[tuple[str, str, str]]:
    from bertkit.transformer.few_rows.weights import kernel_of_short_texts
    from bertkit.transformer.kernels.dispatch import kernels_here

    for row in kernels_here():
        yield row.step, "ok" if row.is_fast else "note", row.value
    yield "short texts", "ok", kernel_of_short_texts()


def _equality() -> Iterator[tuple[str, str, str]]:
    from bertkit.device import CPU_PRECISIONS, GPU_PRECISIONS
    from bertkit.inference.equality import check_equality
    from bertkit.transformer.kernels.choices import BATCH_INVARIANT, is_batch_invariant

    checked = [(precision, "cpu") for precision in CPU_PRECISIONS]
    if torch.cuda.is_available():
        if is_batch_invariant(torch.device("cuda")):
            checked += [(precision, "cuda") for precision in GPU_PRECISIONS]
        else:
            yield "cuda", "note", f"bits depend on the batch; not with {BATCH_INVARIANT}=1, which can take longer"
    for precision, device in checked:
        check, name = check_equality(precision, device), precision if device == "cpu" else f"{precision} on {device}"
        if check.num_different:
            value = f"{check.num_different} of {check.num_texts} differ, by up to {check.largest_difference:.1e}"
            yield name, "error", f"vectors and logits depend on the other texts of a batch: {value}"
        else:
            yield name, "ok", f"{check.num_texts} texts: bit-identical alone, in a batch, and in another order"


def _extras() -> Iterator[tuple[str, str, str]]:
    for extra, requirements in _requirements(distribution("bertkit")).items():
        if not extra:
            continue
        states = {requirement.name: _state(requirement) for requirement in requirements}
        absent = [f"{name} {status}" for name, (status, _) in states.items() if status != "ok"]
        if absent:
            yield extra, "note", f"{', '.join(absent)}: pip install 'bertkit[{extra}]'"
        else:
            yield extra, "ok", ", ".join(f"{name} {here}" for name, (_, here) in states.items())


def _caches() -> Iterator[tuple[str, str, str]]:
    from huggingface_hub import constants

    from bertkit.inference.auto_precision import precision_cache
    from bertkit.transformer.kernels.rows import activate_rows

    dispatcher: Any = activate_rows  # of numba; all kernels share its cache folder
    kept_in = dispatcher.stats.cache_path
    if kept_in is None:
        yield (
            "machine code",
            "warning",
            ("no cache folder is writable, so every process compiles again: set NUMBA_CACHE_DIR to a writable one"),
        )
    else:
        yield "machine code", *_folder(Path(kept_in))
    measured_in = precision_cache()
    if measured_in is None:
        yield "precision='auto'", "warning", "no home folder, so every process measures again: set XDG_CACHE_HOME"
    else:
        yield "precision='auto'", *_folder(measured_in)
    yield "models of the hub", *_folder(Path(constants.HF_HUB_CACHE))


def _folder(folder: Path) -> tuple[str, str]:
    """Status and description of a cache folder."""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if not (there.is_dir() and os.access(there, os.W_OK | os.X_OK)):
        return "warning", f"{folder} cannot be written"
    return "ok", str(folder) if there == folder else f"{folder} (not created yet)"


_PARTS: dict[str, Look] = {
    "machine": _machine,
    "software": _software,
    "libraries": _libraries,
    "kernels": _kernels,
    "equality": _equality,
    "extras": _extras,
    "caches": _caches,
}
