"""Small ModernBERTs of odd, distinct sizes in which every parameter is random: transformers' and ours."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from unittest import mock

import transformers
from random_models import randomize, vocabulary_tokens
from torch import Tensor, nn
from transformers.models.modernbert import modeling_modernbert

from bertkit import Model, ModernBertConfig, Tokenizer
from bertkit.checkpoint.checkpoint import Provenance
from bertkit.heads import KINDS
from bertkit.transformer.activations import ACTIVATIONS

PUBLISHED_CLASSES = {
    "encoder": transformers.ModernBertModel,
    "masked_lm": transformers.ModernBertForMaskedLM,
    "sequence_classification": transformers.ModernBertForSequenceClassification,
    "token_classification": transformers.ModernBertForTokenClassification,
}


def random_config(number: int, **changes: int | float | str) -> ModernBertConfig:
    """Configuration ``number``: 1 to 5 layers, every third with another pattern of global ones, windows of 1 to 20
    tokens, every activation in turn; one in ten has 400 positions."""
    draw = random.Random(number)
    heads = draw.choice([3, 4, 5])
    names = list(ACTIVATIONS)
    settings = {
        "vocab_size": draw.choice([97, 99, 101]),
        "hidden_size": heads * draw.choice([4, 6, 10, 34]),
        "num_hidden_layers": 1 + number % 5,
        "num_attention_heads": heads,
        "intermediate_size": draw.choice([31, 37, 43]),
        "hidden_activation": names[number % len(names)],
        "max_position_embeddings": 400 if number % 10 == 0 else draw.choice([43, 47, 51]),
        "global_attn_every_n_layers": 1 + number % 3,
        "local_attention": draw.choice([1, 2, 5, 8, 13, 20]),
        "global_rope_theta": draw.choice([160_000.0, 80_000, 500.0]),
        "local_rope_theta": draw.choice([10_000.0, 20.0]),
        "norm_eps": draw.choice([1e-12, 1e-5, 1e-3]),
        "classifier_pooling": draw.choice(["cls", "mean"]),
        "classifier_activation": draw.choice(names),
    }
    return ModernBertConfig(**(settings | changes))


def published_model(kind: str, number: int, num_labels: int = 2, **changes) -> transformers.PreTrainedModel:
    """Transformers' model of a kind, configuration ``number``, every parameter random."""
    config = transformers.ModernBertConfig(
        **asdict(random_config(number, **changes)),
        num_labels=num_labels,
        pad_token_id=0,
        attn_implementation="eager",
    )
    model = PUBLISHED_CLASSES[kind](config).eval()
    randomize(model, number)
    return model


def our_model(kind: str, number: int, num_labels: int = 2, **changes) -> Model:
    """Our model of a kind, configuration ``number``, every parameter random and marked as trained."""
    config = random_config(number, **changes)
    labels = [f"label {index}" for index in range(num_labels)] if kind.endswith("_classification") else None
    tokenizer = Tokenizer.from_vocab(vocabulary_tokens(config.vocab_size))
    model = Model.create(config, tokenizer, KINDS[kind], label_names=labels)
    randomize(model.network, number)
    model.checkpoint.provenance = {name: Provenance("trained") for name in model.checkpoint.provenance}
    return model


@contextmanager
def published_code_in_double() -> Iterator[None]:
    """Let transformers' ModernBERT compute in the precision of its weights throughout.

    It rounds rotated queries and keys, and attention probabilities, to float32 even if the weights are float64. The
    angles remain float32.
    """
    with (
        mock.patch.object(modeling_modernbert, "apply_rotary_pos_emb", _rotate),
        mock.patch.object(modeling_modernbert, "eager_attention_forward", _attend),
    ):
        yield


def _rotate(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, unsqueeze_dim: int = 1) -> tuple[Tensor, Tensor]:
    cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
    half = modeling_modernbert.rotate_half
    return q * cos + half(q) * sin, k * cos + half(k) * sin


def _attend(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, scaling: float, **_
) -> tuple[Tensor, Tensor]:
    scores = query @ key.transpose(2, 3) * scaling
    probs = (scores if attention_mask is None else scores + attention_mask).softmax(-1)
    return (probs @ value).transpose(1, 2).contiguous(), probs
