"""Trace: the intermediate values of one text inside a model, as arrays.

Shape letters: L tokens of the sequence, D hidden_size, H num_heads, K head_dim, V vocab_size, N num_hidden_layers.
"""

import operator
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from bertkit.batch import collate
from bertkit.errors import OverLengthError, UsageError
from bertkit.inference.runner import Runner
from bertkit.later import Tensor, torch
from bertkit.transformer import EncoderOutput, LayerRecord, Recorder


@dataclass(frozen=True, eq=False)
class LayerTrace:
    """One recorded layer."""

    query: np.ndarray  # (H, L, K), after rotary positions if the encoder has them
    key: np.ndarray  # (H, L, K), as query
    value: np.ndarray  # (H, L, K)
    attention_scores: np.ndarray  # (H, L, L) before softmax; row = attending token, column = attended token; -inf
    # outside a sliding window
    attention_probs: np.ndarray  # (H, L, L), after softmax
    value_norms: np.ndarray  # (H, L): length of the value of each token, projected by the head's share of the output
    # matrix; times the attention probability it is the weighted norm of Kobayashi et al. 2020, section 3
    attention_output: np.ndarray  # (L, D), the contribution of attention to the residual stream
    feed_forward_output: np.ndarray  # (L, D), the contribution of the feed-forward network


@dataclass(frozen=True, eq=False)
class Trace:
    """Intermediate values of a text, or a pair of texts. Layer 0 is the embeddings, layer 1 the first layer."""

    text: str
    pair: str | None
    tokens: tuple[str, ...]  # L spellings
    input_ids: np.ndarray  # (L,) int32
    token_type_ids: np.ndarray  # (L,) int32: 0 for [CLS] A [SEP], 1 for B [SEP]
    special_tokens_mask: np.ndarray  # (L,) bool, True for the [CLS] and [SEP] that were added
    word_ids: np.ndarray  # (L,) int32, -1 for special tokens; starting at 0 again in text B
    offsets: np.ndarray  # (L, 2) int32, characters of the text or the pair; (0, 0) for special tokens
    hidden_states: np.ndarray  # (N + 1, L, D)
    layers: dict[int, LayerTrace]  # the recorded layers by number, from 1
    pooled: np.ndarray | None  # (D,), None without pooler
    masked_lm_logits: np.ndarray | None  # (L, V), None without a trained head
    next_sentence_logits: np.ndarray | None  # (2,), [0] for "B follows A"; None without a pair or a trained head

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def second_text(self) -> np.ndarray:
        """(L,) bool, True for the tokens of the pair and the [SEP] after it."""
        if self.pair is None:
            return np.zeros(len(self), np.bool_)
        last_between = np.flatnonzero(self.special_tokens_mask)[-2]  # one more separator is at the end
        return np.arange(len(self)) > last_between

    def word_groups(self) -> list[list[int]]:
        """The indices of the tokens of each word, in order; a special token is a group by itself."""
        groups: list[list[int]] = []
        keys = list(zip(self.word_ids.tolist(), self.second_text.tolist(), strict=True))
        for index, key in enumerate(keys):
            if groups and key[0] >= 0 and keys[index - 1] == key:
                groups[-1].append(index)
            else:
                groups.append([index])
        return groups

    def text_of(self, index: int) -> str:
        """The characters of a token in its text; its spelling if it is special."""
        start, end = self.offsets[index].tolist()
        source = self.pair if self.pair is not None and self.second_text[index] else self.text
        return source[start:end] if end > start else self.tokens[index]

    def to_dict(self) -> dict[str, Any]:
        """Everything as lists and numbers, for JSON."""
        plain = {name: _plain(value) for name, value in vars(self).items() if name != "layers"}
        layers = {number: {name: _plain(part) for name, part in vars(layer).items()}
                  for number, layer in self.layers.items()}  # fmt: skip
        return plain | {"layers": layers}


