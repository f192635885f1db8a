"""Outputs of the published package ``gliner`` in float64 for small models with random weights: data/gliner.json.

The stored models are made again by `write_model`: weights follow from the names and shapes of the tensors. Run this
file where ``gliner`` 0.2.29 is installed to write data/gliner.json again.
"""

import json
import tempfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

STORED = Path(__file__).parent / "data" / "gliner.json"

RELATIONS = ["in the", "near"]
LABELS = ["city", "name of a person", "zoo"]
TEXTS = [
    "Ann was in the old zoo of Bern, near a river.",
    "river",
    "a well-known zoo_of Bern (the e-mail of Ann) was 12 years old!",
]
THRESHOLD = 0.6
_WORDS = (
    "[PAD] [UNK] [CLS] [SEP] [MASK] a the in of was old near river zoo city name person ann bern well known e mail "
    "years - _ ( ) . , ! ##s ##n ##o b r z c n p t l k 1 ##2 ##a ##e ##r"
).split()

_SIZES = {"num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 64, "vocab_size": len(_WORDS)}
_BERT = {"model_type": "bert", "hidden_size": 20, "intermediate_size": 28, **_SIZES}
_DEBERTA = {
    "model_type": "deberta-v2", "hidden_size": 12, "intermediate_size": 20, "type_vocab_size": 0, **_SIZES,
    "relative_attention": True, "position_buckets": 8, "norm_rel_ebd": "layer_norm", "share_att_key": True,
    "pos_att_type": ["p2c", "c2p"], "position_biased_input": False,
}  # fmt: skip
_MODERN = {
    "model_type": "modernbert", "hidden_size": 12, "intermediate_size": 18, **_SIZES, "pad_token_id": 0,
    "cls_token_id": 2, "bos_token_id": 2, "sep_token_id": 3, "eos_token_id": 3, "local_attention": 8,
}  # fmt: skip
_COMMON = {"hidden_size": 12, "max_width": 5, "max_len": 40}
MODELS: dict[str, dict[str, Any]] = {
    "span-bert": {"encoder_config": _BERT, **_COMMON},
    "span-deberta": {"encoder_config": _DEBERTA, **_COMMON, "num_rnn_layers": 2, "embed_ent_token": False},
    "span-modernbert": {"encoder_config": _MODERN, **_COMMON, "num_rnn_layers": 0},
    "token-bert": {"encoder_config": _BERT, **_COMMON, "span_mode": "token_level"},
    "bi-span": {
        "encoder_config": _BERT, **_COMMON, "labels_encoder": "labels",
        "labels_encoder_config": {**_BERT, "hidden_size": 16},
    },
    "bi-token": {
        "encoder_config": _DEBERTA, **_COMMON, "labels_encoder": "labels", "labels_encoder_config": _BERT,
        "span_mode": "token_level",
    },
    "relation-span": {"encoder_config": _BERT, **_COMMON, "relations_layer": "none", "embed_rel_token": False},
    "relation-token": {
        "encoder_config": _DEBERTA, **_COMMON, "relations_layer": "none", "span_mode": "token_level", "max_width": 6,
    },
    "relation-dot": {"encoder_config": _DEBERTA, **_COMMON, "relations_layer": "dot", "num_rnn_layers": 0},
    "relation-bilinear": {"encoder_config": _BERT, **_COMMON, "relations_layer": "bilinear"},
    "relation-mlp": {"encoder_config": _BERT, **_COMMON, "relations_layer": "mlp"},
}  # fmt: skip
"""Arguments of the config of each model."""


def stored_value(name: str, shape: list[int], seed: int) -> torch.Tensor:
    """The random weights of a tensor, which follow from its name."""
    values = np.random.RandomState(zlib.crc32(f"{seed} {name}".encode())).standard_normal(shape).astype(np.float32)
    if "norm" in name.lower() and name.endswith("weight"):
        return torch.from_numpy(1 + 0.1 * values)
    return torch.from_numpy(values * np.float32(0.1 if len(shape) == 1 else 1.5 / shape[-1] ** 0.5))


def write_model(model: dict[str, Any], folder: Path) -> Path:
    """The folder of a stored model."""
    for name, content in model["files"].items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps(content))
    values = {name: stored_value(name, shape, model["seed"]) for name, shape in model["tensors"].items()}
    save_file(values, folder / "model.safetensors")
    return folder


