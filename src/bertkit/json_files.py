"""JSON objects in files: read as data, written whole.

Takes: a path.
Gives: a dict, or a clear error.
May import: errors, whole_files.
"""

import json
from pathlib import Path
from typing import Any

from bertkit.errors import CheckpointError
from bertkit.whole_files import whole_file


def read_json(path: Path) -> dict[str, Any] | None:
    """A JSON object, or None where there is no such file.

    Raises:
        CheckpointError: the file is not a JSON object.
    """
    content = read_json_value(path)
    if content is not None and not isinstance(content, dict):
        raise CheckpointError(f"{path} holds a JSON {type(content).__name__}: expected an object")
    return content


def read_json_value(path: Path) -> Any:
    """Any JSON value, or None where there is no such file.

    Raises:
        CheckpointError: the file is not JSON.
    """
    if not path.is_file():
        return None
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not readable JSON ({error}): fetch or save it again") from None


def write_json(path: Path, content: Any) -> None:
    """Write a JSON value, indented, whole or not at all."""
    with whole_file(path) as temporary:
        temporary.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
