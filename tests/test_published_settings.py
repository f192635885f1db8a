"""Settings of published tokenizers outside their vocabulary: the same tokens as transformers', or an error."""

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import transformers
from random_models import edit_json, vocabulary_tokens, write_vocabulary
from test_library_tokenizer import CORPUS
from test_older_tokenizers import albert, deberta, roberta, xlm_r
from tokenizers import processors

from bertkit import Tokenizer
from bertkit.errors import CheckpointError, DataError

TEXTS = ["the cat has covid", "The Café cat", "Covid-zikas 猫猫 zika", " un able"]
TOKENS = vocabulary_tokens(99)


def assert_same_tokens(folder: Path, texts: list[str] = TEXTS, **options: Any) -> None:
    theirs, ours = transformers.AutoTokenizer.from_pretrained(folder, **options), Tokenizer.load(folder)
    for text in texts:
        assert ours.encode(text).input_ids.tolist() == theirs(text).input_ids, text


def stated(content: str, **flags: bool) -> dict[str, Any]:
    """An added token, as in added_tokens_decoder."""
    usual = {"lstrip": False, "rstrip": False, "single_word": False, "normalized": True, "special": False}
    return {"content": content} | usual | flags


def test_added_tokens_next_to_a_vocabulary(tmp_path: Path) -> None:
    write_vocabulary(tmp_path, TOKENS)
    (tmp_path / "added_tokens.json").write_text(json.dumps({"zika": 100, "covid": 99}))
    assert_same_tokens(tmp_path)
    assert Tokenizer.load(tmp_path).encode("covid").input_ids.tolist() == [2, 99, 3]
    (tmp_path / "saved").mkdir()
    Tokenizer.load(tmp_path).save(tmp_path / "saved")
    assert_same_tokens(tmp_path / "saved")
    special = {str(number): stated(TOKENS[number], normalized=False, special=True) for number in range(5)}
    added = special | {"99": stated("covid", single_word=True), "100": stated("Zika", normalized=False)}
    edit_json(tmp_path / "tokenizer_config.json", added_tokens_decoder=added)
    assert_same_tokens(tmp_path)


@pytest.mark.parametrize("make", [albert, deberta, roberta, xlm_r])
def test_added_tokens_next_to_older_files(make: Any, tmp_path: Path) -> None:
    size = make(tmp_path).get_vocab_size()
    before = Tokenizer.load(tmp_path)
    (tmp_path / "added_tokens.json").write_text(json.dumps({"covid": size}))
    tokenizer = Tokenizer.load(tmp_path)
    assert len(tokenizer.vocabulary) == size + 1
    assert tokenizer.encode("covid").input_ids[1:-1].tolist() == [size]
    for text in CORPUS:
        assert tokenizer.encode(text).input_ids.tolist() == before.encode(text).input_ids.tolist()


@pytest.mark.parametrize("added", [{"covid": 7}, {"the": 99}, {"covid": 101}])
def test_added_tokens_with_other_ids_are_refused(added: dict[str, int], tmp_path: Path) -> None:
    write_vocabulary(tmp_path, TOKENS)
    (tmp_path / "added_tokens.json").write_text(json.dumps(added))
    with pytest.raises(
        (CheckpointError, DataError), match=r"disagree on the id of 'the': \d+ and 99|gap or a duplicate"
    ):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize(
    ("make", "settings", "named"),
    [
        (None, {"tokenizer_class": "BertJapaneseTokenizer"}, "BertJapaneseTokenizer"),
        (None, {"tokenizer_class": None, "word_tokenizer_type": "mecab"}, "BertJapaneseTokenizer"),
        (None, {"subword_tokenizer_type": "character"}, "BertTokenizer"),
        (None, {"tokenizer_class": "PhobertTokenizer"}, "PhobertTokenizer"),
        (roberta, {"tokenizer_class": "HerbertTokenizer"}, "HerbertTokenizer"),
        (albert, {"tokenizer_class": "T5Tokenizer"}, "T5Tokenizer"),
        (xlm_r, {"tokenizer_class": "BarthezTokenizerFast"}, "BarthezTokenizer"),
    ],
)
@pytest.mark.parametrize("file", ["tokenizer_config.json", "config.json"])
def test_classes_that_make_other_tokens_are_refused(
    make: Any, settings: dict[str, Any], named: str, file: str, tmp_path: Path
) -> None:
    if make is None:
        write_vocabulary(tmp_path, TOKENS)
        edit_json(tmp_path / "tokenizer_config.json", tokenizer_class=None)
    else:
        make(tmp_path)
    if "tokenizer_class" in settings and len(settings) == 1:
        (tmp_path / file).write_text(json.dumps(settings))
    else:
        edit_json(tmp_path / "tokenizer_config.json", **settings)
        named = "BertJapaneseTokenizer"
    with pytest.raises(CheckpointError, match=f"the tokenizer_class {named}, which makes other tokens"):
        Tokenizer.load(tmp_path)


