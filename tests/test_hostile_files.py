"""Damaged, inconsistent and hostile model folders: one clear error with the remedy, no code run, no memory
allocated."""

import json
import pickle
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_models import edit_json, edit_tensors, published_model, save_published, write_tokenizer
from safetensors.torch import load_file, save_file

import bertkit
from bertkit.architectures.bert import BERT
from bertkit.checkpoint import weights
from bertkit.errors import BertkitError, CheckpointError, DataError
from bertkit.words.opening import open_encoder

pytestmark = pytest.mark.usefixtures("one_thread")


class Files(dict[str, bytes]):
    """Files by name, with a short repr."""

    __repr__ = object.__repr__


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """The files of a published masked LM of one layer."""
    folder = tmp_path_factory.mktemp("published")
    save_published(published_model("masked_lm", 4), folder)
    bertkit.load(folder)
    return Files({file.name: file.read_bytes() for file in folder.iterdir()})


@pytest.fixture
def folder(tmp_path: Path, originals: Files) -> Path:
    for name, content in originals.items():
        (tmp_path / name).write_bytes(content)
    return tmp_path


def refused(folder: Path, message: str, **options) -> None:
    with pytest.raises(CheckpointError, match=message) as caught:
        bertkit.load(folder, **options)
    assert "\n" not in str(caught.value)


def split_header(content: bytes) -> tuple[dict, bytes]:
    (length,) = struct.unpack("<Q", content[:8])
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def joined(header: object, values: bytes, announced: int | None = None) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text) if announced is None else announced) + text + values


def edit_header(folder: Path, change: Callable[[dict], object]) -> None:
    file = folder / "model.safetensors"
    header, values = split_header(file.read_bytes())
    change(header)
    file.write_bytes(joined(header, values))


# --- weights ---------------------------------------------------------------------------------------------------------

NORM = "bert.embeddings.LayerNorm.weight"
WORDS = "bert.embeddings.word_embeddings.weight"


