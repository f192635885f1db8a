"""Predictions of the masked LM head: blanks, surprisal of tokens, and predictions of each layer (layer lens).

Shape letters: L tokens, N num_hidden_layers, V vocab_size.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from bertkit.errors import UsageError
from bertkit.inference import FilledMask
from bertkit.inference.pseudo_likelihood import Method
from bertkit.inspection.pieces import Pieces
from bertkit.inspection.view import View
from bertkit.model import Model, check_model
from bertkit.pages import (
    Line,
    Markup,
    data,
    details,
    findings,
    heat_map,
    line_chart,
    paragraph,
    section,
    shaded_text,
    share_bar,
    table,
)


@dataclass(frozen=True, eq=False)
class FillView(View):
    """The most likely tokens for each [MASK] of a text."""

    title: ClassVar[str] = "Fill-mask"
    text: str
    blanks: list[FilledMask]

    def rows(self) -> list[dict[str, Any]]:
        return [{"offsets": blank.offsets} | vars(candidate) for blank in self.blanks for candidate in blank.candidates]

    def parts(self) -> list[Markup]:
        parts = [paragraph(data(self.text))]
        if len(self.blanks) > 1:
            parts.append(findings([("note", "Each blank is predicted with the others hidden.")]))
        for number, blank in enumerate(self.blanks, 1):
            rows = [[one.token, share_bar(one.score)] for one in blank.candidates]
            parts.append(section(f"Blank {number}", table(["token", "probability"], rows)))
        return parts


@dataclass(frozen=True, eq=False)
class SurpriseView(View):
    """Surprisal of each token of a text, given the other tokens."""

    title: ClassVar[str] = "Surprise"
    text: str
    tokens: list[str]
    pieces: Pieces  # the tokens as the page shows them
    surprise: np.ndarray  # (n,) nats: minus the log of the probability of each token while it is hidden
    method: Method

    @property
    def pseudo_log_likelihood(self) -> float:
        """Minus the sum of the surprisals, in nats (Salazar et al. 2020)."""
        return -float(self.surprise.sum())

    def numbers(self) -> dict[str, Any]:
        return {
            "text": self.text,
            "tokens": self.tokens,
            "surprise": self.surprise,
            "pseudo_log_likelihood": self.pseudo_log_likelihood,
            "method": self.method,
        }

    def rows(self) -> list[dict[str, Any]]:
        return [
            {"token": token, "surprise": float(value)} for token, value in zip(self.tokens, self.surprise, strict=True)
        ]

    def parts(self) -> list[Markup]:
        pairs = zip(self.tokens, self.surprise, strict=True)
        rows = [[token, float(value), float(np.exp(-value))] for token, value in pairs]
        hidden = {"plain": "it alone is hidden", "l2r": "it and the later pieces of its word are hidden"}[self.method]
        return [
            paragraph(
                f"Pseudo-log-likelihood {self.pseudo_log_likelihood:.2f} nats over {len(self.tokens)} tokens. "
                f"Each token is predicted while {hidden}; the stronger the color, the less it was expected."
            ),
            shaded_text(
                "Surprise",
                self.pieces.texts,
                self.surprise,
                glued=self.pieces.joined,
                value_name="surprise in nats",
                numbers=details("Numbers", table(["token", "surprise (nats)", "probability"], rows)),
            ),
        ]


@dataclass(frozen=True, eq=False)
class LensView(View):
    """Predictions of each layer at each position, through the masked LM head (logit lens)."""

    title: ClassVar[str] = "Layer lens"
    text: str
    tokens: list[str]
    top_tokens: list[list[str]]  # (N + 1) lists of L
    top_probs: np.ndarray  # (N + 1, L)
    own_probs: np.ndarray  # (N + 1, L) of the actual token
    own_ranks: np.ndarray  # (N + 1, L), 1 for the most likely
    divergence: np.ndarray  # (N + 1, L) nats: KL divergence of the last layer's distribution from this layer's
    first_layers: np.ndarray  # (L,) the first layer with the same most likely token as the last layer

    def rows(self) -> list[dict[str, Any]]:
        """One row for each token, with the most likely token of every layer, and the probability in the last."""
        layers = [f"layer {layer}" for layer in range(len(self.top_tokens))]
        columns = zip(self.tokens, zip(*self.top_tokens, strict=True), self.top_probs[-1].tolist(), strict=True)
        return [
            {"token": token} | dict(zip(layers, predicted, strict=True)) | {"probability": probability}
            for token, predicted, probability in columns
        ]

    def parts(self) -> list[Markup]:
        layers = [str(layer) for layer in range(len(self.top_probs))]
        rows = [[token, int(first), last] for token, first, last in
                zip(self.tokens, self.first_layers, self.top_tokens[-1], strict=True)]  # fmt: skip
        curve = Line("mean over tokens", np.arange(len(layers), dtype=np.float64), self.divergence.mean(axis=1))
        return [
            paragraph(
                "The masked LM head is applied to the hidden state of every layer instead of the last one. Layer 0 is "
                "the embeddings. The head was trained on the last layer, so predictions of early layers are only an "
                "interpretation."
            ),
            heat_map(
                "Most likely token",
                self.top_probs,
                layers,
                self.tokens,
                row_name="layer",
                column_name="token",
                written=self.top_tokens,
                full=1.0,
                note="The stronger the color, the more probable.",
                below=details(
                    "First layer with the prediction of the last layer",
                    table(["token", "first layer", "last prediction"], rows),
                ),
            ),
            line_chart(
                "Divergence from the last layer",
                [curve],
                x_name="layer",
                x_kind="integer",
                y_name="KL divergence (nats)",
            ),
        ]


def inspect_fill(model: Model, text: str, *, top_k: int = 8) -> FillView:
    """The ``top_k`` most likely tokens for each [MASK].

    Raises:
        MissingHeadError: no trained masked LM head.
        OverLengthError: more tokens than the model accepts.
        UsageError: no [MASK] in the text.
    """
    check_model(model)
    return FillView(text, model.fill_mask(text, top_k=top_k))


def inspect_surprise(model: Model, text: str, *, method: Method = "plain") -> SurpriseView:
    """The surprisal of each token; ``method`` as in `Model.token_log_probs`.

    Raises:
        MissingHeadError: no trained masked LM head.
        OverLengthError: more tokens than the model accepts.
        UsageError: an empty text.
    """
    check_model(model)
    (log_probs,) = model.token_log_probs([text], method=method)
    if not len(log_probs):
        raise UsageError("the text is empty: expected at least one word")
    encoding = model.tokenizer.encode(text)
    tokens = model.tokenizer.tokens(encoding)[1:-1]
    unknown = model.tokenizer.vocabulary.special.unk
    pieces = Pieces.of([text] * len(tokens), tokens, encoding.offsets[1:-1], unknown)
    return SurpriseView(text, tokens, pieces, -log_probs, method)


def inspect_lens(model: Model, text: str, pair: str | None = None) -> LensView:
    """Predictions of each layer at each position.

    Each hidden state passes through the whole head, with normalization recomputed for it; inner states of ModernBERT
    pass through its final norm first.

    Raises:
        MissingHeadError: no trained masked LM head.
        OverLengthError: more tokens than the model accepts.
        UsageError: an empty text.
    """
    check_model(model)
    model.require_trained("masked_lm")
    traced = model.trace(text, pair, layers=[])
    head, word = model.network.require_head("masked_lm"), model.encoder.embeddings.word.weight
    vocabulary, own = model.tokenizer.vocabulary, torch.from_numpy(traced.input_ids.astype(np.int64))[:, None]
    top_tokens, columns = [], {"top_probs": [], "own_probs": [], "own_ranks": [], "divergence": []}
    log_probs = []
    with torch.inference_mode():
        for number, states in enumerate(traced.hidden_states):
            state = torch.from_numpy(states).to(word.device, word.dtype)
            is_last = number == len(traced.hidden_states) - 1
            logits = head(state if is_last else model.encoder.as_last(state), word)
            log_probs.append(logits.cpu().double().log_softmax(-1)[:, : len(vocabulary)])
    last = log_probs[-1]
    for each in log_probs:
        best, chosen = each.max(dim=-1), each.gather(1, own)
        top_tokens.append([vocabulary.token(token_id) for token_id in best.indices.tolist()])
        columns["top_probs"].append(best.values.exp().numpy())
        columns["own_probs"].append(chosen[:, 0].exp().numpy())
        columns["own_ranks"].append(1 + (each > chosen).sum(dim=-1).numpy())
        columns["divergence"].append((last.exp() * (last - each)).sum(dim=-1).clamp(min=0).numpy())
    winners = torch.stack([each.argmax(dim=-1) for each in log_probs])  # (N + 1, L)
    return LensView(
        text=text if pair is None else f"{text} / {pair}",
        tokens=list(traced.tokens),
        top_tokens=top_tokens,
        first_layers=(winners == winners[-1]).int().argmax(dim=0).numpy(),
        **{name: np.array(values) for name, values in columns.items()},
    )
