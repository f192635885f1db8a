"""Inference on a CPU without torch: in a process that cannot import it, with the bits of a process that uses it."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch
from examples_of_tasks import model_of
from random_models import our_model, randomize, vocabulary_tokens

import bertkit
from bertkit import Model, Tokenizer
from bertkit.architectures import ARCHITECTURES
from bertkit.checkpoint.opening import open_checkpoint
from bertkit.tasks import SequenceClassification
from bertkit.transformer.kernels.choices import multiplies_panels_fast
from bertkit.transformer.modules import ArrayModule, as_torch

TEXTS = ["the cat sat", "a dog", "walk running " * 9, "green blue red " * 25]
REFUSAL = """
    import sys

    class Refusal:
        def find_spec(self, name, path=None, target=None):
            if name == "torch":
                raise ImportError("this process has no torch")

    sys.meta_path.insert(0, Refusal())
"""

needs_own_products = pytest.mark.skipif(
    not multiplies_panels_fast(), reason="products are torch's on this processor: `multiplies_panels_fast`"
)


def without_torch(program: str, *arguments: object) -> list:
    """What a program prints as JSON, in a process without torch."""
    code = textwrap.dedent(REFUSAL) + textwrap.dedent(program)
    command = [sys.executable, "-W", "ignore", "-c", code, *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


VECTORS = """
    import json, bertkit
    model = bertkit.load(sys.argv[1], precision=sys.argv[2])
    texts = json.loads(sys.argv[3])
    options = {"max_length": 20, "on_long": "window"}
    poolings = ("cls+mean", "max", "weighted-mean+last", "mean-sqrt-len")
    vectors = [model.embed(texts, pooling=name, normalize=True, **options).tolist() for name in poolings]
    print(json.dumps([*vectors, model.embed(texts[0]).tolist()]))
"""


@needs_own_products
@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize("name", ["bert", "roberta", "distilbert", "electra", "albert", "xlm-roberta"])
def test_vectors_have_the_bits_of_a_process_with_torch(tmp_path: Path, name: str, precision: str) -> None:
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
    config = ARCHITECTURES[name].config(vocab_size=99, max_position_embeddings=40, **sizes)
    model = Model.create(config, Tokenizer.from_vocab(vocabulary_tokens(99)))
    randomize(model.network, 5)
    model.save(tmp_path / "model")
    *ours, single = without_torch(VECTORS, tmp_path / "model", precision, json.dumps(TEXTS))
    model = bertkit.load(tmp_path / "model", precision=precision, device="cpu")
    assert isinstance(model.network.encoder, torch.nn.Module)
    options = {"max_length": 20, "on_long": "window", "normalize": True}
    for vectors, pooling in zip(ours, ("cls+mean", "max", "weighted-mean+last", "mean-sqrt-len"), strict=True):
        theirs = model.embed(TEXTS, pooling=pooling, **options)
        np.testing.assert_array_equal(np.array(vectors, np.float32), theirs)
    np.testing.assert_array_equal(np.array(single, np.float32), model.embed(TEXTS[0]))


@needs_own_products
def test_predictions_and_scores_have_the_values_of_a_process_with_torch(tmp_path: Path) -> None:
    model_of(SequenceClassification(("bad", "good"))).save(tmp_path / "model")
    program = """
        import json, bertkit
        model, texts = bertkit.load(sys.argv[1]), json.loads(sys.argv[2])
        predictions = [prediction.probabilities for prediction in model.predict(texts)]
        print(json.dumps([predictions, model.score_pairs(texts[0], texts).tolist()]))
    """
    predictions, scores = without_torch(program, tmp_path / "model", json.dumps(TEXTS[:3]))
    model = bertkit.load(tmp_path / "model", device="cpu")
    assert isinstance(model.network, torch.nn.Module)
    assert predictions == [prediction.probabilities for prediction in model.predict(TEXTS[:3])]
    assert scores == model.score_pairs(TEXTS[0], TEXTS[:3]).tolist()


@pytest.mark.parametrize("kind", ["pretraining", "sequence_classification"])
def test_network_of_arrays_becomes_torchs_in_the_same_memory(tmp_path: Path, kind: str) -> None:
    model = our_model(kind, 3)
    model.save(tmp_path / "model")
    checkpoint = open_checkpoint(tmp_path / "model")
    arrays = dict(checkpoint.parts.named_parameters())
    assert isinstance(checkpoint.parts, ArrayModule)
    parameters, expected = dict(checkpoint.network.named_parameters()), dict(model.network.named_parameters())
    assert list(parameters) == list(expected) == list(arrays)
    assert type(checkpoint.network) is type(model.network) and repr(checkpoint.network) == repr(model.network)
    for name, parameter in parameters.items():
        assert torch.equal(parameter, expected[name]) and parameter.data_ptr() == arrays[name].ctypes.data
    assert as_torch(checkpoint.network) is checkpoint.network


def test_trained_weights_do_not_reach_the_file(tmp_path: Path) -> None:
    our_model("encoder", 3).save(tmp_path / "model")
    content = (tmp_path / "model" / "model.safetensors").read_bytes()
    network = open_checkpoint(tmp_path / "model").network
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(1)
    assert (tmp_path / "model" / "model.safetensors").read_bytes() == content


def test_vectors_follow_weights_that_change_after_inference(tmp_path: Path) -> None:
    our_model("encoder", 3).save(tmp_path / "model")
    model = bertkit.load(tmp_path / "model", device="cpu")
    before = model.embed(TEXTS[:2])
    np.testing.assert_array_equal(before, model.embed(TEXTS[:2]))
    with torch.no_grad():
        model.network.encoder.embeddings.norm.weight.mul_(-1)
    assert np.abs(model.embed(TEXTS[:2]) - before).max() > 0.1
