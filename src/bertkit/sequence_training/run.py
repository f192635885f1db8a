"""Training runs of generative models; a stopped run resumes from its last checkpoint."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bertkit.device import resolve_device
from bertkit.errors import DataError, UsageError
from bertkit.generation import GenerationSettings, Generator, load_generator
from bertkit.sequence_training.batches import SequenceData
from bertkit.sequence_training.initial_models import NEW_MODELS, initial_model
from bertkit.sequence_training.loss import SequenceLoss
from bertkit.sequence_training.metrics import require_sacrebleu, sequence_metrics
from bertkit.sequence_training.settings import OF_NEW_MODELS, SequenceSettings
from bertkit.tasks import GenerativeTask, SequenceExample, task_kind
from bertkit.tasks.feed import LabeledFeed
from bertkit.tasks.same_texts import dev_in_training
from bertkit.training import ExampleJob, Outcome, Trainer, evaluate

_DEV_PARTS = 4_096  # tokens of a part of the dev examples


@dataclass
class SequenceTraining(ExampleJob):
    """One run of training of a generative model; only the first rank has metrics.

    ``start`` raises a UsageError for settings of a new model with an existing one, a DependencyError for dev pairs
    without sacrebleu installed, and a DataError for an example that is longer than the model's positions.
    """

    task: str  # the name of a `GenerativeTask`
    model: str = "new"  # a name of NEW_MODELS, or a model to start from; a BERT starts both stacks
    settings: SequenceSettings = field(default_factory=SequenceSettings)
    train: Sequence[SequenceExample] = field(default=(), kw_only=True, repr=False)
    dev: Sequence[SequenceExample] = field(default=(), kw_only=True, repr=False)

    def known_metrics(self) -> Collection[str]:
        return SequenceLoss().metrics(torch.zeros(3))

    def check(self) -> None:
        task_kind(self.task, GenerativeTask)
        super().check()
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
            if sentence := dev_in_training(self.train, self.dev):
                self.log_line(sentence)
        else:
            generator = load_generator(saved)
        self._opened = generator
        if _compares_texts(generator, self.dev):
            require_sacrebleu()
        data, held_out = (self._encoded(generator, examples) for examples in (self.train, self.dev))
        self._parts = held_out.take(np.arange(len(self.dev))) if self.dev else None
        generator.network.to(resolve_device(self.device))
        feed = LabeledFeed(
            data, self.batch_size, self.settings.training.seed, self.ranks.rank, self.ranks.num_ranks  # pyrefly: ignore
        )  # fmt: skip
        return self.trainer(
            generator.network, SequenceLoss(self.settings.label_smoothing), feed,
            self.settings.of_loop(len(self.train)), save_model=generator.save,
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

    def result(self, outcome: Outcome, best: Path | None) -> Outcome:
        if best is not None:
            self._opened = load_generator(best)
        else:
            self._opened.network.to("cpu").eval()
        outcome = replace(outcome, metrics=self._metrics(self._opened, self.dev) | self._evaluate())
        self._opened.record_training(self.task, outcome.metrics)
        return outcome

    def write(self, folder: Path, best: Path | None) -> None:
        self._opened.save(folder, overwrite=True)

    def _encoded(self, generator: Generator, examples: Sequence[SequenceExample]) -> SequenceData:
        """Examples as token ids.

        Raises:
            DataError: a source or a target that is longer than the model's positions.
        """
        targets = generator.target_tokenizer.plain_ids([example.target for example in examples])
        end, limits, sources = generator.ending.end_ids[0], generator.max_lengths, None
        if limits[0]:
            sources = generator.encode([example.source or "" for example in examples]) if examples else []
        whole = [np.concatenate([generator.first_ids, target, [end]]).astype(np.int64) for target in targets]
        for number, example in enumerate(examples):
            if len(whole[number]) - 1 > limits[1] or (sources is not None and len(sources[number]) > limits[0]):
                lengths = f"{len(whole[number]) - 1} target tokens" + (
                    "" if sources is None else f" and {len(sources[number])} source tokens"
                )
                raise DataError(
                    f"{example.location or f'example {number}'} has {lengths}, the model {max(limits)} positions: "
                    "shorten it, or give a new model more (max_length)"
                )
        return SequenceData(whole, sources)

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
