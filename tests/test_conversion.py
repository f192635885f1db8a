"""Folders of others: pickled weights converted without running code; wrapped names, tensors and config keys left
out."""

import json
import pickle
import zipfile
from argparse import Namespace
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import torch
from random_models import edit_json, edit_tensors, published_model, save_published
from safetensors.torch import load_file

import bertkit
from bertkit.checkpoint.conversion import convert_folder
from bertkit.cli import run
from bertkit.errors import BertkitError, CheckpointError, UsageError

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A published classifier of three labels, as safetensors."""
    folder = tmp_path_factory.mktemp("published")
    return save_published(published_model("sequence_classification", 4, num_labels=3), folder)


@pytest.fixture
def pickled(classifier: Path, tmp_path: Path) -> Path:
    """The same with ``pytorch_model.bin``."""
    for file in classifier.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    torch.save(load_file(tmp_path / "model.safetensors"), tmp_path / "pytorch_model.bin")
    (tmp_path / "model.safetensors").unlink()
    return tmp_path


def values(folder: Path) -> dict[str, torch.Tensor]:
    """The weights; from a pickle, they are removed."""
    if (folder / "model.safetensors").exists():
        return load_file(folder / "model.safetensors")
    loaded = torch.load(folder / "pytorch_model.bin", weights_only=True)
    (folder / "pytorch_model.bin").unlink()
    return loaded


def assert_same(folder: Path, classifier: Path) -> None:
    assert [prediction.probabilities for prediction in bertkit.load(folder).predict(["the cat", "a dog"])] == [
        prediction.probabilities for prediction in bertkit.load(classifier).predict(["the cat", "a dog"])
    ]


def test_error_of_a_pickle_names_a_command_that_keeps_head_and_tokenizer(
    pickled: Path, classifier: Path, capsys
) -> None:
    with pytest.raises(CheckpointError, match=rf"pickle \(pytorch_model.bin\).*bertkit convert {pickled}"):
        bertkit.load(pickled)
    before = {file.name: file.read_bytes() for file in pickled.iterdir()}
    assert run(["convert", str(pickled)]) == 0
    assert "model.safetensors: " in capsys.readouterr().err
    after = {file.name: file.read_bytes() for file in pickled.iterdir()}
    assert after.keys() - before.keys() == {"model.safetensors"}
    assert before.items() <= after.items()
    assert_same(pickled, classifier)


@pytest.mark.parametrize("legacy", [False, True])
def test_both_formats_of_torch_and_memory_that_tensors_share(pickled: Path, classifier: Path, legacy: bool) -> None:
    tensors = values(pickled)
    shared = tensors["classifier.weight"]
    tensors |= {"classifier.weight": torch.cat([shared, shared])[: len(shared)]}  # a part of a larger memory
    state = OrderedDict(tensors) | {"bert.embeddings.position_ids": torch.arange(9).expand(1, -1)}
    torch.save(state, pickled / "pytorch_model.bin", _use_new_zipfile_serialization=not legacy)
    (written,) = convert_folder(pickled)
    assert written == pickled / "model.safetensors"
    assert_same(pickled, classifier)


@pytest.mark.parametrize("member", ["state_dict", "model"])
def test_weights_within_the_checkpoint_of_a_run(pickled: Path, classifier: Path, member: str) -> None:
    content = {member: values(pickled), "epoch": 3, "optimizer": {"state": {0: {"step": 1}}, "param_groups": []}}
    torch.save(content, pickled / "last.ckpt")
    torch.save({"lr": 1.0}, pickled / "optimizer.pt")
    torch.save({"lr": 1.0}, pickled / "training_args.bin")
    convert_folder(pickled)
    assert_same(pickled, classifier)


def test_shards(pickled: Path, classifier: Path) -> None:
    tensors = values(pickled)
    shards = {name: f"pytorch_model-{number % 2}.bin" for number, name in enumerate(tensors)}
    for shard in set(shards.values()):
        torch.save({name: value for name, value in tensors.items() if shards[name] == shard}, pickled / shard)
    (pickled / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": shards}))
    convert_folder(pickled)
    assert_same(pickled, classifier)
    (pickled / "model.safetensors").unlink()
    (pickled / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": shards | {"x": "../y.bin"}}))
    with pytest.raises(CheckpointError, match=r"names the file '../y.bin': only .bin files next to it"):
        convert_folder(pickled)


def test_copy_has_all_other_files_and_no_pickle(pickled: Path, classifier: Path, tmp_path_factory) -> None:
    out = tmp_path_factory.mktemp("out") / "new"
    (pickled / "README.md").write_text("a card")
    (written,) = convert_folder(pickled, out)
    assert written == out / "model.safetensors"
    expected = {file.name for file in pickled.iterdir()} - {"pytorch_model.bin"} | {"model.safetensors"}
    assert {file.name for file in out.iterdir()} == expected
    assert_same(out, classifier)
    for folder, message in [(out, "not empty"), (pickled / "new", "in the input folder")]:
        with pytest.raises(UsageError, match=message):
            convert_folder(pickled, folder)


def test_layers_of_a_sentence_encoder_are_converted_too(encoder: Path, tmp_path: Path) -> None:
    (tmp_path / "2_Dense").mkdir()
    (tmp_path / "1_Pooling").mkdir()
    for file in encoder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    width = json.loads((tmp_path / "config.json").read_text())["hidden_size"]
    modules = [("Transformer", ""), ("Pooling", "1_Pooling"), ("Dense", "2_Dense")]
    (tmp_path / "modules.json").write_text(
        json.dumps([{"type": f"sentence_transformers.models.{kind}", "path": path} for kind, path in modules])
    )
    (tmp_path / "1_Pooling" / "config.json").write_text(
        json.dumps({"word_embedding_dimension": width, "pooling_mode_mean_tokens": True})
    )
    (tmp_path / "2_Dense" / "config.json").write_text(
        json.dumps({"in_features": width, "out_features": 3, "bias": False, "activation_function": "torch.nn.Identity"})
    )
    weight = torch.arange(3.0 * width).reshape(3, width) / width - 1
    torch.save({"linear.weight": weight}, tmp_path / "2_Dense" / "pytorch_model.bin")
    plain = bertkit.load(encoder).embed("the cat", pooling="mean", normalize=False)
    torch.save(values(tmp_path), tmp_path / "pytorch_model.bin")
    (tmp_path / "model.safetensors").unlink()
    assert convert_folder(tmp_path).keys() == {tmp_path / "model.safetensors", tmp_path / "2_Dense/model.safetensors"}
    ours = bertkit.load(tmp_path).embed("the cat", normalize=False)
    assert np.allclose(ours, weight.numpy() @ plain, atol=1e-5)


# --- what is refused -------------------------------------------------------------------------------------------------


class Harmful:
    """Unpickling it leaves a mark."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return Path.touch, (self.mark,)


