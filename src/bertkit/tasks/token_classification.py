"""Token classification: entities as characters of the text, or plain labels of words such as parts of speech.

Devlin et al. 2018, section 5.3: only the first piece of a word is labeled. A text of any length is encoded in windows;
each word is decided in the one window that owns its first piece. In scripts without spaces a token may hold several
words: they are decided as one, and an entity that ends inside a token is learned up to the end of the token. Shape
letters: S sequences, T tokens, W words, C labels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from bertkit.batch import IGNORED, LabeledEncodings
from bertkit.errors import DataError
from bertkit.tasks.cross_entropy import OneOfClasses, balanced_weights, weights_asked_for
from bertkit.tasks.example_file import ExampleFile, GuessRank
from bertkit.tasks.examples import TaggedText
from bertkit.tasks.extraction import Extraction
from bertkit.tasks.judged import JudgedTask
from bertkit.tasks.probabilities import log_softmax
from bertkit.tasks.reading.tagged import read_tagged_file
from bertkit.tasks.scoring import EntityLabels, Scoring, WordLabels
from bertkit.tasks.tagged_texts import rule_of_words, shares_of_words, tagged_text
from bertkit.tasks.tags import (
    OUTSIDE,
    Scheme,
    Tags,
    complete_names,
    entities_in,
    guess_scheme,
    meant_tag,
    misspelled,
    spell,
)
from bertkit.tasks.task import Option
from bertkit.tasks.word_tokens import first_pieces, likeliest_path
from bertkit.tasks.words import Words, words_of
from bertkit.tokenizer import Encodings
from bertkit.tokenizer.encoding import Span
from bertkit.tokenizer.layout import OnLong

_FEW_TAGS = 8
"""A file with so few tags may be a small one."""


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

    A word inside the token of the word before continues its label. Any other word in which no token starts, or that was
    cut, has probability 0 and the label O, or the model's first label if there is no O.
    """

    words: tuple[Span, ...]  # characters of the text
    labels: tuple[str, ...]
    probabilities: tuple[float, ...]  # probability of each label
    entities: tuple[EntityFound, ...]  # with a probability above the threshold of the task; empty for plain labels