class Harmful:
    """Unpickling it leaves a mark."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return Path.touch, (self.mark,)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "bert_model.ckpt", "weights.pth"])
def test_pickled_weights_raise_with_the_remedy(folder: Path, name: str) -> None:
    (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(pickle.dumps(Harmful(folder / "mark")))
    refused(folder, rf"pickle \({name}\).*run any code.*bertkit convert")
    assert not (folder / "mark").exists()
    pickle.loads((folder / name).read_bytes())
    assert (folder / "mark").exists()  # it would have


def test_folder_without_weights_config_or_tokenizer(folder: Path, originals: Files) -> None:
    for name, message in {
        "model.safetensors": "holds no weights: expected model.safetensors",
        "config.json": "holds no config.json",
        "vocab.txt": "holds no tokenizer: expected tokenizer.json, vocab.txt, vocab.json",
    }.items():
        (folder / name).unlink()
        refused(folder, message)
        (folder / name).write_bytes(originals[name])
    bertkit.load(folder)


def test_model_inside_a_run_is_named(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "model").symlink_to(folder)
    refused(tmp_path / "run", f"holds no config.json; its run has the model {tmp_path / 'run' / 'model'}")


def test_weights_of_other_programs_are_named(folder: Path) -> None:
    (folder / "onnx").mkdir()
    (folder / "model.safetensors").rename(folder / "onnx" / "model.onnx")
    refused(folder, "expected model.safetensors or its index, not onnx/model.onnx")
    for name in ("config.json", "onnx/model.onnx"):  # not of word vectors
        with pytest.raises(CheckpointError, match=f"{name} is a file: expected the model's folder"):
            open_encoder(folder / name)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "vocab.txt"])
def test_pointer_of_a_clone_without_large_files(folder: Path, name: str) -> None:
    if name == "vocab.txt":
        (folder / "tokenizer.json").unlink(missing_ok=True)
    (folder / name).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a21\nsize 90868376\n")
    refused(folder, f"{name} is a pointer of Git LFS.*run git lfs pull")


def test_config_with_a_byte_order_mark_is_read(folder: Path) -> None:
    config = folder / "config.json"
    config.write_bytes(b"\xef\xbb\xbf" + config.read_bytes())
    assert bertkit.load(folder).config.hidden_size > 0


def test_vocabulary_that_was_cut_off_is_warned_about(folder: Path) -> None:
    (folder / "tokenizer.json").unlink(missing_ok=True)
    lines = (folder / "vocab.txt").read_text().splitlines(keepends=True)
    (folder / "vocab.txt").write_text("".join(lines[: len(lines) // 2]))
    with pytest.warns(
        UserWarning, match=f"has {len(lines) // 2} entries, the word embedding {len(lines)} rows: unless"
    ):
        bertkit.load(folder)


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 100, -1])
def test_truncated_file(folder: Path, size: int) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:size])
    refused(folder, "truncated|not a safetensors")


def test_trailing_bytes_raise(folder: Path) -> None:
    with open(folder / "model.safetensors", "ab") as file:
        file.write(b"more")
    refused(folder, "truncated or padded")


@pytest.mark.parametrize("announced", [2**63, 2**64 - 1, 10_000_001, 10**15])
def test_absurd_header_length(folder: Path, announced: int) -> None:
    (folder / "model.safetensors").write_bytes(joined({}, b"", announced))
    refused(folder, "truncated or not a safetensors file")


def test_rejects_oversized_header(folder: Path) -> None:
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", 10_000_001))
        file.truncate(10_000_100)  # zeros that take no disk
    refused(folder, "has a header of 10000001 bytes")


def test_rejects_too_many_tensors(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert weights._MAX_TENSORS <= 100_000
    monkeypatch.setattr(weights, "_MAX_TENSORS", 20)
    refused(folder, "has 2[0-9] tensors, more than any real model")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda header: header[NORM].update(shape=[10**12]), "do not fit its shape"),
        (lambda header: header[NORM].update(shape=[-1, -header[NORM]["shape"][0]]), "not supported"),
        (lambda header: header[NORM].update(dtype="F8_E4M3"), "dtype 'F8_E4M3'.*not supported"),
        (lambda header: header[NORM].update(data_offsets=header[WORDS]["data_offsets"]), "do not fit its shape"),
        (lambda header: header[NORM].update(data_offsets=[header[NORM]["data_offsets"][0] + 4] * 2), "do not fit"),
        (lambda header: header.update(extra=header[NORM]), "do not fit its shape"),  # the same bytes twice
        (lambda header: header.pop(NORM), "do not fit its shape|truncated or padded"),  # bytes that nobody owns
        (lambda header: header[NORM].pop("shape"), "malformed header"),
        (lambda header: header.update(extra="text"), "malformed header"),
        (lambda header: header[NORM].update(dtype=["F32"]), "malformed header|not supported"),
        (lambda header: header[NORM].update(data_offsets=["0", "4"]), "malformed header|do not fit"),
        (lambda header: header[NORM].update(data_offsets=[None, None]), "malformed header|do not fit"),
    ],
)  # fmt: skip
def test_rejects_inconsistent_header(folder: Path, change: Callable[[dict], object], message: str) -> None:
    edit_header(folder, change)
    refused(folder, message)


@pytest.mark.parametrize("header", [b"[]", b"not json", b"\xff\xfe", b"[" * 100_000, b'{"a": {"dtype": NaN}}'])
def test_rejects_invalid_header(folder: Path, header: bytes) -> None:
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    refused(folder, "malformed header")


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)
FUZZ = settings(
    max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.mark.full
@FUZZ
@given(st.data())
def test_any_value_anywhere_in_a_header(folder: Path, originals: Files, data: st.DataObject) -> None:
    header, values = split_header(originals["model.safetensors"])
    name = data.draw(st.sampled_from(sorted(header.keys() - {"__metadata__"})))
    position = data.draw(st.sampled_from(["entry", "dtype", "shape", "data_offsets", "shape 0", "data_offsets 1"]))
    value = data.draw(ANYTHING)
    match position.split():
        case ["entry"]:
            header[name] = value
        case [key]:
            header[name][key] = value
        case [key, index]:
            header[name][key][int(index)] = value
    (folder / "model.safetensors").write_bytes(joined(header, values))
    refused_or_the_same(folder)


@FUZZ
@given(st.data())
def test_any_byte_of_a_header_changed(folder: Path, originals: Files, data: st.DataObject) -> None:
    content = bytearray(originals["model.safetensors"])
    (length,) = struct.unpack("<Q", content[:8])
    content[data.draw(st.integers(0, 7 + length))] ^= data.draw(st.integers(1, 255))
    (folder / "model.safetensors").write_bytes(content)
    refused_or_the_same(folder)


def refused_or_the_same(folder: Path) -> None:
    """Parts that do not affect the weights may change: free text of the metadata, order of keys."""
    try:
        model = bertkit.load(folder, device="cpu")
    except CheckpointError:
        return
    reference = published_model("masked_lm", 4).state_dict()
    for name, parameter in model.network.named_parameters():
        assert torch.equal(parameter, reference[BERT.names.published(name)]), name


# --- shards ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def sharded(folder: Path) -> Path:
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    shards = {"model-1.safetensors": names[::2], "model-2.safetensors": names[1::2]}
    for shard, held in shards.items():
        save_file({name: tensors[name] for name in held}, folder / shard, metadata={"format": "pt"})
    weight_map = {name: shard for shard, held in shards.items() for name in held}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    bertkit.load(folder)
    return folder


def edit_weight_map(folder: Path, change: Callable[[dict], object]) -> None:
    index = folder / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    change(content["weight_map"])
    index.write_text(json.dumps(content))


@pytest.mark.parametrize(
    "name",
    [
        "../outside.safetensors",
        "/etc/passwd",
        "a/b.safetensors",
        "..\\outside.safetensors",
        "pytorch_model.bin",
        "..",
        "",
    ],
)
def test_shard_outside_the_folder_is_not_read(sharded: Path, name: str) -> None:
    (sharded.parent / "outside.safetensors").write_bytes((sharded / "model-1.safetensors").read_bytes())
    edit_weight_map(sharded, lambda weight_map: weight_map.update({NORM: name}))
    refused(sharded, "only .safetensors files next to it are read|which the index assigns to another file")


def test_index_that_does_not_fit_its_shards(sharded: Path) -> None:
    edit_weight_map(sharded, lambda weight_map: weight_map.update(ghost="model-1.safetensors"))
    refused(sharded, "no shard holds: ghost")
    edit_weight_map(sharded, lambda weight_map: weight_map.pop("ghost"))
    edit_weight_map(sharded, lambda weight_map: weight_map.pop(NORM))
    refused(sharded, f"holds '{NORM}', which the index assigns to another file")
    (sharded / "model-2.safetensors").unlink()
    refused(sharded, "lacks model-2.safetensors")
    for content in ("{}", '{"weight_map": {}}', '{"weight_map": ["a"]}'):
        (sharded / "model.safetensors.index.json").write_text(content)
        refused(sharded, "has no weight_map")


def test_truncated_shard(sharded: Path) -> None:
    shard = sharded / "model-2.safetensors"
    shard.write_bytes(shard.read_bytes()[:-3])
    refused(sharded, "model-2.safetensors is truncated")


# --- weights that do not fit the config ------------------------------------------------------------------------------


def test_missing_tensor(folder: Path) -> None:
    edit_tensors(folder, lambda tensors: tensors.pop(NORM))
    refused(folder, f"lacks 1 of [0-9]+ tensors: {NORM}")


def test_unexpected_tensor_raises_unless_ignored(folder: Path) -> None:
    edit_tensors(folder, lambda tensors: tensors.update({"bert.adapter.weight": torch.ones(2)}))
    refused(folder, "lacks: bert.adapter.weight; pass ignore_tensors")
    refused(folder, "lacks: bert.adapter.weight", heads=["masked_lm"])
    refused(folder, "lacks: bert.adapter.weight", heads=[])
    bertkit.load(folder, ignore_tensors=["bert.adapter.weight"])


def test_more_layers_stored_than_configured_or_fewer(folder: Path) -> None:
    edit_json(folder / "config.json", num_hidden_layers=2)
    refused(folder, "lacks .*bert.encoder.layer.1|lacks .* announces more layers than it holds")
    edit_json(folder / "config.json", num_hidden_layers=0)
    refused(folder, "lacks: bert.encoder.layer.0.*and 11 more")


@pytest.mark.parametrize(
    "key", ["hidden_size", "intermediate_size", "vocab_size", "max_position_embeddings", "type_vocab_size"]
)
def test_mismatched_shape_raises(folder: Path, key: str) -> None:
    content = json.loads((folder / "config.json").read_text())
    edit_json(folder / "config.json", **{key: content[key] + content["num_attention_heads"]})
    refused(folder, r"has shape \[.*\]; the config requires \[")


def test_integer_weights_raise(folder: Path) -> None:
    edit_tensors(folder, lambda tensors: tensors.update({NORM: tensors[NORM].to(torch.int8)}))
    refused(folder, "stored as I8: expected floating point")


def test_model_name_in_two_spellings(folder: Path) -> None:
    edit_tensors(folder, lambda tensors: tensors.update({NORM.replace("weight", "gamma"): tensors[NORM].clone()}))
    refused(folder, f"holds '{NORM}' twice")


def test_vocabulary_larger_than_the_embedding(folder: Path) -> None:
    num_rows = json.loads((folder / "config.json").read_text())["vocab_size"]
    write_tokenizer(folder, num_rows)
    bertkit.load(folder)
    write_tokenizer(folder, num_rows + 1)
    refused(folder, f"vocabulary has {num_rows + 1} entries, the word embedding has only {num_rows} rows")


# --- config.json and its neighbors ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "xlnet"}, "model_type='xlnet'; supported: 'bert'"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type='relative_key'; supported: 'absolute'"),
        ({"position_embedding_type": "relative_key_query"}, "position_embedding_type"),
        ({"is_decoder": True}, "is_decoder=True"),
        ({"add_cross_attention": True}, "add_cross_attention"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings=False"),
        ({"pruned_heads": {"0": [1]}}, "pruned_heads"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"hidden_act": "mish"}, "hidden_act='mish': expected one of gelu"),
        ({"num_attention_heads": 7}, "not a multiple of num_attention_heads"),
        ({"hidden_size": 0}, "hidden_size=0"),
        ({"hidden_size": None}, "lacks hidden_size"),
        ({"hidden_dropout_prob": "a lot"}, "hidden_dropout_prob|dropout"),
        ({"layer_norm_eps": "small"}, "layer_norm_eps"),
        ({"layer_norm_eps": -1.0}, "layer_norm_eps"),
        ({"vocab_size": 10**19}, "stored as|vocab_size"),
        ({"num_labels": "three"}, "num_labels"),
        ({"classifier_dropout": "none"}, "classifier_dropout"),
        ({"architectures": {"0": "BertModel"}}, "architectures"),
        ({"id2label": {"zero": "a"}}, "expected a map from integers"),
        ({"id2label": ["a", "b"]}, "expected a map from integers"),
        ({"id2label": {"0": "a", "2": "b"}}, r"ids of id2label are \[0, 2\]"),
    ],
)  # fmt: skip
def test_config_that_cannot_be_honored(folder: Path, change: dict, message: str) -> None:
    edit_json(folder / "config.json", **change)
    refused(folder, message)


def test_absurd_number_of_layers_raises_before_building(folder: Path) -> None:
    edit_json(folder / "config.json", num_hidden_layers=10_000)
    seconds = []
    for _ in range(3):
        start = time.process_time()
        refused(folder, "layer")
        seconds.append(time.process_time() - start)
    assert min(seconds) < 1


def test_unknown_config_key_raises_unless_ignored(folder: Path) -> None:
    edit_json(folder / "config.json", attention_temperature=2.0, rope_theta=1e4)
    refused(folder, r"unknown keys \(attention_temperature, rope_theta\).*ignore_config_keys")
    refused(folder, r"unknown keys \(rope_theta\)", ignore_config_keys=["attention_temperature"])
    bertkit.load(folder, ignore_config_keys=["attention_temperature", "rope_theta"])


def test_labels_that_the_classifier_does_not_have(tmp_path: Path) -> None:
    save_published(published_model("sequence_classification", 4, num_labels=3), tmp_path)
    edit_json(tmp_path / "config.json", id2label={"0": "a", "1": "b"})
    refused(tmp_path, "config names 2 labels, the classifier has 3")
    for number in (2, 10**15):
        edit_json(tmp_path / "config.json", id2label=None, label2id=None, num_labels=number)
        refused(tmp_path, f"config names {number} labels, the classifier has 3")
    edit_json(tmp_path / "config.json", num_labels=3)
    assert bertkit.load(tmp_path).checkpoint.label_names == ("LABEL_0", "LABEL_1", "LABEL_2")


@pytest.mark.parametrize(
    "name", ["config.json", "tokenizer_config.json", "tokenizer.json", "bertkit.json", "modules.json"]
)
@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe\x00", b'{"a": 1', b"[" * 100_000, b"3", b'"text"'])
def test_malformed_json(folder: Path, name: str, content: bytes) -> None:
    (folder / name).write_bytes(content)
    refused(folder, f"{name} (is not readable JSON|holds a JSON|: expected)|{name}: expected")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"format": 2}, "bertkit.json has format 2, expected 1: update bertkit"),
        ({}, "bertkit.json was not made by this version of bertkit: make the model again"),
        ({"format": True}, "bertkit.json was not made by this version of bertkit"),
    ],
)
def test_record_of_another_version(folder: Path, content: object, message: str) -> None:
    (folder / "bertkit.json").write_text(json.dumps(content))
    refused(folder, message)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("bertkit.json", {"format": 1, "provenance": ["a"]}),
        ("bertkit.json", {"format": 1, "provenance": {NORM: "loaded"}}),
        ("tokenizer_config.json", {"cls_token": 3}),
        ("tokenizer_config.json", {"cls_token": {"text": "[CLS]"}}),
        ("tokenizer_config.json", {"do_lower_case": {"yes": 1}}),
        ("tokenizer.json", {"model": ["WordPiece"]}),
        ("tokenizer.json", {"model": {"type": "BPE"}}),
        ("tokenizer.json", {"model": {"type": "WordPiece"}, "normalizer": {"type": "BertNormalizer"},
                            "pre_tokenizer": {"type": "BertPreTokenizer"}, "added_tokens": [{"id": 3}]}),
        ("tokenizer.json", {"model": {"type": "WordPiece", "vocab": {"a": "zero"}},
                            "normalizer": {"type": "BertNormalizer"}, "pre_tokenizer": {"type": "BertPreTokenizer"}}),
        ("modules.json", [{"type": "x.Transformer"}]),
        ("modules.json", [{"type": "x.Transformer", "path": 3}]),
    ],
)  # fmt: skip
def test_json_of_another_shape_than_expected(folder: Path, name: str, content: object) -> None:
    (folder / name).write_text(json.dumps(content))
    with pytest.raises(BertkitError):
        bertkit.load(folder).tokenizer.encode("the cat")


@pytest.mark.parametrize("path", ["../other", "..", "/etc", "a/b", "..\\other", "./."])
def test_modules_outside_the_folder_are_not_read(folder: Path, path: str) -> None:
    (folder / "modules.json").write_text(json.dumps([{"type": "models.Transformer", "path": path}]))
    refused(folder, "modules.json .*folder")


@pytest.mark.parametrize(
    "content", [b"", b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\nthe\n", b"[PAD]\n\xff\n", b"the\ncat\n"]
)
def test_rejects_invalid_vocabulary(folder: Path, content: bytes) -> None:
    (folder / "vocab.txt").write_bytes(content)
    with pytest.raises((CheckpointError, DataError), match=r"vocab|twice|UTF-8|empty"):
        bertkit.load(folder).tokenizer.encode("the cat")
