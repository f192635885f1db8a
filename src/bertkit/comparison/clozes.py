"""Clozes: how well models predict hidden tokens of held-out text, of minimal pairs and of a text of the user."""

from collections.abc import Sequence

import numpy as np
import torch

from bertkit.architectures import Network
from bertkit.comparison.models import special_ids
from bertkit.comparison.predictors import Predictor, hidden_log_probs, rows_of, text_scores
from bertkit.corpus.shards import TokenShard
from bertkit.errors import DataError, UsageError
from bertkit.evidence.suites import Paradigm
from bertkit.objectives import TokenBlocks
from bertkit.tokenizer import Tokenizer

HELD_OUT_SEED = 12_345
_MOST_CLOZES = 2_000
_FEWEST_TOKENS = 7
"""Tokens of a sequence with a hidden one in its middle, [CLS] and [SEP] included."""


def held_out_rows(tokenizer: Tokenizer, held_out: TokenShard, max_seqlen: int) -> list[np.ndarray]:
    """The ids of held-out sequences, with enough tokens on each side of a hidden one.

    Raises:
        DataError: there is none.
    """
    special = special_ids(tokenizer)
    source = TokenBlocks(held_out, special, max_seqlen, HELD_OUT_SEED)
    sequences = source.take(0, np.arange(min(_MOST_CLOZES, source.num_examples(0))))
    rows = np.split(sequences.input_ids.astype(np.int64), sequences.cu_seqlens[1:-1])
    long = [row for row in rows if len(row) >= _FEWEST_TOKENS]
    if not long:
        raise DataError(
            f"the longest held-out sequence has {max(map(len, rows), default=0)} tokens, [CLS] and [SEP] included: "
            f"expected at least {_FEWEST_TOKENS} for a hidden one in the middle; give longer documents, or a "
            "larger max_seqlen"
        )
    return long


def measured_clozes(
    network: Network | Predictor,
    tokenizer: Tokenizer,
    rows: Sequence[np.ndarray],
    suite: Sequence[Paradigm],
    cloze: tuple[str, str] | None,
) -> dict[str, float]:
    """Metrics with one hidden token in the middle of each sequence.

    Args:
        rows: the ids of each sequence, from `held_out_rows`.
        suite: minimal pairs, from `read_suite`.
        cloze: a text with [MASK], and the word that it hides.
    """
    at = np.array([len(row) // 2 for row in rows])
    log_probs = hidden_log_probs(network, tokenizer.mask_id, rows, at)
    tokens = torch.tensor([row[index] for row, index in zip(rows, at, strict=True)])
    metrics = {
        "cloze_accuracy": float((log_probs.argmax(-1) == tokens).double().mean()),
        "cloze_perplexity": float((-log_probs.gather(1, tokens[:, None]).mean()).exp()),
        "clozes": float(len(rows)),
    }
    if suite:
        pairs = [pair for paradigm in suite for pair in paradigm.pairs]
        scores = text_scores(network, tokenizer, [text for pair in pairs for text in pair]).reshape(-1, 2)
        metrics["minimal_pairs"] = float((scores[:, 0] > scores[:, 1]).mean())
    if cloze is not None:
        (row,) = rows_of(tokenizer, [cloze[0]])
        hidden = int(np.flatnonzero(row == tokenizer.mask_id)[0])
        own = hidden_log_probs(network, tokenizer.mask_id, [row], np.array([hidden]))
        metrics["word_prob"] = float(own[0, word_id(tokenizer, cloze[1])].exp())
    return metrics


def word_id(tokenizer: Tokenizer, word: str) -> int:
    """The id of a word that is one token.

    Raises:
        UsageError: it is none, several, or an unknown one.
    """
    (ids,) = tokenizer.plain_ids([word])
    if len(ids) != 1 or int(ids[0]) in tokenizer.vocabulary.special_ids():
        told = "unknown to" if len(ids) == 1 else f"{len(ids)} tokens of"
        raise UsageError(f"the word {word!r} is {told} this vocabulary: expected one token")
    return int(ids[0])
