"""transformers: its Trainer with default settings; batches are padded to their longest text, and no weights are
saved."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from trainers import ByName
from transformers import AutoTokenizer, PrinterCallback, Trainer, TrainingArguments

from finetuners import EPS, NUM_WARM_UP_STEPS, Facts, Settings
from finetuners.published_examples import KINDS


class Finetuner(ByName):
    def __init__(self, threads: int) -> None:
        torch.set_num_threads(threads)

    def finetune(self, model: Path, train: Sequence[Any], test: Sequence[Any], settings: Settings) -> Facts:
        kind = KINDS[settings.kind](AutoTokenizer.from_pretrained(model), train, settings)
        with tempfile.TemporaryDirectory() as folder:
            features = kind.features(train)
            _trainer(Trainer, model, kind, features, settings, folder, max_steps=NUM_WARM_UP_STEPS).train()
            trainer = _trainer(Trainer, model, kind, features, settings, folder)
            seconds = trainer.train().metrics["train_runtime"]
            outputs = trainer.predict(kind.features(test)).predictions
        return {"seconds": seconds, "predictions": kind.predictions(test, outputs)}

    def losses(self, model: Path, train: Sequence[Any], settings: Settings) -> list[float]:
        kind = KINDS[settings.kind](AutoTokenizer.from_pretrained(model), train, settings)
        with tempfile.TemporaryDirectory() as folder:
            trainer = _trainer(
                _WithLosses, model, kind, kind.features(train), settings, folder, train_sampling_strategy="sequential"
            )
            trainer.losses = []
            trainer.train()
        return trainer.losses


class _WithLosses(Trainer):
    """A Trainer that keeps the exact losses, because those in its log are rounded."""

    losses: list[float]

    def compute_loss(self, *arguments: Any, **named: Any) -> Any:
        loss = super().compute_loss(*arguments, **named)
        self.losses.append(loss.item())
        return loss


def _trainer(
    made: type[Any], model: Path, kind: Any, features: list[dict], settings: Settings, folder: str, **changed: Any
) -> Any:
    transformers.set_seed(settings.seed)  # of the new head
    arguments = TrainingArguments(
        folder, per_device_train_batch_size=settings.batch_size, per_device_eval_batch_size=settings.batch_size,
        num_train_epochs=settings.num_epochs, learning_rate=settings.learning_rate, warmup_steps=settings.warmup,
        weight_decay=settings.weight_decay, max_grad_norm=settings.clip_norm, adam_epsilon=EPS, seed=settings.seed,
        bf16=settings.precision == "bfloat16", use_cpu=True, save_strategy="no", report_to="none", **changed,
    )  # fmt: skip
    network = kind.model_class.from_pretrained(model, **kind.model_options)
    trainer = made(network, arguments, data_collator=kind.collator, train_dataset=features)
    trainer.remove_callback(PrinterCallback)
    return trainer
