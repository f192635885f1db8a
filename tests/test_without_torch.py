"""Inference on a CPU without torch: in a process that cannot import it, with the bits of a process that uses it."""

import inspect
import json
import os
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from examples_of_tasks import model_of
from gliner2_reference import CLASSES, ENTITIES, MULTILABEL_CLASSES, RECORDS
from gliner2_reference import RELATIONS as SCHEMA_RELATIONS
from gliner2_reference import STORED as STORED_SCHEMAS
from gliner_reference import LABELS, RELATIONS, STORED, write_model
from gliner_reference import TEXTS as EXTRACTED
from random_models import our_model, randomize, vocabulary_tokens
from served import serving

import bertkit
from bertkit import Model, Tokenizer
from bertkit.architectures import ARCHITECTURES
from bertkit.checkpoint.opening import open_checkpoint
from bertkit.extraction import Schema
from bertkit.tasks import SequenceClassification
from bertkit.transformer.deberta import bucket
from bertkit.transformer.kernels.choices import multiplies_panels_fast
from bertkit.transformer.modules import ArrayModule, as_torch

TEXTS = ["the cat sat", "a dog", "walk running " * 9, "green blue red " * 25]
REFUSAL = """
import sys

class Refusal:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            raise ModuleNotFoundError("this process has no torch", name="torch")

sys.meta_path.insert(0, Refusal())
"""
"""A module that every process imports which has its folder in the path."""

needs_own_products = pytest.mark.skipif(
    not multiplies_panels_fast(), reason="products are torch's on this processor: `multiplies_panels_fast`"
)


