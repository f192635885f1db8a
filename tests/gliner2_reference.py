"""Outputs of the published package ``gliner2`` in float64 for small models with random weights: data/gliner2.json.

The stored models are made again by `gliner_reference.write_model`. Run this file where ``gliner2`` 2.1.0 is installed
to write data/gliner2.json again.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import torch
from gliner_reference import _BERT, _DEBERTA, _WORDS, stored_value

STORED = Path(__file__).parent / "data" / "gliner2.json"

TEXTS = [
    "Ann was in the old zoo of Bern, near a river.",
    "river!",
    "a well-known zoo_of Bern (the e-mail of Ann) was 12 years old.",
]
ENTITIES = {"city": "a city near a river", "person": "the name of Ann", "zoo": "old"}
RECORDS = {"person name": ["name", "years"], "zoo": ["city", "name", "old"]}
RELATIONS = {"in": "a zoo in Bern", "near": None}
CLASSES = {"known": ["ann", "bern", "zoo"]}
MULTILABEL_CLASSES = {"old mail": ["mail", "years"]}
THRESHOLD = 0.6
_MARKERS = "[SEP_STRUCT] [SEP_TEXT] [P] [C] [E] [R] [L] [EXAMPLE] [OUTPUT] [DESCRIPTION]".split()
_MODELS = {
    "bert": (_BERT | {"max_position_embeddings": 280}, "count_lstm"),
    "deberta": (_DEBERTA | {"max_position_embeddings": 280}, "count_lstm_v2"),
}


def _schema(model: Any) -> Any:
    schema = model.create_schema().entities(ENTITIES)
    for name, fields in RECORDS.items():
        structure = schema.structure(name)
        for field in fields:
            structure = structure.field(field, dtype="list")
    schema = schema.relations({name: {"description": text} if text else {} for name, text in RELATIONS.items()})
    for name, labels in CLASSES.items():
        schema = schema.classification(name, labels)
    for name, labels in MULTILABEL_CLASSES.items():
        schema = schema.classification(name, labels, multi_label=True, cls_threshold=0.0)
    return schema


def _make(encoder: dict[str, Any], counting: str) -> dict[str, Any]:
    """Files and tensors of a model, and its outputs with the first seed that finds something of every kind."""
    from gliner2 import GLiNER2
    from gliner2.configuration import ExtractorConfig
    from transformers import AutoConfig, BertTokenizerFast

    tokenizer = BertTokenizerFast(vocab={word: index for index, word in enumerate(_WORDS)})
    tokenizer.add_special_tokens({"additional_special_tokens": _MARKERS})
    of_encoder = AutoConfig.for_model(**encoder)
    config = ExtractorConfig(model_name="none", max_width=5, counting_layer=counting)
    model = GLiNER2(config, encoder_config=of_encoder, tokenizer=tokenizer)
    model.double().eval()
    tensors = {name: list(value.shape) for name, value in model.state_dict().items()}
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        files = {str(file.relative_to(folder)): json.loads(file.read_text()) for file in Path(folder).rglob("*.json")}
    for seed in range(3000):
        model.load_state_dict({name: stored_value(name, shape, seed) for name, shape in tensors.items()})
        with torch.no_grad():
            outputs = [_output(model, text) for text in TEXTS]
        numbers = [
            sum(len(output["entities"]) for output in outputs),
            sum(len(output["relations"]) for output in outputs),
            *(sum(len(output["records"][name]) for output in outputs) for name in RECORDS),
        ]
        if min(numbers) > 0 and sum(numbers) < 40:
            return {"files": files, "tensors": tensors, "seed": seed, "outputs": outputs}
    raise ValueError("no seed finds something of every kind")


def _output(model: Any, text: str) -> dict[str, Any]:
    result = model.extract(
        text, _schema(model), threshold=THRESHOLD, include_confidence=True, include_spans=True, format_results=False
    )

    def spans(found: list[dict[str, Any]], name: str) -> list[list[Any]]:
        return [[each["start"], each["end"], name, each["confidence"]] for each in found]

    entities = result["entities"][0] if result.get("entities") else {}
    return {
        "entities": [span for name, found in entities.items() for span in spans(found, name)],
        "records": {
            name: [{field: spans(found, field) for field, found in record.items()} for record in result.get(name) or []]
            for name in RECORDS
        },
        "relations": [
            [name, *(span for side in ("head", "tail") for span in spans([each[side]], side))]
            for name, description in RELATIONS.items()
            for each in result.get(f"{name}: {description}" if description else name, [])
        ],
        "classes": {name: list(result[name]) for name in CLASSES},
        "multilabel_classes": {name: dict(result[name]) for name in MULTILABEL_CLASSES},
    }


if __name__ == "__main__":
    made = {name: _make(*model) for name, model in _MODELS.items()}
    STORED.write_text(json.dumps(made, separators=(",", ":")) + "\n")