def test_pointer_of_git_lfs_is_said(pickled: Path) -> None:
    (pickled / "pytorch_model.bin").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:4d\nsize 9\n")
    with pytest.raises(CheckpointError, match=r"pytorch_model.bin is a pointer of Git LFS.*run git lfs pull"):
        convert_folder(pickled)


def test_refuses_what_needs_execution(pickled: Path) -> None:
    harmful, tensors = Harmful(pickled / "mark"), values(pickled)
    for content in (harmful, tensors | {"more": harmful}):
        torch.save(content, pickled / "pytorch_model.bin")
        with pytest.raises(CheckpointError, match=r"is not read, as it names .*run any code"):
            convert_folder(pickled)
        (pickled / "pytorch_model.bin").write_bytes(pickle.dumps(content))
        with pytest.raises(CheckpointError, match=r"is not read, as it is not a pickle of tensors.*run any code"):
            convert_folder(pickled)
    torch.save({"state_dict": tensors, "args": Namespace(lr=1)}, pickled / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"names argparse.Namespace, which is not a tensor"):
        convert_folder(pickled)
    assert not (pickled / "mark").exists()
    assert not (pickled / "model.safetensors").exists()


@pytest.mark.parametrize("size", [0, 1, 100, 5000, -1])
def test_refuses_damaged_files(pickled: Path, size: int) -> None:
    file = pickled / "pytorch_model.bin"
    file.write_bytes(file.read_bytes()[:size])
    with pytest.raises(CheckpointError, match=r"pytorch_model.bin (cannot be read|is not read)"):
        convert_folder(pickled)
    assert not list(pickled.glob("*safetensors*"))