@dataclass(frozen=True)
class TokenClassification(OneOfClasses, JudgedTask):
    """One label of C for each word."""

    scheme: Scheme = "BIO"  # tag scheme of the labels
    words: Words = "punctuation"  # rule for splitting texts into words

    name: ClassVar[str] = "token-classification"
    guess_rank: ClassVar[GuessRank | None] = GuessRank.LABELS
    head: ClassVar[str] = "token_classification"
    of_tokens: ClassVar[bool] = True
    example_type: ClassVar[type] = TaggedText
    files: ClassVar[str] = Extraction.files
    on_long: ClassVar[OnLong] = "window"
    of_words: ClassVar[bool] = True
    pipeline: ClassVar[str] = "token-classification"
    peft_type: ClassVar[str | None] = "TOKEN_CLS"
    promises: ClassVar[tuple[str, ...]] = ("recall", "precision")
    options: ClassVar[Mapping[str, Option]] = {
        **OneOfClasses.options,
        "words": Option(
            Words,
            "For tags: rule for splitting texts into words; by default the one that fits the training words.",
            is_of_reading=True,
        ),
        "snap_spans": Option(
            bool, "For tags: move spans that begin or end inside a word to its borders, and count them.", False, True
        ),
        "scheme": Option(
            Scheme, "For tags: their scheme; by default that of the file. plain: labels of words.", is_of_reading=True
        ),
    }

    @classmethod
    def of_published(cls, label_names: tuple[str, ...] | None, problem_type: str | None) -> Self | None:
        """See `TextTask.of_published`; only punctuation around words is split off, as in CoNLL files."""
        return None if label_names is None else cls(label_names, scheme=guess_scheme(label_names), words="spaces")

    @classmethod
    def read(cls, file: ExampleFile) -> Iterator[TaggedText]:
        scheme = None if file.label_names is None else guess_scheme(file.label_names)
        return read_tagged_file(file, file.options.get("scheme", scheme))

    @classmethod
    def contradiction(cls, examples: Sequence[TaggedText]) -> str:
        """See `RowTask.contradiction`: a text, in which most words would have different tags, or all the same one."""
        num_tags = len({tag for example in examples for tag in example.labels})
        num_words = sum(len(example.words or ()) for example in examples)
        tags = {tag for example in examples for tag in example.tags or ()}
        if len(tags) == 1 and "O" not in tags and num_words > _FEW_TAGS:
            return f"the same tag, {tags.pop()!r}, for all {num_words:,} words in its last column"
        is_text = num_tags > max(_FEW_TAGS, num_words / 2)
        return f"{num_tags:,} different tags for {num_words:,} words in its last column" if is_text else ""

    @property
    def reading_options(self) -> dict[str, Any]:
        return {"words": self.words, "scheme": self.scheme}

    def __post_init__(self) -> None:
        super().__post_init__()
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
                "label_smoothing", 0 to below 1; "words"; "scheme".
        """
        cls.check_options(options, examples)
        counts = Counter(tag for example in examples for tag in _tags_of(example))
        if not counts:
            raise DataError("no training example has words: expected words with at least two labels")
        scheme = options.get("scheme") or guess_scheme(counts)
        if scheme == "plain" and len(counts) < 2:
            raise DataError(f"every word has the label {next(iter(counts), None)!r}: expected at least two labels")
        words: Any = options.get("words") or rule_of_words(examples)
        names = complete_names(counts, scheme)
        weights = weights_asked_for(options, names, balanced_weights(np.array([counts[name] for name in names])))
        return cls(label_names=names, scheme=scheme, words=words, **weights)

    def choices_for(self, train: Sequence[TaggedText]) -> Iterator[str]:
        types, names = self._tags().types, self.label_names
        shown = ", ".join((types or names)[:8]) + (", ..." if len(types or names) > 8 else "")
        yield (
            f"plain labels, {len(names)}: {shown}"
            if self.scheme == "plain"
            else f"scheme {self.scheme}, {len(types)} type{'s' * (len(types) > 1)}: {shown}"
        )
        shares = shares_of_words(train)
        others = ", ".join(f"{rule} {share:.1%}" for rule, share in shares.items() if rule != self.words)
        yield f"words are split by {self.words}, which fits {shares[self.words]:.1%} of the training words ({others})"

    @classmethod
    def example(cls, item: str | Sequence[str] | TaggedText, label: Any = None, location: str = "") -> TaggedText:
        """See `TextTask.example`: a text, with character spans as label, or a list of words, with tags as label."""
        return tagged_text(item, label, location)

    def labeled_example(self, item: Any) -> TaggedText:
        """See `TextTask.labeled_example`; texts with spans are split by the task's rule."""
        if isinstance(item, tuple | list) and len(item) == 2 and isinstance(item[0], str) and item[1] is not None:
            example = tagged_text(*item, words=self.words)
            tags = spell(entities_in(example.tags or (), "BIO"), len(example.words or ()), self.scheme)
            return replace(example, tags=tuple(self._tags().named(tags)))
        return super().labeled_example(item)

    def labeled(self, examples: Sequence[TaggedText], encodings: Encodings) -> LabeledEncodings:
        """See `TextTask.labeled`: (T,) the label of a word at its first piece, in the window that owns it."""
        labels = np.full(len(encodings.input_ids), IGNORED, np.int64)
        tokens, word_of = self._first_pieces(examples, encodings)
        cu_words = np.cumsum([0, *(len(self._words(example)) for example in examples)])
        numbers = self._as_decided(self.targets(examples), word_of, cu_words)
        labels[tokens[tokens >= 0]] = numbers[tokens >= 0]
        return LabeledEncodings(encodings, labels, of_tokens=True)

    def decode(self, examples: Sequence[TaggedText], encodings: Encodings, logits: np.ndarray) -> list[TagsPrediction]:
        words = [self._words(example) for example in examples]
        pieces = first_pieces([example.text for example in examples], words, encodings)
        (scores, was_read), word_of = self._word_scores(*pieces, logits), pieces[1]
        cu_words = np.cumsum([0, *map(len, words)])
        decided = np.flatnonzero(word_of == np.arange(len(word_of)))
        chosen = self.likeliest(scores[decided], np.searchsorted(decided, cu_words))
        probabilities = np.exp(scores[decided, chosen])
        probabilities[~was_read[decided]] = 0.0
        labels = self._spread(chosen, decided, cu_words)
        return self._predictions(examples, words, labels, probabilities, decided, cu_words)

    def word_scores(
        self, examples: Sequence[TaggedText], encodings: Encodings, logits: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """(W, C) float64 log probabilities of the labels of each word, and (W,) bool, True if the word was encoded;
        other words have the label of `TagsPrediction` with probability 1. A word inside the token of the word before
        has the probabilities of labels that continue those of that word."""
        return self._word_scores(*self._first_pieces(examples, encodings), logits)

    def _word_scores(
        self, tokens: np.ndarray, word_of: np.ndarray, logits: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """As `word_scores`, from the arrays of `first_pieces`."""
        scores = log_softmax(logits[np.maximum(tokens, 0)])
        scores[tokens < 0] = -np.inf
        scores[tokens < 0, self.label_names.index(OUTSIDE) if OUTSIDE in self.label_names else 0] = 0.0
        inside = np.flatnonzero(word_of != np.arange(len(word_of)))
        with np.errstate(divide="ignore"):
            scores[inside] = np.log(np.exp(scores[word_of[inside]]) @ self._tags().continuations)
        return scores, tokens[word_of] >= 0

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
        decided: np.ndarray,
        cu_words: np.ndarray,
    ) -> list[TagsPrediction]:
        """Typed predictions.

        Args:
            probabilities: of the words with the indices ``decided``; the words after each, inside its token, share it.
        """
        tags = self._tags()
        entities: list[list[EntityFound]] = [[] for _ in examples]
        results = tags.entities(labels, cu_words)
        texts = np.searchsorted(cu_words, results[:, 0], "right") - 1
        parts = np.searchsorted(decided, results[:, :2])  # of the probabilities
        for (first, end, kind), number, part in zip(results.tolist(), texts.tolist(), parts.tolist(), strict=True):
            spans, text, before = words[number], examples[number].text, int(cu_words[number])
            start, stop = spans[first - before][0], spans[end - before - 1][1]
            probability = float(np.multiply.reduce(probabilities[slice(*part)]))
            if probability > self.threshold or not self.threshold:
                entities[number].append(EntityFound(start, stop, text[start:stop], tags.types[kind], probability))
        names = np.array(self.label_names, object)[labels].tolist()
        chances = np.repeat(probabilities, np.diff(np.append(decided, len(labels)))).tolist()
        return [
            TagsPrediction(tuple(spans), tuple(names[start:end]), tuple(chances[start:end]), tuple(in_text))
            for spans, start, end, in_text in zip(words, cu_words[:-1], cu_words[1:], entities, strict=True)
        ]

    def _spread(self, chosen: np.ndarray, decided: np.ndarray, cu_words: np.ndarray) -> np.ndarray:
        """(W,) labels of all words, from those of the words with the indices ``decided``."""
        num_words = int(cu_words[-1])
        if len(decided) == num_words:
            return chosen
        tags, bounds = self._tags(), np.append(decided, num_words)
        labels = np.repeat(chosen, np.diff(bounds))
        for first, end, kind in tags.entities(chosen, np.searchsorted(decided, cu_words)).tolist():
            entity = (0, int(bounds[end] - bounds[first]), tags.types[kind])
            names = tags.named(spell([entity], entity[1], self.scheme))
            labels[bounds[first] : bounds[end]] = [tags.numbers[name] for name in names]
        return labels

    def _as_decided(self, labels: np.ndarray, word_of: np.ndarray, cu_words: np.ndarray) -> np.ndarray:
        """(W,) labels with which the words that are decided spell the same entities as all words, as far as tokens
        allow: an entity begins with the token that holds its first word, and ends with the one that holds its last."""
        decided = np.flatnonzero(word_of == np.arange(len(word_of)))
        if len(decided) == len(labels) or self.scheme == "plain":
            return labels
        tags, results = self._tags(), labels.copy()
        results[decided] = tags.numbers.get(OUTSIDE, 0)
        index_of, previous = np.searchsorted(decided, word_of), 0
        for first, end, kind in tags.entities(labels, cu_words).tolist():
            begin, stop = max(int(index_of[first]), previous), int(index_of[end - 1]) + 1
            if begin >= stop:
                continue  # inside the last token of the entity before
            names = tags.named(spell([(0, stop - begin, tags.types[kind])], stop - begin, self.scheme))
            results[decided[begin:stop]] = [tags.numbers[name] for name in names]
            previous = stop
        return results

    def _first_pieces(self, examples: Sequence[TaggedText], encodings: Encodings) -> tuple[np.ndarray, np.ndarray]:
        return first_pieces([one.text for one in examples], [self._words(one) for one in examples], encodings)

    def _words(self, example: TaggedText) -> tuple[Span, ...]:
        return words_of(example.text, self.words) if example.words is None else example.words

    @property
    def entity_types(self) -> tuple[str, ...]:
        return self._tags().types

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
            wrong = misspelled(names, self.scheme, tags.notation)
            for index, name in enumerate(names):
                number = tags.numbers.get(name)
                if number is None:
                    shown = ", ".join(self.label_names[:10]) + (", ..." if len(self.label_names) > 10 else "")
                    meant = meant_tag(name, self.label_names)
                    problem = f"is not one of the model's ({shown}): correct it, or train with it" + (
                        f"; did you mean {meant!r}?" if meant else ""
                    )
                elif index == wrong:
                    problem = f"is not part of an entity in scheme {self.scheme}: correct it, or read its file again"
                else:
                    results.append(number)
                    continue
                assert example.words is not None
                word = example.text[slice(*example.words[index])]
                raise example.error(f"the tag {name!r} of word {index + 1}, {word!r}, {problem}")
        return np.array(results, np.int64)


def _tags_of(example: TaggedText) -> tuple[str, ...]:
    if example.tags is None or example.words is None:
        raise example.error("has no tags: expected one for each word")
    if len(example.tags) != len(example.words):
        has = f"{len(example.words)} words and {len(example.tags)} tags"
        raise example.error(f"has {has}: expected one tag for each word")
    return example.tags
