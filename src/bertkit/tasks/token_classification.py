"""Token classification: entities as characters of the text, or plain labels of words such as parts of speech.

Devlin et al. 2018, section 5.3: only the first piece of a word is labeled. A text of any length is encoded in windows;
each word is decided in the one window that owns its first piece. Shape letters: S sequences, T tokens,
W words, C labels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self, get_args

import numpy as np

from bertkit.batch import IGNORED, LabeledEncodings
from bertkit.errors import DataError, UsageError
from bertkit.later import torch
from bertkit.tasks.cross_entropy import OneOfClasses, balanced_weights, weights_asked_for
from bertkit.tasks.examples import TaggedText, error_in, naming_long_ones
from bertkit.tasks.judged import JudgedTask
from bertkit.tasks.reading.tagged import read_tagged
from bertkit.tasks.scoring import EntityLabels, Scoring, WordLabels
from bertkit.tasks.tags import OUTSIDE, Scheme, Tags, complete_names, guess_scheme, misspelled, spell
from bertkit.tasks.task import ExampleFile
from bertkit.tasks.words import Words, entities_of_spans, spaced, words_of
from bertkit.tokenizer import Encodings, Tokenizer
from bertkit.tokenizer.encoding import Span
from bertkit.tokenizer.layout import Layout, OnLong
from bertkit.tokenizer.ragged import ranges


@dataclass(frozen=True)
class EntityFound:
    """An entity in a text: ``text[start:end]``."""

    start: int
    end: int
    text: str
    label: str
    probability: float  # that all its words have their tags


@dataclass(frozen=True)
class TagsPrediction:
    """The likeliest labels of the words of a text, restricted to well-formed entities.

    A word that was cut, or in which no token starts, has probability 0 and the label O, or the model's first label if
    there is no O.
    """

    words: tuple[Span, ...]  # characters of the text
    labels: tuple[str, ...]
    probabilities: tuple[float, ...]  # probability of each label
    entities: tuple[EntityFound, ...]  # empty for plain labels


@dataclass(frozen=True)
class TokenClassification(OneOfClasses, JudgedTask):
    """One label of C for each word."""

    scheme: Scheme = "BIO"  # tag scheme of the labels
    words: Words = "punctuation"  # rule for splitting texts into words

    name: ClassVar[str] = "token-classification"
    head: ClassVar[str] = "token_classification"
    of_tokens: ClassVar[bool] = True
    example_type: ClassVar[type] = TaggedText
    on_long: ClassVar[OnLong] = "window"
    of_words: ClassVar[bool] = True
    pipeline: ClassVar[str] = "token-classification"
    peft_type: ClassVar[str | None] = "TOKEN_CLS"

    @classmethod
    def of_published(cls, label_names: tuple[str, ...] | None, problem_type: str | None) -> Self | None:
        """See `TextTask.of_published`; words are separated by spaces, as in CoNLL files."""
        return None if label_names is None else cls(label_names, scheme=guess_scheme(label_names), words="spaces")

    @classmethod
    def read(cls, file: ExampleFile) -> Iterator[TaggedText]:
        """See `TextTask.read`."""
        scheme = None if file.label_names is None else guess_scheme(file.label_names)
        return read_tagged(
            file.path,
            labeled=file.labeled,
            columns=file.columns,
            scheme=scheme,
            label_names=file.label_names,
            bad_rows=file.bad_rows,
        )

    @classmethod
    def card_example(cls, example: TaggedText) -> str:
        """See `TextTask.card_example`."""
        return '"Ada Lovelace was born in London."'

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.words not in get_args(Words):
            raise UsageError(f"words={self.words!r}: expected one of {', '.join(get_args(Words))}")
        self._tags()

    @property
    def best_by(self) -> str:  # pyrefly: ignore
        """Entity F1, or accuracy for plain labels."""
        return "accuracy" if self.scheme == "plain" else "f1"

    @classmethod
    def of_examples(cls, examples: Sequence[TaggedText], options: Mapping[str, Any]) -> Self:
        """See `TextTask.of_examples`; every entity type gets all tags of the scheme.

        Args:
            options: "class_weights", "balanced" or a weight for each tag, those of types completed included;
                "label_smoothing", 0 to below 1.
        """
        cls.check_options(options)
        if not examples:
            raise DataError("no examples to train on: expected at least one")
        counts = Counter(tag for example in examples for tag in _tags_of(example))
        if not counts:
            raise DataError("no training example has words: expected words with at least two labels")
        scheme = guess_scheme(counts)
        if scheme == "plain" and len(counts) < 2:
            raise DataError(f"every word has the label {next(iter(counts), None)!r}: expected at least two labels")
        as_found = all(example.words == words_of(example.text, "punctuation") for example in examples)
        names = complete_names(counts, scheme)
        weights = weights_asked_for(options, names, balanced_weights(np.array([counts[name] for name in names])))
        return cls(label_names=names, scheme=scheme, words="punctuation" if as_found else "spaces", **weights)

    @classmethod
    def example(cls, item: str | Sequence[str] | TaggedText, label: Any = None, location: str = "") -> TaggedText:
        """See `TextTask.example`: a text, with character spans as label, or a list of words, with tags as label."""
        if isinstance(item, TaggedText):
            return item
        if isinstance(item, str):
            if label is None:
                return TaggedText(item, location=location)
            words = words_of(item, "punctuation")
            entities, problem = entities_of_spans(label, item, words)
            if problem:
                raise error_in(location, item, problem.removeprefix(": "))
            return TaggedText(item, words, tuple(spell(entities, len(words), "BIO")), location)
        if not isinstance(item, Sequence) or not all(isinstance(word, str) and word for word in item):
            raise UsageError(f"an example is {item!r:.80}: expected a str, or a list of words")
        text = " ".join(item)
        if label is not None and not (isinstance(label, list | tuple) and all(isinstance(tag, str) for tag in label)):
            raise error_in(location, text, f"its tags are {label!r:.60}: expected a list of strs, one for each word")
        return TaggedText(text, spaced(item), None if label is None else tuple(label), location)

    def encode(
        self, tokenizer: Tokenizer, examples: Sequence[TaggedText], layout: Layout, first_index: int = 0
    ) -> Encodings:
        """See `TextTask.encode`."""
        with naming_long_ones(examples, first_index):
            return tokenizer.encode_batch(
                [example.text for example in examples],
                max_length=layout.max_length,
                on_long=layout.on_long,
                stride=layout.stride,
                first_index=first_index,
            )

    def labeled(self, examples: Sequence[TaggedText], encodings: Encodings) -> LabeledEncodings:
        """See `TextTask.labeled`: (T,) the label of a word at its first piece, in the window that owns it."""
        labels = np.full(len(encodings.input_ids), IGNORED, np.int64)
        tokens = self._first_pieces(examples, encodings)
        numbers = self.targets(examples)
        labels[tokens[tokens >= 0]] = numbers[tokens >= 0]
        return LabeledEncodings(encodings, labels, of_tokens=True)

    def decode(self, examples: Sequence[TaggedText], encodings: Encodings, logits: np.ndarray) -> list[TagsPrediction]:
        """See `TextTask.decode`."""
        words = [self._words(example) for example in examples]
        scores, was_read = self.word_scores(examples, encodings, logits)
        cu_words = np.cumsum([0, *map(len, words)])
        labels = self.likeliest(scores, cu_words)
        probabilities = np.exp(scores[np.arange(len(labels)), labels])
        probabilities[~was_read] = 0.0
        return self._predictions(examples, words, labels, probabilities, cu_words)

    def word_scores(
        self, examples: Sequence[TaggedText], encodings: Encodings, logits: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """(W, C) float64 log probabilities of the labels of each word, and (W,) bool, True if the word was encoded;
        other words have the label of `TagsPrediction` with probability 1."""
        tokens = self._first_pieces(examples, encodings)
        scores = torch.from_numpy(logits[np.maximum(tokens, 0)]).double().log_softmax(-1).numpy()
        scores[tokens < 0] = -np.inf
        scores[tokens < 0, self.label_names.index(OUTSIDE) if OUTSIDE in self.label_names else 0] = 0.0
        return scores, tokens >= 0

    def probabilities(
        self, examples: Sequence[TaggedText], predictions: Sequence[Any], encodings: Encodings, logits: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """(W, C) float32, and (W,) bool."""
        scores, was_read = self.word_scores(examples, encodings, logits)
        return np.exp(scores).astype(np.float32), was_read

    def predicted(self, predictions: Sequence[TagsPrediction]) -> np.ndarray:
        """(W,) int64."""
        numbers = self._tags().numbers
        return np.array([numbers[label] for prediction in predictions for label in prediction.labels], np.int64)

    @property
    def scoring(self) -> Scoring:
        tags = self._tags()
        return WordLabels(self.label_names) if self.scheme == "plain" else EntityLabels(tags.types, tags)

    @staticmethod
    def label_of(example: TaggedText) -> Any:
        """Its tags."""
        return example.tags

    def likeliest(self, scores: np.ndarray, cu_words: np.ndarray) -> np.ndarray:
        """(W,) the labels of words, from (W, C) log probabilities: restricted to well-formed entities."""
        labels, may_follow = scores.argmax(axis=1), self._tags().may_follow
        edge = len(self.label_names)
        ends = cu_words[1:][np.diff(cu_words) > 0] - 1
        after = np.append(labels[1:], edge)
        after[ends] = edge
        starts = cu_words[:-1][np.diff(cu_words) > 0]
        wrong = ~may_follow[labels, after]
        wrong[starts] |= ~may_follow[edge, labels[starts]]
        for text in np.unique(np.searchsorted(cu_words, np.flatnonzero(wrong), "right") - 1):
            part = slice(cu_words[text], cu_words[text + 1])
            labels[part] = likeliest_path(scores[part], may_follow)
        return labels

    def _predictions(
        self,
        examples: Sequence[TaggedText],
        words: Sequence[Sequence[Span]],
        labels: np.ndarray,
        probabilities: np.ndarray,
        cu_words: np.ndarray,
    ) -> list[TagsPrediction]:
        tags = self._tags()
        entities: list[list[EntityFound]] = [[] for _ in examples]
        results = tags.entities(labels, cu_words)
        texts = np.searchsorted(cu_words, results[:, 0], "right") - 1
        for (first, end, kind), number in zip(results.tolist(), texts.tolist(), strict=True):
            spans, text, before = words[number], examples[number].text, int(cu_words[number])
            start, stop = spans[first - before][0], spans[end - before - 1][1]
            probability = float(np.prod(probabilities[first:end]))
            entities[number].append(EntityFound(start, stop, text[start:stop], tags.types[kind], probability))
        names = np.array(self.label_names, object)[labels].tolist()
        chances = probabilities.tolist()
        return [
            TagsPrediction(tuple(spans), tuple(names[start:end]), tuple(chances[start:end]), tuple(in_text))
            for spans, start, end, in_text in zip(words, cu_words[:-1], cu_words[1:], entities, strict=True)
        ]

    def _first_pieces(self, examples: Sequence[TaggedText], encodings: Encodings) -> np.ndarray:
        return first_pieces([one.text for one in examples], [self._words(one) for one in examples], encodings)

    def _words(self, example: TaggedText) -> tuple[Span, ...]:
        return words_of(example.text, self.words) if example.words is None else example.words

    def _tags(self) -> Tags:
        return Tags(self.label_names, self.scheme)

    def targets(self, examples: Sequence[TaggedText]) -> np.ndarray:
        """(W,) int64 the labels of all words.

        Raises:
            DataError: a text without tags, or with a number of tags other than that of its words; a tag that is unknown
                to the model, or not part of an entity.
        """
        tags, results = self._tags(), []
        for example in examples:
            names = _tags_of(example)
            wrong = misspelled(names, self.scheme)
            for index, name in enumerate(names):
                number = tags.numbers.get(name)
                if number is None:
                    shown = ", ".join(self.label_names[:10]) + (", ..." if len(self.label_names) > 10 else "")
                    problem = f"is not one of the model's ({shown}): correct it, or train with it"
                elif index == wrong:
                    problem = f"is not part of an entity in scheme {self.scheme}: correct it, or read its file again"
                else:
                    results.append(number)
                    continue
                assert example.words is not None
                word = example.text[slice(*example.words[index])]
                raise error_in(
                    example.location, example.text, f"the tag {name!r} of word {index + 1}, {word!r}, {problem}"
                )
        return np.array(results, np.int64)


def first_pieces(texts: Sequence[str], words: Sequence[Sequence[Span]], encodings: Encodings) -> np.ndarray:
    """(W,) int64 index of the first token that starts in each word of N texts, ignoring white space, among the T tokens
    of all sequences, in the window that owns it; -1 for a word without one."""
    lengths = encodings.owned[:, 1] - encodings.owned[:, 0]
    first = encodings.cu_seqlens[:-1] + encodings.owned[:, 0]
    tokens = ranges(first, lengths)  # each token of a text once
    numbers = np.repeat(encodings.text_index, lengths)
    real = ~encodings.special_tokens_mask[tokens]
    tokens, numbers = tokens[real], numbers[real]
    starts, ends = encodings.tight_offsets(tokens, texts).T
    real = starts < ends
    tokens, numbers, starts = tokens[real], numbers[real], starts[real]
    spans = np.array([span for of_text in words for span in of_text], np.int64).reshape(-1, 2)
    width = max(int(spans.max(initial=0)), int(starts.max(initial=0))) + 1
    order = np.argsort(keys := numbers * width + starts, kind="stable")
    keys = np.append(keys[order], np.iinfo(np.int64).max)
    of_word = np.repeat(np.arange(len(words)), [len(of_text) for of_text in words]) * width
    indices = np.searchsorted(keys, of_word + spans[:, 0])
    results = keys[indices] < of_word + spans[:, 1]
    return np.where(results, np.append(tokens[order], -1)[indices], -1)


def likeliest_path(scores: np.ndarray, may_follow: np.ndarray) -> np.ndarray:
    """(n,) the labels with the highest sum of (n, C) scores in which each may follow the previous one.

    Args:
        may_follow: (C + 1, C + 1) bool; row C is the start, column C the end (Viterbi 1967).
    """
    edge = scores.shape[1]
    allowed = np.where(may_follow, 0.0, -np.inf)
    best = scores[0] + allowed[edge, :edge]
    before = np.empty(scores.shape, np.int64)
    for index in range(1, len(scores)):
        total = best[:, None] + allowed[:edge, :edge]
        before[index] = total.argmax(axis=0)
        best = total.max(axis=0) + scores[index]
    path = np.empty(len(scores), np.int64)
    path[-1] = (best + allowed[:edge, edge]).argmax()
    for index in range(len(scores) - 1, 0, -1):
        path[index - 1] = before[index, path[index]]
    return path


def _tags_of(example: TaggedText) -> tuple[str, ...]:
    if example.tags is None or example.words is None:
        raise error_in(example.location, example.text, "has no tags: expected one for each word")
    if len(example.tags) != len(example.words):
        problem = f"has {len(example.words)} words and {len(example.tags)} tags: expected one tag for each word"
        raise error_in(example.location, example.text, problem)
    return example.tags