def test_refuses_files_that_unfold_to_more_than_their_size(pickled: Path) -> None:
    file = pickled / "pytorch_model.bin"
    tensors = values(pickled)
    for name, value in {"huge": torch.zeros(1).expand(2**40), "sparse": torch.eye(3).to_sparse()}.items():
        torch.save(tensors | {name: value}, file)
        with pytest.raises(CheckpointError, match="sparse, quantized or repeated"):
            convert_folder(pickled)
    torch.save(tensors, pickled / "stored")
    with zipfile.ZipFile(pickled / "stored") as stored, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as deflated:
        for entry in stored.infolist():
            deflated.writestr(entry.filename, stored.read(entry) + bytes(100_000))
    with pytest.raises(CheckpointError, match="is compressed"):
        convert_folder(pickled)


def test_refuses_unclear_or_missing_weights(pickled: Path, classifier: Path) -> None:
    tensors = values(pickled)
    with pytest.raises(CheckpointError, match="holds no weights"):
        convert_folder(pickled)
    torch.save([1, 2], pickled / "a.pt")
    with pytest.raises(CheckpointError, match=r"a.pt holds list: expected tensors by name"):
        convert_folder(pickled)
    torch.save({"student": tensors, "teacher": tensors}, pickled / "a.pt")
    with pytest.raises(CheckpointError, match=r"a.pt holds student, teacher: expected tensors by name, or one dict"):
        convert_folder(pickled)
    torch.save(tensors, pickled / "b.pt")
    with pytest.raises(CheckpointError, match=r"several pickles \(a.pt, b.pt\)"):
        convert_folder(pickled)
    with pytest.raises(UsageError, match=r"already has its weights as safetensors: choose a new folder with --out"):
        convert_folder(classifier)
    with pytest.raises(UsageError, match="is not a folder"):
        convert_folder(classifier / "config.json")


# --- prefixes, tensors, config keys ----------------------------------------------------------------------------------


def copied(classifier: Path, folder: Path) -> Path:
    folder.mkdir()
    for file in classifier.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    return folder


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "model.", "_orig_mod.module.", "net.encoder."])
def test_prefix_of_a_wrapped_model_is_named_and_taken_off(classifier: Path, tmp_path: Path, prefix: str) -> None:
    folder = copied(classifier, tmp_path / "wrapped")
    edit_tensors(folder, lambda tensors: wrap(tensors, prefix))
    command = f"bertkit convert {folder} --out NEW_FOLDER --prefix {prefix}"
    with pytest.raises(CheckpointError, match=f"lacks .* tensors.*the prefix '{prefix}': take it off with {command}$"):
        bertkit.load(folder)
    arguments = command.replace("NEW_FOLDER", str(tmp_path / "new")).split()[1:]
    assert run(arguments) == 0
    assert_same(tmp_path / "new", classifier)


def wrap(tensors: dict[str, torch.Tensor], prefix: str) -> None:
    for name in list(tensors):
        tensors[prefix + name] = tensors.pop(name)


