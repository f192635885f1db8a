"""Fine-tuning run, from examples to a model folder; a stopped run resumes from its last checkpoint.

The output directory is the model. Its folder ``run`` holds settings and metrics, and checkpoints until the run ends.
"""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tqdm import tqdm

from bertkit.batch import LabeledEncodings
from bertkit.checkpoint.config_file import read_config
from bertkit.device import resolve_device
from bertkit.errors import UsageError
from bertkit.evidence import measured_scores
from bertkit.files.whole_files import check_folder_writable, whole_folder
from bertkit.finetuning.advice import advice_on, check_dev, check_metric, on_rows
from bertkit.finetuning.baselines import FROZEN, FROZEN_DEFAULT, comparison, simple_baselines
from bertkit.finetuning.fitted_head import fit_new_head, refit_head
from bertkit.finetuning.judging import (
    NO_GAIN,
    Judged,
    evaluate_in_training,
    frozen_line,
    gain_of,
    gain_sentence,
    judge,
)
from bertkit.finetuning.learned_weights import choose_what_learns, read_learned, write_learned
from bertkit.finetuning.network import check_frozen_layers, model_to_train, rate_factor, what_head_reads
from bertkit.finetuning.outcome import Outcome, digest_of, read_outcome, write_outcome
from bertkit.finetuning.prepared_rows import prepared_rows
from bertkit.finetuning.settings import PAPER, FinetuningSettings, default_settings
from bertkit.inference import InferenceReport
from bertkit.locate import locate, transformer_folder
from bertkit.model import Model, load
from bertkit.reports.model_card import DataFacts, model_card
from bertkit.tasks import TextTask, metric_of, task_kind
from bertkit.tasks.encoded_rows import EncodedRows
from bertkit.training import (
    Ranks,
    Run,
    Trainer,
    TrainingState,
    checkpoint_folder,
    checkpoints,
    claim_run_folder,
    released_if_refused,
)

GRID, MINUTES = "grid.json", "minutes.json"
"""Files in ``run`` that identify a sweep, or runs within a time limit."""


