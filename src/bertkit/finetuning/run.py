"""A fine-tuning run, from examples to a model folder; a stopped run resumes from its last checkpoint.

The directory is the model: ``run`` in it holds settings and metrics, and until the model is there its checkpoints.
"""

import hashlib
import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor
from tqdm import tqdm

from bertkit.batch import LabeledEncodings
from bertkit.checkpoint import save_checkpoint
from bertkit.checkpoint.config_file import read_config
from bertkit.device import resolve_device
from bertkit.errors import CheckpointError, DataError, UsageError
from bertkit.evidence import Measured, measured_scores
from bertkit.files.json_files import member, read_json, write_json
from bertkit.files.whole_files import whole_folder
from bertkit.finetuning.adapters import add_adapters, read_adapter, without_adapters, write_adapter
from bertkit.finetuning.baselines import baselines_of, comparison, higher_is_better
from bertkit.finetuning.network import fit_head, freeze, model_to_train, rate_factor
from bertkit.finetuning.settings import PAPER, FinetuningSettings, default_settings
from bertkit.inference import PredictReport
from bertkit.inference.truncation import warn_of_truncation
from bertkit.locate import locate, transformer_folder
from bertkit.model import Model, load
from bertkit.reports.model_card import DataFacts, model_card
from bertkit.tasks import TextTask, task_kind
from bertkit.training import (
    Ranks,
    Run,
    Trainer,
    checkpoint_folder,
    checkpoints,
    claim_run_folder,
    without_dropout,
)

