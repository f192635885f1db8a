"""Static and contextual vectors of a word in two texts, compared with random pairs of the same space.

Cosines of different spaces are not comparable: in upper layers of a Transformer any two tokens are similar (Ethayarajh
2019). So each is shown with the mean over random pairs of its space, and the percentage of those pairs that it exceeds.
Shape letters: S layers (embeddings and every layer), D hidden_size, n texts of the baseline.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from bertkit.errors import UsageError, check_type, checked_count
from bertkit.inference import InferenceReport
from bertkit.inspection.contextual import (
    cosines,
    drawn_words,
    first_occurrence,
    spans_by_text,
    token_states,
    word_states,
)
from bertkit.inspection.view import View
from bertkit.model import Model, check_model
from bertkit.pages import Line, Markup, data, line_chart, paragraph, section, table
from bertkit.tokenizer.encoding import Encoding, Span
from bertkit.tokenizer.tokenizer import listed_texts
from bertkit.words import StaticEncoder
from bertkit.words.opening import input_embeddings

_MOST_WORDS = 500  # of the baseline: 124,750 pairs
_EQUAL = 1e-6  # cosines closer than this are ties; half of them count as lower
_ACROSS = ("word", "[CLS]", "mean of tokens")  # one text with the other
_WITHIN = ("[CLS] and words of text 1", "[CLS] and words of text 2")  # of one text; random pairs are of two


@dataclass(frozen=True)
class Contrast:
    """A cosine, compared with random pairs of the same space."""

    space: str  # "static", or "layer 0" for the embeddings with positions, "layer 1", ...
    compared: str  # vectors that are compared
    cosine: float
    baseline: float  # mean cosine of random pairs
    percentile: float  # percentage of the random pairs with a lower cosine, and half of those with an equal one
    num_pairs: int


@dataclass(frozen=True, eq=False)
class ContrastView(View):
    """Static and contextual vectors of a word in two texts."""

    title: ClassVar[str] = "Static against contextual"
    smaller: ClassVar[str] = "give shorter texts"
    word: str
    texts: list[str]  # 2
    tokens: list[list[str]]
    input_ids: list[list[int]]
    static_name: str  # source of the static vectors
    static_word: np.ndarray  # (E,) of the word
    static_averages: np.ndarray  # (2, E) of the texts
    contextual_word: np.ndarray  # (S, 2, D)
    contextual_cls: np.ndarray  # (S, 2, D)
    contextual_mean: np.ndarray  # (S, 2, D) over all tokens
    contextual_words: np.ndarray  # (S, 2, D) over the tokens without special tokens
    contrasts: list[Contrast]
    num_unknown: int  # tokens of the two texts without a static vector, skipped in averages

    def rows(self) -> list[dict[str, Any]]:
        return [asdict(one) for one in self.contrasts]

    def parts(self) -> list[Markup]:
        static = [one for one in self.contrasts if one.space == "static"]
        parts = [
            paragraph(
                "The word ", data(self.word), " in two texts. A static vector is the same in both; a contextual one "
                "depends on the other words. Cosines of different spaces are not comparable: read the percentile, the "
                "percentage of random pairs of the same space that are less similar.",
            ),
            section(
                "Tokens",
                *(
                    table(["token", *map(data, tokens)], [["id", *map(str, ids)]], caption=data(text))
                    for text, tokens, ids in zip(self.texts, self.tokens, self.input_ids, strict=True)
                ),
            ),
            section(
                "Static vectors",
                paragraph("Vectors: ", data(self.static_name), "."),
                table(
                    ["compared", "cosine", "random pairs", "percentile"],
                    [[one.compared, one.cosine, one.baseline, one.percentile] for one in static],
                ),
            ),
        ]  # fmt: skip
        for name in (*_ACROSS, *_WITHIN):
            own = [one for one in self.contrasts if one.compared == name and one.space != "static"]
            layers = np.arange(len(own), dtype=np.float64)
            curves = [
                Line("cosine", layers, np.array([one.cosine for one in own])),
                Line("random pairs", layers, np.array([one.baseline for one in own]), color=2, look="dashed"),
                Line("percentile / 100", layers, np.array([one.percentile for one in own]) / 100, color=3),
            ]
            chart = line_chart("By layer", curves, x_name="layer", x_kind="integer", y_name="cosine")
            parts.append(section(f"Contextual: {name}", chart))
        return parts


def inspect_contrast(
    model: Model,
    texts: tuple[str, str],
    word: str,
    baseline: Sequence[str],
    *,
    static: StaticEncoder | None = None,
    static_name: str = "input embeddings of the model",
    seed: int = 0,
) -> ContrastView:
    """Compare static and contextual vectors of a word in two texts at every layer, with averages and [CLS].

    Args:
        word: matched as a whole word, ignoring case; its first occurrence in each text.
        baseline: texts for the random pairs; those with more tokens than the model accepts are left out.
        static: word vectors; None: the model's input embeddings.
        seed: seed of the baseline words.

    Raises:
        OverLengthError: one of the two texts has more tokens than the model accepts.
        UsageError: a text without the word, a word without tokens or a static vector, fewer than three baseline
            texts, or none with a word.
    """
    check_model(model)
    pair, baseline, seed = listed_texts(texts), listed_texts(baseline), checked_count("seed", seed, 0)
    if len(pair) != 2:
        raise UsageError(f"{len(pair)} texts: expected two, to compare a word in them")
    texts = pair[0], pair[1]
    if static is not None:
        check_type("static", static, StaticEncoder)
    spans = [_span_of(word, text) for text in texts]
    others = [text for text in baseline if text.strip() and text not in texts]
    lengths = model.tokenizer.encode_batch(others, with_offsets=False).seqlens if others else ()
    longest = model.config.max_position_embeddings
    others = [text for text, length in zip(others, lengths, strict=True) if length <= longest]
    if len(others) < 3:
        raise UsageError(f"{len(others)} texts for the random pairs: expected at least three others")
    encoder = input_embeddings(model) if static is None else static
    layers = range(model.config.num_hidden_layers + 1)
    own = list(token_states(model, texts, layers))
    words = np.stack([word_states(encoding, states, text, span) for (encoding, states), text, span in
                      zip(own, texts, spans, strict=True)], axis=1)  # fmt: skip
    cls, means, text_words = _averages(own)
    drawn = drawn_words(others, _MOST_WORDS, seed)
    if not drawn:
        raise UsageError("the texts for the random pairs have no words: expected some to compare with")
    random_words, (random_cls, random_means, random_text_words) = _baseline(model, others, drawn, layers)
    names = [others[index][start:end].lower() for index, (start, end) in drawn]
    contrasts, averages, num_unknown = _static_contrasts(encoder, texts, word, others, names)
    different = np.array(names)[:, None] != np.array(names)
    for layer in layers:
        spaces = ((words, random_words, different), (cls, random_cls, None), (means, random_means, None))
        for name, (pair, random, kept) in zip(_ACROSS, spaces, strict=True):
            contrasts.append(_contrast(f"layer {layer}", name, pair[layer], random[layer], kept))
        similar = cosines(random_cls[layer], random_text_words[layer])[~np.eye(len(others), dtype=np.bool_)]
        within = cosines(cls[layer], text_words[layer]).diagonal()
        for name, cosine in zip(_WITHIN, within, strict=True):
            contrasts.append(_compared(f"layer {layer}", name, float(cosine), similar))
    return ContrastView(
        word=word,
        texts=list(texts),
        tokens=[model.tokenizer.tokens(encoding) for encoding, _ in own],
        input_ids=[encoding.input_ids.tolist() for encoding, _ in own],
        static_name=static_name,
        static_word=_word_vector(encoder, word),
        static_averages=averages,
        contextual_word=words,
        contextual_cls=cls,
        contextual_mean=means,
        contextual_words=text_words,
        contrasts=contrasts,
        num_unknown=num_unknown,
    )


def _span_of(word: str, text: str) -> Span:
    span = first_occurrence(word, text)
    if span is None:
        raise UsageError(f"the text {text!r:.60} lacks the word {word!r}: both texts must contain it")
    return span


def _averages(states: Iterable[tuple[Encoding, np.ndarray]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(S, n, D) each: the first token, the mean of all tokens, and of those that are not special, of each text."""
    columns = [
        (each[0], each.mean(axis=0), each[~encoding.special_tokens_mask].mean(axis=0)) for encoding, each in states
    ]
    first, means, words = (np.stack(column, axis=1) for column in zip(*columns, strict=True))
    return first, means, words


