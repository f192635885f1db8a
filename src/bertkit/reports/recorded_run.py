"""Read the folder of a training run: settings and logged numbers."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bertkit.errors import DataError, UsageError
from bertkit.files.json_files import read_json


@dataclass(frozen=True)
class Candidate:
    """A token predicted for [MASK]."""

    token: str
    score: float


@dataclass(frozen=True)
class Samples:
    """Predictions for [MASK] at one step."""

    step: int
    fillings: dict[tuple[str, int], list[Candidate]]  # (text, number of the [MASK] in it, from 1) -> candidates, best
    # first


@dataclass(frozen=True)
class Series:
    """Lines of one kind, by ascending step; the last line of each step."""

    columns: dict[str, np.ndarray]  # name -> (n,) float64; NaN where a line lacks the name or has null

    def __len__(self) -> int:
        return len(self.columns["step"])

    def __getitem__(self, name: str) -> np.ndarray:
        """(n,) float64; all NaN if no line has the name."""
        return self.columns.get(name, np.full(len(self), np.nan))

    def has(self, name: str) -> bool:
        """True if any line has a number of that name."""
        return name in self.columns and not bool(np.all(np.isnan(self.columns[name])))


@dataclass(frozen=True)
class TrainingRun:
    """All records of a pre-training or fine-tuning run.

    Attributes:
        folder: the folder of the run; for fine-tuning, of the model.
        settings: settings of the last start, or else from recipe.json or settings.json.
        starts: the "start" lines, the first, and one for each resumption.
        end: the last "end" line; None while the run continues, or after it was killed.
        remarks: irregularities in the file.
        baselines: for finished fine-tuning runs, scores on the dev examples without fine-tuning, by method.
    """

    folder: Path
    settings: dict[str, Any]
    starts: list[dict[str, Any]]
    steps: Series
    evaluations: Series
    samples: list[Samples]
    end: dict[str, Any] | None
    remarks: list[str] = field(default_factory=list)
    is_finetuning: bool = False
    baselines: dict[str, float] = field(default_factory=dict)

    @property
    def start(self) -> dict[str, Any]:
        """The last start line, which describes the whole run."""
        return self.starts[-1] if self.starts else {}

    @property
    def best_by(self) -> str | None:
        """The metric that selects the weights of a fine-tuning run; None without dev examples."""
        named = self.start.get("best_by") or self.settings.get("best_by")
        metrics = [name for name in self.evaluations.columns if name not in ("step", "seconds", "tokens", "loss")]
        known = [name for name in (named, *metrics, "loss") if isinstance(name, str) and self.evaluations.has(name)]
        return known[0] if known else None

    def number(self, *keys: str) -> float:
        """A number of the start line, such as ("corpus", "unigram_entropy"); NaN where it is absent."""
        value: Any = self.start
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        return _number(value) if value is not None and _is_number(value) else float("nan")


def read_run(folder: Path) -> TrainingRun:
    """Read a finished, running or killed run: the folder of a pre-training run, or of a fine-tuned model.

    When a run is resumed, the steps after its checkpoint are repeated: their older lines are dropped.

    Raises:
        UsageError: no such folder, not a run, or a run without a logged step.
        DataError: a malformed line, with its number.
        CheckpointError: a file is not JSON.
    """
    hint = "expected a folder written by bertkit pretrain --out or bertkit finetune --out"
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such run; {hint}")
    is_finetuning = not (folder / "recipe.json").exists() and (folder / "run" / "settings.json").is_file()
    records, file = (folder / "run", "settings.json") if is_finetuning else (folder, "recipe.json")
    recipe, metrics = read_json(records / file), records / "metrics.jsonl"
    if recipe is None or not metrics.is_file():
        raise UsageError(
            f"{folder} is not a run: it has no {'recipe.json' if recipe is None else 'metrics.jsonl'}; {hint}"
        )
    outcome = (read_json(records / "outcome.json") if is_finetuning else None) or {}
    remarks: list[str] = []
    lines = logged_lines(metrics, remarks)
    kept = _in_force(lines, metrics, remarks)
    steps = _series([line for line in kept if line[1]["event"] == "step"], metrics)
    if not len(steps) and outcome:
        raise UsageError(
            f"{folder} has no curves: its frozen features were kept, so no step was trained; its scores are in "
            f"{folder / 'README.md'}"
        )
    if not len(steps):
        raise UsageError(f"{metrics} has no step yet: expected at least one; try again when training has started")
    starts = [content for _, content in lines if content["event"] == "start"]
    ends = [content for _, content in kept if content["event"] == "end"]
    settings = starts[-1].get("settings") if starts else None
    baselines = outcome.get("baselines") if isinstance(outcome.get("baselines"), dict) else {}
    return TrainingRun(
        folder=folder,
        settings=settings if isinstance(settings, dict) else recipe,
        starts=starts,
        steps=steps,
        evaluations=_series([line for line in kept if line[1]["event"] == "evaluation"], metrics),
        samples=_samples([line for line in kept if line[1]["event"] == "samples"], metrics),
        end=ends[-1] if ends else None,
        remarks=remarks,
        is_finetuning=is_finetuning,
        baselines={str(name): _number(value) for name, value in baselines.items() if _is_number(value)},
    )


def logged_events(run: Path) -> list[dict[str, Any]]:
    """The events in the metrics.jsonl of a folder, without a line cut off by a kill; none if there is no such file.

    Raises:
        DataError: as `logged_lines`.
    """
    metrics = run / "metrics.jsonl"
    return [event for _, event in logged_lines(metrics, [])] if metrics.is_file() else []


def logged_lines(metrics: Path, remarks: list[str]) -> list[tuple[int, dict[str, Any]]]:
    """Line numbers and objects of a metrics.jsonl. A line cut off by a kill is the last one, or precedes the next
    start: it is left out, with a remark.

    Raises:
        DataError: another line that is not JSON, or not an event.
    """
    parsed: list[tuple[int, dict[str, Any]]] = []
    cut_off: int | None = None
    with open(metrics, encoding="utf-8", errors="replace") as handle:
        for number, text in enumerate(handle, 1):
            if not text.strip():
                continue
            try:
                content = json.loads(text)
            except (ValueError, RecursionError):
                if cut_off is not None:
                    raise _wrong(metrics, cut_off, "is not JSON") from None
                cut_off = number
                continue
            if not isinstance(content, dict) or not isinstance(content.get("event"), str):
                raise _wrong(metrics, number, 'is not an object with an "event"')
            if cut_off is not None:
                if content["event"] != "start":
                    raise _wrong(metrics, cut_off, "is not JSON")
                remarks.append(f"Line {cut_off} of metrics.jsonl was cut off when the run was killed.")
                cut_off = None
            parsed.append((number, content))
    if cut_off is not None:
        remarks.append(f"The last line of metrics.jsonl, {cut_off}, is cut off: the run was killed, or is writing it.")
    return parsed


def _in_force(
    lines: list[tuple[int, dict[str, Any]]], metrics: Path, remarks: list[str]
) -> list[tuple[int, dict[str, Any]]]:
    """Lines not replaced by a later start."""
    kept: list[tuple[int, dict[str, Any]]] = []
    for number, content in lines:
        step = _step(metrics, number, content)
        if content["event"] != "start":
            kept.append((number, content))
            continue
        reached = max((_step(metrics, *line) for line in kept), default=0)
        kept = [line for line in kept if _step(metrics, *line) <= step and line[1]["event"] != "end"]
        if content.get("resumed"):
            again = f", after it had reached step {reached:,}" if reached > step else ""
            remarks.append(f"Resumed from step {step:,}{again}.")
    return kept


def _series(lines: Sequence[tuple[int, dict[str, Any]]], metrics: Path) -> Series:
    by_step = {_step(metrics, number, content): (number, content) for number, content in lines}
    ordered = [by_step[step] for step in sorted(by_step)]
    names = dict.fromkeys(["step", *(name for _, content in ordered for name in content if name not in _NOT_NUMBERS)])
    columns = {name: np.full(len(ordered), np.nan) for name in names}
    for index, (number, content) in enumerate(ordered):
        for name, value in content.items():
            if name in _NOT_NUMBERS or value is None:
                continue
            if not _is_number(value):
                raise _wrong(metrics, number, f"has {name} {value!r:.60}, expected a number")
            columns[name][index] = _number(value)
    return Series(columns)


_NOT_NUMBERS = frozenset({"event", "time"})


def _samples(lines: Sequence[tuple[int, dict[str, Any]]], metrics: Path) -> list[Samples]:
    by_step: dict[int, Samples] = {}
    for number, content in lines:
        fillings: dict[tuple[str, int], list[Candidate]] = {}
        try:
            for sample in content["samples"]:
                text = str(sample["text"])
                mask = 1 + sum(other == text for other, _ in fillings)
                fillings[text, mask] = [
                    Candidate(str(one["token"]), float(one["score"])) for one in sample["candidates"]
                ]
        except (KeyError, TypeError, ValueError, OverflowError):
            raise _wrong(
                metrics, number, 'has samples that are not a list of {"text", "candidates": [{"token", "score"}]}'
            ) from None
        step = _step(metrics, number, content)
        by_step[step] = Samples(step, fillings)
    return [by_step[step] for step in sorted(by_step)]


def _step(metrics: Path, number: int, content: dict[str, Any]) -> int:
    step = content.get("step")
    if type(step) is not int or not 0 <= step < 2**53:
        raise _wrong(metrics, number, f"has step {step!r:.60}, expected an integer of at least 0")
    return step


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(value: int | float) -> float:
    try:
        return float(value)
    except OverflowError:  # an integer of hundreds of digits
        return float("inf")


def _wrong(metrics: Path, number: int, what: str) -> DataError:
    return DataError(f"{metrics}, line {number}: {what}; the file was not written by a run, or was edited")
