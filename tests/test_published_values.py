"""Published numbers: parameter counts of models, and outputs of bert-base-uncased."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import bertkit
from bertkit import Batch, BertConfig, Model
from bertkit.architectures import Network
from bertkit.architectures.bert import BERT
from bertkit.errors import CheckpointError
from bertkit.locate import locate


def parameters(config: BertConfig, *heads: str, num_labels: int = 2) -> dict[str, torch.nn.Parameter]:
    """By published name, without allocating them."""
    with torch.device("meta"):
        network = Network(config, heads, num_labels=num_labels)
    return {BERT.names.published(name): parameter for name, parameter in network.named_parameters()}


def count(parameters: dict[str, torch.nn.Parameter]) -> int:
    return sum(parameter.numel() for parameter in parameters.values())


def test_published_parameter_table() -> None:
    table = parameters(BertConfig.of_size("base"), "sequence_classification")
    rows = [(name, tuple(parameter.shape)) for name, parameter in table.items()]
    assert len(rows) == 201
    assert rows[0] == ("bert.embeddings.word_embeddings.weight", (30522, 768))
    assert rows[1] == ("bert.embeddings.position_embeddings.weight", (512, 768))
    assert rows[2] == ("bert.embeddings.token_type_embeddings.weight", (2, 768))
    assert rows[3] == ("bert.embeddings.LayerNorm.weight", (768,))
    assert rows[5] == ("bert.encoder.layer.0.attention.self.query.weight", (768, 768))
    assert rows[-4:] == [
        ("bert.pooler.dense.weight", (768, 768)),
        ("bert.pooler.dense.bias", (768,)),
        ("classifier.weight", (2, 768)),
        ("classifier.bias", (2,)),
    ]
    assert count(table) == 109_483_778


def test_table_equals_that_of_transformers() -> None:
    import transformers

    config = transformers.BertConfig()
    with torch.device("meta"):
        theirs = transformers.BertForSequenceClassification(config)
    expected = [(name, tuple(parameter.shape)) for name, parameter in theirs.named_parameters()]
    table = parameters(BertConfig(), "sequence_classification")
    assert [(name, tuple(parameter.shape)) for name, parameter in table.items()] == expected


def test_published_sizes() -> None:
    encoder = count(parameters(BertConfig.of_size("base")))
    assert encoder == 109_482_240
    assert f"{encoder * 4 / 2**20:.1f}" == "417.6"
    assert BertConfig.of_size("base") == BertConfig()
    assert count(parameters(BertConfig.of_size("large"))) == 335_141_888
    # Turc et al. 2019, table 1, in millions
    published = {"tiny": 4.4, "mini": 11.3, "small": 29.1, "medium": 41.7}
    for size, millions in published.items():
        # The table counts the weights of the encoder and the pooler, as google-research/bert's checkpoints hold them.
        assert count(parameters(BertConfig.of_size(size))) / 1e6 == pytest.approx(millions, rel=0.02), size


@pytest.fixture(scope="module")
def bert_base_uncased() -> Model:
    try:
        locate("bert-base-uncased")
    except CheckpointError:
        pytest.skip("bert-base-uncased is not in the hub's cache (HF_HUB_CACHE): its published outputs are not checked")
    return bertkit.load("bert-base-uncased")


@torch.inference_mode()
def test_slice_that_transformers_publishes(bert_base_uncased: Model, shared_data: Path) -> None:
    expected = json.loads((shared_data / "bert_reference" / "hf_expected_values.json").read_text())
    inputs, mask = torch.tensor(expected["input_ids"]), torch.tensor(expected["attention_mask"])
    batch = Batch.from_padded(inputs, mask)
    hidden = batch.pad(bert_base_uncased.encoder(batch).last_hidden_state)
    assert hidden.shape == (1, 11, 768)
    np.testing.assert_allclose(hidden[:, 1:4, 1:4], expected["bert-base-uncased"], rtol=0, atol=1e-4)


@torch.inference_mode()
def test_textbook_sentence_pair(bert_base_uncased: Model) -> None:
    encoding = bert_base_uncased.tokenizer.encode("I was thirsty!", "I drank water :D")
    assert encoding.input_ids.tolist() == [101, 1045, 2001, 24907, 999, 102, 1045, 10749, 2300, 1024, 1040, 102]
    encoded = bert_base_uncased.encoder(bertkit.collate([encoding]))
    hidden = encoded.last_hidden_state
    np.testing.assert_allclose(hidden[0, :5], [-0.23, 0.37, -0.34, -0.35, -0.91], rtol=0, atol=0.006)
    np.testing.assert_allclose(hidden[3, :5], [0.88, 0.08, -0.0, -0.03, 1.2], rtol=0, atol=0.006)
    np.testing.assert_allclose(encoded.pooled[0, :5], [-0.9803, -0.7672, -0.9958, 0.9636, 0.9004], rtol=0, atol=1e-4)


@torch.inference_mode()
def test_cosine_of_cls_and_the_words(bert_base_uncased: Model) -> None:
    encoding = bert_base_uncased.tokenizer.encode("He will get scared")
    hidden = bert_base_uncased.encoder(bertkit.collate([encoding])).last_hidden_state
    cosine = torch.cosine_similarity(hidden[0], hidden[1:-1].mean(0), dim=0)
    assert float(cosine) == pytest.approx(0.2907, abs=1e-4)