@pytest.fixture(autouse=True, scope="module")
def refusal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Processes that are started meanwhile have no torch."""
    folder = tmp_path_factory.mktemp("refusal")
    (folder / "sitecustomize.py").write_text(REFUSAL, newline="\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(folder), *sys.path]))
        patch.syspath_prepend(folder)  # `serving` hands it on
        yield


def without_torch(program: str, *arguments: object) -> list:
    """What a program prints as JSON, in a process without torch."""
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(program), *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


POOLINGS = "cls+mean", "max", "weighted-mean+last", "mean-sqrt-len"
CONFIGS: dict[str, dict[str, int]] = {name: {} for name in ARCHITECTURES}
CONFIGS |= {"modernbert": {"local_attention": 8}, "eurobert": {"num_key_value_heads": 2}}
CONFIGS |= {"qwen3": {"num_key_value_heads": 2, "head_dim": 24}}
FAMILIES = list(CONFIGS)


def results(folder: str, precision: str, *, with_torch: bool = False) -> dict[str, list]:
    """Vectors, filled masks and sparse vectors of a model of each family."""
    found = {}
    for name in FAMILIES:
        model = bertkit.load(f"{folder}/{name}", precision=precision, device="cpu")
        assert not with_torch or model.network is model.inference_network
        options: dict[str, Any] = {"max_length": 20, "on_long": "window", "normalize": True}
        vectors = [model.embed(TEXTS, pooling=pooling, **options).tolist() for pooling in POOLINGS]
        found[name] = [*vectors, model.embed(TEXTS[0]).tolist()]
        if "masked_lm" in model.checkpoint.parts.heads and not model.config.is_decoder:
            (mask,) = model.fill_mask("the [MASK] dog")
            best = [[candidate.token_id, candidate.score] for candidate in mask.candidates]
            found[name] += [best, model.embed_sparse(TEXTS[:2]).dense().tolist()]
    return found


@needs_own_products
@pytest.mark.full
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
def test_results_have_the_bits_of_a_process_with_torch(tmp_path: Path, precision: str) -> None:
    for name in FAMILIES:
        sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
        record = ARCHITECTURES[name]
        config = record.config(vocab_size=99, max_position_embeddings=40, **sizes, **CONFIGS[name])
        heads = ["masked_lm"] if "masked_lm" in record.heads else []
        model = Model.create(config, Tokenizer.from_vocab(vocabulary_tokens(99)), heads)
        randomize(model.network, 5)
        model.mark_trained()
        model.save(tmp_path / name)
    constants = f"TEXTS, POOLINGS, FAMILIES = {TEXTS}, {POOLINGS}, {FAMILIES}\n"
    program = f"import json, sys, bertkit\nfrom typing import Any\n{constants}{inspect.getsource(results)}"
    ours = without_torch(f"{program}\nprint(json.dumps(results(*sys.argv[1:])))", tmp_path, precision)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = results(str(tmp_path), precision, with_torch=True)
    for name in FAMILIES:
        assert ours[name] == json.loads(json.dumps(theirs[name])), name


@pytest.mark.parametrize(("num_buckets", "longest"), [(256, 512), (32, 128), (4, 69), (18, 362), (200, 141)])
def test_buckets_of_distances_are_those_of_tensors(num_buckets: int, longest: int) -> None:
    distances = np.arange(-longest - 99, longest + 100)
    expected = bucket(torch.from_numpy(distances), num_buckets, longest)
    np.testing.assert_array_equal(bucket(distances, num_buckets, longest), expected.numpy())


@needs_own_products
def test_predictions_and_scores_have_the_values_of_a_process_with_torch(tmp_path: Path) -> None:
    model_of(SequenceClassification(("bad", "good"))).save(tmp_path / "model")
    program = """
        import json, sys, bertkit
        model, texts = bertkit.load(sys.argv[1]), json.loads(sys.argv[2])
        predictions = [prediction.probabilities for prediction in model.predict(texts)]
        print(json.dumps([predictions, model.score_pairs(texts[0], texts).tolist()]))
    """
    predictions, scores = without_torch(program, tmp_path / "model", json.dumps(TEXTS[:3]))
    model = bertkit.load(tmp_path / "model", device="cpu")
    assert isinstance(model.network, torch.nn.Module)
    assert predictions == [prediction.probabilities for prediction in model.predict(TEXTS[:3])]
    assert scores == model.score_pairs(TEXTS[0], TEXTS[:3]).tolist()


def readings(folder: str, precision: str, *, with_torch: bool = False) -> dict[str, list[str]]:
    """Entities, and readings of a schema, of each extraction model in a folder."""
    found = {}
    for name, content in json.loads(Path(folder, "schemas.json").read_text()).items():
        model = bertkit.load(f"{folder}/{name}", precision=precision, device="cpu")
        assert not with_torch or model.network is model.inference_network
        schema = Schema.from_json(content)
        found[name] = [repr(model.extract(EXTRACTED, LABELS, threshold=0.3, nested=nested)) for nested in (False, True)]
        found[name].append(repr(model.extract(EXTRACTED, schema=schema, threshold=0.1)))
    return found


@needs_own_products
@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_entities_and_relations_have_the_bits_of_a_process_with_torch(tmp_path: Path, precision: str) -> None:
    schemas: dict[str, Any] = {}
    for name, model in json.loads(STORED.read_text()).items():
        write_model(model, tmp_path / name)
        schemas[name] = {"entities": LABELS} | ({"relations": RELATIONS} if name.startswith("relation") else {})
    for name, model in json.loads(STORED_SCHEMAS.read_text()).items():
        write_model(model, tmp_path / f"schema-{name}")
        classes = {"classes": CLASSES, "multilabel_classes": MULTILABEL_CLASSES}
        schemas[f"schema-{name}"] = {"entities": ENTITIES, "records": RECORDS, "relations": SCHEMA_RELATIONS} | classes
    (tmp_path / "schemas.json").write_text(json.dumps(schemas), newline="\n")
    constants = f"EXTRACTED, LABELS = {EXTRACTED}, {LABELS}\n"
    imports = "import json, sys, bertkit\nfrom pathlib import Path\nfrom bertkit.extraction import Schema\n"
    program = f"{imports}{constants}{inspect.getsource(readings)}"
    ours = without_torch(f"{program}\nprint(json.dumps(readings(*sys.argv[1:])))", tmp_path, precision)
    theirs = readings(str(tmp_path), precision, with_torch=True)
    assert ours == theirs and all("Entity" in each for found in ours.values() for each in found)


@needs_own_products
def test_server_has_the_vectors_and_scores_of_a_process_with_torch(tmp_path: Path) -> None:
    model_of(SequenceClassification(("bad", "good"))).save(tmp_path / "classifier")
    our_model("encoder", 3).save(tmp_path / "encoder")
    models = {name: bertkit.load(tmp_path / name, device="cpu") for name in ("encoder", "classifier")}
    with serving("--model", tmp_path / "encoder", "--model", tmp_path / "classifier") as server:
        body = {"model": "encoder", "inputs": TEXTS[:2], "normalize": False}
        vectors = server.post("/embed", body)
        tokens = server.post("/embed_all", {"model": "encoder", "inputs": TEXTS[:2]})
        scores = server.post("/predict", {"model": "classifier", "inputs": TEXTS[0]})
        status, answer, _ = server.request("/inspect/input", {"model": "encoder", "inputs": TEXTS[0]})
    assert isinstance(models["encoder"].network.encoder, torch.nn.Module)
    np.testing.assert_array_equal(np.array(vectors, np.float32), models["encoder"].embed(TEXTS[:2]))
    np.testing.assert_allclose(np.mean(tokens[1], axis=0), vectors[1], atol=1e-6)
    (expected,) = models["classifier"].predict(TEXTS[:1])
    assert {each["label"]: each["score"] for each in scores} == pytest.approx(expected.probabilities, abs=1e-9)
    assert status == 422 and "bertkit[torch]" in answer["error"]


COMMANDS = """
import contextlib, io, json, sys
from bertkit.cli import COMMANDS, run

