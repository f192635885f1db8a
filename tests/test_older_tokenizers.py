"""Tokenizers of RoBERTa, XLM-R, CamemBERT, ALBERT, DeBERTa and MPNet, published with and without a tokenizer.json.

The reference is what transformers' converters make of the same files, run by the ``tokenizers`` library.
"""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import sentencepiece
import tokenizers
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from random_models import edit_json, vocabulary_tokens
from test_library_tokenizer import CORPUS, TEXTS, byte_level, check
from tokenizers import AddedToken
from transformers.convert_slow_tokenizer import (
    AlbertConverter,
    CamembertConverter,
    DebertaV2Converter,
    XLMRobertaConverter,
)

from bertkit import Tokenizer
from bertkit.errors import CheckpointError
from bertkit.tokenizer.wordpiece import WordPiece

ANGLED = ["<s>", "<pad>", "</s>", "<unk>", AddedToken("<mask>", lstrip=True, normalized=False)]
SQUARE = ["[CLS]", "[SEP]", "[PAD]", "[UNK]", "[MASK]"]


def _sentencepiece(path: Path, **options) -> None:
    (path.parent / "corpus.txt").write_text("\n".join(CORPUS))
    sentencepiece.SentencePieceTrainer.train(
        input=str(path.parent / "corpus.txt"), model_prefix=str(path.with_suffix("")), vocab_size=100,
        hard_vocab_limit=False, minloglevel=2, **options,
    )  # fmt: skip
    (path.parent / "corpus.txt").unlink()


def converted(converter: type, path: Path, added: list, **settings) -> tokenizers.Tokenizer:
    """What a converter of transformers makes of a SentencePiece model, and the special tokens that its class adds."""
    names: dict[str, int] = {}
    slow = SimpleNamespace(vocab_file=str(path), convert_tokens_to_ids=lambda name: names.get(name, 0), **settings)
    names |= converter(slow).converted().get_vocab()
    library = converter(slow).converted()
    library.add_special_tokens(added)
    return library


def roberta(folder: Path) -> tokenizers.Tokenizer:
    trained = json.loads(byte_level().to_str())["model"]
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in trained["merges"]]
    entries = ["<s>", "<pad>", "</s>", "<unk>", *(t for t in trained["vocab"] if t[0] not in "[|"), "<mask>"]
    (folder / "vocab.json").write_text(json.dumps({token: index for index, token in enumerate(entries)}))
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges, ""]), encoding="utf-8")
    return roberta_of(folder)


def roberta_of(folder: Path) -> tokenizers.Tokenizer:
    """What transformers makes of vocab.json and merges.txt."""
    library = transformers.RobertaTokenizer(
        vocab=str(folder / "vocab.json"), merges=str(folder / "merges.txt")
    ).backend_tokenizer
    content = json.loads(library.to_str())
    for token in content["added_tokens"]:  # as published; transformers 5 leaves the flag out
        token["lstrip"] = token["content"] == "<mask>"
    return tokenizers.Tokenizer.from_str(json.dumps(content))


def xlm_r(folder: Path) -> tokenizers.Tokenizer:
    _sentencepiece(folder / "sentencepiece.bpe.model")
    return converted(XLMRobertaConverter, folder / "sentencepiece.bpe.model", ANGLED)


def camembert(folder: Path) -> tokenizers.Tokenizer:
    _sentencepiece(folder / "sentencepiece.bpe.model")
    (folder / "config.json").write_text('{"model_type": "camembert"}')
    added = [*ANGLED, "<s>NOTUSED", "</s>NOTUSED", "<unk>NOTUSED"]
    return converted(CamembertConverter, folder / "sentencepiece.bpe.model", added)


def albert(folder: Path) -> tokenizers.Tokenizer:
    _sentencepiece(
        folder / "spiece.model", control_symbols="[CLS],[SEP],[MASK]", bos_id=-1, eos_id=-1, pad_id=0, unk_id=1,
        user_defined_symbols="(",
    )  # fmt: skip
    options = {"keep_accents": False, "do_lower_case": True}
    added = ["<pad>", "<unk>", "[CLS]", "[SEP]", AddedToken("[MASK]", lstrip=True, normalized=False)]
    return converted(AlbertConverter, folder / "spiece.model", added, **options)


def deberta(folder: Path) -> tokenizers.Tokenizer:
    _sentencepiece(
        folder / "spm.model", bos_id=1, eos_id=2, pad_id=0, unk_id=3, bos_piece="[CLS]", eos_piece="[SEP]",
        pad_piece="[PAD]", unk_piece="[UNK]",
    )  # fmt: skip
    options = {"do_lower_case": False, "split_by_punct": False}
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": False, "vocab_type": "spm"}))
    return converted(DebertaV2Converter, folder / "spm.model", SQUARE, **options)


