"""Files and folders are written whole, wherever an interruption arrives."""

import dis
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from full_disk import files_end_after
from safetensors.numpy import save_file

import bertkit.files.whole_files
from bertkit.errors import UsageError
from bertkit.files.whole_files import check_folder_writable, check_writable, whole_file, whole_folder


def write_file(path: Path) -> None:
    with whole_file(path) as temporary:
        temporary.write_text("new")


def write_folder(path: Path) -> None:
    with whole_folder(path, overwrite=True) as temporary:
        (temporary / "one").write_text("new")
        (temporary / "two").write_text("new")


_OUTSIDE_OF_TRY = ("POP_JUMP", "NOT_TAKEN", "JUMP_BACKWARD")
"""Opcodes that Python 3.14 leaves out of the ``try`` blocks that they are in: there ``finally`` does not run."""


def interrupted_at_every_opcode(write: Callable[[], None]) -> Iterator[None]:
    """Call a function again and again, raising KeyboardInterrupt one opcode of ``whole_files`` later each time, as a
    signal would; yield after each call that was interrupted."""
    source, due = bertkit.files.whole_files.__file__, 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal due
        if frame.f_code.co_filename != source:
            return None
        frame.f_trace_opcodes = True
        name = dis.opname[frame.f_code.co_code[frame.f_lasti]]
        if event == "opcode" and not name.startswith(_OUTSIDE_OF_TRY):
            due -= 1
            if due == 0:
                raise KeyboardInterrupt
        return trace

    for number in range(1, 10_000):
        due, before = number, sys.gettrace()
        sys.settrace(trace)
        try:
            write()
        except KeyboardInterrupt:
            sys.settrace(before)
            yield
        else:
            if due > 0:
                return  # it was done before
        finally:
            sys.settrace(before)


@pytest.mark.parametrize("exists", [False, True])
def test_interrupted_file_is_the_old_or_the_new_one(exists: bool, tmp_path: Path) -> None:
    path = tmp_path / "file"
    outcomes: list[str | None] = []

    def write() -> None:
        path.unlink(missing_ok=True)
        if exists:
            path.write_text("old")
        write_file(path)

    for _ in interrupted_at_every_opcode(write):
        outcomes.append(path.read_text() if path.exists() else None)
        assert [file for file in tmp_path.iterdir() if file != path] == []
    assert set(outcomes) == {"old" if exists else None, "new"}
    assert len(outcomes) > 50