def test_prefix_of_an_encoder_whose_names_have_no_prefix(encoder: Path, tmp_path: Path) -> None:
    folder = copied(encoder, tmp_path / "wrapped")

    def change(tensors: dict[str, torch.Tensor]) -> None:
        for name in list(tensors):
            tensors[f"model.{name.removeprefix('bert.')}"] = tensors.pop(name)

    edit_tensors(folder, change)
    with pytest.raises(CheckpointError, match=r"the prefix 'model\.': take it off"):
        bertkit.load(folder)
    convert_folder(folder, tmp_path / "new", prefix="model.")
    assert np.array_equal(bertkit.load(tmp_path / "new").embed("the cat"), bertkit.load(encoder).embed("the cat"))


def test_tensors_and_keys_are_left_out_as_the_errors_advise(classifier: Path, tmp_path: Path) -> None:
    folder = copied(classifier, tmp_path / "more")
    extra = {"cls.species.weight": torch.ones(2), "cls.species.bias": torch.ones(2), "scale": torch.ones(1)}
    edit_tensors(folder, lambda tensors: tensors.update(extra))
    edit_json(folder / "config.json", rope_theta=1.0)
    number = 0
    while True:
        try:
            assert_same(folder, classifier)
            break
        except CheckpointError as error:
            advice = str(error).partition("bertkit convert ")[2].replace("'", "").split()
        out = tmp_path / f"new{(number := number + 1)}"
        assert run(["convert", *(str(out) if word == "NEW_FOLDER" else word for word in advice)]) == 0
        folder = out
    assert number == 2
    assert extra.keys().isdisjoint(load_file(folder / "model.safetensors"))
    folder = tmp_path / "more"
    bertkit.load(folder, ignore_tensors=["cls.species.*", "scale"], ignore_config_keys=["rope_theta"])
    with pytest.raises(CheckpointError, match=r"lacks: scale; pass ignore_tensors=\['scale'\]"):
        bertkit.load(folder, ignore_tensors=["cls.*"], ignore_config_keys=["rope_theta"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prefix": "module."}, r"no tensor of .* has the prefix 'module\.'"),
        ({"ignore_tensors": ["cls.extra.*"]}, r"no tensor of .* matches 'cls.extra.\*'"),
        ({"ignore_config_keys": ["rope_theta"]}, "config.json has no keys rope_theta"),
    ],
)
def test_refuses_options_without_effect(pickled: Path, options: dict, message: str) -> None:
    with pytest.raises(BertkitError, match=message):
        convert_folder(pickled, **options)
    assert not (pickled / "model.safetensors").exists()


# --- keys of older configs -------------------------------------------------------------------------------------------


def test_number_of_labels_of_older_configs(classifier: Path, tmp_path: Path) -> None:
    folder = copied(classifier, tmp_path / "old")
    defaults = {"id2label": {"0": "LABEL_0", "1": "LABEL_1"}, "label2id": {"LABEL_0": 0, "LABEL_1": 1}}
    edit_json(folder / "config.json", num_labels=3, eos_token_ids=0, **defaults)
    (prediction,) = bertkit.load(folder).predict(["the cat"])
    assert list(prediction.probabilities) == ["LABEL_0", "LABEL_1", "LABEL_2"]
    edit_json(folder / "config.json", num_labels=4)
    with pytest.raises(CheckpointError, match=r"config names 4 labels, the classifier has 3: correct id2label"):
        bertkit.load(folder)
    edit_json(folder / "config.json", id2label={"0": "no", "1": "yes"}, num_labels=3)
    keys = ["id2label", "num_labels"]
    with pytest.raises(CheckpointError, match=r"config names 2 labels.*--ignore-config-keys id2label num_labels"):
        bertkit.load(folder)
    (prediction,) = bertkit.load(folder, ignore_config_keys=keys).predict(["the cat"])
    assert list(prediction.probabilities) == ["LABEL_0", "LABEL_1", "LABEL_2"]
    convert_folder(folder, tmp_path / "new", ignore_config_keys=keys)
    assert bertkit.load(tmp_path / "new").predict(["the cat"]) == [prediction]