def outcome(*arguments):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = run(list(arguments))
        except SystemExit as stop:
            code = stop.code or 0
    return code, err.getvalue()

folder = sys.argv[1]
model, texts, labeled = (f"{folder}/{name}" for name in ("model", "texts.txt", "labeled.csv"))
helps = {name: outcome(name, "--help") for name in COMMANDS}
calls = {
    "embed": (texts, "--out", f"{folder}/vectors.npy"), "similarity": ("the cat", "a dog"), "pairs": (texts,),
    "index": (texts, "--store", f"{folder}/store", "--no-prompt"), "predict": (labeled,),
    "tokenize": ("the cat",), "describe": (), "check": ("sequence-classification", "--train", labeled), "doctor": (),
    "finetune": ("sequence-classification", "--train", labeled, "--out", f"{folder}/new"), "generate": ("the cat",),
    "inspect": ("attention", "the cat", "--out", f"{folder}/page.html"), "export": ("--out", f"{folder}/graph"),
    "pretrain": ("--corpus", texts, "--out", f"{folder}/run"),
}
chosen = {name: () if name in ("check", "doctor", "pretrain") else ("--model", model) for name in calls}
done = {name: outcome(name, *each, *chosen[name]) for name, each in calls.items()}
done["search"] = outcome("search", "cat", "--store", f"{folder}/store")
done["extract"] = outcome("extract", "a zoo", "--labels", "zoo", "--model", f"{folder}/extractor")
print(json.dumps([helps, done]))
"""
WORKING = set("embed similarity pairs index search predict tokenize describe doctor extract".split())


@needs_own_products
@pytest.mark.full
def test_commands_work_or_say_how_to_install_torch(tmp_path: Path) -> None:
    model_of(SequenceClassification(("bad", "good"))).save(tmp_path / "model")
    write_model(json.loads(STORED.read_text())["token-bert"], tmp_path / "extractor")
    (tmp_path / "texts.txt").write_text("the cat sat\na dog\nwalk running\n", newline="\n")
    rows = "".join(f"{text},{label}\n" for text, label in [("the cat", "good"), ("a dog", "bad")] * 6)
    (tmp_path / "labeled.csv").write_text("text,label\n" + rows, newline="\n")
    helps, done = without_torch(COMMANDS, tmp_path)
    assert {name: code for name, (code, _) in helps.items() if code} == {}
    assert {name: error for name, (code, error) in done.items() if name in WORKING and code} == {}
    for name in done.keys() - WORKING:
        assert done[name] == [2, "bertkit: this needs torch, which is not installed: pip install 'bertkit[torch]'\n"], (
            name
        )


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
