"""Fine-tuning by transformers and torch: the same model, batches and schedule, written out."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import transformers
from random_models import PUBLISHED_CLASSES
from torch import Tensor, nn

from bertkit import Model
from bertkit.batch import IGNORED, LabeledBatch
from bertkit.finetuning import FinetuningSettings
from bertkit.tasks import TextTask
from bertkit.tasks.feed import LabeledFeed


@contextmanager
def with_every_loss() -> Iterator[None]:
    """Runs of fine-tuning log every step."""
    original = FinetuningSettings.of_loop
    FinetuningSettings.of_loop = lambda self, steps_per_epoch: replace(original(self, steps_per_epoch), log_every=1)
    try:
        yield
    finally:
        FinetuningSettings.of_loop = original


def losses_of_transformers(
    model: Model, train: Sequence[Any], settings: FinetuningSettings, folder: Path, num_steps: int
) -> list[float]:
    """The losses of a run of ``num_steps``: BertForSequenceClassification and its like, torch's AdamW, linear with
    warm-up."""
    model.save(folder)
    theirs = PUBLISHED_CLASSES[model.trained.task.head].from_pretrained(folder).train()
    decays = [p for name, p in theirs.named_parameters() if not name.endswith("bias") and "LayerNorm" not in name]
    others = [p for name, p in theirs.named_parameters() if name.endswith("bias") or "LayerNorm" in name]
    optimizer = torch.optim.AdamW(
        [{"params": decays, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}],
        lr=settings.training.learning_rate,
        eps=1e-6,
    )
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, round(0.1 * num_steps), num_steps)
    task = model.trained.task
    data = task.labeled(train, task.encode(model.tokenizer, train, model.trained.layout))
    feed, results = LabeledFeed(data, settings.training.batch_size, settings.training.seed), []
    for step in range(num_steps):
        loss = _loss_of_transformers(theirs, task, feed.batch(step, 0.0))
        results.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(theirs.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return results


def _loss_of_transformers(theirs: nn.Module, task: TextTask, given: LabeledBatch) -> Tensor:
    batch, labels = given.batch, given.labels
    inputs = {
        "input_ids": batch.pad(batch.input_ids),
        "attention_mask": batch.attention_mask().long(),
        "token_type_ids": batch.pad(batch.token_type_ids),
    }
    if task.name == "regression":
        labels = (labels - task.center) / task.scale
    elif task.name == "token-classification":
        labels = batch.pad(labels, IGNORED)
    elif task.name == "multiple-choice":
        inputs = {name: values.view(len(labels), -1, batch.max_seqlen) for name, values in inputs.items()}
    elif task.name == "question-answering":  # whose loss counts padding among the tokens an answer may start at
        output = theirs(**inputs)
        logits = torch.stack([output.start_logits, output.end_logits], dim=1)
        logits = logits.masked_fill(~batch.attention_mask()[:, None], float("-inf"))
        return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
    return theirs(**inputs, labels=labels).loss
