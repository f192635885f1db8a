"""How a run ended, and its record in the folder of the model."""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from bertkit.errors import CheckpointError
from bertkit.files.json_files import member, read_json, write_json
from bertkit.model import load

_RECORD = Path("run") / "outcome.json"


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    reason: str  # "finished", "stopped early" without improvement, "stopped" on request
    step: int  # optimizer steps done
    best_step: int | None  # the step whose weights were kept; None: the last
    metrics: dict[str, float]  # of the model on the dev examples; none without them
    baselines: dict[str, float] = field(default_factory=dict)  # on them, without fine-tuning: by method
    tried: list[dict[str, Any]] = field(default_factory=list)  # runs within a number of minutes: name, score, seconds


def write_outcome(outcome: Outcome, folder: Path) -> None:
    """Record an outcome in the folder of its model, which has the metrics."""
    content = {name: value for name, value in asdict(outcome).items() if name != "metrics"}
    write_json(folder / _RECORD, content)


def read_outcome(folder: Path) -> Outcome:
    """The outcome of the run that made a model.

    Raises:
        CheckpointError: no record of it, or one of another form.
    """
    path = folder / _RECORD
    content = read_json(path)
    if content is None:
        raise CheckpointError(f"{path} is missing, the record of how this run ended: load its model, or train it again")
    reason, step = member(content, "reason", str, path), member(content, "step", int, path)
    best_step, baselines = member(content, "best_step", int, path), member(content, "baselines", dict, path, {})
    metrics, tried = load(folder, device="cpu").trained.metrics, member(content, "tried", list, path, [])
    return Outcome(reason, step, best_step, metrics, baselines, tried)


def digest_of(examples: Sequence[Any]) -> str:
    """Digest of examples, independent of where they were read from."""
    digest = hashlib.sha256()
    for example in examples:
        digest.update(repr(replace(example, place="")).encode())
    return digest.hexdigest()[:16]


def began_before_fitted_heads(folder: Path) -> bool:
    """True if a folder has a run of an older version, whose head was drawn at random."""
    record = read_json(folder / "run" / "settings.json")
    return record is not None and "head" not in (member(record, "settings", dict, folder) or {})
