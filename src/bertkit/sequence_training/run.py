"""Training runs of generative models; a stopped run resumes from its last checkpoint."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bertkit.device import resolve_device
from bertkit.errors import DataError, UsageError
from bertkit.files.whole_files import whole_folder
from bertkit.generation import GenerationSettings, Generator, load_generator
from bertkit.sequence_training.batches import SequenceData
from bertkit.sequence_training.initial_models import NEW_MODELS, initial_model
from bertkit.sequence_training.loss import SequenceLoss
from bertkit.sequence_training.metrics import require_sacrebleu, sequence_metrics
from bertkit.sequence_training.settings import OF_NEW_MODELS, SequenceSettings
from bertkit.tasks import GenerativeTask, SequenceExample, task_kind
from bertkit.tasks.feed import LabeledFeed
from bertkit.training import (
    Outcome,
    RowsJob,
    Trainer,
    checkpoint_folder,
    evaluate,
    write_run_records,
)

_DEV_PARTS = 4_096  # tokens of a part of the dev examples


@dataclass
class SequenceTraining(RowsJob):
    """One run of training of a generative model.

    Raises:
        UsageError: settings of a new model with an existing one.
        DependencyError: dev pairs without sacrebleu installed.
        DataError: no examples, or one that is longer than the model's positions.
    """

    task: str  # the name of a `GenerativeTask`
    model: str = "new"  # a name of NEW_MODELS, or a model to start from; a BERT starts both stacks
    settings: SequenceSettings = field(default_factory=SequenceSettings)

    def check(self) -> None:
        task_kind(self.task, GenerativeTask)
        if not self.train:
            raise DataError("no examples to train on: expected at least one")
        self.settings.training.check_dev(self.dev, ("patience", "best_by"))
        best_by, metrics = self.settings.training.best_by, SequenceLoss().metrics(torch.zeros(3))
        if best_by is not None and best_by not in metrics:
            raise UsageError(f"best_by={best_by!r}: expected one of {', '.join(metrics)}")
        if self.model not in NEW_MODELS:
            for name in OF_NEW_MODELS:
                if (value := getattr(self.settings, name)) is not None:
                    raise UsageError(f"{name}={value!r} is for a new model, and has no effect on {self.model}: omit it")

    def start_facts(self) -> dict[str, Any]:
        settings = self.settings.values()
        return {"task": self.task, "model": self.model, "settings": settings, "examples": len(self.train)}

    def open(self, saved: Path | None) -> Trainer:
        if saved is None:
            generator = initial_model(task_kind(self.task, GenerativeTask), self.model, self.train, self.settings)
        else:
            generator = load_generator(saved)
        self._opened = generator
        if _compares_texts(generator, self.dev):
            require_sacrebleu()
        _, data = self._encoded(generator, self.train)
        self._compared, held_out = self._encoded(generator, self.dev)
        self.log_skipped()
        self._parts = held_out.take(np.arange(len(held_out))) if held_out.targets else None
        generator.network.to(resolve_device(self.device))
        feed = LabeledFeed(
            data, self.batch_size, self.settings.training.seed, self.ranks.rank, self.ranks.num_ranks  # pyrefly: ignore
        )  # fmt: skip
        return self.trainer(
            generator.network, SequenceLoss(self.settings.label_smoothing), feed,
            self.settings.of_loop(len(data)), save_model=generator.save,
            evaluate=self._evaluate if self.dev else None, best_is_result=True,
        )  # fmt: skip

    def _evaluate(self) -> dict[str, float]:
        """Metrics of the next token on the dev examples."""
        if self._parts is None:
            return {}
        network, number = self._opened.network, max(1, round(self._parts.num_tokens / _DEV_PARTS))
        device, dtype = next(network.parameters()).device, getattr(torch, self.settings.training.precision)
        parts = [part.to(device) for part in self._parts.split(number)]
        return evaluate(network, SequenceLoss(self.settings.label_smoothing), parts, dtype=dtype)

    def finish(self, outcome: Outcome) -> Outcome:
        if not self.ranks.is_first:
            return outcome
        if outcome.best_step is not None and outcome.best_step != outcome.step:
            self._opened = load_generator(checkpoint_folder(self.folder, outcome.best_step) / "model")
        else:
            self._opened.network.to("cpu").eval()
        outcome = replace(outcome, metrics=self._metrics(self._opened, self._compared) | self._evaluate())
        self._opened.record_training(self.task, outcome.metrics)
        with whole_folder(self.out, overwrite=True) as folder:
            self._opened.save(folder, overwrite=True)
            write_run_records(self, outcome, folder)
        return outcome

    def _encoded(
        self, generator: Generator, examples: Sequence[SequenceExample]
    ) -> tuple[list[SequenceExample], SequenceData]:
        """Examples with their token ids.

        Raises:
            DataError: a source or a target that is longer than the model's positions, or with ``skip_bad`` all are.
        """
        targets = generator.target_tokenizer.plain_ids([example.target for example in examples])
        end, limits, sources = generator.ending.end_ids[0], generator.max_lengths, None
        if limits[0]:
            sources = generator.encode([example.source or "" for example in examples]) if examples else []
        whole = [np.concatenate([generator.first_ids, target, [end]]).astype(np.int64) for target in targets]
        fitting: list[int] = []
        for number, example in enumerate(examples):
            if len(whole[number]) - 1 <= limits[1] and (sources is None or len(sources[number]) <= limits[0]):
                fitting.append(number)
                continue
            lengths = f"{len(whole[number]) - 1} target tokens" + (
                "" if sources is None else f" and {len(sources[number])} source tokens"
            )
            why = f"{example.location or f'example {number}'} has {lengths}, the model {max(limits)} positions"
            if not self.skip_bad:
                raise DataError(f"{why}: shorten it, or give a new model more (max_length)")
            self.skipped = [*self.skipped, why]
        if examples and not fitting:
            raise DataError(f"every example is too long; the first: {self.skipped[-len(examples)]}")
        return [examples[number] for number in fitting], SequenceData(
            [whole[number] for number in fitting], None if sources is None else [sources[number] for number in fitting]
        )

    def _metrics(self, generator: Generator, dev: Sequence[SequenceExample]) -> dict[str, float]:
        """Metrics of texts generated for dev sources."""
        if not _compares_texts(generator, dev):
            return {}
        settings = GenerationSettings(num_beams=self.settings.num_beams)
        made = generator.generate([example.source or "" for example in dev], settings)
        return sequence_metrics([one.text for one in made], [example.target for example in dev])


def _compares_texts(generator: Generator, dev: Sequence[SequenceExample]) -> bool:
    """Whether texts are generated for dev sources: a language model has none."""
    return bool(dev and generator.max_lengths[0])