def _make(arguments: dict[str, Any]) -> dict[str, Any]:
    """Files and tensors of a model, and its outputs with the first seed that finds some entities."""
    from gliner import config as configs
    from gliner import model as models
    from transformers import BertTokenizerFast

    arguments = json.loads(json.dumps(arguments))
    side = "BiEncoder" if "labels_encoder" in arguments else "UniEncoder"
    kind = side + ("Token" if arguments.pop("span_mode", "") == "token_level" else "Span")
    kind += "Relex" if "relations_layer" in arguments else ""
    config = getattr(configs, f"{kind}Config")(**arguments)
    tokenizer, labels_tokenizer = (BertTokenizerFast(vocab={w: i for i, w in enumerate(_WORDS)}) for _ in range(2))
    options = {"labels_tokenizer": labels_tokenizer} if side == "BiEncoder" else {}
    model = getattr(models, f"{kind}GLiNER")(config, tokenizer=tokenizer, **options)
    if side == "UniEncoder":
        tokenizer.add_tokens(["[FLERT]", *model._get_special_tokens()], special_tokens=True)
        model.resize_embeddings()
    model.double().eval()
    tensors = {name: list(value.shape) for name, value in model.model.state_dict().items()}
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder, safe_serialization=True)
        files = {str(file.relative_to(folder)): json.loads(file.read_text()) for file in Path(folder).rglob("*.json")}
    for seed in range(1000):
        model.model.load_state_dict({name: stored_value(name, shape, seed) for name, shape in tensors.items()})
        outputs = [_outputs(model, text) for text in TEXTS]
        entities, largest = outputs[0]["flat"], max(max(output["logits"]) for output in outputs)
        related = [output["relations"] for output in outputs if "relations" in output]
        is_plain = (
            2 < len(entities) < 7 and len({entity[2] for entity in entities}) > 1 and largest < 12
        )  # without equal scores
        if 0 < sum(map(len, related)) < 300 if related else is_plain:
            return {"files": files, "tensors": tensors, "seed": seed, "outputs": outputs}
    raise ValueError("no seed finds entities")


def _outputs(model: Any, text: str) -> dict[str, Any]:
    if hasattr(model.config, "rel_token"):
        return _related_outputs(model, text)
    words, *_ = model.prepare_inputs([text])
    batch = model.create_collator()(model.prepare_base_input(words), entity_types=LABELS)
    with torch.no_grad():
        logits = model.run_batch(batch).logits[0].numpy()
    entities = {
        name: [
            [each["start"], each["end"], each["label"], each["score"]]
            for each in model.predict_entities(text, LABELS, threshold=THRESHOLD, flat_ner=name == "flat")
        ]
        for name in ("flat", "nested")
    }
    return {"shape": logits.shape, "logits": [float(f"{x:.9g}") for x in logits.flatten()], **entities}


def _related_outputs(model: Any, text: str) -> dict[str, Any]:
    """Outputs of a model with relations: logits without any relation, as `Extractor.extract`, and both of them with."""
    words, *_ = model.prepare_inputs([text])
    batch = model.create_collator()(model.prepare_base_input(words), entity_types=LABELS, relation_types=list[str]())
    with torch.no_grad():
        logits = model.run_batch(batch, threshold=THRESHOLD).logits[0].numpy()
    result: dict[str, Any] = {"shape": logits.shape, "logits": [float(f"{x:.9g}") for x in logits.flatten()]}

    def row(span: dict[str, Any]) -> list[Any]:
        return [span["start"], span["end"], span["label"], span["score"]]

    for name in ("flat", "nested"):
        found, _ = model.inference(
            [text], LABELS, relations=[], threshold=THRESHOLD, flat_ner=name == "flat", return_relations=True
        )
        result[name] = [row(each) for each in found[0]]
    (found,), (relations,) = model.inference(
        [text], LABELS, relations=RELATIONS, threshold=THRESHOLD, return_relations=True
    )
    spans = [row(each) for each in found]
    related = {
        (each["relation"], each["head"]["entity_idx"], each["tail"]["entity_idx"]): each["score"] for each in relations
    }  # a span that several labels propose is related several times, and to itself
    return result | {
        "related_entities": spans,
        "relations": [
            [label, *spans[head][:3], *spans[tail][:3], float(f"{score:.9g}")]
            for (label, head, tail), score in related.items() if head != tail
        ],
    }  # fmt: skip


if __name__ == "__main__":
    import sys

    chosen = sys.argv[1:] or MODELS
    kept = json.loads(STORED.read_text()) if sys.argv[1:] else {}
    made = kept | {name: _make(MODELS[name]) for name in chosen}
    STORED.write_text(json.dumps(made, separators=(",", ":")) + "\n")
