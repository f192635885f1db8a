"""Training runs of generative models; a stopped run resumes from its last checkpoint."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from tqdm import tqdm

from bertkit.device import resolve_device
from bertkit.errors import DataError, UsageError
from bertkit.files.json_files import read_json, write_json
from bertkit.files.whole_files import whole_folder
from bertkit.finetuning.outcome import digest_of
from bertkit.generation import GenerationSettings, Generator, load_generator
from bertkit.sequence_training.batches import SequenceData
from bertkit.sequence_training.examples import SequenceExample
from bertkit.sequence_training.loss import SequenceLoss
from bertkit.sequence_training.metrics import require_sacrebleu, sequence_metrics
from bertkit.sequence_training.settings import OF_NEW_MODELS, SequenceSettings
from bertkit.sequence_training.tasks import NEW_MODELS, SEQUENCE_TASKS
from bertkit.tasks.feed import LabeledFeed
from bertkit.training import Ranks, Run, checkpoint_folder, checkpoints, claim_run_folder, evaluate

_OUTCOME = "outcome.json"
_DEV_PARTS = 4_096  # tokens of a part of the dev examples


@dataclass
class SequenceTraining:
    """One run; ``log_line`` is called with lines of text for the user."""

    out: Path
    task: str  # a name of SEQUENCE_TASKS
    model: str = "new"  # a name of NEW_MODELS, or a model to start from; a BERT starts both stacks
    settings: SequenceSettings = field(default_factory=SequenceSettings)
    device: str = "auto"
    log_line: Callable[[str], None] = tqdm.write
    ranks: Ranks = field(default_factory=Ranks)  # the processes that train together; the first one writes

    def start(
        self,
        train: Sequence[SequenceExample],
        dev: Sequence[SequenceExample] = (),
        *,
        resume: bool = False,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> dict[str, Any]:
        """Train, and keep the best weights on ``dev``, or the last ones without it.

        Returns:
            How the run ended ("finished" or "stopped"), and on the first rank the metrics on ``dev``.

        Raises:
            UsageError: invalid settings, those of a new model with an existing one, batches of fewer examples than
                ranks, or a folder of another run.
            DependencyError: dev pairs without sacrebleu installed.
            DataError: no examples, or one that is longer than the model's positions.
        """
        if self.task not in SEQUENCE_TASKS:
            raise UsageError(f"task {self.task!r}: expected one of {', '.join(SEQUENCE_TASKS)}")
        if not train:
            raise DataError("no examples to train on: expected at least one")
        self.ranks.check_batch_size(self.settings.batch_size)
        if self.model not in NEW_MODELS:
            for name in OF_NEW_MODELS:
                if (value := getattr(self.settings, name)) is not None:
                    raise UsageError(f"{name}={value!r} is for a new model, and has no effect on {self.model}: omit it")
        run_folder = self.out / "run"
        if checkpoints(run_folder):
            generator = load_generator(checkpoints(run_folder)[-1] / "model")
        else:
            generator = SEQUENCE_TASKS[self.task].create(self.model, train, self.settings)
        if _compares_texts(generator, dev):
            require_sacrebleu()
        data, held_out = (self._encoded(generator, examples) for examples in (train, dev))
        facts = {"task": self.task, "model": self.model, "settings": asdict(self.settings), "examples": len(train)}
        digests = {"digests": {"training": digest_of(train), "dev": digest_of(dev)}}
        if self.ranks.is_first:
            claim_run_folder(self.out, run_folder / "settings.json", facts | digests, resume=resume)
        self.ranks.wait()
        if (self.out / "config.json").is_file():
            self.log_line(f"{self.out} has already finished")
            return {"reason": "finished", **(read_json(run_folder / _OUTCOME) or {})}
        network = generator.network.to(resolve_device(self.device))
        task, settings = SequenceLoss(self.settings.label_smoothing), self.settings.training(len(train))
        parts = held_out.take(np.arange(len(dev))) if dev else None
        dtype = getattr(torch, settings.precision)

        def judge(network: nn.Module) -> dict[str, float]:
            if parts is None:
                return {}
            number, where = max(1, round(parts.num_tokens / _DEV_PARTS)), next(network.parameters()).device
            return evaluate(network, task, [part.to(where) for part in parts.split(number)], dtype=dtype)

        run, ranks = Run(run_folder, self.ranks, self.log_line), self.ranks
        feed = LabeledFeed(data, settings.batch_size, settings.seed, ranks.rank, ranks.num_ranks)  # pyrefly: ignore
        trainer = run.trainer(
            network, task, feed, settings, save_model=generator.save, evaluate=partial(judge, network) if dev else None,
            best_is_result=True, should_stop=should_stop,
        )  # fmt: skip
        run.log_start(trainer, **facts)
        reason = trainer.train()
        if reason == "stopped" or not ranks.is_first:
            return {"reason": reason}
        best = trainer.state.best_step
        if best is not None and best != trainer.state.step:
            generator = load_generator(checkpoint_folder(run_folder, best) / "model")
        else:
            network.to("cpu").eval()
        metrics = self._metrics(generator, dev) | judge(generator.network)
        self._finish(generator, metrics, run_folder)
        return {"reason": reason, "step": trainer.state.step, "best_step": best, **metrics}

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

    def _finish(self, generator: Generator, metrics: dict[str, float], run_folder: Path) -> None:
        """Write the model with the settings and metrics of the run."""
        generator.record_training(self.task, metrics)
        with whole_folder(self.out, overwrite=True) as folder:
            generator.save(folder, overwrite=True)
            (folder / "run").mkdir()
            for name in ("settings.json", "metrics.jsonl"):
                shutil.copy(run_folder / name, folder / "run" / name)
            write_json(folder / "run" / _OUTCOME, metrics)


def _compares_texts(generator: Generator, dev: Sequence[SequenceExample]) -> bool:
    """Whether texts are generated for dev sources: a language model has none."""
    return bool(dev and generator.max_lengths[0])
