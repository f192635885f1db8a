"""Static encoders trained on pairs of texts with a contrastive loss.

The loss is cross-entropy among the texts of a batch, as for sentence encoders, summed over vectors truncated to several
widths (Matryoshka), so that vectors can be truncated.
"""

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from bertkit.batch import change_labels
from bertkit.checkpoint import SentenceSettings
from bertkit.errors import DataError
from bertkit.tasks import Similarity, TextSet
from bertkit.tasks.examples import digest_of
from bertkit.tasks.similarity.rows import Roles, labeled_rows
from bertkit.tokenizer import Tokenizer
from bertkit.words.encoder import StaticEncoder
from bertkit.words.job import VectorJob, VectorLoop
from bertkit.words.settings import PairTraining
from bertkit.words.tokens import EngineTokens


class _PairLoop(VectorLoop):
    """The loop over the batches of pairs."""

    def __init__(self, job: "StaticTraining") -> None:
        super().__init__(job)
        settings, self.tokenizer, self.rows = job.settings, job.tokenizer, job.data
        widths = [settings.dimensions, *(width for width in settings.nested if width < settings.dimensions)]
        options = {"objective": "in-batch", "temperature": settings.temperature, "dimensions": widths}
        self.task = Similarity.of_examples(self.rows, options)
        self.is_known = np.ones(len(self.tokenizer.vocabulary), np.bool_)
        self.is_known[list(self.tokenizer.vocabulary.special_ids())] = False
        self.generator = torch.Generator().manual_seed(settings.seed)
        self.table = nn.EmbeddingBag(len(self.tokenizer.vocabulary), settings.dimensions, mode="mean", sparse=True)
        self.network: nn.Module = self.table
        with torch.no_grad():
            self.table.weight.copy_(torch.randn(self.table.weight.shape, generator=self.generator))
        self.optimizer = torch.optim.SparseAdam(list(self.table.parameters()), lr=settings.learning_rate)
        full, rest = divmod(len(self.rows), settings.batch_size)
        self.per_epoch = full + (rest > 1) or 1
        self.num_steps = self.work = settings.num_epochs * self.per_epoch
        self.losses, self.order = np.zeros(0), list[int]()
        if not (arrays := self.saved()):
            return
        self.losses = arrays.pop("losses")
        with torch.no_grad():
            self.table.weight.copy_(torch.from_numpy(arrays.pop("table")))
        averages: dict[str, Any] = {name: torch.from_numpy(array) for name, array in arrays.items()}
        self.optimizer.state[self.table.weight] = {"step": self.state.step, **averages}
        for _ in range(-(-self.state.step // self.per_epoch)):
            self._shuffle()

    def _shuffle(self) -> None:
        self.order = torch.randperm(len(self.rows), generator=self.generator).tolist()

    def arrays(self) -> dict[str, np.ndarray]:
        of_table = self.optimizer.state[self.table.weight]
        averages = {name: value.numpy() for name, value in of_table.items() if name != "step"}
        return {"table": self.vectors, "losses": self.losses, **averages}

    @property
    def vectors(self) -> np.ndarray:
        return self.table.weight.detach().numpy()

    def steps(self) -> Iterator[int]:
        settings, rows, done = self.settings, self.rows, self.state.step
        number = done % self.per_epoch
        if number == 0:
            self._shuffle()
        end = (number + 1) * settings.batch_size if number < self.per_epoch - 1 else len(rows)
        chosen = [rows[index] for index in self.order[number * settings.batch_size : end]]
        for group in self.optimizer.param_groups:
            group["lr"] = settings.learning_rate * _share(done, self.num_steps)
        vectors, roles = _batch(self.table, chosen, self.tokenizer, self.is_known, settings.max_length)
        loss = self.task.batch_loss(vectors, roles).value
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.losses, self.state.step = np.append(self.losses, float(loss.detach())), done + 1
        yield 1

    def metrics(self) -> dict[str, float]:
        tenth = max(1, self.num_steps // 10)
        parts = {"first_loss": self.losses[:tenth], "last_loss": self.losses[-tenth:]}
        return {name: float(part.mean()) if len(part) else math.nan for name, part in parts.items()}

    def encoder(self) -> StaticEncoder:
        rows = np.where(self.is_known, np.arange(len(self.vectors)), -1).astype(np.int32)
        weights = np.ones(len(rows), np.float32)
        tokens = EngineTokens(self.tokenizer.engine)
        return StaticEncoder(tokens, self.vectors, rows, weights, SentenceSettings(normalize=True))


@dataclass
class StaticTraining(VectorJob):
    """One run of training of token vectors on pairs, from random initial values. The same rows and seed give the same
    vectors, also after a stop and resume.

    ``data`` are queries with positives, and negatives if there are any. The last batch of an epoch may be smaller, or
    have one more row. The outcome has the metrics ``first_loss`` and ``last_loss``, means over the first and last tenth
    of the steps. ``start`` raises a DataError for fewer than two rows, a row with a score, rows that contradict each
    other, or no different texts; a UsageError if training diverges at this learning rate.
    """

    tokenizer: Tokenizer  # every entry but special ones gets a vector
    settings: PairTraining = field(default_factory=PairTraining)
    data: Sequence[TextSet] = field(default=(), kw_only=True, repr=False)

    loop_type: ClassVar[type[VectorLoop]] = _PairLoop
    work: ClassVar[str] = "training on pairs runs"

    @property
    def batch_size(self) -> int:
        return self.settings.batch_size

    def check(self) -> None:
        super().check()
        if len(self.data) < 2:
            raise DataError(f"{len(self.data)} pairs: expected at least two, as the texts of other pairs are negatives")
        if scored := next((row for row in self.data if row.score is not None), None):
            raise scored.error(
                "has a score, but static encoders learn from pairs without: keep the positive ones, and drop the column"
            )

    def digests(self) -> dict[str, str]:
        vocabulary = hashlib.sha256("\n".join(self.tokenizer.vocabulary.tokens).encode()).hexdigest()
        return {"training": digest_of(self.data), "vocabulary": vocabulary}


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