@dataclass
class Finetuning:
    """One run: ``out`` becomes the model directory; ``options`` are task options (`TextTask.of_examples`)."""

    out: Path
    model: str | Path  # the published model to start from
    task: str  # a name of TASKS
    settings: FinetuningSettings = field(default_factory=FinetuningSettings)
    options: Mapping[str, Any] = field(default_factory=dict)
    device: str = "auto"
    log_line: Callable[[str], None] = tqdm.write  # called with each line for the user
    files: Mapping[str, Sequence[Path]] = field(default_factory=dict)  # "training" and "dev", for the model card
    skip_bad: bool = False  # skip examples that cannot be used or are too long; else they are errors
    skipped: Sequence[str] = ()  # locations and reasons of skipped examples; the run adds its own
    resumable: bool = True  # keep a checkpoint for each epoch; else only the best one
    compare: bool = True  # compare with baselines without fine-tuning, on the dev examples
    ranks: Ranks = field(default_factory=Ranks)  # the processes that train together; the first one writes
    frozen_only: bool = False  # fit the head, and do not train the encoder
    dev_name: str = "dev examples"  # what messages call the dev examples
    clock_minutes: float | None = None  # training time, instead of the epochs of the settings
    kept: dict[str, Any] | None = None  # cache of the fitted head, shared by runs with equal examples and HEAD_SETTINGS

    def __post_init__(self) -> None:
        self.out = self.out.absolute()  # "." has no name, and is another folder once this one is replaced

    def start(
        self,
        train: Sequence[Any],
        dev: Sequence[Any] = (),
        *,
        resume: bool = False,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> Outcome:
        """Train on examples, and keep the best weights on ``dev``, or the last weights without it.

        Raises:
            UsageError: invalid settings, or ``minutes``; ``out`` cannot be written, or has other files or another run.
            DataError: unusable examples, a dev label that no training example has, or dev examples for which the
                selecting metric is not a number.
            TrainingError: the loss is not a number.
        """
        check_folder_writable(self.out)
        self.settings.check_untimed("Finetuning.start", "call start_run")
        self.ranks.check_batch_size(self.settings.batch_size)
        train, dev = prepared_rows(self, train, dev)
        run = replace(self, settings=self.complete_settings(len(train)))
        if not self.ranks.is_first:
            run.log_line = lambda line: None
        return run._start(train, dev, resume=resume, should_stop=should_stop)

    def complete_settings(self, num_examples: int) -> FinetuningSettings:
        """The settings with a learning rate and a number of epochs."""
        settings = self.settings.completed(task_kind(self.task).training_defaults)
        if settings.completed(PAPER) is settings:
            return settings
        config = read_config(transformer_folder(locate(self.model))).transformer
        num_batches = -(-num_examples // settings.batch_size)
        return settings.completed(default_settings(config.hidden_size, num_batches, settings.head))

    def _start(
        self, train: Sequence[Any], dev: Sequence[Any], *, resume: bool, should_stop: Callable[[], bool]
    ) -> Outcome:
        """As `start`, with complete settings."""
        self.settings.check_dev(dev)
        for record, kind in ((GRID, "a sweep: pass --sweep"), (MINUTES, "a search within minutes: pass --minutes")):
            if (self._run / record).is_file():
                raise UsageError(f"{self.out} contains {kind} and --resume to continue it, or choose another folder")
        claim = partial(claim_run_folder, self.out, self._run / "settings.json", self.facts(train, dev), resume=resume)
        is_there = self.out.is_dir() and any(self.out.iterdir())
        self.ranks.wait()
        if is_there and self.ranks.is_first:
            claim()
        if (self.out / "config.json").is_file():
            self.log_line(f"{self.out} is finished already")
            return read_outcome(self.out)
        model, is_new = self._model(train)
        data = self._encoded(model, train)
        for sentence in model.trained.task.choices_for(train) if is_new else ():
            self.log_line(sentence)
        if dev:
            self._encoded(model, dev)  # errors in them are raised before hours of training
            check_dev(model.trained.task, dev, self._named(dev))
        self._best_by(model.trained.task)
        check_frozen_layers(model, self.settings.frozen_layers)
        model.network.to(resolve_device(self.device))
        frozen = self._fitted_start(model if is_new else None, train, dev)
        if not is_there and self.ranks.is_first:
            claim()  # only now, after all checks of the examples
        run = Run(self._run, self.ranks, self.log_line)
        if self.frozen_only:
            outcome = self._end_frozen(run, model)
        else:
            saved = checkpoints(self._run)
            choose_what_learns(model, self.settings, saved[-1] / "model" if saved else None)
            outcome = self._trained(run, model, data, dev, should_stop, frozen)
        if outcome.reason == "stopped" or not self.ranks.is_first:
            return outcome
        self._finish(model, data, outcome)
        judged = judge(model, dev) if dev else None
        best_by, has_gained = self._best_by(model.trained.task), True
        if judged is not None:
            outcome = replace(outcome, metrics=judged.metrics)
            if self.compare:
                outcome, has_gained = self._compared(model, judged, frozen, train, dev, outcome)
        self._write_card(model, train, data, dev, judged, outcome)
        self._save(model, outcome)
        if self.compare:
            for sentence in advice_on(outcome, best_by, self._run / "metrics.jsonl", has_gained=has_gained):
                self.log_line(f"note: {sentence}")
            self.log_line(comparison(best_by, outcome.metrics, outcome.baselines))
        return outcome

    def _trained(
        self, run: Run, model: Model, data: LabeledEncodings, dev: Sequence[Any], should_stop: Callable[[], bool],
        frozen: Judged | None,
    ) -> Outcome:  # fmt: skip
        """Train the model."""

        def has_results() -> bool:
            steps = set(checkpoints(self._run)) - {checkpoint_folder(self._run, 0)}
            return bool(steps) or not self.ranks.is_first

        with released_if_refused(self._run, has_results):
            trainer = self._trainer(run, model, data, dev, should_stop, frozen)
            run.log_start(trainer, **self._start_facts(model))
            reason = trainer.train()
        return Outcome(reason, trainer.state.step, trainer.state.best_step, {})

    def _end_frozen(self, run: Run, model: Model) -> Outcome:
        """Record a run without training."""
        start: Any = SimpleNamespace(state=TrainingState(), network=model.network)
        run.log_start(start, **self._start_facts(model))
        return Outcome("finished", 0, None, {})

    def _start_facts(self, model: Model) -> dict[str, Any]:
        return {"settings": asdict(self.settings), "model": str(self.model), "task": self.task,
                "best_by": self._best_by(model.trained.task)}  # fmt: skip

    def _fitted_start(self, new_model: Model | None, train: Sequence[Any], dev: Sequence[Any]) -> Judged | None:
        """Fit the head of a new model, unless it is randomly initialized, and log its quality. Returns its dev
        predictions; None without dev examples, or if no head was fitted."""
        if self.settings.head == "drawn":
            return None
        if self.kept and new_model is not None:
            new_model.network.heads.load_state_dict(self.kept["weights"])
            new_model.checkpoint.provenance |= self.kept["provenance"]
            return self.kept["judged"]
        model = new_model or self.new_model(train)  # for a resumed run, the frozen model is built again
        fitted, trained = fit_new_head(model, train, self.settings.precision), model.trained
        if fitted is None:
            return None
        judged = judge(model, dev) if dev else None
        model.checkpoint.trained = trained  # thresholds are set again at the end
        if self.kept is not None:
            weights = {name: value.clone() for name, value in model.network.heads.state_dict().items()}
            self.kept |= {"weights": weights, "provenance": dict(model.checkpoint.provenance), "judged": judged}
        if new_model is not None:
            self._share_head(model)
            self.log_line(frozen_line(model, fitted, judged, self._named(dev), self._best_by(model.trained.task)))
            for sentence in on_rows(model.trained.task, train, dev):
                self.log_line(f"note: {sentence}")
        return judged

    def _share_head(self, model: Model) -> None:
        """Copy the first rank's head to every rank: heads may differ in the last bit."""
        for parameter in model.network.heads.parameters():
            first = parameter.data if self.ranks.is_first else parameter.data * 0
            parameter.data.copy_(self.ranks.add(first))

    def _compared(
        self, model: Model, judged: Judged, frozen: Judged | None, train: Sequence[Any], dev: Sequence[Any],
        outcome: Outcome,
    ) -> tuple[Outcome, bool]:  # fmt: skip
        """The outcome with baselines without fine-tuning, and False if it is no better than frozen features for sure;
        the comparison is logged."""
        best_by, usual, has_gained = self._best_by(judged.task), frozen, outcome.best_step != 0
        if frozen is None or self.settings.head != "fitted":
            usual = self.frozen(train, dev)
        frozen = frozen or usual
        if not has_gained:
            self.log_line(NO_GAIN)
        elif frozen is not None and (gain := gain_of(judged, frozen, dev, best_by)) is not None:
            self.log_line(gain_sentence(best_by, gain, self._named(dev)))
            has_gained = gain.high >= 0
        known = self.baselines(model, frozen, train, dev)
        others = {} if usual is None or usual is frozen else {FROZEN_DEFAULT: usual.metrics[best_by]}
        return replace(outcome, baselines=known | others), has_gained

    def frozen(self, train: Sequence[Any], dev: Sequence[Any]) -> Judged | None:
        """Dev predictions of frozen features, with the default head; None for a new head that is not fitted."""
        run = replace(self, settings=replace(self.settings, head="fitted", lora_rank=None), log_line=lambda line: None)
        model = run.new_model(train)
        model.network.to(resolve_device(self.device))
        fitted, head = fit_new_head(model, train, self.settings.precision), model.trained.task.head
        if fitted is None and head and head not in model.checkpoint.trained_heads():
            return None
        return judge(model, dev)

    def baselines(self, model: Model, frozen: Judged | None, *examples: Sequence[Any]) -> dict[str, float]:
        """The selecting metric on the dev examples of methods without fine-tuning, by name.

        Args:
            model: a trained model of this run, for its task and layout.
        """
        best_by = self._best_by(model.trained.task)
        known = simple_baselines(model, *examples, metric=best_by)
        return known if frozen is None else {**known, FROZEN: frozen.metrics[best_by]}

    def _named(self, dev: Sequence[Any]) -> str:
        return f"{len(dev)} {self.dev_name}"

    @property
    def _run(self) -> Path:
        return self.out / "run"

    def facts(self, train: Sequence[Any], dev: Sequence[Any]) -> dict[str, Any]:
        """Facts that must match for a run to be resumed."""
        return {
            "model": str(self.model),
            "task": self.task,
            "settings": asdict(self.settings),
            "options": dict(self.options),
            "num_examples": {"training": len(train), "dev": len(dev)},
            "digests": {"training": digest_of(train), "dev": digest_of(dev)},
        }

    def _model(self, train: Sequence[Any]) -> tuple[Model, bool]:
        """The initial model and True, or the model of the last checkpoint and False."""
        saved = checkpoints(self._run)
        if saved and self.settings.lora_rank is None:
            return load(saved[-1] / "model", device="cpu"), False
        return self.new_model(train), not saved

    def new_model(self, train: Sequence[Any]) -> Model:
        """The initial model, with a new head; see `model_to_train`."""
        task = task_kind(self.task).of_examples(train, self.options)
        return model_to_train(str(self.model), task, self.settings, self.log_line, train[0])

    @property
    def _has_adapters(self) -> bool:
        return self.settings.lora_rank is not None and not self.frozen_only

    def _write(self, model: Model, folder: Path) -> None:
        write_learned(model, folder, str(self.model), has_adapters=self._has_adapters)

    def _encoded(self, model: Model, examples: Sequence[Any]) -> LabeledEncodings:
        task, layout = model.trained.task, model.trained.layout
        encodings = EncodedRows.of(examples).encoded(task, model.tokenizer, layout)
        if self.ranks.is_first:
            remedy = "raise max_length=" + ", or choose on_long='window'" * task.reads_windows
            InferenceReport.of(encodings, len(examples)).warn_of_cuts(remedy)
        return task.labeled(examples, encodings)

    def _trainer(
        self, run: Run, model: Model, data: LabeledEncodings, dev: Sequence[Any], should_stop: Callable[[], bool],
        frozen: Judged | None,
    ) -> Trainer:  # fmt: skip
        task = model.trained.task
        feed = task.feed(data, self.settings.batch_size, self.settings.seed, self.ranks.rank, self.ranks.num_ranks)
        settings = self.settings.training(feed.batches_per_epoch)
        if not self.resumable:
            settings = replace(settings, save_every=settings.num_steps)
        if self.clock_minutes is not None:
            settings = replace(settings, num_steps=None, minutes=self.clock_minutes)
        best_by = self._best_by(task)

        def evaluate() -> dict[str, float]:
            known = frozen if frozen is not None and frozen.task == task and not trainer.state.step else None
            metrics = evaluate_in_training(model, data, dev) if known is None else known.metrics
            if not trainer.state.step:
                check_metric(best_by, metrics[best_by], self._named(dev))
            return metrics

        trainer = run.trainer(
            model.network, task, feed, settings,
            rate_factor=rate_factor(model.network, self.settings.layer_decay, self.settings.head_rate_factor),
            save_model=lambda folder, parameters: self._write(model, folder), best_by=best_by,
            evaluate=evaluate if dev else None, higher_is_better=metric_of(best_by).higher_is_better,
            patience=self.settings.patience, should_stop=should_stop, keep_first=self.settings.head != "drawn",
        )  # fmt: skip
        return trainer

    def _best_by(self, task: TextTask) -> str:
        best_by, known = self.settings.best_by or task.best_by, task.scorer().results()
        if best_by not in known:
            raise UsageError(f"best_by={best_by!r}: expected one of {', '.join(known)}")
        metric_of(best_by)
        return best_by

    def _finish(self, model: Model, data: LabeledEncodings, outcome: Outcome) -> None:
        """Load the best weights into the model."""
        best_step = outcome.best_step
        if best_step is not None and best_step != outcome.step:
            best = checkpoint_folder(self._run, best_step) / "model"
            read_learned(model, best, has_adapters=self._has_adapters)
        refit_head(model, data)
        model.network.eval()
        if model.trained.task.head:
            task = model.trained.task.fold_target_scaling(model.network.heads[model.trained.task.head])
            model.checkpoint.trained = replace(model.trained, task=task)

    def _data_facts(self, name: str, examples: Sequence[Any], data: LabeledEncodings) -> DataFacts:
        num_tokens_cut = int(data.encodings.num_tokens_cut.sum())
        return DataFacts(len(examples), data.encodings.num_texts_cut, num_tokens_cut, self.files.get(name, ()))

    def _write_card(
        self, model: Model, train: Sequence[Any], data: LabeledEncodings, dev: Sequence[Any], judged: Judged | None,
        outcome: Outcome,
    ) -> None:  # fmt: skip
        """Write the model card."""
        facts, intervals = {"training": self._data_facts("training", train, data)}, {}
        if judged is not None:
            report = judged.report
            facts["dev"] = DataFacts(len(dev), report.num_texts_cut, report.num_tokens_cut, self.files.get("dev", ()))
            intervals = measured_scores(judged.task, dev, judged.predictions)
        steps = {"end": outcome.reason, "steps": outcome.step, "step of the weights kept": outcome.best_step,
                 "head input": what_head_reads(model)}  # fmt: skip
        best_by = self._best_by(model.trained.task)
        steps |= {f"{best_by} on dev, {name}": value for name, value in outcome.baselines.items()}
        card = model_card(
            str(self.model), model.trained, facts, settings=asdict(self.settings) | dict(self.options), steps=steps,
            intervals=intervals, num_set_aside=len(self.skipped), example=train[0],
        )  # fmt: skip
        model.checkpoint.trained = replace(model.trained, card=card)

    def _save(self, model: Model, outcome: Outcome) -> None:
        """Write the model directory."""
        with whole_folder(self.out, overwrite=True) as folder:
            self._write(model, folder)
            (folder / "run").mkdir()
            for name in ("settings.json", "metrics.jsonl"):
                shutil.copy(self._run / name, folder / "run" / name)
            write_outcome(outcome, folder)
