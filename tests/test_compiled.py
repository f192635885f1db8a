"""Cached machine code: reused by later processes, per processor, written atomically, and optional."""

import os
import platform
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bertkit import machine_code

pytestmark = pytest.mark.full

SOURCE = """
from bertkit.compiled import compiled

@compiled
def half(x):
    return x / 2

@compiled
def quarter(x):
    return half(half(x))
"""
REPORT = "print(*(sum(f.stats.cache_hits.values()) for f in (tiny.half, tiny.quarter)))"
"""How many signatures of each were read, not compiled."""


def command(folder: Path, code: str, **environment: str) -> dict:
    """The command of a process that imports the source as ``tiny``."""
    base = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    paths = os.pathsep.join([str(folder), *filter(None, [base.get("PYTHONPATH")])])
    base |= {"PYTHONPATH": paths, "XDG_CACHE_HOME": str(folder / "user"), "PYTHONDONTWRITEBYTECODE": "1"}
    return {"args": [sys.executable, "-c", f"import tiny\n{code}"], "env": base | environment}


def run(folder: Path, code: str, **environment: str) -> tuple[str, str]:
    done = subprocess.run(**command(folder, code, **environment), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr


def kept(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.nbc"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tiny.py").write_text(SOURCE)
    return tmp_path


def test_empty_folder_is_filled_and_read(folder: Path) -> None:
    code = f"print(tiny.quarter(3.0)); {REPORT}"
    assert run(folder, code) == ("0.75\n0 0", "")
    assert [file.name.split(".")[0] for file in kept(folder / "__pycache__")] == ["tiny-quarter"]  # contains the other
    assert run(folder, code) == ("0.75\n0 1", "")
    (damaged,) = kept(folder)
    damaged.write_bytes(damaged.read_bytes()[:99])  # as a failing disk leaves it
    assert run(folder, code) == ("0.75\n0 0", "")
    assert run(folder, code) == ("0.75\n0 1", "")


def test_edit_compiles_again_and_removes_the_old(folder: Path) -> None:
    run(folder, "tiny.quarter(3.0)")
    before = kept(folder)
    (folder / "tiny.py").write_text(SOURCE.replace("x / 2", "x / 4"))
    assert run(folder, "print(tiny.quarter(3.0))")[0] == "0.1875"
    assert len(kept(folder)) == 1 and not {*before} & {*kept(folder)}


def test_source_folder_that_cannot_be_written(folder: Path) -> None:
    (folder / "__pycache__").write_text("a file where the folder should be")
    code = f"print(tiny.half(3.0)); {REPORT}"
    assert run(folder, code) == ("1.5\n0 0", "")
    assert run(folder, code) == ("1.5\n1 0", "")
    assert [file.parent.parent for file in kept(folder)] == [folder / "user" / "bertkit" / "machine_code"]


def test_unwritable_cache_folders_warn_once(folder: Path) -> None:
    for name in ("__pycache__", "user"):
        (folder / name).write_text("a file where the folder should be")
    output, messages = run(folder, f"print(tiny.quarter(3.0), tiny.half(3)); {REPORT}")
    assert output == "0.75 1.5\n0 0"
    assert messages.count("machine code cannot be kept") == messages.count("Warning") == 1
    assert str(folder / "__pycache__") in messages and "NUMBA_CACHE_DIR" in messages


def test_full_disk_does_not_stop_compilation(folder: Path) -> None:
    limit = "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    limit += "resource.setrlimit(resource.RLIMIT_FSIZE, (999, resource.RLIM_INFINITY))\n"
    output, messages = run(folder, f"{limit}print(tiny.quarter(3.0))")
    assert output == "0.75" and messages.count("machine code cannot be kept") == 1
    assert [file.name for file in folder.rglob("*") if file.is_file()] == ["tiny.py"]


def test_code_in_a_read_only_folder_is_used(folder: Path) -> None:
    run(folder, "tiny.half(3.0)")
    refuse = "import bertkit.machine_code, errno\ndef refuse(_): raise OSError(errno.EROFS, 'Read-only file system')\n"
    refuse += "bertkit.machine_code.whole_file = refuse\n"
    assert run(folder, f"{refuse}print(tiny.half(3.0)); {REPORT}") == ("1.5\n1 0", "")
    assert "Read-only file system" in run(folder, f"{refuse}tiny.half(3)")[1]


def test_processes_that_start_at_the_same_time_compile_once(folder: Path) -> None:
    numbers = ["3.0", "3", "np.float32(3)"]  # of three types
    code = "import numpy as np; print(*[float(tiny.quarter(x)) for x in ({})])"
    count = "; from bertkit.machine_code import num_compiled; print(num_compiled())"
    orders = [", ".join(numbers[i:] + numbers[:i]) for i in range(3)]
    processes = [
        subprocess.Popen(**command(folder, code.format(order) + count), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for order in orders
    ]
    compilations = 0
    for process in processes:
        output, messages = process.communicate(timeout=240)
        *results, number = output.split()
        assert (results, messages) == ([b"0.75"] * 3, b"")
        compilations += int(number)
    assert compilations == 3  # of a function and the one that it calls, for each type
    assert not [*folder.rglob("*.lock")]
    assert run(folder, code.format(orders[0]) + f"; {REPORT}")[0].splitlines()[-1] == "0 3"


@pytest.mark.skipif(platform.machine() != "x86_64", reason="names a processor of this kind")
def test_each_processor_has_its_own_machine_code(folder: Path) -> None:
    code = f"print(tiny.half(3.0)); {REPORT}"
    haswell = {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": ""}
    assert run(folder, code)[0] == run(folder, code, **haswell)[0] == "1.5\n0 0"
    assert run(folder, code)[0] == run(folder, code, **haswell)[0] == "1.5\n1 0"
    assert len(kept(folder)) == 2


def test_compilation_notice_is_printed_once(folder: Path) -> None:
    code = "from bertkit import machine_code; machine_code._notice._silent_seconds = 0.001\n"
    code += "tiny.quarter(3.0); tiny.half(3)"
    ours, theirs = pty.openpty()
    done = subprocess.run(**command(folder, code), stdout=subprocess.PIPE, stderr=theirs, timeout=120)
    os.close(theirs)
    assert done.returncode == 0 and not done.stdout
    first, last = os.read(ours, 9_999).decode().splitlines()
    assert first == "bertkit: compiling functions once for this processor ..."
    assert re.fullmatch(r"bertkit: compiled 2 functions once for this processor, in \d+ s", last)
    os.close(ours)
    assert run(folder, f"{code}; tiny.half(True)") == ("", "")  # not a terminal


def test_users_without_a_home_folder_get_none(tmp_path, monkeypatch):
    """Otherwise a folder named ~ would be made where the process runs."""
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    assert machine_code._folders(tmp_path / "tiny.py") == [tmp_path / "__pycache__"]


def test_part_is_interpreted_if_called_from_python(tmp_path: Path) -> None:
    """Compiled with its callers only, it has no code of its own to call, before and after they are compiled."""
    source = SOURCE.replace("@compiled\ndef half", "@part\ndef half")
    (tmp_path / "tiny.py").write_text(source.replace("import compiled", "import compiled, part"))
    calls = "import sys; print(tiny.half(3.0), 'numba' in sys.modules, tiny.quarter(3.0), tiny.half(3.0))"
    assert run(tmp_path, calls)[0].split() == ["1.5", "False", "0.75", "1.5"]
    assert [file.name.split(".")[0] for file in kept(tmp_path)] == ["tiny-quarter"]


def test_numba_is_loaded_by_the_first_call(folder: Path) -> None:
    code = "import sys; print('numba' in sys.modules); tiny.quarter(3.0); print('numba' in sys.modules)"
    assert run(folder, code)[0].split() == ["False", "True"]


def test_functions_that_a_process_compiles_are_counted(folder: Path) -> None:
    code = "tiny.quarter(3.0); from bertkit.machine_code import num_compiled; print(num_compiled())"
    assert [run(folder, code)[0] for _ in range(2)] == ["1", "0"]


def test_processes_compile_without_waiting_where_no_file_can_be_locked(folder: Path) -> None:
    refuse = "import errno, fcntl\ndef refuse(*_): raise OSError(errno.ENOLCK, 'No locks available')\n"
    code = f"{refuse}fcntl.flock = refuse\nfrom bertkit import machine_code; machine_code._LONGEST_WAIT = 9_999\n"
    assert run(folder, f"{code}print(tiny.quarter(3.0)); {REPORT}") == ("0.75\n0 0", "")
    assert run(folder, f"{code}print(tiny.quarter(3.0)); {REPORT}") == ("0.75\n0 1", "")
    assert not [*folder.rglob("*.lock")]


def test_process_does_not_wait_for_itself_after_an_error(folder: Path) -> None:
    code = "from numba import TypingError\nfrom bertkit import machine_code; machine_code._LONGEST_WAIT = 9_999\n"
    code += "for _ in range(2):\n    try: tiny.half('text')\n    except TypingError: print('refused')\n"
    assert run(folder, code) == ("refused\nrefused", "")


def test_disabled_compilation_is_refused_in_one_sentence(folder: Path) -> None:
    code = (
        "from bertkit.errors import UsageError\ntry:\n    tiny.half(3)\nexcept UsageError as error:\n    print(error)"
    )
    assert run(folder, code, NUMBA_DISABLE_JIT="1")[0].startswith("NUMBA_DISABLE_JIT is set in the environment")
    assert run(folder, "print(tiny.half(3))", NUMBA_DISABLE_JIT="0")[0] == "1.5"
