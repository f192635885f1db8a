"""Small BERTs of odd, distinct sizes in which every parameter is random: published ones (transformers) and ours.

Weights are scaled so that hidden states and logits vary by more than 0.5: an error cannot hide in a constant.
"""

import json
import random
import re
import string
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from bertkit import BertConfig, Model, Tokenizer
from bertkit.checkpoint.checkpoint import Provenance
from bertkit.heads import KINDS
from bertkit.transformer.activations import ACTIVATIONS

transformers.utils.logging.disable_progress_bar()

PUBLISHED_CLASSES = {
    "encoder": transformers.BertModel,
    "pretraining": transformers.BertForPreTraining,
    "masked_lm": transformers.BertForMaskedLM,
    "next_sentence": transformers.BertForNextSentencePrediction,
    "sequence_classification": transformers.BertForSequenceClassification,
    "token_classification": transformers.BertForTokenClassification,
    "question_answering": transformers.BertForQuestionAnswering,
    "multiple_choice": transformers.BertForMultipleChoice,
}

_WORDS = "the of and cat dog sat mat un able ##able ##ing ##ed run walk talk blue red green one two three four".split()


def vocabulary_tokens(size: int) -> list[str]:
    """Special tokens at 0 to 4, letters, their ``##`` pieces, digits, a few words; filled up with [unused...]."""
    letters = [*string.ascii_lowercase, *string.digits]
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters), *_WORDS]
    tokens += [f"[unused{number}]" for number in range(size - len(tokens))]
    return tokens[:size]


def write_tokenizer(folder: Path, size: int) -> None:
    """The two small files that a published uncased tokenizer needs."""
    write_vocabulary(folder, vocabulary_tokens(size))


def write_vocabulary(folder: Path, tokens: list[str]) -> None:
    """The same for a vocabulary."""
    (folder / "vocab.txt").write_text("".join(token + "\n" for token in tokens), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"do_lower_case": True, "tokenizer_class": "BertTokenizer"})
    )


def random_config(number: int, **changes: int | float | str) -> BertConfig:
    """Configuration ``number``: all activations in turn, 1 to 4 layers, 3 to 5 heads; one in ten has 512 positions."""
    draw = random.Random(number)
    heads = draw.choice([3, 4, 5])
    settings = {
        "vocab_size": draw.choice([97, 99, 101]),
        "hidden_size": heads * draw.choice([5, 6, 7, 9]),
        "num_hidden_layers": 1 + number % 4,
        "num_attention_heads": heads,
        "intermediate_size": draw.choice([31, 37, 43]),
        "hidden_act": list(ACTIVATIONS)[number % len(ACTIVATIONS)],
        "max_position_embeddings": 512 if number % 10 == 0 else draw.choice([23, 29, 41]),
        "type_vocab_size": draw.choice([2, 3]),
        "layer_norm_eps": draw.choice([1e-12, 1e-7, 1e-5, 1e-3]),
    }
    return BertConfig(**(settings | changes))


@torch.no_grad()
def randomize(module: nn.Module, seed: int) -> None:
    """Draw every parameter again, biases and norms included.

    Attention is sharp and each layer adds little, so that the tokens of a sequence differ in the last layer.
    """
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in module.named_parameters():
        if parameter.dim() == 1 and not name.endswith("bias"):  # layer normalization
            sign = torch.randint(0, 2, parameter.shape, generator=generator) * 2 - 1
            parameter.copy_(sign * (0.6 + torch.rand(parameter.shape, generator=generator)))
        else:
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * _spread(name, parameter.shape))


_ADDING_LITTLE = "|".join(
    (
        r"(attention|layer\.\d+)\.output\.", r"\.project\.", r"\.Wo\.", r"\.out_lin\.", r"\.lin2\.", r"\.attn\.o\.",
        r"\.ffn_output\.", r"attention\.dense\.", r"\.(out_proj|o_proj|fc2|down_proj|wo|w3)\.",
    )
)  # fmt: skip
"""Linear layers whose output is added to the residual stream."""


def _spread(name: str, shape: torch.Size) -> float:
    """Standard deviation of the values of a bias, an embedding or a matrix."""
    if len(shape) == 1:
        return 0.3
    if re.search(r"embeddings|relative|rel_|^(model\.)?(embed_tokens|encoder\.weight)", name):
        return 1.0
    gain = 1.5
    if shape[0] <= 7:  # logits of few labels
        gain = 12.0
    elif re.search(r"\.(query|key|q|k|q_lin|k_lin|query_proj|key_proj)\.", name):
        gain = 2.0
    elif re.search(_ADDING_LITTLE, name):
        gain = 0.7
    return gain / shape[1] ** 0.5


def published_model(kind: str, number: int, num_labels: int = 2, **changes) -> transformers.PreTrainedModel:
    """Transformers' model of a kind, configuration ``number``, every parameter random."""
    config = transformers.BertConfig(
        **asdict(random_config(number, **changes)), num_labels=num_labels, attn_implementation="eager"
    )
    if num_labels == 1:
        config.problem_type = "regression"
    model = PUBLISHED_CLASSES[kind](config).eval()
    randomize(model, number)
    return model


def save_published(model: transformers.PreTrainedModel, folder: Path, **options) -> Path:
    """Save a transformers model with a tokenizer of as many entries as it has word embeddings."""
    model.save_pretrained(folder, **options)
    write_tokenizer(folder, model.config.vocab_size)
    return folder


def our_model(kind: str, number: int, num_labels: int = 2, **changes) -> Model:
    """Our model of a kind, configuration ``number``, every parameter random and marked as trained."""
    config = random_config(number, **changes)
    labels = [f"label {index}" for index in range(num_labels)] if kind.endswith("_classification") else None
    tokenizer = Tokenizer.from_vocab(vocabulary_tokens(config.vocab_size))
    model = Model.create(config, tokenizer, KINDS[kind], label_names=labels)
    randomize(model.network, number)
    model.checkpoint.provenance = {name: Provenance("trained") for name in model.checkpoint.provenance}
    return model


def edit_json(path: Path, **changes) -> None:
    """Change keys of a JSON object in a file; None removes a key."""
    content = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))


def edit_tensors(folder: Path, change: Callable[[dict[str, Tensor]], object]) -> None:
    """Change the dict of tensors of a folder's ``model.safetensors``."""
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def error(ours: Tensor, reference: Tensor) -> float:
    """Largest difference, relative to the largest absolute reference value where that is above 1."""
    assert ours.shape == reference.shape
    return float((ours - reference).abs().max() / max(1.0, float(reference.abs().max())))