GRID = "grid.json"
"""In ``run`` of a sweep's folder, by which it is known."""
_OUTCOME = "outcome.json"
"""In ``run`` of a run that ended."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    reason: str  # "finished", "stopped early" without improvement, "stopped" on request
    step: int  # optimizer steps done
    best_step: int | None  # the step whose weights were kept; None: the last
    metrics: dict[str, float]  # of the model on the dev examples; none without them
    baselines: dict[str, float] = field(default_factory=dict)  # on them, without fine-tuning: see `baselines_of`


@dataclass
class Finetuning:
    """One run: ``out`` becomes the model directory; ``options`` are those of the task (`TextTask.of_examples`)."""

    out: Path
    model: str | Path  # the published model to start from
    task: str  # a name of TASKS
    settings: FinetuningSettings = field(default_factory=FinetuningSettings)
    options: Mapping[str, Any] = field(default_factory=dict)
    device: str = "auto"
    log_line: Callable[[str], None] = tqdm.write  # called with lines of text for the user
    files: Mapping[str, Path] = field(default_factory=dict)  # of "training" and "dev" examples, for the model's card
    num_set_aside: int = 0  # rows of them that could not be used, for the card too
    resumable: bool = True  # keep a checkpoint for each epoch; else only of the best
    compare: bool = True  # with what is reached without fine-tuning, on the dev examples
    ranks: Ranks = field(default_factory=Ranks)  # the processes that train together; the first one writes

    def start(
        self,
        train: Sequence[Any],
        dev: Sequence[Any] = (),
        *,
        resume: bool = False,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> Outcome:
        """Train on examples and keep the weights that are best on ``dev``, without it the last.

        Raises:
            UsageError: invalid settings; or ``out`` contains something else, or another run.
            DataError: examples that cannot be learned from, a dev label that none of them has, or dev examples on which
                the metric that decides is not a number.
            TrainingError: a loss that is not a number.
        """
        run = replace(self, settings=self._complete_settings(len(train)))
        if not self.ranks.is_first:
            run.log_line = lambda line: None
        return run._start(train, dev, resume=resume, should_stop=should_stop)

    def _complete_settings(self, num_examples: int) -> FinetuningSettings:
        """With a learning rate and a number of epochs."""
        settings = self.settings.completed(task_kind(self.task).training_defaults)
        if settings.completed(PAPER) is settings:
            return settings
        config = read_config(transformer_folder(locate(self.model))).transformer
        num_batches = -(-num_examples // settings.batch_size)
        return settings.completed(default_settings(config.hidden_size, num_batches))

    def _start(
        self, train: Sequence[Any], dev: Sequence[Any], *, resume: bool, should_stop: Callable[[], bool]
    ) -> Outcome:
        """As `start`, with complete settings."""
        if self.settings.patience is not None and not dev:
            raise UsageError(f"patience={self.settings.patience} needs dev examples, to measure improvement")
        if self.settings.batch_size < self.ranks.num_ranks:
            raise UsageError(f"batch_size={self.settings.batch_size} is less than the {self.ranks.num_ranks} ranks")
        if (self._run / GRID).is_file():
            raise UsageError(
                f"{self.out} contains a sweep: pass --sweep and --resume to continue it, or choose another folder"
            )
        claim = partial(claim_run_folder, self.out, self._run / "settings.json", self.facts(train, dev), resume=resume)
        is_there = self.out.is_dir() and any(self.out.iterdir())
        self.ranks.wait()
        if is_there and self.ranks.is_first:
            claim()
        if (self.out / "config.json").is_file():
            return self._outcome_of_before()
        model = self._model(train)
        data = self._encoded(model, train)
        if dev:
            self._encoded(model, dev)  # errors in them are raised before hours of training
        self._best_by(model.trained.task)
        if not is_there and self.ranks.is_first:
            claim()  # only now, after all checks of the examples
        model.network.to(resolve_device(self.device))
        self._choose_what_learns(model)
        run = Run(self._run, self.ranks, self.log_line)
        trainer = self._trainer(run, model, data, dev, should_stop)
        run.log_start(
            trainer, settings=asdict(self.settings), model=str(self.model), task=self.task,
            best_by=self._best_by(model.trained.task),
        )  # fmt: skip
        try:
            reason = trainer.train()
        except DataError:
            if not trainer.state.step and self.ranks.is_first:  # the first evaluation refused the dev examples
                shutil.rmtree(self._run)
            raise
        outcome = Outcome(reason, trainer.state.step, trainer.state.best_step, {})
        if reason == "stopped" or not self.ranks.is_first:
            return outcome
        self._finish(model, data, outcome)
        facts, intervals = {"training": self._data_facts("training", train, data)}, {}
        if dev:
            if self.compare:
                outcome = replace(outcome, baselines=self.baselines(model, train, dev))
            outcome, facts["dev"], intervals = self._judge(model, dev, outcome)
        self._write_card(model, facts, intervals, outcome, train[0])
        self._save(model, outcome)
        if self.compare:
            self.log_line(comparison(self._best_by(model.trained.task), outcome.metrics, outcome.baselines))
        return outcome

    def baselines(self, model: Model, train: Sequence[Any], dev: Sequence[Any]) -> dict[str, float]:
        """The metric that selects the weights, on the dev examples without fine-tuning, by method.

        Args:
            model: a trained one of this run, whose task and layout count.
        """
        task, precision = model.trained.task, self.settings.precision
        return baselines_of(
            task, model.trained.layout, train, dev, self._best_by(task),
            tokenizer=model.tokenizer,
            frozen=partial(load, self.model, heads=(), precision=precision, device=self.device),
        )  # fmt: skip

    @property
    def _run(self) -> Path:
        return self.out / "run"

    def facts(self, train: Sequence[Any], dev: Sequence[Any]) -> dict[str, Any]:
        """The facts that must match for a run to be resumed."""
        return {
            "model": str(self.model),
            "task": self.task,
            "settings": asdict(self.settings),
            "options": dict(self.options),
            "num_examples": {"training": len(train), "dev": len(dev)},
            "digests": {"training": _digest(train), "dev": _digest(dev)},
        }

    def _model(self, train: Sequence[Any]) -> Model:
        """The initial model, or that of the last checkpoint."""
        saved = checkpoints(self._run)
        if saved and self.settings.lora_rank is None:
            return load(saved[-1] / "model", device="cpu")
        task = task_kind(self.task).of_examples(train, self.options)
        return model_to_train(str(self.model), task, self.settings, self.log_line)

    def _choose_what_learns(self, model: Model) -> None:
        settings, saved = self.settings, checkpoints(self._run)
        if settings.lora_rank is None:
            freeze(model, settings.frozen_layers)
            model.mark_trained()
            return
        add_adapters(model, settings.lora_rank, settings.lora_alpha, settings.seed)
        if saved:
            read_adapter(model, saved[-1] / "model" / "adapter")

    def _write(self, model: Model, folder: Path, parameters: Mapping[str, Tensor] | None = None) -> None:
        """Write the model's directory; with adapters the merged model, and in it the adapters alone.

        Args:
            parameters: as the training loop has them, instead of the network's own.
        """
        if self.settings.lora_rank is None:
            save_checkpoint(model.checkpoint, folder, parameters=parameters)
        else:
            without_adapters(model).save(folder)
            write_adapter(model, folder / "adapter", str(self.model))

    def _encoded(self, model: Model, examples: Sequence[Any]) -> LabeledEncodings:
        task, layout = model.trained.task, model.trained.layout
        encodings = task.encode(model.tokenizer, examples, layout)
        num_cut, num_tokens_cut = encodings.num_texts_cut, int(encodings.num_tokens_cut.sum())
        if self.ranks.is_first:
            remedy = "raise max_length, or choose on_long='window'"
            warn_of_truncation(len(examples), num_cut, num_tokens_cut, remedy, stacklevel=4)
        return task.labeled(examples, encodings)

    def _trainer(
        self, run: Run, model: Model, data: LabeledEncodings, dev: Sequence[Any], should_stop: Callable[[], bool]
    ) -> Trainer:
        task = model.trained.task
        feed = task.feed(data, self.settings.batch_size, self.settings.seed, self.ranks.rank, self.ranks.num_ranks)
        settings = self.settings.training(feed.batches_per_epoch)
        if not self.resumable:
            settings = replace(settings, save_every=settings.num_steps)
        best_by = self._best_by(task)

        def evaluate() -> dict[str, float]:
            metrics = _evaluate(model, data, dev)
            if not trainer.state.step and math.isnan(metrics[best_by]):
                raise DataError(
                    f"{best_by} of the {len(dev)} dev examples is not a number, so that it cannot choose the weights: "
                    "give other dev examples, several and with scores that differ, or another metric as best_by"
                )
            return metrics

        trainer = run.trainer(
            model.network, task, feed, settings,
            rate_factor=rate_factor(model.config.num_hidden_layers, self.settings.layer_decay),
            save_model=lambda folder, parameters: self._write(model, folder), best_by=best_by,
            evaluate=evaluate if dev else None, higher_is_better=higher_is_better(best_by),
            patience=self.settings.patience, should_stop=should_stop,
        )  # fmt: skip
        return trainer

    def _best_by(self, task: TextTask) -> str:
        best_by, known = self.settings.best_by or task.best_by, task.scorer().results()
        if best_by not in known:
            raise UsageError(f"best_by={best_by!r}: expected one of {', '.join(known)}")
        return best_by

    def _finish(self, model: Model, data: LabeledEncodings, outcome: Outcome) -> None:
        """Give the model its best weights."""
        best_step = outcome.best_step
        if best_step is not None and best_step != outcome.step:
            best = checkpoint_folder(self._run, best_step) / "model"
            if self.settings.lora_rank is None:
                model.network.load_state_dict(load(best, device="cpu").network.state_dict())
            else:
                read_adapter(model, best / "adapter")
        fit_head(model, data)
        model.network.eval()
        if model.trained.task.head:
            task = model.trained.task.fold_target_scaling(model.network.heads[model.trained.task.head])
            model.checkpoint.trained = replace(model.trained, task=task)

    def _judge(
        self, model: Model, dev: Sequence[Any], outcome: Outcome
    ) -> tuple[Outcome, DataFacts, dict[str, Measured]]:
        """Give the model its thresholds and its metrics on dev examples: the outcome with them, how the examples were
        read, and the metrics' intervals."""
        report, trained = PredictReport(), model.trained
        predictions = model.predict(dev, report=report)
        task = trained.task.with_calibrated_thresholds(dev, predictions)
        if task != trained.task:
            model.checkpoint.trained = trained = replace(trained, task=task)
            predictions = model.predict(dev, report=PredictReport())  # by its new thresholds
        scorer = task.scorer()
        scorer.add(dev, predictions)
        metrics = scorer.results()
        model.checkpoint.trained = replace(trained, metrics=metrics)
        facts = DataFacts(len(dev), report.num_cut, report.num_tokens_cut, self.files.get("dev"))
        return replace(outcome, metrics=metrics), facts, measured_scores(task, dev, predictions)

    def _data_facts(self, name: str, examples: Sequence[Any], data: LabeledEncodings) -> DataFacts:
        encodings = data.encodings
        num_tokens_cut = int(encodings.num_tokens_cut.sum())
        return DataFacts(len(examples), encodings.num_texts_cut, num_tokens_cut, self.files.get(name))

    def _write_card(
        self,
        model: Model,
        facts: Mapping[str, DataFacts],
        intervals: Mapping[str, Measured],
        outcome: Outcome,
        example: Any,
    ) -> None:
        """Give the model its card."""
        steps = {"end": outcome.reason, "steps": outcome.step, "step of the weights kept": outcome.best_step}
        card = model_card(
            str(self.model), model.trained, facts, settings=asdict(self.settings) | dict(self.options), steps=steps,
            intervals=intervals, num_set_aside=self.num_set_aside, example=example,
        )  # fmt: skip
        model.checkpoint.trained = replace(model.trained, card=card)

    def _save(self, model: Model, outcome: Outcome) -> None:
        """Write the model directory."""
        with whole_folder(self.out, overwrite=True) as folder:
            self._write(model, folder)
            (folder / "run").mkdir()
            for name in ("settings.json", "metrics.jsonl"):
                shutil.copy(self._run / name, folder / "run" / name)
            content = {"reason": outcome.reason, "step": outcome.step, "best_step": outcome.best_step,
                       "baselines": outcome.baselines}  # fmt: skip
            write_json(folder / "run" / _OUTCOME, content)

    def _outcome_of_before(self) -> Outcome:
        path = self._run / _OUTCOME
        content = read_json(path)
        if content is None:
            raise CheckpointError(
                f"{path} is missing, the record of how this run ended: load its model, or train it again"
            )
        self.log_line(f"{self.out} has ended before")
        reason, step = member(content, "reason", str, path), member(content, "step", int, path)
        best_step = member(content, "best_step", int, path)
        metrics, baselines = load(self.out, device="cpu").trained.metrics, member(content, "baselines", dict, path, {})
        return Outcome(reason, step, best_step, metrics, baselines)


def _evaluate(model: Model, data: LabeledEncodings, dev: Sequence[Any]) -> dict[str, float]:
    """The metrics on dev examples during training, without dropout."""
    fit_head(model, data)
    with without_dropout(model.network):
        return model.evaluate(dev, report=PredictReport())


def _digest(examples: Sequence[Any]) -> str:
    """Digest of examples, independent of where they were read from."""
    digest = hashlib.sha256()
    for example in examples:
        digest.update(repr(replace(example, place="")).encode())
    return digest.hexdigest()[:16]
