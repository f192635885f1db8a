"""Find the best model within a time limit.

First frozen features, which take seconds; contrastive training for few rows; then fine-tuning from the fitted head at
up to three learning rates, as far as the measured speed of this machine allows. The best model on dev examples is kept.
Without dev examples, a part of the training rows selects it, and time is reserved to train it again on all rows.
"""

import math
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bertkit.errors import UsageError
from bertkit.evidence import measured_scores
from bertkit.files.json_files import numbers, read_json, write_json
from bertkit.finetuning.advice import check_metric
from bertkit.finetuning.baselines import FROZEN, goodness
from bertkit.finetuning.best_run import write_best
from bertkit.finetuning.held_out import held_out
from bertkit.finetuning.judging import NO_GAIN, Judged, gain_of, gain_sentence, judge, set_thresholds
from bertkit.finetuning.prepared_rows import prepared_rows
from bertkit.finetuning.run import MINUTES, Finetuning
from bertkit.model import load
from bertkit.tasks import FewShotClassification, SequenceClassification, task_kind
from bertkit.tasks.encoded_rows import EncodedRows
from bertkit.training import Outcome, claim_run_folder, read_outcome, released_if_refused, search

_USABLE = 0.95  # planned share of the time; the rest is for files and other programs
_FEW_OF_A_CLASS = 16  # maximum rows per class for trying contrastive training
_SETTINGS = "minutes-settings.json"
_CONTRAST = "contrast"
_ALL_ROWS = "all rows"  # the best run, trained again with the held-out rows
_RATES = (1.0, 3.0, 1 / 3)  # relative to the default rate, in the order tried
_FEWEST_EPOCHS = 0.3  # minimum length of a run
_PROBE_STEPS, _SECONDS_OF_A_RUN = 5, 3.0  # the seconds are those to load and save models


@dataclass(frozen=True)
class Candidate:
    """A run that fits in the remaining time."""

    name: str
    task: str
    settings: dict[str, Any]  # settings that differ from the user's
    seconds: float  # maximum duration, evaluations included