def mpnet(folder: Path) -> tokenizers.Tokenizer:
    tokens = ["<s>", "<pad>", "</s>", "<unk>", *vocabulary_tokens(110), "<mask>"]
    (folder / "vocab.txt").write_text("".join(token + "\n" for token in tokens))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "MPNetTokenizer"}))
    names = {token: token_id for token_id, token in enumerate(tokens)}
    library = transformers.MPNetTokenizer(vocab=names).backend_tokenizer
    library.post_processor = tokenizers.processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return library


KINDS: dict[str, Callable[[Path], tokenizers.Tokenizer]] = {
    kind.__name__: kind for kind in (roberta, xlm_r, camembert, albert, deberta, mpnet)
}


_PREFIX = {"type": "Metaspace", "replacement": "▁", "add_prefix_space": True}
_ALWAYS = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}


def _replace(pattern: str, content: str) -> dict:
    return {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}


MAP, STRIP = "map of characters", {"type": "Strip", "strip_left": False, "strip_right": True}
CAMEMBERTS: dict[str, tuple[list, dict, dict, dict]] = {  # normalizers, splitting, flags of <mask>, special tokens
    "camembert-base": (
        [MAP], {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, _PREFIX | {"str_rep": "▁"}]},
        {"lstrip": True, "normalized": True}, {3: "<unk>"},
    ),
    "camembert-large": (
        [MAP, STRIP, _replace(" {2,}", "▁")], _ALWAYS, {"lstrip": True}, {3: "<unk>", 4: "<unk>NOTUSED"},
    ),
    "saved by transformers 4": (
        [MAP, _replace(" {2,}", " ")], _PREFIX, {"lstrip": True, "normalized": True}, {3: "<unk>"},
    ),
    "saved by transformers 5": (
        [_replace(r"\s{2,}|[\n\r\t]", " "), STRIP], _ALWAYS, {}, {4: "<unk>", -1: "<unk>NOTUSED"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("spelling", CAMEMBERTS)
def test_published_spellings_of_camembert(spelling: str, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    content = json.loads(camembert(tmp_path / "model").to_str())
    normalizers, splitting, mask, special = CAMEMBERTS[spelling]
    entries, size = content["model"]["vocab"], len(content["model"]["vocab"])
    entries[4][0] = special.get(4, "<unk>NOTUSED")  # "saved by transformers 5" has "<unk>" twice
    special |= {0: "<s>NOTUSED", 1: "<pad>", 2: "</s>NOTUSED", 5: "<s>", 6: "</s>", size - 1: "<mask>"}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    content["added_tokens"] = [
        {"id": number % (size + 1), "content": token, **flags, **(mask if token == "<mask>" else {})}
        for number, token in sorted(special.items(), key=lambda item: item[0] % (size + 1))
    ]
    characters = next(one for one in content["normalizer"]["normalizers"] if one["type"] == "Precompiled")
    content["normalizer"]["normalizers"] = [characters if one is MAP else one for one in normalizers]
    content["pre_tokenizer"] = splitting
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    ours = Tokenizer.load(tmp_path)
    assert len(ours.vocabulary) == size and ours.vocabulary.id("<unk>") == 3
    texts = [*TEXTS, "a <mask> b", "<mask>two", "l'été  à\tParis\n", "日本 xyz", " lead", "Ⅷ ﬁ … ½"]
    check(ours, theirs, texts)
    check(ours, theirs, texts, texts[::-1])
    assert 3 in ours.encode("日本 xyz").input_ids


@pytest.fixture(scope="module", params=KINDS)
def folders(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A folder of older files, and one with the equivalent tokenizer.json, without names of special tokens."""
    older, newer = tmp_path_factory.mktemp("older"), tmp_path_factory.mktemp("newer")
    KINDS[request.param](older).save(str(newer / "tokenizer.json"))
    return older, newer


@pytest.fixture(scope="module")
def theirs(folders: tuple[Path, Path]) -> transformers.PreTrainedTokenizerFast:
    return transformers.PreTrainedTokenizerFast(tokenizer_file=str(folders[1] / "tokenizer.json"))


@pytest.fixture(scope="module", params=["older", "newer", "saved"])
def ours(folders: tuple[Path, Path], request: pytest.FixtureRequest, tmp_path_factory) -> Tokenizer:
    older, newer = folders
    if request.param == "newer":
        return Tokenizer.load(newer)
    if request.param == "older":
        return Tokenizer.load(older)
    saved = tmp_path_factory.mktemp("saved")
    Tokenizer.load(older).save(saved)
    return Tokenizer.load(saved)


def test_texts_and_pairs(ours: Tokenizer, theirs: transformers.PreTrainedTokenizerFast) -> None:
    names = ours.vocabulary.special
    texts = [*TEXTS, f"a {names.mask} b", f"``one'' {names.mask}two", "1, 2,345", "Ⅷ ﬁ … ½", " lead", "ab Ġ ▁ x"]
    check(ours, theirs, texts)
    check(ours, theirs, texts, texts[::-1])
    assert ours.encode(f"cat {names.mask} dog", special_tokens_in_text=True).input_ids.tolist().count(ours.mask_id) == 1
    assert {names.pad, names.cls, names.sep, names.mask, names.unk} <= set(ours.vocabulary.tokens)


@pytest.mark.full(sample=1)
@settings(max_examples=25, deadline=None)
@given(text=st.text(max_size=30), pair=st.text(max_size=9))
def test_any_text(ours: Tokenizer, theirs: transformers.PreTrainedTokenizerFast, text: str, pair: str) -> None:
    check(ours, theirs, [text], [pair])


@pytest.mark.full(sample=1)
def test_real_lines(ours: Tokenizer, theirs: transformers.PreTrainedTokenizerFast, shared_data: Path) -> None:
    files = sorted((shared_data / "udhr2").rglob("*"))[::17]
    lines = [line for file in files if file.is_file() for line in file.read_text("utf-8", errors="ignore").split("\n")]
    check(ours, theirs, lines[::23], lines[1::23][: len(lines[::23])])


def test_saved_folders_open_in_transformers(ours: Tokenizer, theirs, tmp_path: Path) -> None:
    ours.save(tmp_path)
    reopened = transformers.AutoTokenizer.from_pretrained(tmp_path)
    texts = [text for text in TEXTS if "[" not in text]
    for pair in (None, texts[::-1]):
        assert reopened(texts, pair)["input_ids"] == theirs(texts, pair)["input_ids"]
    assert (reopened.pad_token, reopened.mask_token) == (ours.vocabulary.special.pad, ours.vocabulary.special.mask)


def test_windows_own_every_token_once(ours: Tokenizer) -> None:
    text, question = " ".join([*CORPUS[:2], "日本語 naïve"] * 3), "the cat"
    whole = ours.encode(question, text)
    windows = ours.encode_batch([question], [text], max_length=40, on_long="window")
    owned = [token for window in windows for token in window.input_ids[slice(*window.owned)].tolist()]
    assert len(windows) > 2 and owned == whole.input_ids.tolist()


def test_mpnet_is_run_by_our_engine(tmp_path: Path, shared_data: Path) -> None:
    vocabulary = (shared_data / "bert_reference" / "bert-base-uncased" / "vocab.txt").read_text().splitlines()
    tokens = ["<s>", "<pad>", "</s>", "<unk>", *vocabulary, "<mask>"]  # as microsoft/MPNet's dict.txt
    (tmp_path / "vocab.txt").write_text("".join(token + "\n" for token in tokens))
    (tmp_path / "config.json").write_text('{"model_type": "mpnet"}')
    tokenizer = Tokenizer.load(tmp_path)
    assert isinstance(tokenizer.engine, WordPiece) and len(tokenizer.vocabulary) == 30_527
    assert tokenizer.encode("hello world").input_ids.tolist() == [0, 7596, 2092, 2]
    pair = tokenizer.encode("hello", "world")
    assert pair.input_ids.tolist() == [0, 7596, 2, 2, 2092, 2] and not pair.token_type_ids.any()
    masked = tokenizer.encode("hello <mask>world", special_tokens_in_text=True)
    assert masked.input_ids.tolist() == [0, 7596, 30526, 2092, 2] and masked.offsets[2].tolist() == [6, 12]


@pytest.mark.parametrize("first", [["<mask>", 7], ["[CLS]", 7], [], "<s>"])
def test_templates_of_other_tokens_raise(first: object, tmp_path: Path) -> None:
    mpnet(tmp_path).save(str(tmp_path / "tokenizer.json"))
    edit_json(tmp_path / "tokenizer.json", post_processor={
        "type": "RobertaProcessing", "sep": ["</s>", 2], "cls": first, "trim_offsets": True,
        "add_prefix_space": False,
    })  # fmt: skip
    with pytest.raises(
        CheckpointError, match=r"its template has other tokens than <s> and </s>|cls is '<s>', expected"
    ):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize("kind", ["xlm_r", "albert", "deberta"])
def test_damaged_sentencepiece_models_raise(kind: str, tmp_path: Path) -> None:
    KINDS[kind](tmp_path)
    (path,) = tmp_path.glob("*.model")
    data = path.read_bytes()
    for damaged in (data[:-3], data[:700], b"", b"\xff" * 99, b"\x0e" + data):
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError, match=rf"{path.name}|SentencePiece model lacks"):
            Tokenizer.load(tmp_path)


def test_sentencepiece_models_of_another_kind_raise(tmp_path: Path) -> None:
    _sentencepiece(tmp_path / "spm.model", model_type="bpe")
    with pytest.raises(CheckpointError, match="not a Unigram model"):
        Tokenizer.load(tmp_path)
    _sentencepiece(tmp_path / "spm.model")
    with pytest.raises(CheckpointError, match=r"the SentencePiece model lacks \[UNK\]"):
        Tokenizer.load(tmp_path)


def test_vocabularies_without_special_tokens_raise(tmp_path: Path) -> None:
    roberta(tmp_path)
    edit_json(tmp_path / "vocab.json", **{"<mask>": None})
    with pytest.raises(CheckpointError, match=r"vocab.json lacks <mask>: expected RoBERTa's vocabulary"):
        Tokenizer.load(tmp_path)
