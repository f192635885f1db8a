"""Fine-tuning run, from examples to a model folder; a stopped run resumes from its last checkpoint.

The output directory is the model. Its folder ``run`` holds settings and metrics, and checkpoints until the run ends.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self

from bertkit.batch import LabeledEncodings
from bertkit.checkpoint.config_file import read_config
from bertkit.device import resolve_device
from bertkit.errors import UsageError
from bertkit.evidence import measured_scores
from bertkit.files.whole_files import check_folder_writable
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
from bertkit.finetuning.prepared_rows import prepared_rows
from bertkit.finetuning.settings import PAPER, FinetuningSettings, default_settings
from bertkit.inference import InferenceReport
from bertkit.locate import locate, transformer_folder
from bertkit.model import Model, load
from bertkit.reports.model_card import DataFacts, model_card
from bertkit.tasks import TextTask, metric_of, task_kind
from bertkit.tasks.encoded_rows import EncodedRows
from bertkit.tasks.examples import digest_of
from bertkit.training import (
    ExampleJob,
    Outcome,
    Trainer,
    TrainingSettings,
)

GRID, MINUTES = "grid.json", "minutes.json"
"""Files in ``run`` that identify a sweep, or runs within a time limit."""


@dataclass
class Finetuning(ExampleJob):
    """One run: ``out`` becomes the model directory; ``options`` are task options (`TextTask.of_examples`).

    ``start`` raises a UsageError for ``minutes`` in the settings, and a DataError for a dev label that no training
    example has, or dev examples for which the selecting metric is not a number.
    """

    model: str | Path  # the published model to start from
    task: str  # a name of TASKS
    settings: FinetuningSettings = field(default_factory=FinetuningSettings)
    options: Mapping[str, Any] = field(default_factory=dict)
    _: KW_ONLY
    files: Mapping[str, Sequence[Path]] = field(default_factory=dict)  # "training" and "dev", for the model card
    skip_bad: bool = False  # skip examples that cannot be used or are too long; else they are errors
    skipped: Sequence[str] = ()  # locations and reasons of skipped examples; the run adds its own
    resumable: bool = True  # keep a checkpoint for each epoch; else only the best one
    compare: bool = True  # compare with baselines without fine-tuning, on the dev examples
    dev_name: str = "dev examples"  # what messages call the dev examples
    clock_minutes: float | None = None  # training time, instead of the epochs of the settings
    head_cache: dict[str, Any] | None = None  # fitted head, shared by runs with equal examples and HEAD_SETTINGS
    train: Sequence[Any] = field(default=(), repr=False)
    dev: Sequence[Any] = field(default=(), repr=False)

    length_names: ClassVar[tuple[str, ...]] = ("settings.num_epochs", "settings.num_steps")
    of_dev: ClassVar[tuple[str, ...]] = ("patience",)

    def prepared(self, train: Sequence[Any], dev: Sequence[Any]) -> Self:
        check_folder_writable(self.out)
        self.settings.check_untimed("Finetuning.start", "call start_run")
        self.ranks.check_batch_size(self.batch_size)
        train, dev = prepared_rows(self, train, dev)
        return replace(self, settings=self.complete_settings(len(train)), train=train, dev=dev)

    def complete_settings(self, num_examples: int) -> FinetuningSettings:
        """The settings with a learning rate and a number of epochs."""
        settings = self.settings.completed(task_kind(self.task).training_defaults)
        if settings.completed(PAPER) is settings:
            return settings
        config = read_config(transformer_folder(locate(self.model))).transformer
        num_batches = -(-num_examples // settings.training.batch_size)
        return settings.completed(default_settings(config.hidden_size, num_batches, settings.head))

    def known_metrics(self) -> Collection[str]:
        return ()

    def check(self) -> None:
        super().check()
        for record, kind in ((GRID, "a sweep: pass --sweep"), (MINUTES, "a search within minutes: pass --minutes")):
            if (self.folder / record).is_file():
                raise UsageError(f"{self.out} contains {kind} and --resume to continue it, or choose another folder")

    def open(self, saved: Path | None) -> Trainer:
        model = self._opened = self._model(saved)
        data = self._data = self._encoded(model, self.train)
        for sentence in model.trained.task.choices_for(self.train) if saved is None else ():
            self.log_line(sentence)
        if self.dev:
            self._encoded(model, self.dev)  # errors in them are raised before hours of training
            check_dev(model.trained.task, self.dev, self._dev_named)
        best_by = self._best_by(model.trained.task)
        check_frozen_layers(model, self.settings.frozen_layers)
        model.network.to(resolve_device(self.device))
        has_begun = saved is not None or bool(self.head_cache)
        frozen = self._frozen = self._fitted_start(model if saved is None else None)
        is_drawn = self.settings.head == "drawn" or self._is_untrained(model)
        for sentence in on_rows(model.trained.task, self.train, self.dev) if not has_begun else ():
            self.log_line(f"note: {sentence}")
        if self.trains:
            choose_what_learns(model, self.settings, saved)
        if saved is not None:
            self._restore_scaling(model, saved)
        task = model.trained.task
        feed = task.feed(data, self.batch_size, self.settings.training.seed, self.ranks.rank, self.ranks.num_ranks)
        settings = self.settings.of_loop(feed.batches_per_epoch)
        if not self.resumable:
            settings = replace(settings, save_every=settings.num_steps)
        if self.clock_minutes is not None:
            settings = replace(settings, num_steps=None, minutes=self.clock_minutes)

        def evaluate() -> dict[str, float]:
            known = frozen if frozen is not None and frozen.task == task and not self.state.step else None
            metrics = evaluate_in_training(model, data, self.dev) if known is None else known.metrics
            if not self.state.step:
                check_metric(best_by, metrics[best_by], self._dev_named)
            return metrics

        return self.trainer(
            model.network, task, feed, settings,
            rate_factor=rate_factor(model.network, self.settings.layer_decay, self.settings.head_rate_factor),
            save_model=lambda folder, parameters: self._write(model, folder), best_by=best_by,
            evaluate=evaluate if self.dev else None,
            keep_first=not is_drawn,
        )  # fmt: skip

    def _restore_scaling(self, model: Model, saved: Path) -> None:
        """Scale the head as in training, if the checkpoint is a finished model."""
        stored = model.trained.task if self.settings.lora_rank is None else load(saved, device="cpu").trained.task
        if stored.head:
            initial = task_kind(self.task).of_examples(self.train, self.options)
            task = stored.unfold_target_scaling(model.network.heads[stored.head], initial)
            model.checkpoint.trained = replace(model.trained, task=task)

    def start_facts(self) -> dict[str, Any]:
        return {"settings": self.settings.values(), "model": str(self.model), "task": self.task,
                "best_by": self._best_by(self._opened.trained.task)}  # fmt: skip

    def finish(self, outcome: Outcome) -> Outcome:
        outcome = super().finish(outcome)
        if self.ranks.is_first and self.compare:
            best_by, has_gained = self._best_by(self._opened.trained.task), self._has_gained
            for sentence in advice_on(outcome, best_by, self.folder, has_gained=has_gained):
                self.log_line(f"note: {sentence}")
            self.log_line(comparison(best_by, outcome.metrics, outcome.baselines))
        return outcome

    def result(self, outcome: Outcome, best: Path | None) -> Outcome:
        model, self._has_gained = self._opened, True
        self._keep(best)
        judged = judge(model, self.dev) if self.dev else None
        if judged is not None:
            outcome = replace(outcome, metrics=judged.metrics)
            if self.compare:
                outcome, self._has_gained = self._compared(judged, outcome)
        self._write_card(judged, outcome)
        return outcome

    def write(self, folder: Path, best: Path | None) -> None:
        self._write(self._opened, folder)

    def _fitted_start(self, new_model: Model | None) -> Judged | None:
        """Fit the head of a new model, unless it is randomly initialized, and log its quality. Returns its dev
        predictions; None without dev examples, or if no head was fitted."""
        if self.settings.head == "drawn":
            return None
        if self.head_cache and new_model is not None:
            new_model.network.heads.load_state_dict(self.head_cache["weights"])
            new_model.checkpoint.provenance |= self.head_cache["provenance"]
            return self.head_cache["judged"]
        model = new_model or self.new_model(self.train)  # for a resumed run, the frozen model is built again
        fitted, trained = fit_new_head(model, self.train, self.settings.training.precision), model.trained
        if fitted is None:
            return None
        judged = judge(model, self.dev) if self.dev else None
        model.checkpoint.trained = trained  # thresholds are set again at the end
        if self.head_cache is not None:
            weights = {name: value.clone() for name, value in model.network.heads.state_dict().items()}
            self.head_cache |= {"weights": weights, "provenance": dict(model.checkpoint.provenance), "judged": judged}
        if new_model is not None:
            self._share_head(model)
            best_by = self._best_by(model.trained.task)
            self.log_line(frozen_line(model, fitted, judged, self._dev_named, best_by, len(self.train)))
        return judged

    def _share_head(self, model: Model) -> None:
        """Copy the first rank's head to every rank: heads may differ in the last bit."""
        for parameter in model.network.heads.parameters():
            first = parameter.data if self.ranks.is_first else parameter.data * 0
            parameter.data.copy_(self.ranks.add(first))

    def _compared(self, judged: Judged, outcome: Outcome) -> tuple[Outcome, bool]:
        """The outcome with baselines without fine-tuning, and False if it is no better than frozen features for sure;
        the comparison is logged."""
        frozen, best_by, has_gained = self._frozen, self._best_by(judged.task), outcome.best_step != 0
        default = frozen
        if frozen is None or self.settings.head != "fitted":
            default = self.frozen(self.train, self.dev)
        frozen = frozen or default
        if not has_gained:
            self.log_line(NO_GAIN if frozen is not None else "training gained nothing: the initial weights are kept")
        elif frozen is not None and (gain := gain_of(judged, frozen, self.dev, best_by)) is not None:
            self.log_line(gain_sentence(best_by, gain, self._dev_named))
            has_gained = gain.high >= 0
        scores = self.baselines(self._opened, frozen, self.train, self.dev)
        if default is not None and default is not frozen:
            scores[FROZEN_DEFAULT] = default.metrics[best_by]
        return replace(outcome, baselines=scores), has_gained

    def frozen(self, train: Sequence[Any], dev: Sequence[Any]) -> Judged | None:
        """Dev predictions of frozen features, with the default head; None for a new head that is not fitted."""
        run = replace(self, settings=self.settings.changed(head="fitted", lora_rank=None), log_line=lambda line: None)
        model = run.new_model(train)
        model.network.to(resolve_device(self.device))
        fit_new_head(model, train, self.settings.training.precision)
        return None if self._is_untrained(model) else judge(model, dev)

    def _is_untrained(self, model: Model) -> bool:
        """Whether a model has a head with its initial values, which was not fitted either."""
        task = model.trained.task
        return bool(task.fitting_loss is None and task.head and task.head not in model.checkpoint.trained_heads())

    def baselines(self, model: Model, frozen: Judged | None, *examples: Sequence[Any]) -> dict[str, float]:
        """The selecting metric on the dev examples of methods without fine-tuning, by name.

        Args:
            model: a trained model of this run, for its task and layout.
        """
        best_by = self._best_by(model.trained.task)
        known = simple_baselines(model, *examples, metric=best_by)
        return known if frozen is None else {**known, FROZEN: frozen.metrics[best_by]}

    @property
    def _dev_named(self) -> str:
        return f"{len(self.dev)} {self.dev_name}"

    def facts(self) -> dict[str, Any]:
        return {
            "model": str(self.model),
            "task": self.task,
            "settings": TrainingSettings.facts(self.settings),
            "options": dict(self.options),
            "num_examples": {"training": len(self.train), "dev": len(self.dev)},
            "digests": {"training": digest_of(self.train), "dev": digest_of(self.dev)},
        }

    def _model(self, saved: Path | None) -> Model:
        """The initial model, or the model of the last checkpoint."""
        if saved is not None and self.settings.lora_rank is None:
            return load(saved, device="cpu")
        return self.new_model(self.train)

    def new_model(self, train: Sequence[Any]) -> Model:
        """The initial model, with a new head; see `model_to_train`."""
        task = task_kind(self.task).of_examples(train, self.options)
        return model_to_train(str(self.model), task, self.settings, self.log_line, train[0])

    @property
    def _has_adapters(self) -> bool:
        return self.settings.lora_rank is not None and self.trains

    def _write(self, model: Model, folder: Path) -> None:
        write_learned(model, folder, str(self.model), has_adapters=self._has_adapters)

    def _encoded(self, model: Model, examples: Sequence[Any]) -> LabeledEncodings:
        task, layout = model.trained.task, model.trained.layout
        encodings = EncodedRows.of(examples).encoded(task, model.tokenizer, layout)
        if self.ranks.is_first:
            remedy = "raise max_length=" + ", or choose on_long='window'" * (not task.whole)
            InferenceReport.of(encodings, len(examples)).warn_of_cuts(remedy)
        return task.labeled(examples, encodings)

    def _best_by(self, task: TextTask) -> str:
        best_by, known = self.settings.training.best_by or task.best_by, task.scorer().results()
        if best_by not in known:
            raise UsageError(f"best_by={best_by!r}: expected one of {', '.join(known)}")
        metric_of(best_by)
        return best_by

    def _keep(self, best: Path | None) -> None:
        """Load the best weights into the model, unless they are the last ones."""
        model = self._opened
        if best is not None:
            read_learned(model, best, has_adapters=self._has_adapters)
        refit_head(model, self._data)
        model.network.eval()
        if model.trained.task.head:
            task = model.trained.task.fold_target_scaling(model.network.heads[model.trained.task.head])
            model.checkpoint.trained = replace(model.trained, task=task)

    def _data_facts(self, name: str, examples: Sequence[Any], data: LabeledEncodings) -> DataFacts:
        num_tokens_cut = int(data.encodings.num_tokens_cut.sum())
        return DataFacts(len(examples), data.encodings.num_texts_cut, num_tokens_cut, self.files.get(name, ()))

    def _write_card(self, judged: Judged | None, outcome: Outcome) -> None:
        """Write the model card."""
        model, train, dev = self._opened, self.train, self.dev
        facts, intervals = {"training": self._data_facts("training", train, self._data)}, {}
        if judged is not None:
            report = judged.report
            facts["dev"] = DataFacts(len(dev), report.num_texts_cut, report.num_tokens_cut, self.files.get("dev", ()))
            intervals = measured_scores(judged.task, dev, judged.predictions)
        steps = {"end": outcome.reason, "steps": outcome.step, "step of the weights kept": outcome.best_step,
                 "head input": what_head_reads(model)}  # fmt: skip
        best_by = self._best_by(model.trained.task)
        steps |= {f"{best_by} on dev, {name}": value for name, value in outcome.baselines.items()}
        card = model_card(
            str(self.model), model.trained, facts, settings=self.settings.values() | dict(self.options), steps=steps,
            intervals=intervals, num_set_aside=len(self.skipped), example=train[0],
        )  # fmt: skip
        model.checkpoint.trained = replace(model.trained, card=card)
