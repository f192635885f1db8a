"""The common parts of all benchmarks: options, description of the machine, and one JSON file with its tables."""

import argparse
import json
import os
import platform
import re
from collections import Counter
from collections.abc import Collection
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from turns import say
from worker import limit_threads

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bertkit-benchmarks"
"""Cache folder of models, texts and runs that take long to create."""

_PACKAGES = (
    *("bertkit", "torch", "numpy", "numba", "tokenizers"),
    *("transformers", "accelerate", "sentence-transformers", "ctranslate2", "openvino", "nncf"),
)
_CPU_FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8")


def require_fast(precision: str) -> None:
    """Check that a precision is worth measuring with torch's own products.

    Raises:
        RuntimeError: bfloat16 on a CPU without instructions for it, where torch takes ten times as long as in float32.
    """
    from bertkit.transformer.kernels.linear import has_bfloat16

    if precision == "bfloat16" and not has_bfloat16():
        raise RuntimeError("this CPU lacks bfloat16 instructions, and torch emulates them")


def begin(benchmark: str, parser: argparse.ArgumentParser, *, threads: int = 2) -> tuple[dict, argparse.Namespace]:
    """Add the options of every benchmark and read all options; the results start with date and machine."""
    parser.add_argument("--rounds", type=int, default=3, help="turns of each system after its warm-up")
    parser.add_argument("--threads", type=int, default=threads, help="of each system")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results", help="folder of the results")
    options = parser.parse_args()
    if options.rounds < 1 or options.threads < 1:
        parser.error("expected numbers of at least 1")
    limit_threads(options.threads)
    results = {"benchmark": benchmark} | circumstances(options.threads)
    if results["load_average_before"] > 0.5:
        say(f"load average {results['load_average_before']}: figures taken on a busy machine mean little")
    return results, options


def finish(results: dict, text: str, out: Path) -> Path:
    """Print the text and write it, with the results, to a folder; returns the text's file."""
    text = text.rstrip() + "\n"
    print(text)
    path = write(results, text, out)
    say(f"written: {path}")
    return path


def skipped_lines(results: dict) -> list[str]:
    return [f"- {name}: skipped, {reason}" for name, reason in results["skipped"].items()]


def circumstances(threads: int) -> dict:
    """Machine, versions and date; no host name, no paths."""
    info = _cpuinfo()
    name = info.get("model name") or platform.processor() or platform.machine()
    if "cpu family" in info:
        name += f" (family {info['cpu family']} model {info['model']})"
    return {
        "date": date.today().isoformat(),
        "cpu": name,
        "cpu_flags": [flag for flag in _CPU_FLAGS if flag in info.get("flags", "").split()],
        "num_cores": os.cpu_count(),
        "num_threads": threads,
        "load_average_before": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "versions": {package: found for package in _PACKAGES if (found := _version(package))},
    }


def machine(results: dict) -> str:
    """The machine and versions in two lines of text."""
    versions = results["versions"].items()
    return (
        f"{_processor(results)}; load average before: {results['load_average_before']}.\n"
        f"Python {results['python']}, " + ", ".join(f"{name} {found}" for name, found in versions) + "."
    )


def _processor(results: dict) -> str:
    flags = ", ".join(results["cpu_flags"]) or "x86 flags unknown"
    return f"{results['cpu']}, {results['num_cores']} cores, {flags}; {results['num_threads']} threads for each system"


def heading(title: str, results: dict, runs: Collection[dict] = ()) -> list[str]:
    """The first lines of a text: title, date and machine; with ``runs``, which may be of other machines, their
    processors."""
    numbers = sorted(Counter(map(_processor, runs)).items())
    described = [f"- runs on {processor}: {number}" for processor, number in numbers] or [machine(results)]
    return [f"# {title}, {results['date']}", "", *described, ""]


def markdown_table(header: list[str], *rows: list[str]) -> str:
    """A Markdown table with columns of equal width, the first aligned left, the others right."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    cells = [[cell.rjust(width) for cell, width in zip(row, widths, strict=True)] for row in (header, *rows)]
    lines = [" | ".join([row[0].strip().ljust(widths[0]), *row[1:]]) for row in cells]
    rule = " | ".join(["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])])
    return "\n".join(f"| {line} |" for line in (lines[0], rule, *lines[1:]))


def write(results: dict, table: str, out: Path) -> Path:
    """Write ``<benchmark>-<cpu>-<date>.json`` and ``.md``; returns the second."""
    out.mkdir(parents=True, exist_ok=True)
    path = _path(results, out)
    path.with_suffix(".json").write_text(json.dumps(results, indent=1) + "\n")
    path.with_suffix(".md").write_text(table)
    return path.with_suffix(".md")


def earlier_systems(results: dict, out: Path, *same: str, name: str = "systems") -> dict:
    """The results of an earlier run on the same day, so that each system can be measured in a separate run.

    Args:
        same: names of results that must be equal.
        name: name of the results by system.
    """
    path = _path(results, out).with_suffix(".json")
    earlier = json.loads(path.read_text()) if path.exists() else {}
    return earlier[name] if earlier and all(earlier[each] == results[each] for each in same) else {}


def _path(results: dict, out: Path) -> Path:
    slug = re.sub(r"[^a-z0-9]+", "-", results["cpu"].lower()).strip("-")
    return out / f"{results['benchmark']}-{slug}-{results['date']}"


def _cpuinfo() -> dict[str, str]:
    try:
        lines = Path("/proc/cpuinfo").read_text().partition("\n\n")[0].splitlines()
    except OSError:
        return {}
    return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
