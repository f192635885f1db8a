"""Attention view: all heads at a glance, one head as lines between tokens, one score as query times key.

Shape letters: L tokens, n shown tokens or words, H num_heads, K head_dim, S shown layers.
"""

import base64
import gzip
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from bertkit.errors import UsageError
from bertkit.inference import LayerTrace, Trace
from bertkit.inspection.view import MAX_PAGE_BYTES, View, own_file
from bertkit.model import Model, check_model
from bertkit.pages import Markup, Program, element, paragraph, section

Side = Literal["all", "A", "B"]
"""Tokens of both texts, of the first, or of the second with the [SEP] after it."""


@dataclass(frozen=True, eq=False)
class Shown:
    """An attention matrix with labels of its rows and columns."""

    labels: list[str]  # n
    weights: np.ndarray  # (n, n): row = attending, column = attended; NaN outside the requested texts


@dataclass(frozen=True, eq=False)
class AttentionView(View):
    """Attention of a traced text. Layers and heads are numbered from 1, as in papers."""

    trace: Trace
    title: ClassVar[str] = "Attention"
    smaller: ClassVar[str] = "choose fewer layers with layers=, or give a shorter text"

    def matrix(
        self,
        layer: int,
        head: int | None = None,
        *,
        weighted: bool = False,
        hide_special: bool = False,
        words: bool = False,
        source: Side = "all",
        target: Side = "all",
    ) -> Shown:
        """Attention of one head, or the mean over the heads of a layer, as shown on the page.

        Args:
            weighted: multiply each probability by the norm of the value that it weighs (Kobayashi et al. 2020).
            hide_special: omit the added [CLS] and [SEP]; the remaining probabilities of a row are
                divided by their sum, norms are not.
            words: merge the pieces of words: attention to a word is the sum over its pieces, attention from it the
                mean (Clark et al. 2019, section 4.1).
            source, target: for a pair, the attending and the attended text.

        Raises:
            UsageError: a layer that was not traced, or a head or a text that does not exist.
        """
        traced, tokens = self.trace, self.trace.tokens
        if layer not in traced.layers:
            raise UsageError(f"layer {layer}: expected one of the traced layers, {', '.join(map(str, traced.layers))}")
        for name, side in (("source", source), ("target", target)):
            if side not in get_args(Side):
                raise UsageError(f"{name}={side!r}: expected one of {', '.join(get_args(Side))}")
        record = traced.layers[layer]
        num_heads = len(record.attention_probs)
        if head is not None and not 1 <= head <= num_heads:
            raise UsageError(f"head {head}: expected 1 to {num_heads}")
        groups = [[index] for index in range(len(traced))] if not words else traced.word_groups()
        if hide_special:
            groups = [group for group in groups if not traced.special_tokens_mask[group[0]]]
        kept = np.concatenate([np.array(group, np.int64) for group in [[], *groups]])
        heads = range(num_heads) if head is None else [head - 1]
        per_head = []
        for number in heads:
            weights = record.attention_probs[number].astype(np.float64)
            if weighted:
                weights = weights * record.value_norms[number]
            elif hide_special:
                weights = weights / np.maximum(weights[:, kept].sum(axis=1, keepdims=True), 1e-12)
            per_head.append(weights)
        weights = np.mean(per_head, axis=0)
        merged = np.array([[weights[np.ix_(row, column)].sum(axis=1).mean() for column in groups] for row in groups])
        second = traced.second_text
        of_side = {"all": lambda group: True, "A": lambda group: not second[group[0]], "B": lambda g: second[g[0]]}
        rows = np.array([of_side[source](group) for group in groups], np.bool_)
        columns = np.array([of_side[target](group) for group in groups], np.bool_)
        merged = merged.reshape(len(groups), len(groups))
        return Shown(
            [tokens[first] + "".join(tokens[index].removeprefix("##") for index in rest) for first, *rest in groups],
            np.where(rows[:, None] & columns, merged, np.nan),
        )

    def numbers(self) -> dict[str, Any]:
        traced = self.trace
        return {
            "text": traced.text,
            "pair": traced.pair,
            "tokens": list(traced.tokens),
            "word_ids": traced.word_ids,
            "second_text": traced.second_text,
            "layers": {
                str(number): {
                    "attention_probs": layer.attention_probs,
                    "attention_scores": layer.attention_scores,
                    "value_norms": layer.value_norms,
                }
                for number, layer in traced.layers.items()
            },
        }

    def parts(self) -> list[Markup]:
        traced = self.trace
        first = next(iter(traced.layers.values()))
        intro = (
            f"{len(traced.layers)} layers of {len(first.attention_probs)} heads, {len(traced)} tokens. In a head, "
            "every token spreads a weight of 1 over all tokens; a line or a strong color is a large share."
        )
        sections = (
            ("All layers and heads", "heads", "Choose a head. Rows are layers, columns are heads."),
            ("One head", "lines", "Attending tokens stand on the left, attended tokens on the right. Choose a token "
                "to see its weights; Escape shows all."),
            ("Query times key", "neurons", "Why a weight is large: the query of the token times the key of another, "
                f"element by element; {score_of(first)}; softmax makes weights."),
        )  # fmt: skip
        return [
            paragraph(intro),
            element("div", id="controls"),
            *(section(title, paragraph(note), element("div", id=name)) for title, name, note in sections),
            element("noscript", paragraph("This page draws with JavaScript, which this browser does not run.")),
        ]

    def program(self) -> Program:
        """Probabilities as one byte (of their root), queries and keys as 16 bits. Queries and keys are omitted if the
        page would exceed its size limit; the page says so."""
        traced, layers = self.trace, list(self.trace.layers.values())
        probs = np.stack([layer.attention_probs for layer in layers])
        data: dict[str, Any] = {
            "tokens": list(traced.tokens),
            "groups": traced.word_groups(),
            "special": traced.special_tokens_mask.tolist(),
            "second": traced.second_text.tolist(),
            "is_pair": traced.pair is not None,
            "layers": list(traced.layers),
            "num_heads": int(probs.shape[1]),
            "head_dim": int(layers[0].query.shape[-1]),
            "probs": packed(np.round(np.sqrt(np.clip(probs, 0, 1)) * 255).astype(np.uint8)),
            "norms": packed(np.stack([layer.value_norms for layer in layers]).astype("<f4")),
            "query": None,
            "key": None,
            "sum_name": "sum / root" if adds_position_terms(layers[0]) else "score",
        }
        query, query_scale = _in_16_bits(np.stack([layer.query for layer in layers]))
        key, key_scale = _in_16_bits(np.stack([layer.key for layer in layers]))
        neurons = {"query": packed(query), "key": packed(key), "query_scale": query_scale, "key_scale": key_scale}
        size = sum(len(value) for value in (data["probs"], data["norms"], neurons["query"], neurons["key"]))
        if size < MAX_PAGE_BYTES * 0.95:
            data |= neurons
        return Program(own_file("attention.css"), own_file("attention.js"), data)


