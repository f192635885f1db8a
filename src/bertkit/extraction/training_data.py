"""Tagged texts as sequences with labels, some of which do not occur. Letters: W words, N spans, C labels."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from bertkit.batch import Batch, batch_of_ids, even_parts
from bertkit.errors import DataError
from bertkit.extraction.prompts import Prompt, prompts_of
from bertkit.extraction.settings import ExtractionSettings
from bertkit.extraction.windows import Words, WordSplitter, windows_of
from bertkit.files.lines import file_of
from bertkit.randomness import in_random_order
from bertkit.tasks.examples import TaggedText
from bertkit.tasks.feed import LabeledFeed
from bertkit.tasks.tags import entities_in
from bertkit.tokenizer import Tokenizer

CharacterSpan = tuple[int, int, str]


class Row(NamedTuple):
    """A sequence; tokens are counted from its first."""

    word_tokens: Tensor  # (W,) int64
    label_tokens: Tensor  # (C,) int64
    spans: Tensor  # (N, 2) int64 first and last word
    targets: Tensor  # (N, C) float32 of spans, or (W, C, 3): start, end, inside


@dataclass(frozen=True, eq=False)
class ExtractionBatch:
    """Sequences with the scores that they should have."""

    batch: Batch
    rows: tuple[Row, ...]

    def __len__(self) -> int:
        """Number of sequences."""
        return len(self.rows)

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments that the network takes together with ``batch``."""
        return {"rows": self.rows}

    @property
    def num_tokens(self) -> int:
        return len(self.batch.input_ids)

    @property
    def num_words(self) -> int:
        return sum(len(row.word_tokens) for row in self.rows)

    def split(self, num_parts: int, most_tokens: float = math.inf) -> "list[ExtractionBatch]":
        """Split into batches of neighboring sequences; see `even_parts`."""
        lengths = self.batch.cu_seqlens.numpy().astype(np.int64)
        return [
            ExtractionBatch(self.batch.between(start, end), self.rows[start:end])
            for start, end in even_parts(lengths, num_parts, most_tokens)
        ]

    def to(self, device: torch.device | str) -> "ExtractionBatch":
        """The same batch on a device."""
        return ExtractionBatch(self.batch.to(device), tuple(Row(*(one.to(device) for one in row)) for row in self.rows))


def character_spans(example: TaggedText) -> list[CharacterSpan]:
    """The entities of a text with BIO tags: first character, end, label."""
    words = example.words or ()
    return [(words[start][0], words[end - 1][1], name) for start, end, name in entities_in(example.tags or (), "BIO")]


def labels_in(examples: Sequence[TaggedText]) -> tuple[str, ...]:
    """The labels of all entities, in alphabetical order.

    Raises:
        DataError: there are none.
    """
    labels = tuple(sorted({span[2] for example in examples for span in character_spans(example)}))
    if not labels:
        raise DataError(
            f"none of the {len(examples):,} training texts has an entity: expected BIO tags such as B-person, or spans"
        )
    return labels


@dataclass(frozen=True, eq=False)
class _Part:
    """A window of a text."""

    words: np.ndarray  # tokens
    word_tokens: np.ndarray  # index of the first token of each word
    entities: tuple[tuple[int, int, str], ...]  # first and last word
    labels: tuple[str, ...]  # those that its file uses: of others, it is not known whether they occur