def saved(folder: Path, **options: Any) -> None:
    """Save a tokenizer of transformers."""
    write_vocabulary(folder, TOKENS)
    transformers.BertTokenizerFast(vocab=str(folder / "vocab.txt"), **options).save_pretrained(folder)
    (folder / "vocab.txt").unlink()


@pytest.mark.parametrize(
    "settings", [{"do_lower_case": False}, {"strip_accents": False}, {"tokenize_chinese_chars": False}, {}]
)
def test_settings_of_the_config_replace_those_of_the_tokenizer(settings: dict[str, Any], tmp_path: Path) -> None:
    saved(tmp_path)
    lower = Tokenizer.load(tmp_path)
    edit_json(tmp_path / "tokenizer_config.json", **settings)
    assert_same_tokens(tmp_path)
    same = [Tokenizer.load(tmp_path).normalize(text) == lower.normalize(text) for text in TEXTS]
    assert all(same) == (not settings)


def test_space_before_a_text_as_in_the_config(tmp_path: Path) -> None:
    roberta(tmp_path)
    config = tmp_path / "tokenizer_config.json"
    config.write_text(json.dumps({"tokenizer_class": "RobertaTokenizer", "add_prefix_space": False}))
    without = Tokenizer.load(tmp_path)
    (tmp_path / "saved").mkdir()
    without.save(tmp_path / "saved")
    for folder in (tmp_path, tmp_path / "saved"):
        edit_json(folder / "tokenizer_config.json", tokenizer_class="RobertaTokenizer", add_prefix_space=True)
        tokenizer = Tokenizer.load(folder)
        assert tokenizer.encode("the cat").input_ids.tolist() == without.encode(" the cat").input_ids.tolist()
        assert tokenizer.encode("the cat").input_ids.tolist() != without.encode("the cat").input_ids.tolist()
        theirs = transformers.AutoTokenizer.from_pretrained(folder)("the cat", "a", return_offsets_mapping=True)
        assert list(map(tuple, tokenizer.encode("the cat", "a").offsets.tolist())) == theirs["offset_mapping"]


OF_BERT = processors.TemplateProcessing("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", [("[CLS]", 2), ("[SEP]", 3)])
WITHOUT_END = processors.TemplateProcessing("[CLS] $A", "[CLS] $A $B:1", [("[CLS]", 2)])


def with_template(folder: Path, template: Any, name: str) -> None:
    """Change the template of special tokens in a folder, and the class of its tokenizer."""
    path = folder / "tokenizer.json"
    library = tokenizers.Tokenizer.from_file(str(path))
    if template is not None:
        library.post_processor = template
    content = json.loads(library.to_str())
    path.write_text(json.dumps(content if template is not None else content | {"post_processor": None}))
    edit_json(folder / "tokenizer_config.json", tokenizer_class=name)


@pytest.mark.parametrize(
    "template", [processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2)), OF_BERT, processors.Sequence([OF_BERT])]
)
def test_templates_in_other_spellings(template: Any, tmp_path: Path) -> None:
    saved(tmp_path)
    expected = Tokenizer.load(tmp_path)
    with_template(tmp_path, template, "PreTrainedTokenizerFast")
    tokenizer = Tokenizer.load(tmp_path)
    for texts in (("the cat",), ("the cat", "a dog")):
        made, ours = tokenizer.encode(*texts), expected.encode(*texts)
        assert made.input_ids.tolist() == ours.input_ids.tolist()
        assert made.token_type_ids.tolist() == ours.token_type_ids.tolist()


@pytest.mark.parametrize("name", ["PreTrainedTokenizerFast", "TokenizersBackend"])
@pytest.mark.parametrize("template", [None, processors.Sequence([WITHOUT_END])])
def test_templates_without_special_tokens_are_refused(template: Any, name: str, tmp_path: Path) -> None:
    saved(tmp_path)
    with_template(tmp_path, template, name)
    with pytest.raises(CheckpointError, match=r"its template makes .* which is not supported"):
        Tokenizer.load(tmp_path)


def test_berts_class_adds_special_tokens_without_a_template(tmp_path: Path) -> None:
    saved(tmp_path)
    with_template(tmp_path, None, "BertTokenizer")
    assert_same_tokens(tmp_path)


def test_older_name_of_the_maximum_length(tmp_path: Path) -> None:
    write_vocabulary(tmp_path, TOKENS)
    edit_json(tmp_path / "tokenizer_config.json", max_len=20)
    assert Tokenizer.load(tmp_path).model_max_length == 20
    edit_json(tmp_path / "tokenizer_config.json", model_max_length=30)
    assert Tokenizer.load(tmp_path).model_max_length == 30
