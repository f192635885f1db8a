"""Claim the folder of a run: it must be new, or belong to the same run; and name it if its disk is full."""

import json
import math
import os
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bertkit.errors import DataError, TrainingError, UsageError
from bertkit.files.formats import check_format
from bertkit.files.json_files import json_value, read_json, write_json
from bertkit.files.whole_files import FULL_DISK, check_no_file

FORMAT = 1
"""Format of the folders of runs: their settings, progress, checkpoints and metrics."""


@contextmanager
def naming_full_disk(folder: Path) -> Iterator[None]:
    """Raise errors of a full disk with the name of the run's folder.

    Raises:
        TrainingError: the disk is full.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in FULL_DISK:
            raise
        raise TrainingError(
            f"the run {folder} cannot be written ({os.strerror(error.errno)}): make room on its disk, and resume it"
        ) from error


def read_run_settings(record: Path) -> dict[str, Any] | None:
    """The settings of the run with a record; None if there is none.

    Raises:
        CheckpointError: the file is not JSON.
        UsageError: a run of another version.
    """
    settings = read_json(record)
    if settings is not None:
        check_format(settings.pop("format", None), FORMAT, record, "choose another folder", UsageError)
    return settings


def write_run_settings(record: Path, settings: dict[str, Any]) -> None:
    """Write the record of the settings of a run."""
    write_json(record, {"format": FORMAT, **settings})


def claim_run_folder(
    folder: Path, record: Path, settings: dict[str, Any], *, resume: bool, ignored: Collection[str] = ()
) -> bool:
    """Claim a folder for a run, and record its settings; True if the run is new.

    Args:
        record: the file of the settings, in the folder or a subfolder.
        resume: an existing run may be resumed.
        ignored: settings that may differ when resuming, as section.name.

    Raises:
        UsageError: the folder or a parent is a file; or it has other files, another run, one of another version, or
            this run and ``resume`` is false.
    """
    before = read_run_settings(record)
    if before is None:
        check_no_file(folder)
        if not _is_free(folder, record):
            raise UsageError(f"{folder} exists and is not a run: choose another folder")
        record.parent.mkdir(parents=True, exist_ok=True)
        write_run_settings(record, settings)
    elif not resume:
        raise UsageError(f"{folder} already contains a run: pass resume=True to continue it, or choose another folder")
    elif differing := [text for name, text in _differing(before, settings) if name not in ignored]:
        raise UsageError(
            f"{folder} was started with other settings ({'; '.join(differing)}): resume with those, or choose another "
            "folder"
        )
    return before is None


def longer_of(before: dict[str, Any], now: dict[str, Any], names: Collection[str]) -> str | None:
    """The setting, one of ``names``, in which a run is longer than before, with both values; None if it is not, or
    differs in others."""
    old, new = dict(_flat(before)), dict(_flat(now))
    grown = {name: (old.get(name) or math.inf, new.get(name) or 0) for name in names}
    grown = {name: (short, long) for name, (short, long) in grown.items() if long > short}
    if len(grown) != 1 or {name for name, _ in _differing(before, now)} != grown.keys():
        return None
    ((name, (short, long)),) = grown.items()
    return f"{name.rpartition('.')[2]}={long:g} instead of {short:g}"


@contextmanager
def released_if_refused(claimed: Path, has_results: Callable[[], bool]) -> Iterator[None]:
    """Remove the folder of a run whose input is refused before it has results, so that a corrected run can claim it."""
    try:
        yield
    except (DataError, UsageError):
        if not has_results():
            shutil.rmtree(claimed)
        raise


def _is_free(folder: Path, record: Path) -> bool:
    """Whether the folder is empty, or has only files of a run killed before its record was written."""
    if not folder.is_dir():
        return not folder.exists()
    beginnings = f".{record.name}.*.partial"
    return all(path == record.parent or path.match(beginnings) for path in folder.rglob("*"))


def _differing(before: dict[str, Any], now: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Settings that differ: their name, as section.name, and a text with both values."""
    flat_before, flat_now = dict(_flat(before)), dict(_flat(json.loads(json.dumps(json_value(now)))))
    for name in sorted(flat_before.keys() | flat_now.keys()):
        value, other, data = flat_before.get(name), flat_now.get(name), name.removeprefix("digests.")
        if value != other:
            yield name, f"{name}={value!r:.60}, now {other!r:.60}" if data == name else f"content of the {data} data"


def _flat(content: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in content.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
