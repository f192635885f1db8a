"""Models of a comparison, with one interface: token probabilities given the surrounding tokens.

Shape letters: T total_tokens, P predicted tokens, V vocab_size.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from bertkit.architectures import Network, NetworkOutput
from bertkit.batch import Batch, batch_of_ids
from bertkit.errors import DataError
from bertkit.heads.masked_lm import MaskedLMHead
from bertkit.tokenizer import Tokenizer
from bertkit.transformer import BertConfig, EncoderOutput
from bertkit.transformer.directional import DirectionalEncoder, NeighborMean
from bertkit.transformer.kernels import apply_linear

_ROWS = 64  # sequences per batch


class Predictor(nn.Module):
    """A model that never sees the tokens it predicts, with BERT's head."""

    def __init__(self, encoder: DirectionalEncoder | NeighborMean, config: BertConfig) -> None:
        super().__init__()
        self.encoder = encoder
        self.narrow = nn.Linear(encoder.width, config.hidden_size) if encoder.width != config.hidden_size else None
        self.head = MaskedLMHead(config)

    def forward(self, batch: Batch, *, masked_positions: Tensor) -> NetworkOutput:
        """The logits (P, V) of the tokens at ``masked_positions`` under the name "masked_lm"."""
        states = self.encoder(batch, masked_positions)
        if self.narrow is not None:
            states = apply_linear(states, self.narrow)
        logits = self.head(states, self.encoder.embeddings.word.weight)  # pyrefly: ignore
        return NetworkOutput(EncoderOutput(states, None), {"masked_lm": logits})


@torch.inference_mode()
def hidden_log_probs(network: Network | Predictor, mask_id: int, rows: Sequence[np.ndarray], at: np.ndarray) -> Tensor:
    """Log probabilities (N, V) for one hidden token of each sequence.

    Args:
        mask_id: replaces the hidden token for BERT; other models do not read that position.
        rows: the ids of N sequences, [CLS] and [SEP] included.
        at: (N,) the index of the hidden token in its sequence, neither the first nor the last.
    """
    results = []
    for first in range(0, len(rows), _ROWS):
        group, own = rows[first : first + _ROWS], at[first : first + _ROWS]
        hidden = [row.copy() for row in group]
        for row, index in zip(hidden, own, strict=True):
            row[index] = mask_id
        batch = batch_of_ids(hidden if isinstance(network, Network) else group)
        positions = batch.cu_seqlens[:-1].long() + torch.from_numpy(own)
        logits = network(batch, masked_positions=positions).logits["masked_lm"]
        results.append(logits.float().log_softmax(-1))
    return torch.cat(results)


def text_scores(network: Network | Predictor, tokenizer: Tokenizer, texts: Sequence[str]) -> np.ndarray:
    """(N,) sums of the log probabilities of all tokens of each text, each given the tokens that the model sees.

    For a unidirectional model that is the log probability of the text, for the others the pseudo-log-likelihood
    (Salazar et al. 2020).
    """
    rows = rows_of(tokenizer, texts)
    repeated = [row for row in rows for _ in range(len(row) - 2)]
    at = np.concatenate([np.arange(1, len(row) - 1) for row in rows])
    scores, text_of = np.zeros(len(rows)), np.repeat(np.arange(len(rows)), [len(row) - 2 for row in rows])
    for first in range(0, len(repeated), 16 * _ROWS):
        part = slice(first, first + 16 * _ROWS)
        log_probs = hidden_log_probs(network, tokenizer.mask_id, repeated[part], at[part])
        tokens = torch.tensor([row[index] for row, index in zip(repeated[part], at[part], strict=True)])
        np.add.at(scores, text_of[part], log_probs.gather(1, tokens[:, None])[:, 0].double().numpy())
    return scores


def rows_of(tokenizer: Tokenizer, texts: Sequence[str]) -> list[np.ndarray]:
    """The ids of each text, [CLS] and [SEP] included."""
    encodings = tokenizer.encode_batch(list(texts), with_offsets=False, special_tokens_in_text=True)
    bounds = encodings.cu_seqlens
    return [encodings.input_ids[bounds[i] : bounds[i + 1]].astype(np.int64) for i in range(len(texts))]


def check_lengths(tokenizer: Tokenizer, texts: Sequence[str], num_positions: int) -> None:
    """Check that models with that number of positions can read texts.

    Raises:
        DataError: one is longer.
    """
    for text, row in zip(texts, rows_of(tokenizer, texts), strict=True):
        if len(row) > num_positions:
            raise DataError(
                f"{text!r:.60} has {len(row)} tokens, the compared models {num_positions} positions: shorten it, or "
                "leave it out"
            )
