"""Training runs of generative models; a stopped run resumes from its last checkpoint."""

import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from bertkit.architectures.encoder_decoder import EncoderDecoderConfig
from bertkit.checkpoint.encoder_decoder import (
    is_encoder_decoder,
    new_encoder_decoder,
    open_encoder_decoder,
    save_encoder_decoder,
    warm_started,
)
from bertkit.checkpoint.saving import save_checkpoint
from bertkit.device import resolve_device
from bertkit.errors import DataError, UsageError
from bertkit.files.json_files import write_json
from bertkit.files.whole_files import whole_folder
from bertkit.generation import Causal, GenerationSettings, SequenceToSequence, load_generator
from bertkit.locate import locate, transformer_folder
from bertkit.sequence_training.batches import SequenceData
from bertkit.sequence_training.examples import SequenceExample, read_pairs, read_texts
from bertkit.sequence_training.loss import SequenceLoss
from bertkit.sequence_training.metrics import sequence_metrics
from bertkit.tasks.feed import LabeledFeed
from bertkit.tokenizer import Tokenizer
from bertkit.tokenizer.byte_level import train_byte_level
from bertkit.training import Ranks, Run, TrainingSettings, checkpoint_folder, checkpoints, claim_run_folder, evaluate
from bertkit.transformer import TransformerConfig

SEQUENCE_TASKS: Mapping[str, Callable[..., list[SequenceExample]]] = {
    "seq2seq": read_pairs,
    "causal-language-model": read_texts,
}
"""Generative tasks, each with the reader of its files."""

NEW_MODELS = {"new-tiny": (2, 128, 4), "new": (3, 256, 4), "new-base": (6, 512, 8)}
"""Sizes of a new model: layers of each stack, width, heads. The last is the base model of Vaswani et al. 2017."""

_DEV_PARTS = 4_096  # tokens of a part of the dev examples


@dataclass(frozen=True)
class SequenceSettings:
    """Settings for training a generative model; defaults mostly from Vaswani et al. 2017, section 5."""

    num_epochs: int = 10  # passes over the examples
    num_steps: int | None = None  # optimizer steps instead of epochs
    batch_size: int = 64  # examples of an optimizer step
    learning_rate: float = 1e-3  # at its peak, at the end of warm-up
    warmup: float = 0.1  # share of the run
    schedule: str = "inverse-square-root"  # one of SCHEDULES
    label_smoothing: float = 0.1  # share of the target distributed over the vocabulary
    dropout: float = 0.1  # of a new model
    vocab_size: int = 4_000  # entries of a new model's vocabulary, at most
    max_length: int = 512  # positions of a new model
    weight_decay: float = 0.0  # of matrices and embeddings
    precision: str = "float32"  # of the products in training
    num_beams: int = 1  # in the evaluation at the end
    seed: int = 0  # of initial weights, the order of examples and dropout

    def __post_init__(self) -> None:
        if type(self.num_epochs) is not int or self.num_epochs < 1:
            raise UsageError(f"num_epochs={self.num_epochs!r}: expected an integer of at least 1")
        if not 0 <= self.label_smoothing < 1:
            raise UsageError(f"label_smoothing={self.label_smoothing!r}: expected a share from 0 to below 1")

    def training(self, num_examples: int) -> TrainingSettings:
        """The settings of the training loop."""
        num_steps = self.num_steps or self.num_epochs * math.ceil(num_examples / self.batch_size)
        return TrainingSettings(
            num_steps=num_steps, batch_size=self.batch_size, learning_rate=self.learning_rate, warmup=self.warmup,
            schedule=self.schedule, weight_decay=self.weight_decay, betas=(0.9, 0.98), eps=1e-9, seed=self.seed,
            precision=self.precision, tokens_per_part=None,
        )  # fmt: skip