def trace(
    runner: Runner, text: str, pair: str | None = None, *, layers: Iterable[int] | None = None,
    heads: Collection[str] = (), special_tokens_in_text: bool = True,
) -> Trace:  # fmt: skip
    """Run one text through the network's own encoder and record its intermediate values.

    Hidden states are equal to inference in float32 to rounding.

    Args:
        layers: numbers of the layers whose attention is recorded, 1 for the first; None: all.
        heads: heads that may be applied; only "masked_lm" and "next_sentence" are used.
        special_tokens_in_text: a literal [MASK] in a text becomes that token; False: it is text, as in predictions.

    Raises:
        OverLengthError: more tokens than the model accepts.
        UsageError: an empty text, or a layer that the model does not have.
    """
    num_layers = runner.network.config.num_hidden_layers
    try:
        numbers = list(range(1, num_layers + 1)) if layers is None else sorted({*map(operator.index, layers)})
    except TypeError:
        raise UsageError(f"layers={layers!r:.40}: expected several ints, such as [1, {num_layers}]") from None
    for number in numbers:
        if not 1 <= number <= num_layers:
            raise UsageError(f"layer {number}: expected 1 to {num_layers}, the layers of this model")
    for name, given in (("text", text), ("pair", pair)):
        if isinstance(given, str) and not given.strip():
            raise UsageError(f"the {name} is empty: expected at least one word")
    encoding = runner.tokenizer.encode(text, pair, special_tokens_in_text=special_tokens_in_text)
    if len(encoding) > runner.max_positions:
        raise OverLengthError(
            f"the text has {len(encoding):,} tokens, the model accepts {runner.max_positions:,}: shorten it, or trace "
            "its parts separately"
        )
    batch, recorder, encoder = collate([encoding]).to(runner.device), Recorder(numbers), runner.network.encoder

    def run() -> tuple[EncoderOutput, dict[str, Tensor]]:
        encoded = encoder(batch, with_hidden_states=True, recorder=recorder)
        known = ("masked_lm",) if pair is None else ("masked_lm", "next_sentence")
        asked = [head for head in known if head in heads]
        return encoded, {head: runner.network.head_logits(head, encoded, batch) for head in asked}

    encoded, logits = runner.one(run)
    assert encoded.hidden_states is not None
    masked_lm, next_sentence = logits.get("masked_lm"), logits.get("next_sentence")
    return Trace(
        text=text,
        pair=pair,
        tokens=tuple(runner.tokenizer.tokens(encoding)),
        input_ids=encoding.input_ids,
        token_type_ids=encoding.token_type_ids,
        special_tokens_mask=encoding.special_tokens_mask,
        word_ids=encoding.word_ids,
        offsets=encoding.offsets,
        hidden_states=array(torch.stack(encoded.hidden_states)),
        layers={
            number: _layer(record, cast(Any, encoder.in_order()[number - 1]).attention.output.weight)
            for number, record in zip(numbers, recorder.layers, strict=True)
        },
        pooled=None if encoded.pooled is None else array(encoded.pooled[0]),
        masked_lm_logits=None if masked_lm is None else array(masked_lm),
        next_sentence_logits=None if next_sentence is None else array(next_sentence[0]),
    )


def array(tensor: Tensor) -> np.ndarray:
    """A tensor as float32 or float64."""
    return (tensor if tensor.dtype == torch.float64 else tensor.float()).detach().cpu().numpy()


def _layer(record: LayerRecord, output: Tensor) -> LayerTrace:
    """Args: output: (D, H K), the matrix after the heads."""
    value = record.value.transpose(0, 1)  # (H, L, K)
    num_heads, _, head_dim = value.shape
    by_head = output.detach().unflatten(1, (num_heads, head_dim)).permute(1, 2, 0)  # (H, K, D)
    return LayerTrace(
        query=array(record.query.transpose(0, 1)),
        key=array(record.key.transpose(0, 1)),
        value=array(value),
        attention_scores=array(record.attention_scores[0]),
        attention_probs=array(record.attention_probs[0]),
        value_norms=array((value @ by_head).norm(dim=-1)),
        attention_output=array(record.attention_output),
        feed_forward_output=array(record.feed_forward_output),
    )


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value
