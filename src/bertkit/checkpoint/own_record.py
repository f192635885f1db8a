"""``bertkit.json``: what only bertkit reads of a model folder, in sections such as "task" and "provenance"."""

from pathlib import Path
from typing import Any

from bertkit.errors import CheckpointError
from bertkit.files.formats import check_format
from bertkit.files.json_files import member, read_json, write_json

NAME = "bertkit.json"
FORMAT = 1


def read_record(folder: Path) -> dict[str, Any] | None:
    """The sections of the record in a folder; None if there is none.

    Raises:
        CheckpointError: the file is not JSON, or was written by another version.
    """
    record = read_json(folder / NAME)
    if record is not None:
        check_format(record.pop("format", None), FORMAT, folder / NAME, "make the model again", CheckpointError)
    return record


def read_section(folder: Path, name: str) -> dict[str, Any] | None:
    """A section of the record in a folder; None if there is none.

    Raises:
        CheckpointError: as `read_record`, or the section is not an object.
    """
    return member(read_record(folder) or {}, name, dict, folder / NAME)


def write_record(folder: Path, sections: dict[str, Any]) -> None:
    """Write the record of a folder."""
    write_json(folder / NAME, {"format": FORMAT, **sections})


def change_section(folder: Path, name: str, content: dict[str, Any]) -> None:
    """Replace one section of the record in a folder, or add it; the file is replaced whole.

    Raises:
        CheckpointError: as `read_record`.
    """
    write_record(folder, {**(read_record(folder) or {}), name: content})