def test_folder_that_another_process_puts_there_meanwhile_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a system that cannot exchange the names of two folders."""
    path, replace = tmp_path / "folder", os.replace
    write_folder(path)

    def replace_meanwhile(source: Path, target: Path) -> None:
        replace(source, target)
        if target.name.endswith(".old"):
            path.mkdir()
            (path / "three").write_text("of another process")

    monkeypatch.setattr(bertkit.files.whole_files, "_exchange", lambda a, b: False)
    monkeypatch.setattr(os, "replace", replace_meanwhile)
    with pytest.raises(OSError, match="not empty"):
        write_folder(path)
    assert [folder.name for folder in tmp_path.iterdir()] == ["folder"] and [*path.iterdir()] == [path / "three"]


@pytest.mark.full
@pytest.mark.parametrize(("exists", "exchanges"), [(False, True), (True, True), (True, False)])
def test_interrupted_folder_is_the_old_or_the_new_one(
    exists: bool, exchanges: bool, tmp_path: Path, monkeypatch
) -> None:
    path = tmp_path / "folder"
    if not exchanges:
        monkeypatch.setattr(bertkit.files.whole_files, "_exchange", lambda a, b: False)
    outcomes: list[dict[str, str] | None] = []
    new = {"one": "new", "two": "new"}

    def write() -> None:
        for folder in tmp_path.iterdir():
            shutil.rmtree(folder)
        if exists:
            path.mkdir()
            (path / "three").write_text("old")
        write_folder(path)

    for _ in interrupted_at_every_opcode(write):
        outcomes.append({file.name: file.read_text() for file in path.iterdir()} if path.exists() else None)
        left = [folder.name for folder in tmp_path.iterdir() if folder != path]
        if outcomes[-1] == new:  # the replaced folder is being removed
            left = [name for name in left if not name.endswith(".partial" if exchanges else ".old")]
        assert left == []
    expected = [{"three": "old"} if exists else None, new]
    assert all(outcome in expected for outcome in outcomes)
    assert all(outcome in outcomes for outcome in expected)
    assert len(outcomes) > 50


@pytest.mark.parametrize("name", ["file", "file/folder", "file/more/folder"])
def test_folder_in_place_of_a_file_or_below_one_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    with pytest.raises(UsageError, match=f"cannot write the folder {tmp_path / name}: {tmp_path}/file is not a folder"):
        write_folder(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.skipif(sys.platform == "win32", reason="no locks of files")
@pytest.mark.parametrize("is_folder", [False, True])
def test_what_killed_processes_left_is_removed_but_not_what_others_write(is_folder: bool, tmp_path: Path) -> None:
    def left(number: int, seconds: float) -> Path:
        path = tmp_path / f".{name}.{number:016x}.partial"
        if is_folder:
            write_folder(path)
        else:
            path.write_text("a")
        os.utime(path, (time.time() - seconds,) * 2)
        return path

    name, write = ("folder", whole_folder) if is_folder else ("file", whole_file)
    killed, new, other = left(1, 100), left(2, 10), tmp_path / f".{name}.notes.partial"
    other.touch()
    os.utime(other, (0, 0))
    with write(tmp_path / name) as slow:
        os.utime(slow, (0, 0))
        with write(tmp_path / name) as file:
            assert {path for path in tmp_path.iterdir() if path != killed} == {new, other, slow, file}
            assert not killed.exists()
            if not is_folder:
                file.touch()
    assert (tmp_path / name).exists() and not slow.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux exchanges the names of two folders")
def test_a_folder_is_replaced_in_one_step(tmp_path: Path, monkeypatch) -> None:
    write_folder(tmp_path / "folder")
    monkeypatch.setattr(os, "replace", None)  # no moment without a folder
    write_folder(tmp_path / "folder")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


@pytest.mark.skipif(sys.platform == "win32", reason="no pipes with names")
def test_pipe_named_like_a_temporary_file_is_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / ".file.0123456789abcdef.partial"
    os.mkfifo(pipe)
    os.utime(pipe, (0, 0))
    signal.alarm(5)
    try:
        with whole_file(tmp_path / "file") as file:
            file.write_text("a")
    finally:
        signal.alarm(0)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_root_of_a_disk_is_no_folder_to_write() -> None:
    for write in (check_folder_writable, write_folder):
        with pytest.raises(UsageError, match="it is the root of a disk; choose a folder in it"):
            write(Path(Path.cwd().anchor))


def test_a_folder_without_permission_is_refused_before_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, link = tmp_path / "values.npy", tmp_path / "link"
    link.symlink_to("/dev/null")
    monkeypatch.setattr(os, "access", lambda folder, _mode: folder != tmp_path)
    for write, what in ((check_writable, file), (check_folder_writable, f"the folder {file}")):
        with pytest.raises(UsageError, match=f"^cannot write {what}: {tmp_path} is not writable; choose another path$"):
            write(file)
    check_writable(link)  # a device, which is not replaced


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(OSError, match=r"a\.txt") as error, files_end_after(10_000), whole_file(path) as temporary:
        temporary.write_bytes(bytes(100_000))
    assert error.value.filename == str(path) and path.read_text() == "old"
    with pytest.raises(OSError, match="/dev/full"), whole_file("/dev/full") as same, open(same, "w") as file:
        file.write("x" * 100_000)


@pytest.mark.parametrize("library", ["numpy", "safetensors"])
def test_full_disk_is_named_for_every_library(library: str, tmp_path: Path) -> None:
    values, target = np.zeros(20_000, np.float32), tmp_path / "values"
    full = pytest.raises(OSError, match=f"(too large|on device), make room on its disk: '{target}'$")
    with full, files_end_after(30_000), whole_file(target) as temporary:
        values.tofile(temporary) if library == "numpy" else save_file({"values": values}, temporary)
    assert not list(tmp_path.iterdir())