def _baseline(
    model: Model, texts: Sequence[str], drawn: Sequence[tuple[int, Span]], layers: Sequence[int]
) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """(S, words, D) of the drawn words, and the averages of the texts."""
    spans, words = spans_by_text(texts, drawn), []

    def states() -> Iterator[tuple[Encoding, np.ndarray]]:
        for index, (encoding, own) in enumerate(token_states(model, texts, layers)):
            words.extend(word_states(encoding, own, texts[index], span) for span in spans[index])
            yield encoding, own

    averages = _averages(states())
    return np.stack(words, axis=1), averages


def _static_contrasts(
    encoder: StaticEncoder, texts: Sequence[str], word: str, others: Sequence[str], names: Sequence[str]
) -> tuple[list[Contrast], np.ndarray, int]:
    report, ignored = InferenceReport(), InferenceReport()
    vector, averages = _word_vector(encoder, word), encoder.embed(texts, report=report)
    random = encoder.embed(sorted(set(names)), report=ignored)
    average_of_others = encoder.embed(others, report=ignored)
    contrasts = [
        _contrast("static", "word", np.stack([vector, vector]), random[random.any(axis=1)]),
        _contrast("static", "average of tokens", averages, average_of_others[average_of_others.any(axis=1)]),
    ]
    return contrasts, averages, report.num_unknown


def _word_vector(encoder: StaticEncoder, word: str) -> np.ndarray:
    """(E,) vector of a word: the mean of its pieces."""
    report = InferenceReport()
    vector = encoder.embed(word, report=report)
    if report.num_empty:
        raise UsageError(f"{word!r} has no static vector: choose other vectors with static=, or another word")
    return vector


def _contrast(
    space: str, compared: str, pair: np.ndarray, random: np.ndarray, different: np.ndarray | None = None
) -> Contrast:
    """Compare the cosine of two vectors with those of all pairs of (m, D) random ones, or of the ``different`` ones."""
    rows, columns = np.triu_indices(len(random), 1)
    similar = cosines(random, random)[rows, columns]
    if different is not None:
        similar = similar[different[rows, columns]]
    return _compared(space, compared, float(cosines(pair[:1], pair[1:])[0, 0]), similar)


def _compared(space: str, compared: str, cosine: float, similar: np.ndarray) -> Contrast:
    """Compare a cosine with those of random pairs."""
    if not len(similar):
        return Contrast(space, compared, cosine, float("nan"), float("nan"), 0)
    equal = np.abs(similar - cosine) <= _EQUAL
    percentile = 100 * float(((similar < cosine) & ~equal).mean() + equal.mean() / 2)
    return Contrast(space, compared, cosine, float(similar.mean()), percentile, len(similar))
