"""Static encoders trained on pairs of texts with a contrastive loss.

The loss is cross-entropy among the texts of a batch, as for sentence encoders, summed over vectors truncated to several
widths (Matryoshka), so that vectors can be truncated.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from tqdm import tqdm

from bertkit.batch import change_labels
from bertkit.checkpoint import SentenceSettings
from bertkit.errors import DataError
from bertkit.tasks import Similarity, TextSet
from bertkit.tasks.similarity.rows import Roles, labeled_rows
from bertkit.tokenizer import Tokenizer
from bertkit.words.encoder import StaticEncoder
from bertkit.words.finite import check_trained
from bertkit.words.settings import PairTraining
from bertkit.words.state_file import SAVE_SECONDS, StateFile, fingerprint_of
from bertkit.words.tokens import tokens_of


class PairReport(NamedTuple):
    """Result of training."""

    reason: str  # "finished", or "stopped": asked to stop before the end
    num_rows: int
    num_steps: int
    first_loss: float  # mean over the first tenth of the steps
    last_loss: float  # mean over the last tenth


def train_static(
    rows: Sequence[TextSet],
    tokenizer: Tokenizer,
    settings: PairTraining,
    progress: bool | None = None,
    *,
    state: Path | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> tuple[StaticEncoder, PairReport]:
    """Train token vectors from random initial values, to the end or until ``should_stop``. The same rows and seed give
    the same encoder, also after a stop and resume.

    Args:
        rows: queries with positives, and negatives if there are any. The last batch of an epoch may be smaller, or
            have one more row.
        tokenizer: tokenizer of the encoder; every entry but special ones gets a vector.
        progress: show a bar; None: on a terminal.
        state: a file written once a minute and at a stop, from which an interrupted run resumes; remove it once the
            encoder is saved.
        should_stop: called before every step. After a stop the encoder is that of the steps so far.

    Raises:
        DataError: fewer than two rows, a row with a score, rows that contradict each other, or no different texts.
        UsageError: the state file is from another run, or cannot be read; or training diverges at this learning rate.
    """
    if len(rows) < 2:
        raise DataError(f"{len(rows)} pairs: expected at least two, as the texts of other pairs are negatives")
    if scored := next((row for row in rows if row.score is not None), None):
        raise scored.error(
            "has a score, but static encoders learn from pairs without: keep the positive ones, and drop the column"
        )
    widths = [settings.dimensions, *(width for width in settings.nested if width < settings.dimensions)]
    options = {"objective": "in-batch", "temperature": settings.temperature, "dimensions": widths}
    task = Similarity.of_examples(rows, options)
    is_known = np.ones(len(tokenizer.vocabulary), np.bool_)
    is_known[list(tokenizer.vocabulary.special_ids())] = False
    generator = torch.Generator().manual_seed(settings.seed)
    table = nn.EmbeddingBag(len(tokenizer.vocabulary), settings.dimensions, mode="mean", sparse=True)
    with torch.no_grad():
        table.weight.copy_(torch.randn(table.weight.shape, generator=generator))
    optimizer = torch.optim.SparseAdam(list(table.parameters()), lr=settings.learning_rate)
    full, rest = divmod(len(rows), settings.batch_size)
    per_epoch = full + (rest > 1) or 1
    num_steps, done, losses, order = settings.epochs * per_epoch, 0, np.zeros(0), list[int]()
    content = [repr(row).encode() for row in rows] + ["\n".join(tokenizer.vocabulary.tokens).encode()]
    file, saved = StateFile(state, fingerprint_of(settings, content)), time.monotonic()
    if stored := file.read():
        arrays, facts = stored
        done, losses = int(facts["done"]), arrays.pop("losses")
        with torch.no_grad():
            table.weight.copy_(torch.from_numpy(arrays.pop("table")))
        averages: dict[str, Any] = {name: torch.from_numpy(array) for name, array in arrays.items()}
        optimizer.state[table.weight] = {"step": done, **averages}
        for _ in range(-(-done // per_epoch)):
            order = torch.randperm(len(rows), generator=generator).tolist()

    def save() -> None:
        averages = {name: value.numpy() for name, value in optimizer.state[table.weight].items() if name != "step"}
        arrays = {"table": table.weight.detach().numpy(), "losses": losses, **averages}
        file.write(arrays, {"done": done})

    hidden = None if progress is None else not progress
    with tqdm(total=num_steps, initial=done, desc="training", delay=2, disable=hidden) as bar:
        while done < num_steps and not should_stop():
            number = done % per_epoch
            if number == 0:
                order = torch.randperm(len(rows), generator=generator).tolist()
            end = (number + 1) * settings.batch_size if number < per_epoch - 1 else len(rows)
            chosen = [rows[index] for index in order[number * settings.batch_size : end]]
            for group in optimizer.param_groups:
                group["lr"] = settings.learning_rate * _share(done, num_steps)
            vectors, roles = _batch(table, chosen, tokenizer, is_known, settings.max_length)
            loss = task.batch_loss(vectors, roles).value
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses, done = np.append(losses, float(loss.detach())), done + 1
            bar.update()
            if time.monotonic() - saved > SAVE_SECONDS:
                save()
                saved = time.monotonic()
    if 0 < done < num_steps:
        save()
    tenth, reason = max(1, num_steps // 10), "finished" if done == num_steps else "stopped"
    means = [float(part.mean()) if len(part) else math.nan for part in (losses[:tenth], losses[-tenth:])]
    report = PairReport(reason, len(rows), done, *means)
    trained = table.weight.detach().numpy()
    check_trained(trained, settings.learning_rate)
    return _encoder(trained, tokenizer, is_known), report


def _share(step: int, num_steps: int) -> float:
    """Factor of the learning rate: up over the first tenth of the steps, then down to 0."""
    warm = max(1, num_steps // 10)
    return (step + 1) / warm if step < warm else (num_steps - step) / max(1, num_steps - warm)


def _batch(
    table: nn.EmbeddingBag, rows: Sequence[TextSet], tokenizer: Tokenizer, is_known: np.ndarray, max_length: int
) -> tuple[torch.Tensor, Roles]:
    """The vectors of all texts, means over their known tokens as in the encoder, and their roles."""
    texts = [text for row in rows for text in row.texts]
    row_of = np.repeat(np.arange(len(rows)), [len(row.texts) for row in rows])
    encodings = tokenizer.encode_batch(texts, max_length=max_length + 2, on_long="truncate", with_offsets=False)
    kept = is_known[encodings.input_ids]
    ids = torch.from_numpy(encodings.input_ids[kept].astype(np.int64))
    offsets = torch.from_numpy((np.cumsum(kept) - kept)[encodings.cu_seqlens[:-1]].astype(np.int64))
    labels = labeled_rows(rows, replace(encodings, text_index=row_of)).labels
    return table(ids, offsets), Roles.of(change_labels(labels, torch.from_numpy))


def _encoder(vectors: np.ndarray, tokenizer: Tokenizer, is_known: np.ndarray) -> StaticEncoder:
    rows = np.where(is_known, np.arange(len(vectors)), -1).astype(np.int32)
    weights = np.ones(len(vectors), np.float32)
    return StaticEncoder(tokens_of(tokenizer.engine), vectors, rows, weights, SentenceSettings(normalize=True))
