"""Outcome of a run, and its record in the model's folder."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from bertkit.errors import CheckpointError
from bertkit.files.json_files import member, numbers, read_json, write_json
from bertkit.model import load
from bertkit.reports.model_card import with_section
from bertkit.reports.parts import markdown_table

_RECORD = Path("run") / "outcome.json"


@dataclass(frozen=True)
class Outcome:
    """Outcome of a run."""

    reason: str  # "finished", "stopped early" without improvement, "stopped" on request
    step: int  # number of optimizer steps
    best_step: int | None  # the step whose weights were kept; None: the last
    metrics: dict[str, float]  # on the dev examples; empty without them
    baselines: dict[str, float] = field(default_factory=dict)  # method -> score on dev without fine-tuning
    tried: list[dict[str, Any]] = field(default_factory=list)  # runs within a number of minutes: name, score, seconds


def write_outcome(outcome: Outcome, folder: Path) -> None:
    """Record an outcome in the folder of its model, which has the metrics."""
    content = {name: value for name, value in asdict(outcome).items() if name != "metrics"}
    write_json(folder / _RECORD, content)


def write_comparison(outcome: Outcome, folder: Path, metric: str, scores: Mapping[str, float]) -> None:
    """Record an outcome, and add the scores by method to the card of its model, under the name of the ``metric``."""
    write_outcome(outcome, folder)
    card, table = folder / "README.md", markdown_table(("method", metric), scores.items())
    text = with_section(card.read_text(encoding="utf-8"), "Comparison", table)
    card.write_text(text, encoding="utf-8", newline="\n")


def read_outcome(folder: Path) -> Outcome:
    """The outcome of the run that made a model.

    Raises:
        CheckpointError: the record is missing or malformed.
    """
    path = folder / _RECORD
    content = read_json(path)
    if content is None:
        raise CheckpointError(
            f"{path} is missing: expected the record of a finished run; load its model, or train it again"
        )
    reason, step = member(content, "reason", str, path), member(content, "step", int, path)
    best_step, baselines = member(content, "best_step", int, path), member(content, "baselines", dict, path, {})
    metrics, tried = load(folder, device="cpu").trained.metrics, member(content, "tried", list, path, [])
    return Outcome(reason, step, best_step, metrics, numbers(baselines), [numbers(row) for row in tried])


def digest_of(examples: Sequence[Any]) -> str:
    """Digest of examples, independent of their location."""
    digest = hashlib.sha256()
    for example in examples:
        values = {
            one.name: getattr(example, one.name) for one in fields(example) if one.repr and one.name != "location"
        }
        digest.update(f"{type(example).__qualname__}({values})".encode())
    return digest.hexdigest()[:16]
