"""Two models side by side: layer against layer, attention, and the texts and weights that changed most.

Shape letters: L tokens, D hidden_size, S layers (embeddings and every layer), T tokens of all texts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bertkit.errors import UsageError, check_several
from bertkit.inspection.view import View
from bertkit.model import Model, check_model
from bertkit.pages import Line, Markup, findings, heat_map, line_chart, paragraph, section, table
from bertkit.tokenizer.tokenizer import listed_texts


@dataclass(frozen=True, eq=False)
class DifferenceView(View):
    """Differences between two models with the same tokens."""

    title: ClassVar[str] = "Two models"
    names: tuple[str, str]
    num_texts: int
    num_tokens: int
    cka: np.ndarray  # (S of the first, S of the second): linear CKA of hidden states
    cosine: np.ndarray | None  # (S,) mean cosine of the hidden states of a token; None for models of other shapes
    attention_divergence: np.ndarray | None  # (S - 1, H) Jensen-Shannon divergence of attention, in nats; likewise
    weight_change: dict[str, float]  # of each parameter: length of the difference over length of the first; likewise
    text_cosine: list[tuple[str, float]]  # texts by the mean cosine of their last hidden states, most changed first

    def rows(self) -> list[dict[str, Any]]:
        """The most similar layer of the second model for each layer of the first."""
        rows = [
            {"layer": layer, "most_similar_layer": int(similar.argmax()), "cka": float(similar.max())}
            for layer, similar in enumerate(self.cka)
        ]
        if self.cosine is None:
            return rows
        return [row | {"cosine": value} for row, value in zip(rows, self.cosine.tolist(), strict=True)]

    def parts(self) -> list[Markup]:
        rows, columns = ([str(number) for number in range(size)] for size in self.cka.shape)
        parts = [
            paragraph(f"{self.names[0]} and {self.names[1]} on {self.num_texts} texts, {self.num_tokens} tokens."),
            heat_map("Layer against layer", self.cka, rows, columns, row_name=self.names[0], column_name=self.names[1],
                     full=1.0, note="Linear CKA (Kornblith et al. 2019): 1 where two layers hold the same up to "
                     "rotation and scale."),
        ]  # fmt: skip
        if self.cosine is None or self.attention_divergence is None:
            note = "The models differ in shape, so layers, heads and weights do not correspond: only CKA compares them."
            return [*parts, findings([("note", note)])]
        layers = np.arange(len(self.cosine), dtype=np.float64)
        heads = [str(head + 1) for head in range(self.attention_divergence.shape[1])]
        changed = sorted(self.weight_change.items(), key=lambda item: -item[1])[:15]
        return [
            *parts,
            line_chart("The same token in both models", [Line("mean cosine", layers, self.cosine)], x_name="layer",
                       x_kind="integer", y_name="cosine"),
            heat_map("Attention", self.attention_divergence, rows[1:], heads, row_name="layer", column_name="head",
                     written=[[f"{value:.3f}" for value in row] for row in self.attention_divergence.tolist()],
                     note="Jensen-Shannon divergence in nats, mean over tokens."),
            section("Weights that changed most",
                    table(["parameter", "relative change"], [[name, value] for name, value in changed])),
            section("Texts that changed most", table(["text", "cosine"], [list(row) for row in self.text_cosine[:15]])),
        ]  # fmt: skip


def inspect_difference(
    first: Model, second: Model, texts: Sequence[str], *, names: tuple[str, str] = ("first", "second")
) -> DifferenceView:
    """Compare two models over texts.

    Raises:
        OverLengthError: a text has more tokens than a model accepts.
        UsageError: no texts, or models whose tokenizers differ on them.
    """
    check_model(first, "the first model")
    check_model(second, "the second model")
    texts = listed_texts(texts)
    check_several("names", names)
    if len(names) != 2:
        raise UsageError(f"names={names!r:.60}: expected two, one of each model")
    if not texts:
        raise UsageError("no texts: expected at least one")
    is_same_shape = _shapes(first) == _shapes(second)
    states: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    cosine, divergence, by_text, num_tokens = 0.0, 0.0, [], 0
    for text in texts:
        one, other = (model.trace(text, layers=None if is_same_shape else []) for model in (first, second))
        if one.tokens != other.tokens:
            raise UsageError(
                f"the models split {text[:40]!r} into different tokens: choose models with the same vocabulary"
            )
        for own, trace in zip(states, (one, other), strict=True):
            own.append(trace.hidden_states.astype(np.float64))
        num_tokens += len(one)
        if is_same_shape:
            products = (states[0][-1] * states[1][-1]).sum(-1)
            norms = np.linalg.norm(states[0][-1], axis=-1) * np.linalg.norm(states[1][-1], axis=-1)
            cosines = products / np.maximum(norms, 1e-300)  # (S, L)
            cosine = cosine + cosines.sum(axis=1)
            by_text.append((text, float(cosines[-1].mean())))
            pairs = zip(one.layers.values(), other.layers.values(), strict=True)
            divergence = divergence + np.array(
                [jensen_shannon(a.attention_probs, b.attention_probs).sum(axis=-1) for a, b in pairs]
            )
    joined = [np.concatenate(own, axis=1) for own in states]  # (S, T, D)
    return DifferenceView(
        names=names,
        num_texts=len(texts),
        num_tokens=num_tokens,
        cka=np.array([[linear_cka(a, b) for b in joined[1]] for a in joined[0]]),
        cosine=np.asarray(cosine) / num_tokens if is_same_shape else None,
        attention_divergence=np.asarray(divergence) / num_tokens if is_same_shape else None,
        weight_change=_weight_change(first, second) if is_same_shape else {},
        text_cosine=sorted(by_text, key=lambda item: item[1]),
    )


def linear_cka(first: np.ndarray, second: np.ndarray) -> float:
    """Linear centered kernel alignment of two views of the same rows (Kornblith et al. 2019, equation 3 and 4).

    Args:
        first, second: (T, D) and (T, E).
    """
    a, b = (each - each.mean(axis=0) for each in (first, second))
    norm = np.linalg.norm(a.T @ a) * np.linalg.norm(b.T @ b)
    return float(np.linalg.norm(a.T @ b) ** 2 / norm) if norm > 0 else float("nan")


def jensen_shannon(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Jensen-Shannon divergence in nats of the distributions on the last axis."""
    a, b = first.astype(np.float64), second.astype(np.float64)
    mean = (a + b) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        each = [np.where(part > 0, part * np.log(part / mean), 0.0).sum(axis=-1) for part in (a, b)]
    return np.maximum((each[0] + each[1]) / 2, 0.0)


def _shapes(model: Model) -> dict[str, tuple[int, ...]]:
    return {
        name: tuple(parameter.shape) for name, parameter in model.encoder.named_parameters() if "pooler" not in name
    }


def _weight_change(first: Model, second: Model) -> dict[str, float]:
    own, others = (
        {name: part.detach() for name, part in model.encoder.named_parameters()} for model in (first, second)
    )
    return {
        name: float((others[name] - parameter).norm() / parameter.norm().clamp(min=1e-12))
        for name, parameter in own.items()
        if name in others
    }
