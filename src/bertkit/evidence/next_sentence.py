"""Does the model tell what follows from what does not?"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bertkit.errors import DataError
from bertkit.evidence.intervals import Interval, wilson_interval
from bertkit.model import Model


@dataclass(frozen=True)
class NextSentenceScore:
    """How many pairs of sentences a model judges rightly, half of which follow one another."""

    num_pairs: int
    num_correct_following: int  # of the half that does
    num_correct_random: int  # of the half that does not

    @property
    def accuracy(self) -> float:
        """0 to 1; without any knowledge 0.5."""
        return (self.num_correct_following + self.num_correct_random) / self.num_pairs

    @property
    def interval(self) -> Interval:
        """95 %, Wilson's, over the pairs."""
        return wilson_interval(self.num_correct_following + self.num_correct_random, self.num_pairs)


def score_next_sentence(
    model: Model, documents: Sequence[Sequence[str]], *, limit: int | None = None, seed: int = 0
) -> NextSentenceScore:
    """Judge every sentence twice: with the one that follows it, and with one drawn from another document.

    Exactly half of the pairs follow one another, as in the held-out pairs of Devlin et al. 2018 (section 3.1). Pairs
    too long for the model are cut, which a TruncationWarning tells.

    Args:
        documents: sentences in order; empty documents and blank sentences are left out.
        limit: judge so many sentences, drawn at random; None: all that have a next one.
        seed: of all that is drawn.

    Raises:
        DataError: fewer than two documents, or no sentence that another one follows.
        MissingHeadError: no next sentence head, or one that was never trained.
    """
    kept = [[sentence for sentence in document if sentence.strip()] for document in documents]
    kept = [document for document in kept if document]
    consecutive = [(number, at) for number, document in enumerate(kept) for at in range(len(document) - 1)]
    if len(kept) < 2 or not consecutive:
        raise DataError(
            f"{len(kept)} documents with {sum(map(len, kept))} sentences: expected two documents or more, one of them "
            "of two sentences or more"
        )
    draw = np.random.default_rng(seed)
    if limit is not None and limit < len(consecutive):
        consecutive = [consecutive[index] for index in np.sort(draw.permutation(len(consecutive))[:limit])]
    firsts, following, others = [], [], []
    for number, at in consecutive:
        other = kept[(number + draw.integers(1, len(kept))) % len(kept)]  # any document but this one
        firsts.append(kept[number][at])
        following.append(kept[number][at + 1])
        others.append(other[draw.integers(len(other))])
    probabilities = model.next_sentence_probability(firsts + firsts, following + others, on_long="truncate")
    follows = (probabilities > 0.5).reshape(2, -1)
    return NextSentenceScore(2 * len(firsts), int(follows[0].sum()), int((~follows[1]).sum()))