def start_run(
    run: Finetuning,
    train: Sequence[Any],
    dev: Sequence[Any] = (),
    *,
    resume: bool = False,
    should_stop: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Start a run; with ``settings.minutes``, several runs within that time, and keep the best. As
    `Finetuning.start`.

    Raises:
        UsageError: with ``minutes``, a head that is neither trained nor fitted; else as `Finetuning.start`.
    """
    if run.settings.training.minutes is None:
        return run.start(train, dev, resume=resume, should_stop=should_stop)
    run.ranks.check_single("minutes compares runs")
    run.settings.training.check_dev(dev)
    train, dev = prepared_rows(run, train, dev)
    _check_head(run, train)
    return _Within(run, train, dev, should_stop).start(resume)


def _check_head(run: Finetuning, train: Sequence[Any]) -> None:
    """Raise a UsageError if frozen features have no head that can predict."""
    task = task_kind(run.task).of_examples(train, run.options)
    if not task.head or (run.settings.head != "drawn" and task.fitting_loss is not None):
        return
    if task.head not in run.new_model(train).checkpoint.trained_heads():
        raise UsageError(
            f"minutes={run.settings.training.minutes:g} begins with frozen features, but the head of {task.name} is "
            f"neither trained nor fitted to them (head={run.settings.head}): omit minutes, or choose a model whose "
            "head was trained, or for tasks that fit their head head=fitted or published"
        )


class _Within:
    """Runs within a time limit; ``run.out`` becomes the best model, with a record of all runs in ``run``."""

    def __init__(
        self, run: Finetuning, train: Sequence[Any], dev: Sequence[Any], should_stop: Callable[[], bool]
    ) -> None:
        assert run.settings.training.minutes is not None
        self.started, self.minutes, self.should_stop = time.monotonic(), run.settings.training.minutes, should_stop
        self.run, self.all_rows, self.dev = run, train, dev
        self.folder, self.record = run.out / "run", run.out / "run" / MINUTES
        self.best_by = run.settings.training.best_by or task_kind(run.task).of_examples(train, run.options).best_by
        self.kept: dict[str, Any] = {}
        self.seconds_to_evaluate = 0.0
        self.train, self.chosen_by = train, dev
        self.dev_name = run.dev_name if dev else "held-out rows"
        if not dev:
            self.train, self.chosen_by = map(EncodedRows, held_out(train))

    def start(self, resume: bool) -> Outcome:
        facts = {"minutes": self.minutes, **replace(self.run, train=self.all_rows, dev=self.dev).facts()}
        is_new = claim_run_folder(self.run.out, self.folder / _SETTINGS, facts, resume=resume)
        if (self.run.out / "config.json").is_file():
            self.run.log_line(f"{self.run.out} is finished already")
            return read_outcome(self.run.out)
        self.state: dict[str, Any] = {"seconds": 0.0, "under_way": 0.0, "plan": None, "tried": []}
        self.state |= read_json(self.record) or {}
        self.state["tried"] = [numbers(row) for row in self.state["tried"]]
        self.started -= self.state["seconds"]
        with released_if_refused(self.folder, lambda: not is_new or len(self.state["tried"]) > 1):
            return self._search()

    def _search(self) -> Outcome:
        """Try the candidates, and keep the best."""
        if not self.dev:
            self.run.log_line(self._how_chosen())
        if stopped := search(self._jobs(), self._keep, self._choose):
            return self._stopped(stopped)
        return self._keep_best()

    def _jobs(self) -> Iterator[tuple[str, Callable[[], Outcome]]]:
        """The candidates without results, while there is time for them."""
        if not self.state["tried"]:
            self.candidate = Candidate(FROZEN, self.run.task, {}, math.inf)
            yield FROZEN, partial(self._try, self.candidate)
        if not self.chosen_by:
            return
        self._look_at_frozen()
        if self.state["plan"] is None:
            self.state["plan"] = [asdict(candidate) for candidate in self._plan()]
            self._save()
        plan: list[dict[str, Any]] = self.state["plan"]
        for fields in plan[len(self.state["tried"]) - 1 :]:
            if self._gains_nothing():
                self.run.log_line("stopped early: two runs in a row did not improve on the best one")
                break
            self.candidate = Candidate(**fields)
            if self._available() < self.candidate.seconds * 0.5:
                break
            yield self.candidate.name, partial(self._try, self.candidate)

    def _try(self, candidate: Candidate, train: Sequence[Any] | None = None) -> Outcome:
        """Train one candidate.

        Args:
            train: all rows, to train the best candidate again; None: those to compare on are held out.
        """
        began, is_frozen = time.monotonic(), candidate.name == FROZEN
        out = self._folder_of(candidate.name if train is None else _ALL_ROWS)
        settings = self.run.settings.changed(minutes=None, **candidate.settings)
        job = replace(
            self.run, out=out, task=candidate.task, settings=settings, compare=False,
            options=self.run.options if candidate.task == self.run.task else {}, trains=not is_frozen,
            dev_name=self.dev_name, clock_minutes=None if is_frozen else self._clock(candidate, train is not None) / 60,
            head_cache=self.kept if candidate.task == self.run.task and train is None else None,
        )  # fmt: skip
        rows = (self.train, self.chosen_by if is_frozen else self.dev) if train is None else (train, self.dev)
        outcome = job.start(*rows, resume=out.exists(), should_stop=self.should_stop)
        self.seconds_of_run = self.state["under_way"] + time.monotonic() - began
        self.state["under_way"] = self.seconds_of_run if outcome.reason == "stopped" else 0.0
        return outcome

    def _keep(self, name: str, outcome: Outcome) -> None:
        """Record the score of the candidate that was tried."""
        score = self._score(self._folder_of(name)) if self.chosen_by else {}
        self.state["tried"].append(
            {"name": name, "settings": self.candidate.settings, "steps": outcome.step, **score,
             "seconds": round(self.seconds_of_run, 1)}
        )  # fmt: skip
        self._save()

    def _choose(self) -> tuple[list[Path], list[Path]]:
        names = [row["name"] for row in self.state["tried"]]
        return [self._folder_of(name) for name in names], [
            self._folder_of(self._best()["name"]),
            self._folder_of(FROZEN),
        ]

    def _clock(self, candidate: Candidate, is_last: bool) -> float:
        """Seconds of training."""
        return max(1.0, min(candidate.seconds, self._left() - self._overhead if is_last else self._available()))

    def _score(self, out: Path) -> dict[str, float]:
        """The metric of a run, with its confidence interval."""
        judged = self._judged(out)
        intervals = measured_scores(judged.task, self.chosen_by, judged.predictions)
        value = judged.metrics[self.best_by]
        measured = intervals.get(self.best_by)
        return {"score": value} | ({} if measured is None else {"low": measured.low, "high": measured.high})

    def _judged(self, out: Path) -> Judged:
        return judge(load(out, device=self.run.device), self.chosen_by)

    def _look_at_frozen(self) -> None:
        """Predict with the frozen model, for the final comparison and to time an evaluation."""
        began = time.monotonic()
        self.frozen = self._judged(self._folder_of(FROZEN))
        check_metric(self.best_by, self.frozen.metrics[self.best_by], self._named_rows)
        self.seconds_to_evaluate = time.monotonic() - began

    def _plan(self) -> list[Candidate]:
        """Candidates that fit in the remaining time, the most promising first."""
        if len(self.train) < 2 * self.run.settings.training.batch_size and self._left() <= 0:
            return []
        step = self._seconds_per_step()
        usual = self.run.complete_settings(len(self.train))
        assert usual.num_epochs is not None and usual.training.learning_rate is not None
        steps = -(-len(self.train) // usual.training.batch_size)
        evaluations = self.seconds_to_evaluate * usual.evaluations_per_epoch if self.dev else 0.0

        def cost(num_epochs: float) -> float:
            return num_epochs * (steps * step + evaluations)

        left = self._left_to_train()
        affordable = left / (1 + self._retraining(1.0))  # seconds of a first run
        if affordable < cost(_FEWEST_EPOCHS):
            self.run.log_line(
                f"an epoch takes {cost(1):,.1f} s here, and {max(0.0, affordable):,.1f} s are left for training: only "
                f"{FROZEN} fit in {self.minutes:g} minutes"
            )
            return []
        plan, kind = [], task_kind(self.run.task)
        is_contrast_possible = kind is SequenceClassification and usual.training.batch_size > 1
        if is_contrast_possible and self._is_few() and affordable >= cost(usual.num_epochs):
            plan.append(Candidate(_CONTRAST, FewShotClassification.name, {"num_epochs": 1}, cost(8)))
        rates = [usual.training.learning_rate] if self.run.settings.training.learning_rate else [
            usual.training.learning_rate * factor for factor in _RATES
        ]  # fmt: skip
        for number, rate in enumerate(rates):
            epochs = usual.num_epochs if number else min(usual.num_epochs, affordable / cost(1))
            settings = {"learning_rate": rate, "num_epochs": max(1, round(epochs))}
            plan.append(Candidate(f"fine-tuning at {rate:.1e}", self.run.task, settings, cost(epochs)))
        longer = {"learning_rate": rates[0], "num_epochs": 3 * usual.num_epochs}
        plan.append(
            Candidate(f"{longer['num_epochs']} epochs at {rates[0]:.1e}", self.run.task, longer,
                      cost(longer["num_epochs"]))
        )  # fmt: skip
        fitting: list[Candidate] = []
        total = longest = 0.0
        for candidate in plan:
            longest_run = max(longest, candidate.seconds)
            before = total + (self._overhead if fitting else 0)
            if before + candidate.seconds + self._retraining(longest_run) <= 1.001 * left:
                fitting.append(candidate)
                total, longest = total + candidate.seconds + self._overhead, longest_run
        return fitting

    def _left_to_train(self) -> float:
        """Seconds that are left for the training of a next run, and of the last one on all rows if there is one."""
        return self._left() - (1 if self.dev else 2) * self._overhead

    @property
    def _overhead(self) -> float:
        """Seconds of a run in addition to its training."""
        return 2 * self.seconds_to_evaluate + _SECONDS_OF_A_RUN

    def _retraining(self, seconds: float) -> float:
        """Seconds to train on all rows after a run of ``seconds``, where training rows choose the best."""
        return 0.0 if self.dev else seconds * len(self.all_rows) / len(self.train)

    def _available(self) -> float:
        """Seconds for the next run, if it or the best so far is then to be trained on all rows."""
        best, left = self._best(), self._left_to_train()
        of_best = 0.0 if best["name"] == FROZEN else self._retraining(best["seconds"])
        return min(left / (1 + self._retraining(1.0)), left - of_best)

    def _seconds_per_step(self) -> float:
        """Seconds per fine-tuning step on this machine, measured over a few discarded steps."""
        moments: list[float] = []

        def should_stop() -> bool:
            moments.append(time.monotonic())
            return len(moments) > _PROBE_STEPS

        with tempfile.TemporaryDirectory(prefix="bertkit-") as folder:
            settings = self.run.settings.changed(
                minutes=None, patience=None, learning_rate=1e-6, num_epochs=_PROBE_STEPS
            )
            probe = replace(
                self.run, out=Path(folder) / "probe", settings=settings, compare=False, log_line=lambda line: None,
                head_cache=self.kept,
            )  # fmt: skip
            probe.start(self.train, should_stop=should_stop)
        return float(np.median(np.diff(moments)[1:])) if len(moments) > 2 else 0.0

    def _is_few(self) -> bool:
        labels = {example.label for example in self.train}
        has_pairs = any(example.pair is not None for example in self.train)
        return not has_pairs and len(self.train) <= _FEW_OF_A_CLASS * len(labels)

    def _gains_nothing(self) -> bool:
        """Whether the last two runs did not improve on the best one before them."""
        scores = [self._goodness(row) for row in self.state["tried"]]
        return len(scores) > 3 and max(scores[-2:]) <= max(scores[:-2])

    def _best(self) -> dict[str, Any]:
        """The row with the best score, the first of equal ones.

        Held-out training rows are few, and fine-tuning gained on nearly all data that were measured
        (docs/guides/finetuning.md). So there it is best unless frozen features are better by a standard error.
        """
        frozen, *others = self.state["tried"]
        if not others or not self.chosen_by:
            return frozen
        best = max(others, key=self._goodness)
        lead = self._goodness(frozen) - self._goodness(best)
        error = 0.0 if self.dev else (best.get("high", 0.0) - best.get("low", 0.0)) / 4  # the interval has 95 %
        return best if lead < error else frozen

    def _keep_best(self) -> Outcome:
        best = self._best()
        folder = self._folder_of(best["name"])
        if not self.dev and self.chosen_by and self._is_time_for_all_rows(best):
            outcome = self._try(self._again(best), self.all_rows)
            if outcome.reason == "stopped":
                return self._stopped(outcome)
            folder = self._folder_of(_ALL_ROWS)
        self._log_table()
        outcome, judged = replace(read_outcome(folder), tried=self.state["tried"]), None
        if self.chosen_by:
            judged = self.frozen if best["name"] == FROZEN else self._judged(self._folder_of(best["name"]))
            if self.dev:
                outcome = replace(outcome, baselines={FROZEN: self.frozen.metrics[self.best_by]})
        if judged is not None and best["name"] != FROZEN:
            gain = gain_of(judged, self.frozen, self.chosen_by, self.best_by)
            if gain is not None:
                self.run.log_line(gain_sentence(self.best_by, gain, self._named_rows))
            if not self.dev and gain is not None and gain.low <= 0:
                self.run.log_line("fine-tuning is kept nevertheless: it nearly always gains, and held-out rows are few")
        elif self.chosen_by and len(self.state["tried"]) > 1:
            self.run.log_line(NO_GAIN)
        self._save()
        scores = {row["name"]: row["score"] for row in self.state["tried"] if "score" in row}

        def change(model: Path) -> None:
            if not self.dev and judged is not None:
                set_thresholds(model, self.chosen_by, judged.predictions)

        metric = f"{self.best_by} on {'dev' if self.dev else 'held-out rows'}"
        write_best(self.run.out, folder, (MINUTES, _SETTINGS), outcome, metric, scores, change)
        return outcome

    def _again(self, best: Mapping[str, Any]) -> Candidate:
        """The best run once more, with the time that all rows take."""
        task = FewShotClassification.name if best["name"] == _CONTRAST else self.run.task
        return Candidate(best["name"], task, best["settings"], self._retraining(best["seconds"]))

    def _is_time_for_all_rows(self, best: Mapping[str, Any]) -> bool:
        if best["name"] == FROZEN or self._left() >= 0.5 * self._retraining(best["seconds"]):
            return True
        self.run.log_line(f"no time to retrain with the {len(self.chosen_by)} held-out rows")
        return False

    def _log_table(self) -> None:
        width = max(len(row["name"]) for row in self.state["tried"])
        on = f"{self.best_by} on {len(self.chosen_by)} examples, 95 % interval" if self.chosen_by else "not compared"
        self.run.log_line(f"{'tried':{width}}  {on}, seconds")
        for row in self.state["tried"]:
            score = f"{row['score']:.3f}" if "score" in row else ""
            score += f"  {row['low']:.3f} to {row['high']:.3f}" if "low" in row else ""
            self.run.log_line(f"{row['name']:{width}}  {score}  {row['seconds']:.0f}")

    def _how_chosen(self) -> str:
        if not self.chosen_by:
            return f"no dev examples, and {len(self.all_rows)} rows are too few to hold some out: only {FROZEN}"
        return (
            f"no dev examples: {len(self.chosen_by)} of the {len(self.all_rows)} training rows, chosen at random, "
            "are held out to compare runs"
        )

    def _stopped(self, outcome: Outcome) -> Outcome:
        self._save()
        return replace(outcome, step=0, best_step=None, tried=self.state["tried"])

    def _save(self) -> None:
        self.state["seconds"] = time.monotonic() - self.started
        write_json(self.record, self.state)

    def _left(self) -> float:
        """Seconds, with those that a stopped run under way has taken, which its own clock counts, too."""
        return 60 * self.minutes * _USABLE - (time.monotonic() - self.started) + self.state["under_way"]

    def _folder_of(self, name: str) -> Path:
        return self.folder / "runs" / name.replace(" ", "-")

    def _goodness(self, row: dict[str, Any]) -> float:
        return goodness(self.best_by, row["score"])

    @property
    def _named_rows(self) -> str:
        """Number and name of the examples that select the best run."""
        return f"{len(self.chosen_by)} {self.dev_name}"
