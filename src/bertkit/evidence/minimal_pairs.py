"""Which of two sentences does the model find more likely, the grammatical one or the other?"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from bertkit.evidence.intervals import Interval, bootstrap_interval, wilson_interval
from bertkit.evidence.suites import Paradigm
from bertkit.inference.pseudo_likelihood import Method
from bertkit.model import Model

TIE = 1e-4
"""Nats. Sentences whose likelihoods differ by no more are a tie: sums of float32 logs are no finer."""


@dataclass(frozen=True)
class PairScore:
    """How many of a group of pairs a model judges rightly."""

    kind: Literal["paradigm", "term", "field"]
    name: str
    num_pairs: int
    num_correct: int  # the good sentence is more likely
    num_ties: int  # both are equally likely: not correct
    num_too_long: int  # a sentence is longer than the model reads: not correct
    num_unknown: int  # a sentence holds [UNK]; judged all the same

    @property
    def accuracy(self) -> float:
        """0 to 1; without any knowledge 0.5."""
        return self.num_correct / self.num_pairs

    @property
    def interval(self) -> Interval:
        """95 %, Wilson's, over the pairs."""
        return wilson_interval(self.num_correct, self.num_pairs)


@dataclass(frozen=True)
class SuiteScore:
    """A model's scores on a suite of minimal pairs."""

    method: Method
    paradigms: tuple[PairScore, ...]
    terms: tuple[PairScore, ...]  # all pairs of the paradigms of a phenomenon
    fields: tuple[PairScore, ...]
    seed: int = 0  # of the bootstrap

    @property
    def accuracy(self) -> float:
        """The mean of the paradigms' accuracies, each counting alike."""
        return float(np.mean([score.accuracy for score in self.paradigms]))

    @property
    def interval(self) -> Interval:
        """95 %, of the mean: bootstrap over the paradigms, for the pairs of one are much alike. Of a single paradigm,
        Wilson's over its pairs."""
        if len(self.paradigms) == 1:
            return self.paradigms[0].interval
        return bootstrap_interval([score.accuracy for score in self.paradigms], self.seed)

    def rows(self) -> list[dict[str, Any]]:
        """A row for each paradigm, term and field, and last the mean."""
        groups = [*self.paradigms, *self.terms, *self.fields]
        rows = [_row(score.kind, score.name, score, [score], "Wilson") for score in groups]
        name = f"{len(self.paradigms)} paradigms"
        over = "Wilson" if len(self.paradigms) == 1 else "bootstrap over paradigms"
        return [*rows, _row("mean", name, self, self.paradigms, over)]


def _row(
    kind: str, name: str, score: PairScore | SuiteScore, counted: Sequence[PairScore], method: str
) -> dict[str, Any]:
    return {
        "kind": kind,
        "name": name,
        "num_pairs": sum(one.num_pairs for one in counted),
        "accuracy": score.accuracy,
        "interval": list(score.interval),
        "interval_method": method,
        "num_ties": sum(one.num_ties for one in counted),
        "num_too_long": sum(one.num_too_long for one in counted),
        "num_unknown": sum(one.num_unknown for one in counted),
    }


def score_minimal_pairs(
    model: Model,
    suite: Sequence[Paradigm],
    *,
    method: Method = "plain",
    seed: int = 0,
    progress: bool | None = None,
) -> SuiteScore:
    """Compare the pseudo-log-likelihoods of the sentences of each pair (Salazar et al. 2020, section 4).

    A pair is correct where the good sentence is strictly more likely; a tie, and a pair that the model cannot read,
    is not. All pairs count, so that models of any length are measured on the same ones.

    Args:
        suite: as `read_suite` gives it.
        method: "plain", or "l2r", fairer to words of several pieces; as `Model.pseudo_log_likelihood`.
        seed: of the mean's interval.
        progress: show a bar after two seconds; None: where a person is watching.

    Raises:
        MissingHeadError: no masked LM head, or one that was never trained.
    """
    sentences = [sentence for paradigm in suite for pair in paradigm.pairs for sentence in pair]
    fits, unknown = _readable(model, sentences)
    judged = np.flatnonzero(fits.reshape(-1, 2).all(axis=1))  # pairs
    likelihoods = model.pseudo_log_likelihood(
        [sentences[index] for pair in judged.tolist() for index in (2 * pair, 2 * pair + 1)],
        method=method,
        progress=progress,
    ).reshape(-1, 2)
    margins = np.full(len(sentences) // 2, np.nan)  # by how much the good sentence is more likely
    margins[judged] = likelihoods[:, 0] - likelihoods[:, 1]
    counts = np.stack(
        [
            np.ones(len(margins), np.bool_),
            margins > TIE,
            np.abs(margins) <= TIE,
            np.isnan(margins),
            unknown.reshape(-1, 2).any(axis=1),
        ]
    )  # (5, num_pairs), in the order of PairScore's fields

    def scores(kind: Literal["paradigm", "term", "field"], names: Sequence[str | None]) -> tuple[PairScore, ...]:
        name_of_pair = np.repeat(np.array([name or "" for name in names]), [len(one.pairs) for one in suite])
        return tuple(
            PairScore(kind, name, *counts[:, name_of_pair == name].sum(axis=1).tolist())
            for name in dict.fromkeys(names)
            if name is not None
        )

    return SuiteScore(
        method,
        scores("paradigm", [paradigm.name for paradigm in suite]),
        scores("term", [paradigm.term for paradigm in suite]),
        scores("field", [paradigm.field for paradigm in suite]),
        seed,
    )


def _readable(model: Model, sentences: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """(N,) bool whether a sentence fits the model, and whether it holds [UNK]."""
    vocabulary = model.tokenizer.vocabulary
    encodings = model.tokenizer.encode_batch(sentences, with_offsets=False)
    is_unknown = np.zeros(len(encodings.input_ids), np.bool_)
    if vocabulary.special.unk in vocabulary:
        is_unknown = encodings.input_ids == vocabulary.id(vocabulary.special.unk)
    unknown = np.logical_or.reduceat(is_unknown, encodings.cu_seqlens[:-1])
    return encodings.seqlens <= model.config.max_position_embeddings, unknown