class ExtractionData:
    """Windows of all texts; each occurrence in an epoch has its own draw of labels of its file that do not occur.

    Raises:
        DataError: an entity that begins or ends inside a word of the model.
    """

    def __init__(
        self, examples: Sequence[TaggedText], labels: tuple[str, ...], tokenizer: Tokenizer,
        settings: ExtractionSettings, max_positions: int, num_negatives: int, seed: int,
    ) -> None:  # fmt: skip
        self.labels, self.tokenizer, self.settings = labels, tokenizer, settings
        self.num_negatives, self.seed = num_negatives, seed
        self.prompt_tokens = (max_positions - 2) // 2
        self.num_too_long = 0  # entities that the model cannot find
        splitter = WordSplitter(tokenizer, (max_positions - 2) // 8)
        texts = splitter.split([example.text for example in examples])
        in_files: dict[str, set[str]] = {}
        for example in examples:
            in_files.setdefault(file_of(example.location), set()).update(span[2] for span in character_spans(example))
        self._labels_in = {file: tuple(sorted(found)) or labels for file, found in in_files.items()}
        self.parts = [part for pair in zip(examples, texts, strict=True) for part in self._parts(*pair)]

    def _parts(self, example: TaggedText, words: Words) -> list[_Part]:
        entities, parts = word_spans(example, words), list[_Part]()
        limit = self.settings.max_words if self.settings.of_tokens else self.settings.max_width
        self.num_too_long += sum(last - first >= limit for first, last, _ in entities)
        for window in windows_of(words, self.prompt_tokens, self.settings.max_words, self.settings.max_words // 8):
            begins = words.first_tokens[window.first : window.end + 1]
            inside = tuple(
                (first - window.first, last - window.first, label)
                for first, last, label in entities
                if window.first <= first and last < window.end and last - first < limit
            )
            known = self._labels_in[file_of(example.location)]
            parts.append(_Part(words.tokens[begins[0] : begins[-1]], begins[:-1] - begins[0], inside, known))
        return parts

    def __len__(self) -> int:
        return len(self.parts)

    def labels_of(self, index: int, epoch: int) -> list[str]:
        """The labels of a sequence in an epoch, in alphabetical order: those that occur, and a draw of others."""
        present = {label for *_, label in self.parts[index].entities}
        absent = [label for label in self.parts[index].labels if label not in present]
        draw = np.random.default_rng((self.seed, epoch, index))
        number = min(self.num_negatives if present else max(1, self.num_negatives), len(absent))
        return sorted([*present, *(absent[i] for i in draw.permutation(len(absent))[:number])])

    def take(self, indices: np.ndarray, epoch: int = 0) -> ExtractionBatch:
        """The batch of (n,) ``indices``, in that order."""
        made = [self._row(int(index), epoch) for index in indices]
        return ExtractionBatch(batch_of_ids([ids for ids, _ in made]), tuple(row for _, row in made))

    def _row(self, index: int, epoch: int) -> tuple[np.ndarray, Row]:
        part, labels = self.parts[index], self.labels_of(index, epoch)
        prompt = self._prompt(labels)
        labels = [labels[i] for i in prompt.labels]
        ids = np.concatenate([[self.tokenizer.cls_id], prompt.tokens, part.words, [self.tokenizer.sep_id]])
        words, width = len(part.word_tokens), self.settings.max_width
        pairs = list[tuple[int, int]]()
        if self.settings.of_tokens:
            spans, targets = np.empty((0, 2), np.int64), np.zeros((words, len(labels), 3), np.float32)
        else:
            pairs = [(start, end) for start in range(words) for end in range(start, min(start + width, words))]
            spans, targets = np.array(pairs, np.int64), np.zeros((len(pairs), len(labels)), np.float32)
        number = {pair: i for i, pair in enumerate(pairs)}
        for first, last, label in part.entities:
            if label not in labels:
                continue
            column = labels.index(label)
            if self.settings.of_tokens:
                targets[first, column, 0] = targets[last, column, 1] = 1
                targets[first : last + 1, column, 2] = 1
            else:
                targets[number[first, last], column] = 1
        word_tokens = part.word_tokens + 1 + len(prompt.tokens)
        row = (torch.from_numpy(np.asarray(each)) for each in (word_tokens, prompt.label_tokens, spans, targets))
        return ids.astype(np.int64), Row(*row)

    def _prompt(self, labels: Sequence[str]) -> Prompt:
        """The first prompt: with more labels than fit, those are learned in it."""
        return prompts_of(labels, self.tokenizer, self.settings, self.prompt_tokens)[0]


def word_spans(example: TaggedText, words: Words) -> list[tuple[int, int, str]]:
    """The entities of a text as first and last word of the model.

    Raises:
        DataError: one that begins or ends inside a word.
    """
    first = {start: i for i, start in enumerate(words.starts.tolist())}
    last = {end: i for i, end in enumerate(words.ends.tolist())}
    spans = []
    for start, end, label in character_spans(example):
        if start not in first or end not in last:
            raise DataError(
                f"{example.location or 'a text'}: the entity {example.text[start:end]!r:.60} ({label}, characters "
                f"{start} to {end}) begins or ends inside a word of the model: move it to the borders of words"
            )
        spans.append((first[start], last[end], label))
    return spans


@dataclass(frozen=True)
class ExtractionFeed(LabeledFeed):
    """Every window once per epoch, with other labels in every epoch."""

    data: Any

    def batch(self, position: int, progress: float) -> Any:
        epoch, number = divmod(position, self.batches_per_epoch)
        indices = np.arange(number * self.batch_size, min((number + 1) * self.batch_size, len(self.data)))
        return self.data.take(self._share(in_random_order(indices, len(self.data), self.seed, epoch)), epoch)