def inspect_attention(
    model: Model, text: str, pair: str | None = None, *, layers: Iterable[int] | None = None
) -> AttentionView:
    """Attention view of a text or a pair of texts.

    Args:
        layers: numbers of the layers to show, 1 for the first; None: all.

    Raises:
        OverLengthError: more tokens than the model accepts.
        UsageError: an empty text, no layer, or an unknown layer.
    """
    check_model(model)
    traced = model.trace(text, pair, layers=layers)
    if not traced.layers:
        raise UsageError("no layer chosen: expected at least one, such as layers=[1]")
    return AttentionView(traced)


def adds_position_terms(layer: LayerTrace) -> bool:
    """True if the scores of a layer are not ``Q K^T / sqrt(K)`` alone, as in MPNet and DeBERTa, which add terms that
    depend on the distance between the tokens."""
    products = layer.query @ layer.key.swapaxes(1, 2) / np.sqrt(layer.query.shape[-1])
    is_seen = np.isfinite(layer.attention_scores)
    return not np.allclose(products[is_seen], layer.attention_scores[is_seen], rtol=1e-3, atol=1e-3)


def score_of(layer: LayerTrace) -> str:
    """A sentence for the page: how the score follows from the products of a query and a key."""
    if adds_position_terms(layer):
        return (
            "this architecture adds terms for the distance between the two tokens, which are not shown, and scales the "
            "total: that is the score"
        )
    return "their sum over the root of the head size is the score"


def packed(values: np.ndarray) -> str:
    """An array as base64 of its bytes, compressed by gzip without a timestamp, so that equal arrays give equal
    strings."""
    return base64.b64encode(gzip.compress(np.ascontiguousarray(values).tobytes(), 6, mtime=0)).decode()


def _in_16_bits(values: np.ndarray) -> tuple[np.ndarray, list[list[float]]]:
    """(S, H, L, K) as integers, and the scale for each layer and head."""
    worth = np.maximum(np.abs(values).max(axis=(2, 3), keepdims=True), 1e-12) / 32_767
    return np.round(values / worth).astype("<i2"), worth[:, :, 0, 0].astype(np.float64).tolist()
