"""Evaluation on grammatical minimal pairs: is the good sentence more likely?"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from bertkit.errors import UsageError
from bertkit.evidence.intervals import Interval, bootstrap_interval, wilson_interval
from bertkit.evidence.suites import Paradigm
from bertkit.inference.pseudo_likelihood import Method
from bertkit.model import Model, check_model

TIE = 1e-4
"""In nats. Smaller differences of log-likelihoods are ties, as sums of float32 logarithms are not more precise."""


@dataclass(frozen=True)
class PairScore:
    """Counts of correct pairs in a group."""

    kind: Literal["paradigm", "term", "field"]
    name: str
    num_pairs: int
    num_correct: int  # the good sentence is more likely
    num_ties: int  # both are equally likely: not correct
    num_too_long: int  # a sentence exceeds the model's limit: not correct
    num_unknown: int  # a sentence contains [UNK]; scored like any other

    @property
    def accuracy(self) -> float:
        """0 to 1; chance is 0.5."""
        return self.num_correct / self.num_pairs

    @property
    def interval(self) -> Interval:
        """95 % Wilson interval over the pairs."""
        return wilson_interval(self.num_correct, self.num_pairs)


@dataclass(frozen=True)
class SuiteScore:
    """A model's scores on a suite of minimal pairs."""

    method: Method
    paradigms: tuple[PairScore, ...]
    terms: tuple[PairScore, ...]  # one per phenomenon, over the pairs of its paradigms
    fields: tuple[PairScore, ...]
    seed: int = 0  # seed of the bootstrap

    @property
    def accuracy(self) -> float:
        """Unweighted mean of the paradigm accuracies."""
        return float(np.mean([score.accuracy for score in self.paradigms]))

    @property
    def interval(self) -> Interval:
        """95 % interval of the mean: bootstrap over paradigms, as the pairs of one paradigm are similar. For a single
        paradigm, Wilson interval over its pairs."""
        if len(self.paradigms) == 1:
            return self.paradigms[0].interval
        return bootstrap_interval([score.accuracy for score in self.paradigms], self.seed)

    def rows(self) -> list[dict[str, Any]]:
        """A row for each paradigm, term and field, and the mean as the last row."""
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
    model: Model, suite: Sequence[Paradigm], *, method: Method = "plain", seed: int = 0, progress: bool | None = None
) -> SuiteScore:
    """Compare the pseudo-log-likelihoods of the sentences of each pair (Salazar et al. 2020, section 4).

    A pair is correct if the good sentence is strictly more likely; ties, and pairs that exceed the model's limit, are
    not. All pairs count, so that models with different limits are measured on the same ones.

    Args:
        suite: from `read_suite`.
        method: "plain", or "l2r", which is fairer to words of several pieces; see `Model.pseudo_log_likelihood`.
        seed: seed of the interval of the mean.
        progress: show a bar after two seconds; None: on a terminal.

    Raises:
        UsageError: no paradigm, or one without pairs.
        MissingHeadError: the masked LM head is missing or was never trained.
    """
    check_model(model)
    if not suite or not all(paradigm.pairs for paradigm in suite):
        raise UsageError(f"{len(suite)} paradigms: expected at least one, each with at least one pair")
    sentences = [sentence for paradigm in suite for pair in paradigm.pairs for sentence in pair]
    fits, unknown = _readable(model, sentences)
    judged = np.flatnonzero(fits.reshape(-1, 2).all(axis=1))  # pairs
    likelihoods = model.pseudo_log_likelihood(
        [sentences[index] for pair in judged.tolist() for index in (2 * pair, 2 * pair + 1)],
        method=method,
        progress=progress,
    ).reshape(-1, 2)
    margins = np.full(len(sentences) // 2, np.nan)  # log-likelihood of the good minus the bad sentence
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
    """(N,) bool, the sentence fits the model's limit; and (N,) bool, it contains [UNK]."""
    vocabulary = model.tokenizer.vocabulary
    encodings = model.tokenizer.encode_batch(sentences, with_offsets=False)
    is_unknown = np.zeros(len(encodings.input_ids), np.bool_)
    if vocabulary.special.unk in vocabulary:
        is_unknown = encodings.input_ids == vocabulary.id(vocabulary.special.unk)
    unknown = np.logical_or.reduceat(is_unknown, encodings.cu_seqlens[:-1])
    return encodings.seqlens <= model.config.max_position_embeddings, unknown
