"""The format number of files that only bertkit reads, such as a store, a shard or a run; pointers instead of files."""

from pathlib import Path

from bertkit.errors import BertkitError, CheckpointError


def check_format(number: object, expected: int, where: str | Path, remedy: str, error: type[BertkitError]) -> None:
    """Check that files have the format that this version reads.

    Args:
        number: the format in the files; of files without one, anything else, such as None.
        expected: the number that this version writes, from 1.
        where: file or folder, for the message.
        remedy: how to make the files again.
        error: class of the exception.

    Raises:
        BertkitError: another number, as ``error``.
    """
    if type(number) is int and number > expected:
        raise error(f"{where} has format {number}, expected {expected}: update bertkit")
    if type(number) is not int or number != expected:
        raise error(f"{where} was not made by this version of bertkit: {remedy}")


def refuse_pointer(path: Path) -> None:
    """Refuse a pointer of Git LFS, a few lines of text that stand for a file of a clone.

    Raises:
        CheckpointError: the file is one.
    """
    with open(path, "rb") as file:
        if file.read(24) == b"version https://git-lfs.":
            raise CheckpointError(f"{path} is a pointer of Git LFS, without content: run git lfs pull in its folder")
