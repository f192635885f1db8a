"""Static encoders trained on pairs of texts with a contrastive loss.

The loss is cross-entropy among the texts of a batch, as for sentence encoders, summed over vectors truncated to several
widths (Matryoshka), so that vectors can be truncated.
"""

import hashlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from tqdm import tqdm

from bertkit.batch import change_labels
from bertkit.checkpoint import SentenceSettings
from bertkit.errors import DataError
from bertkit.files.whole_files import whole_folder
from bertkit.tasks import Similarity, TextSet
from bertkit.tasks.examples import digest_of
from bertkit.tasks.similarity.rows import Roles, labeled_rows
from bertkit.tokenizer import Tokenizer
from bertkit.training import Job, Loop, Outcome, TrainingState, read_outcome, run_job, write_run_records
from bertkit.words.encoder import StaticEncoder
from bertkit.words.finite import check_trained
from bertkit.words.settings import PairTraining
from bertkit.words.state_file import SAVE_SECONDS, StateFile
from bertkit.words.tokens import tokens_of


@dataclass
class StaticTraining(Job):
    """One run of training of token vectors on pairs; ``out`` becomes a StaticEmbedding folder. The same rows and seed
    give the same vectors, also after a stop and resume."""

    tokenizer: Tokenizer  # every entry but special ones gets a vector
    settings: PairTraining = field(default_factory=PairTraining)
    rows: Sequence[TextSet] = field(default=(), kw_only=True, repr=False)

    def start(
        self, rows: Sequence[TextSet], *, resume: bool = False, should_stop: Callable[[], bool] = lambda: False
    ) -> Outcome:
        """Train token vectors from random initial values, to the end or until ``should_stop``.

        Args:
            rows: queries with positives, and negatives if there are any. The last batch of an epoch may be smaller, or
                have one more row.

        Returns:
            With the metrics ``first_loss`` and ``last_loss``, means over the first and last tenth of the steps.

        Raises:
            DataError: fewer than two rows, a row with a score, rows that contradict each other, or no different texts.
            UsageError: training diverges at this learning rate; else as `run_job`.
        """
        return run_job(replace(self, rows=rows), resume=resume, should_stop=should_stop)

    @property
    def batch_size(self) -> int:
        return self.settings.batch_size

    def check(self) -> None:
        self.ranks.check_single("training on pairs runs")
        if len(self.rows) < 2:
            raise DataError(f"{len(self.rows)} pairs: expected at least two, as the texts of other pairs are negatives")
        if scored := next((row for row in self.rows if row.score is not None), None):
            raise scored.error(
                "has a score, but static encoders learn from pairs without: keep the positive ones, and drop the column"
            )

    def facts(self) -> dict[str, Any]:
        vocabulary = hashlib.sha256("\n".join(self.tokenizer.vocabulary.tokens).encode()).hexdigest()
        return {
            "settings": self.settings.values(),
            "digests": {"training": digest_of(self.rows), "vocabulary": vocabulary},
        }

    def finished(self) -> Outcome | None:
        return read_outcome(self.out) if (self.out / "modules.json").is_file() else None

    def open(self, saved: Path | None) -> Loop:
        self._loop = _PairLoop(self)
        return self._loop

    def start_facts(self) -> dict[str, Any]:
        return {"settings": self.settings.values(), "examples": len(self.rows)}

    def finish(self, outcome: Outcome) -> Outcome:
        outcome = replace(outcome, metrics=self._loop.mean_losses())
        with whole_folder(self.out, overwrite=True) as folder:
            self._loop.encoder().save(folder, overwrite=True)
            write_run_records(self, outcome, folder)
        return outcome