@dataclass
class SequenceTraining:
    """One run; ``log_line`` is called with lines of text for the user."""

    out: Path
    task: str  # a name of SEQUENCE_TASKS
    model: str = "new"  # a name of NEW_MODELS, or the model to start from; a BERT starts both stacks of a pair
    settings: SequenceSettings = SequenceSettings()
    device: str = "auto"
    log_line: Callable[[str], None] = tqdm.write

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
            How the run ended ("finished" or "stopped"), and the metrics on ``dev``.

        Raises:
            UsageError: invalid settings, or a folder of another run.
            DataError: an example that is longer than the model's positions.
        """
        if self.task not in SEQUENCE_TASKS:
            raise UsageError(f"task {self.task!r}: expected one of {', '.join(SEQUENCE_TASKS)}")
        run_folder = self.out / "run"
        if checkpoints(run_folder):
            generator = load_generator(checkpoints(run_folder)[-1] / "model")
        else:
            generator = self._new(train)
        data, held_out = (self._encoded(generator, examples) for examples in (train, dev))
        facts = {"task": self.task, "model": self.model, "settings": asdict(self.settings), "examples": len(train)}
        claim_run_folder(self.out, run_folder / "settings.json", facts, resume=resume)
        if (self.out / "config.json").is_file():
            self.log_line(f"{self.out} has already finished")
            return {"reason": "finished"}
        network, save = _network_and_save(generator)
        network.to(resolve_device(self.device))
        task, settings = SequenceLoss(self.settings.label_smoothing), self.settings.training(len(train))
        parts = held_out.take(np.arange(len(dev))) if dev else None
        dtype = getattr(torch, settings.precision)

        def judge() -> dict[str, float]:
            assert parts is not None
            number = max(1, round(parts.num_tokens / _DEV_PARTS))
            on_device = [part.to(resolve_device(self.device)) for part in parts.split(number)]
            return evaluate(network, task, on_device, dtype=dtype)

        run = Run(run_folder, Ranks(), self.log_line)
        trainer = run.trainer(
            network, task, LabeledFeed(data, settings.batch_size, settings.seed),  # pyrefly: ignore
            settings, save_model=save, evaluate=judge if dev else None, should_stop=should_stop,
        )  # fmt: skip
        run.log_start(trainer, **facts)
        reason = trainer.train()
        if reason == "stopped":
            return {"reason": reason}
        best = trainer.state.best_step
        if best is not None and best != trainer.state.step:
            generator = load_generator(checkpoint_folder(run_folder, best) / "model")
        else:
            network.to("cpu").eval()
        metrics = self._metrics(generator, dev) | (judge() if dev else {})
        self._finish(generator, metrics, run_folder)
        return {"reason": reason, "step": trainer.state.step, "best_step": best, **metrics}

    def _new(self, train: Sequence[SequenceExample]) -> Causal | SequenceToSequence:
        """The model with its initial weights."""
        if self.task == "causal-language-model":
            if self.model in NEW_MODELS:
                raise UsageError("causal-language-model requires --model; bertkit pretrain makes new models")
            generator = load_generator(self.model)
            if not isinstance(generator, Causal):
                raise UsageError(f"{self.model} is an encoder-decoder model: choose a causal language model")
            generator.model.mark_trained()
            return generator
        if self.model not in NEW_MODELS:
            folder = locate(self.model)
            is_pair = is_encoder_decoder(transformer_folder(folder))
            return SequenceToSequence(
                open_encoder_decoder(folder) if is_pair else warm_started(folder, self.settings.seed)
            )
        texts = [text for example in train for text in (example.source, example.target) if text is not None]
        tokenizer = train_byte_level(texts, self.settings.vocab_size)
        return SequenceToSequence(new_encoder_decoder(self._new_config(tokenizer), tokenizer, self.settings.seed))

    def _new_config(self, tokenizer: Tokenizer) -> EncoderDecoderConfig:
        layers, width, heads = NEW_MODELS[self.model]
        encoder, decoder = (
            TransformerConfig(
                vocab_size=len(tokenizer.vocabulary), hidden_size=width, num_hidden_layers=layers,
                num_attention_heads=heads, intermediate_size=4 * width, hidden_dropout_prob=self.settings.dropout,
                max_position_embeddings=self.settings.max_length, is_decoder=is_decoder,
            )
            for is_decoder in (False, True)
        )  # fmt: skip
        ids = (tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id)
        return EncoderDecoderConfig(encoder, decoder, *ids, shares_embeddings=True)

    def _encoded(self, generator: Causal | SequenceToSequence, examples: Sequence[SequenceExample]) -> SequenceData:
        """Examples as token ids.

        Raises:
            DataError: a source or a target that is longer than the model's positions.
        """
        targets = generator.tokenizer.plain_ids([example.target for example in examples])
        if isinstance(generator, Causal):
            network = generator.model.network
            wraps = generator.tokenizer.engine.template.wraps  # otherwise texts begin with their first token
            first = [generator.tokenizer.cls_id] if wraps else []
            end, sources, limits = generator.ending.end_ids[0], None, (0, network.config.max_position_embeddings)
        else:
            config = generator.checkpoint.network.config
            first, end = [config.start_id], config.end_id
            sources = generator.encode([example.source or "" for example in examples]) if examples else []
            limits = (config.encoder.max_position_embeddings, config.decoder.max_position_embeddings)
        whole = [np.concatenate([first, target, [end]]).astype(np.int64) for target in targets]
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

    def _metrics(self, generator: Causal | SequenceToSequence, dev: Sequence[SequenceExample]) -> dict[str, float]:
        """Metrics of texts generated for dev sources."""
        if not dev or not isinstance(generator, SequenceToSequence):
            return {}
        settings = GenerationSettings(num_beams=self.settings.num_beams)
        made = generator.generate([example.source or "" for example in dev], settings)
        return sequence_metrics([one.text for one in made], [example.target for example in dev])

    def _finish(self, generator: Causal | SequenceToSequence, metrics: dict[str, float], run_folder: Path) -> None:
        """Write the model with the settings and metrics of the run."""
        if isinstance(generator, SequenceToSequence):
            generator.checkpoint.settings = {"task": self.task, "metrics": metrics}
        with whole_folder(self.out, overwrite=True) as folder:
            generator.save(folder, overwrite=True)
            (folder / "run").mkdir()
            for name in ("settings.json", "metrics.jsonl"):
                shutil.copy(run_folder / name, folder / "run" / name)
            write_json(folder / "run" / "outcome.json", metrics)


def _network_and_save(generator: Causal | SequenceToSequence) -> tuple[torch.nn.Module, Callable[..., None]]:
    """The module to train, and the function that writes its checkpoints."""
    if isinstance(generator, Causal):
        return generator.model.network, partial(save_checkpoint, generator.model.checkpoint)
    return generator.checkpoint.network, partial(save_encoder_decoder, generator.checkpoint)
