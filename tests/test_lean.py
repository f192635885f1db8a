"""Lean imports, fast help, atomic output."""

import os
import resource
import subprocess
import sys
import textwrap

import pytest

from bertkit.cli import COMMANDS
from bertkit.errors import UsageError
from bertkit.files.whole_files import whole_file, whole_folder

HEAVY = ("torch", "numpy", "tokenizers", "safetensors", "huggingface_hub", "numba")


def python(code: str) -> str:
    result = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_importing_bertkit_loads_nothing_heavy():
    loaded = python(f"import sys, bertkit; print([name for name in {HEAVY} if name in sys.modules])")
    assert loaded == "[]\n"


def test_help_loads_nothing_heavy():
    loaded = python(
        f"""
        import sys
        from bertkit.cli import run
        run(["--help"])
        print([name for name in {HEAVY} if name in sys.modules])
        """
    )
    assert loaded.endswith("\n[]\n")


@pytest.mark.slow  # processor time of a machine that does nothing else; what is loaded is tested above
def test_help_adds_at_most_30_ms_to_an_empty_program():
    empty = f"""
        from cyclopts import App
        app = App(name="empty", help="Nothing.", version="0", help_formatter="plain")
        for name in {list(COMMANDS)}:
            app.command("nowhere:nothing", name=name, help="Nothing at all.")
        app(["--help"], result_action="return_value")
        """
    ours = 'from bertkit.cli import run\nrun(["--help"])'
    seconds: dict[str, list[float]] = {empty: [], ours: []}
    for turn in range(40):  # the least of each: other programs only ever add time, so a busy machine needs more turns
        for code, taken in seconds.items():
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            python(code)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            taken.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        if turn >= 8 and min(seconds[ours]) - min(seconds[empty]) <= 0.030:
            return
    raise AssertionError(f"{min(seconds[ours])} seconds, an empty program {min(seconds[empty])}")


def test_file_is_written_atomically(tmp_path):
    path = tmp_path / "result.txt"
    with whole_file(path) as temporary:
        temporary.write_text("first")
        assert not path.exists()
    assert path.read_text() == "first"
    with pytest.raises(KeyboardInterrupt), whole_file(path) as temporary:
        temporary.write_text("half of the sec")
        raise KeyboardInterrupt
    assert path.read_text() == "first"
    assert [file.name for file in tmp_path.iterdir()] == ["result.txt"]
    with pytest.raises(UsageError, match="does not exist"), whole_file(tmp_path / "nowhere" / "a"):
        pass


def test_permissions_of_a_file_are_kept(tmp_path):
    path = tmp_path / "result.txt"
    with whole_file(path) as temporary:
        temporary.write_text("first")
    mask = os.umask(0)
    os.umask(mask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~mask
    path.chmod(0o600)
    with whole_file(path) as temporary:
        temporary.write_text("second")
    assert path.stat().st_mode & 0o777 == 0o600 and path.read_text() == "second"


def test_links_are_followed_and_pipes_written_to(tmp_path):
    target, link, pipe = tmp_path / "target.txt", tmp_path / "link.txt", tmp_path / "pipe"
    link.symlink_to(target.name)
    for content in ("first", "second"):
        with whole_file(link) as temporary:
            temporary.write_text(content)
        assert link.is_symlink() and target.read_text() == content
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with whole_file(pipe) as special:
            special.write_text("text")
        assert os.read(reader, 100) == b"text" and pipe.is_fifo()
    finally:
        os.close(reader)
    astray = tmp_path / "astray"
    astray.symlink_to(tmp_path / "nowhere" / "a")
    with pytest.raises(UsageError, match=r"nowhere/a: the folder .* does not exist"), whole_file(astray):
        pass


def test_folder_is_written_atomically(tmp_path):
    path = tmp_path / "model"
    with pytest.raises(RuntimeError), whole_folder(path) as folder:
        (folder / "half").write_text("x")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
    with whole_folder(path) as folder:
        (folder / "a").write_text("1")
    with pytest.raises(UsageError, match="overwrite=True"), whole_folder(path, overwrite=False):
        pass
    with pytest.raises(UsageError, match=r"or remove it$"), whole_folder(path):  # the caller has no such option
        pass
    with pytest.raises(RuntimeError), whole_folder(path, overwrite=True) as folder:
        raise RuntimeError
    assert (path / "a").read_text() == "1"
    with whole_folder(path, overwrite=True) as folder:
        (folder / "b").write_text("2")
    assert [file.name for file in path.iterdir()] == ["b"]
    assert [file.name for file in tmp_path.iterdir()] == ["model"]


def test_killed_writer_leaves_no_partial_file(tmp_path):
    """kill -9 while writing: the old content is kept, and leftovers have a temporary name."""
    path = tmp_path / "result.txt"
    path.write_text("old")
    code = f"""
        import os, signal
        from bertkit.files.whole_files import whole_file
        with whole_file({str(path)!r}) as temporary:
            temporary.write_text("new, but hal")
            os.kill(os.getpid(), signal.SIGKILL)
        """
    assert subprocess.run([sys.executable, "-c", textwrap.dedent(code)]).returncode == -9
    assert path.read_text() == "old"
    assert all(file.name.endswith(".partial") for file in tmp_path.iterdir() if file != path)
