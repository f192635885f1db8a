"""Pseudo-log-likelihood of texts: each token is masked in turn and predicted from the others."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import numpy as np

from bertkit.batch import Batch
from bertkit.errors import UsageError
from bertkit.inference.runner import Bar, Runner, bar_of
from bertkit.later import Tensor, torch
from bertkit.tokenizer import Encodings
from bertkit.tokenizer.ragged import ranges
from bertkit.tokenizer.tokenizer import as_items

Method = Literal["plain", "l2r"]
"""Tokens hidden besides the predicted one: "plain": none; "l2r": the later pieces of the same word."""

_TOKENS_AT_A_TIME = 1 << 20
"""Maximum number of tokens in the masked copies held at once."""


def pseudo_log_likelihood(
    runner: Runner, texts: str | Sequence[str], *, method: Method = "plain", progress: bool | None = None
) -> float | np.ndarray:
    """The sum of `token_log_probs`; (N,) float64 for a list."""
    given = as_items(texts)
    sums = [log_probs.sum() for log_probs in token_log_probs(runner, given, method=method, progress=progress)]
    return float(sums[0]) if isinstance(texts, str) else np.array(sums, np.float64)


def token_log_probs(
    runner: Runner, texts: Sequence[str], *, method: Method = "plain", progress: bool | None = None
) -> list[np.ndarray]:
    """Natural log of the probability of each token, given the other tokens.

    The pseudo-log-likelihood of a text is their sum (Salazar et al. 2020, equation 1). With "plain", a piece of a
    longer word is easy to predict from the other pieces; "l2r" also hides the pieces to its right (PLL-word-l2r; Kauf &
    Ivanova 2023), where words are the tokenizer's ``word_ids``.

    A text of n tokens is encoded n times, with all copies of all texts in packed batches; only the predicted token is
    projected to the vocabulary.

    Args:
        progress: show a bar after two seconds; None: on a terminal.

    Returns:
        For each text (n,) float64, in the order of its tokens, without [CLS] and [SEP].

    Raises:
        OverLengthError: a text exceeds the model's limit.
        UsageError: an unknown method, a text that is not a str, or a left-to-right model.
    """
    runner.require_bidirectional()
    if method not in ("plain", "l2r"):
        raise UsageError(f"method={method!r}: expected 'plain' or 'l2r'")
    encodings = runner.encode_whole(texts, with_offsets=method == "l2r")
    tokens = np.flatnonzero(~encodings.special_tokens_mask)  # (C,) indices in the packed row; one copy for each
    text_of_token = np.repeat(np.arange(len(encodings)), encodings.seqlens)[tokens]  # (C,)
    num_hidden = _pieces_to_the_end(encodings.word_ids)[tokens] if method == "l2r" else np.ones_like(tokens)
    log_probs = np.empty(len(tokens))
    with bar_of(tokens, "scoring", "tokens", progress) as bar:
        for first, last in _borders(encodings.seqlens[text_of_token]) if len(tokens) else ():
            own = slice(first, last)
            copies = encodings.take(text_of_token[own])
            positions = tokens[own] - encodings.cu_seqlens[text_of_token[own]]
            hidden_tokens = ranges(copies.cu_seqlens[:-1] + positions, num_hidden[own])
            copies.input_ids[hidden_tokens] = runner.tokenizer.mask_id  # safe: `take` made copies
            _guess(runner, copies, positions, encodings.input_ids[tokens[own]], log_probs[own], bar)
    num_tokens = np.bincount(text_of_token, minlength=len(encodings))
    return np.split(log_probs, np.cumsum(num_tokens)[:-1]) if len(encodings) else []


def _guess(
    runner: Runner, copies: Encodings, positions: np.ndarray, targets: np.ndarray, log_probs: np.ndarray, bar: Bar
) -> None:
    """Write the log probabilities of ``targets`` at ``positions`` of the copies into (C,) ``log_probs``."""
    head, word_embedding = runner.network.require_head("masked_lm"), runner.network.encoder.embeddings.word.weight
    in_copy, wanted = torch.from_numpy(positions), torch.from_numpy(targets.astype(np.int64))

    def forward(batch: Batch, indices: np.ndarray) -> Tensor:
        guessed = batch.first_tokens + in_copy[indices].to(runner.device)
        states = runner.encoder(batch, with_pooled=False).last_hidden_state[guessed]  # (P, D)
        log_probs = head(states, word_embedding).log_softmax(-1)  # (P, V)
        return log_probs.gather(1, wanted[indices][:, None].to(runner.device))[:, 0].cpu()

    log_probs[:] = runner.run(copies, forward, on_batch=lambda indices: bar.update(len(indices))).numpy()


def _pieces_to_the_end(word_ids: np.ndarray) -> np.ndarray:
    """(T,) number of pieces from each piece to the end of its word, itself included.

    >>> _pieces_to_the_end(np.array([-1, 0, 0, 0, 1, -1])).tolist()
    [1, 3, 2, 1, 1, 1]
    """
    ends = np.append(np.flatnonzero(word_ids[1:] != word_ids[:-1]) + 1, len(word_ids))
    return np.repeat(ends, np.diff(ends, prepend=0)) - np.arange(len(word_ids))


def _borders(lengths: np.ndarray) -> list[tuple[int, int]]:
    """First and last (exclusive) of runs of copies, each of about _TOKENS_AT_A_TIME tokens."""
    inner = np.flatnonzero(np.diff(np.cumsum(lengths) // _TOKENS_AT_A_TIME)) + 1
    return list(pairwise([0, *inner.tolist(), len(lengths)]))
