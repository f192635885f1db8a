"""Why this prediction: integrated gradients of a logit over tokens, and the tokens that make two texts similar.

Shape letters: L tokens, D hidden_size, M steps.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from bertkit.batch import Batch, collate
from bertkit.errors import OverLengthError, UsageError, checked_count
from bertkit.inference import EmbedOptions, Runner, Trace, trace
from bertkit.inference.embed import max_sequence_length, prompt_of
from bertkit.inspection.pieces import Pieces
from bertkit.inspection.shared_weights import sharing_weights
from bertkit.inspection.view import View
from bertkit.model import Model, check_model
from bertkit.pages import Markup, details, heat_map, paragraph, shaded_text, table
from bertkit.tasks import ChoiceQuestion
from bertkit.tokenizer.wordpiece import explain_bad_text
from bertkit.transformer import Encoder

_STEPS_AT_A_TIME = 10


@dataclass(frozen=True, eq=False)
class WhyView(View):
    """Which tokens support a label, and which oppose it."""

    title: ClassVar[str] = "Why this prediction"
    text: str
    pair: str | None
    tokens: list[str]
    pieces: Pieces  # the tokens as the page shows them
    label: str
    attributions: np.ndarray  # (L,) shares of the logit; 0 for [CLS] and [SEP]
    logit: float
    baseline_logit: float  # with every token replaced by [MASK]
    probability: float | None  # None: the model predicts a number

    @property
    def completeness_error(self) -> float:
        """Difference between the sum of the attributions and that of the logits."""
        return abs(float(self.attributions.sum()) - (self.logit - self.baseline_logit))

    def numbers(self) -> dict[str, Any]:
        shown = {name: value for name, value in vars(self).items() if name != "pieces"}
        return shown | {"completeness_error": self.completeness_error}

    def rows(self) -> list[dict[str, Any]]:
        pairs = zip(self.tokens, self.attributions.tolist(), strict=True)
        return [{"label": self.label, "token": token, "attribution": value} for token, value in pairs]

    def parts(self) -> list[Markup]:
        order = np.argsort(-np.abs(self.attributions), kind="stable")
        rows = [[self.tokens[index], float(self.attributions[index])] for index in order]
        probability = "" if self.probability is None else f", probability {self.probability:.3f}"
        return [
            paragraph(
                f"Label {self.label}{probability}. Its logit is {self.logit:.3f}, and "
                f"{self.baseline_logit:.3f} when every token is [MASK]; attributions divide the difference among the "
                "tokens (integrated gradients; Sundararajan et al. 2017). Their sum deviates from it by "
                f"{self.completeness_error:.4f}."
            ),
            shaded_text(
                f"For and against {self.label}",
                self.pieces.texts,
                self.attributions,
                glued=self.pieces.joined,
                value_name="attribution",
                note="Blue supports the label, orange and underlined opposes it.",
                numbers=details("Numbers", table(["token", "attribution"], rows)),
            ),
        ]


@dataclass(frozen=True, eq=False)
class SimilarityView(View):
    """Contribution of each pair of tokens to the cosine of two texts."""

    title: ClassVar[str] = "Why these are similar"
    texts: tuple[str, str]
    tokens: tuple[list[str], list[str]]
    contributions: np.ndarray  # (L of the first, L of the second); they add up to the similarity
    similarity: float

    def rows(self) -> list[dict[str, Any]]:
        """The twelve pairs of tokens that contribute most."""
        pairs = np.argsort(-self.contributions, axis=None, kind="stable")[:12]
        indices = zip(*np.unravel_index(pairs, self.contributions.shape), strict=True)
        return [
            {"first": self.tokens[0][a], "second": self.tokens[1][b], "contribution": float(self.contributions[a, b])}
            for a, b in indices
        ]

    def parts(self) -> list[Markup]:
        return [
            paragraph(
                f"The cosine of the two texts is {self.similarity:.4f}. Each text is the mean of its tokens, so the "
                "cosine is a sum over pairs of tokens: the cells below, which add up to it."
            ),
            heat_map(
                "Contributions of pairs of tokens",
                self.contributions,
                self.tokens[0],
                self.tokens[1],
                row_name="first text",
                column_name="second text",
                written=[[f"{100 * value:.1f}" for value in row] for row in self.contributions.tolist()],
                note="In hundredths of the cosine.",
                below=table(["first text", "second text", "contribution"], [list(row.values()) for row in self.rows()]),
            ),
        ]


def inspect_why(
    model: Model, text: str, pair: str | None = None, *, label: str | None = None, steps: int = 50
) -> WhyView:
    """Integrated gradients of a label's logit, or of a predicted number, with respect to the word embeddings.

    Positions and segments are fixed. The path goes from [MASK] for every token except [CLS] and [SEP], to the text,
    with Gauss-Legendre quadrature. A literal [MASK] in a text is text, as in predictions.

    Args:
        label: None: the most probable one.
        steps: points on the path, at least 1.

    Raises:
        MissingHeadError: no trained classification head.
        OverLengthError: more tokens than the model accepts, or than it is set to read.
        UsageError: a task other than classification and regression, a head over the vectors of two texts, an unknown
            label, an empty text, or no steps.
    """
    check_model(model)
    steps = checked_count("steps", steps)
    task = model.trained.task
    head = task.head
    if head not in ("sequence_classification", "vector_classification") or task.example_type is ChoiceQuestion:
        raise UsageError(f"this model was trained for {task.name}: expected one that classifies texts")
    if getattr(task, "num_vectors", 1) == 2:
        raise UsageError(
            "this model classifies pairs by the vectors of their two texts, encoded separately: expected a head that "
            "reads one sequence; fine-tune with --head published"
        )
    model.require_trained(head)
    names = list(getattr(task, "label_names", ()))
    traced = _traced(model, text, pair, model.trained.layout.max_length)
    batch = collate([model.tokenizer.encode(text, pair)])
    word = cast(Tensor, model.encoder.embeddings.word.weight.detach())
    batch = batch.to(word.device)
    ids = batch.input_ids
    special = torch.from_numpy(traced.special_tokens_mask).to(word.device)
    start = word[torch.where(special, ids, model.tokenizer.mask_id)]
    end = word[ids]
    encoder = sharing_weights(model.encoder)
    with torch.no_grad():
        logits, base = (_logits(model, encoder, head, batch, _table(rows))[0] for rows in (end, start))
    names = names if len(names) == len(logits) else [str(number) for number in range(len(logits))]
    if label is not None and label not in names:
        raise UsageError(f"label {label!r}: expected one of {', '.join(names)}")
    target = int(logits.argmax()) if label is None else names.index(label)
    points, weights = np.polynomial.legendre.leggauss(steps)
    shares = torch.from_numpy((points + 1) / 2).to(word)
    total = torch.zeros_like(end)
    for chosen, weight in zip(shares.split(_STEPS_AT_A_TIME), torch.from_numpy(weights / 2).split(_STEPS_AT_A_TIME),
                              strict=True):  # fmt: skip
        rows = start + chosen[:, None, None] * (end - start)  # (m, L, D)
        words = _table(rows)
        output = _logits(model, encoder, head, batch, words)[:, target].sum()
        (gradient,) = torch.autograd.grad(output, words.weight)
        total += torch.einsum("m,mld->ld", weight.to(gradient), gradient.view_as(rows))
    return WhyView(
        text=text,
        pair=pair,
        tokens=list(traced.tokens),
        pieces=Pieces.of(
            ((pair or "") if is_second else text for is_second in traced.second_text),
            traced.tokens,
            traced.offsets,
            model.tokenizer.vocabulary.special.unk,
        ),
        label=names[target],
        attributions=((end - start) * total).sum(-1).cpu().double().numpy(),
        logit=float(logits[target]),
        baseline_logit=float(base[target]),
        probability=_probability(logits.cpu().double(), target, task.problem_type),
    )


def _probability(logits: Tensor, target: int, problem_type: str | None) -> float | None:
    """Probability of a label from (C,) logits; None if the logit is a number."""
    if problem_type == "multi_label_classification":
        return float(logits[target].sigmoid())
    return None if problem_type == "regression" or len(logits) == 1 else float(logits.softmax(-1)[target])


def inspect_similarity(model: Model, text: str, other: str) -> SimilarityView:
    """The contribution of each pair of tokens to the cosine of two texts, for models that pool by the mean.

    Texts have the model's default prompt, whose tokens count if the model pools them.

    Raises:
        OverLengthError: more tokens than the model accepts, or than it is set to read.
        UsageError: a model with another pooling or with layers after it, or an empty text without a prompt.
    """
    check_model(model)
    settings = model.sentence_settings
    if settings.pooling != "mean":
        raise UsageError(f"this model pools by {settings.pooling!r}: expected mean pooling, which is a sum over tokens")
    if settings.layers:
        raise UsageError("this model has layers after the mean: expected the mean alone, which is a sum over tokens")
    explain_bad_text([text, other], 0)
    prompt = prompt_of(EmbedOptions(), settings)
    skipped = 0 if settings.include_prompt or not prompt else len(model.tokenizer.encode(prompt)) - 1  # with [CLS]
    longest = max_sequence_length(_runner(model), settings, None)
    traces = [_traced(model, prompt + each, None, longest) for each in (text, other)]
    states = [trace.hidden_states[-1][skipped:].astype(np.float64) for trace in traces]
    pooled = [each.mean(axis=0) for each in states]
    norm = float(np.linalg.norm(pooled[0]) * np.linalg.norm(pooled[1]))
    contributions = states[0] @ states[1].T / (norm * len(states[0]) * len(states[1]))
    return SimilarityView(
        (text, other),
        (list(traces[0].tokens[skipped:]), list(traces[1].tokens[skipped:])),
        contributions,
        float(pooled[0] @ pooled[1] / norm),
    )


def _runner(model: Model) -> Runner:
    return Runner(model.network, model.tokenizer, model.encoder)


def _traced(model: Model, text: str, pair: str | None, longest: int | None) -> Trace:
    """The trace of a text, encoded as for predictions and vectors, which cut or window texts beyond ``longest``."""
    traced = trace(_runner(model), text, pair, layers=[], special_tokens_in_text=False)
    if longest is not None and len(traced) > longest:
        raise OverLengthError(
            f"the text has {len(traced):,} tokens, and this model is set to read at most {longest:,}: shorten it"
        )
    return traced


def _table(rows: Tensor) -> nn.Embedding:
    """(..., L, D) word embeddings as a table."""
    return nn.Embedding.from_pretrained(rows.flatten(0, -2), freeze=False)


def _logits(model: Model, encoder: Encoder, head: str, batch: Batch, words: nn.Embedding) -> Tensor:
    """(m, C) logits of m copies of a sequence of L tokens with the word embeddings of a table of m L rows, which
    replaces that of ``encoder``, so that each token indexes its own row."""
    length = batch.max_seqlen
    number = words.num_embeddings // length
    copies = Batch(
        input_ids=torch.arange(number * length, device=words.weight.device),
        token_type_ids=batch.token_type_ids.repeat(number),
        position_ids=batch.position_ids.repeat(number),
        cu_seqlens=torch.arange(number + 1, dtype=torch.int32, device=words.weight.device) * length,
        max_seqlen=length,
        num_positions=batch.num_positions,
    )
    encoder.embeddings.word = words
    return model.network.head_logits(head, encoder(copies), copies)