class _PairLoop:
    """The loop over the batches of a run. A `Trainer` sums dense gradients; those of a table of vectors are sparse."""

    def __init__(self, job: StaticTraining) -> None:
        settings, tokenizer = job.settings, job.tokenizer
        self.job, self.ranks, self.run, self.should_stop = job, job.ranks, job.folder, lambda: False
        widths = [settings.dimensions, *(width for width in settings.nested if width < settings.dimensions)]
        options = {"objective": "in-batch", "temperature": settings.temperature, "dimensions": widths}
        self.task = Similarity.of_examples(job.rows, options)
        self.is_known = np.ones(len(tokenizer.vocabulary), np.bool_)
        self.is_known[list(tokenizer.vocabulary.special_ids())] = False
        self.generator = torch.Generator().manual_seed(settings.seed)
        self.table = nn.EmbeddingBag(len(tokenizer.vocabulary), settings.dimensions, mode="mean", sparse=True)
        self.network: nn.Module = self.table
        with torch.no_grad():
            self.table.weight.copy_(torch.randn(self.table.weight.shape, generator=self.generator))
        self.optimizer = torch.optim.SparseAdam(list(self.table.parameters()), lr=settings.learning_rate)
        full, rest = divmod(len(job.rows), settings.batch_size)
        self.per_epoch = full + (rest > 1) or 1
        self.num_steps, self.losses = settings.num_epochs * self.per_epoch, np.zeros(0)
        self.file, self.state, self.order = StateFile(self.run / "state.safetensors"), TrainingState(), list[int]()
        if stored := self.file.read():
            self._restore(*stored)

    def _restore(self, arrays: dict[str, np.ndarray], facts: dict[str, str]) -> None:
        self.state.step, self.losses = int(facts["done"]), arrays.pop("losses")
        with torch.no_grad():
            self.table.weight.copy_(torch.from_numpy(arrays.pop("table")))
        averages: dict[str, Any] = {name: torch.from_numpy(array) for name, array in arrays.items()}
        self.optimizer.state[self.table.weight] = {"step": self.state.step, **averages}
        for _ in range(-(-self.state.step // self.per_epoch)):
            self._shuffle()

    def _shuffle(self) -> None:
        self.order = torch.randperm(len(self.job.rows), generator=self.generator).tolist()

    def _save(self) -> None:
        of_table = self.optimizer.state[self.table.weight]
        averages = {name: value.numpy() for name, value in of_table.items() if name != "step"}
        arrays = {"table": self.table.weight.detach().numpy(), "losses": self.losses, **averages}
        self.file.write(arrays, {"done": self.state.step})

    def train(self) -> str:
        """Train to the end or until ``should_stop``; returns the reason for the end."""
        state, saved = self.state, time.monotonic()
        with tqdm(total=self.num_steps, initial=state.step, desc="training", delay=2, disable=None) as bar:
            while state.step < self.num_steps and not self.should_stop():
                self._step()
                bar.update()
                if time.monotonic() - saved > SAVE_SECONDS:
                    self._save()
                    saved = time.monotonic()
        check_trained(self.table.weight.detach().numpy(), self.job.settings.learning_rate)
        if 0 < state.step < self.num_steps:
            self._save()
        return "finished" if state.step == self.num_steps else "stopped"

    def _step(self) -> None:
        settings, rows, done = self.job.settings, self.job.rows, self.state.step
        number = done % self.per_epoch
        if number == 0:
            self._shuffle()
        end = (number + 1) * settings.batch_size if number < self.per_epoch - 1 else len(rows)
        chosen = [rows[index] for index in self.order[number * settings.batch_size : end]]
        for group in self.optimizer.param_groups:
            group["lr"] = settings.learning_rate * _share(done, self.num_steps)
        vectors, roles = _batch(self.table, chosen, self.job.tokenizer, self.is_known, settings.max_length)
        loss = self.task.batch_loss(vectors, roles).value
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.losses, self.state.step = np.append(self.losses, float(loss.detach())), done + 1

    def mean_losses(self) -> dict[str, float]:
        """Mean losses of the first and last tenth of the steps."""
        tenth = max(1, self.num_steps // 10)
        parts = {"first_loss": self.losses[:tenth], "last_loss": self.losses[-tenth:]}
        return {name: float(part.mean()) if len(part) else math.nan for name, part in parts.items()}

    def encoder(self) -> StaticEncoder:
        """The encoder of the present vectors."""
        return _encoder(self.table.weight.detach().numpy(), self.job.tokenizer, self.is_known)


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
