"""Settings of published tokenizers outside their vocabulary: the same tokens as transformers', or an error."""

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import transformers
from random_models import edit_json, vocabulary_tokens, write_vocabulary
from test_library_tokenizer import CORPUS
from test_older_tokenizers import albert, deberta, mpnet, roberta, xlm_r
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


def test_letter_case_that_the_config_does_not_state_is_said(tmp_path: Path) -> None:
    saved(tmp_path, do_lower_case=False, strip_accents=True)
    with warnings.catch_warnings(action="error"):
        expected = Tokenizer.load(tmp_path).normalize(TEXTS[1])
    edit_json(tmp_path / "tokenizer_config.json", do_lower_case=None)
    with pytest.warns(
        UserWarning, match="has lowercase=False, .* not state do_lower_case, and .* takes True: .*; write"
    ):
        assert Tokenizer.load(tmp_path).normalize(TEXTS[1]) == expected == "The Cafe cat"
    edit_json(tmp_path / "tokenizer_config.json", do_lower_case=False, strip_accents=None)
    with pytest.warns(UserWarning, match="strip_accents=True, .* takes None: "):
        Tokenizer.load(tmp_path)


def test_special_tokens_that_are_split_are_refused(tmp_path: Path) -> None:
    saved(tmp_path, additional_special_tokens=["<e1>"])
    edit_json(tmp_path / "tokenizer_config.json", split_special_tokens=True)
    with pytest.raises(CheckpointError, match="split_special_tokens=True; supported: False"):
        Tokenizer.load(tmp_path)


def test_tokens_that_only_other_files_name_are_said(tmp_path: Path) -> None:
    saved(tmp_path)
    with warnings.catch_warnings(action="error"):
        Tokenizer.load(tmp_path)
    edit_json(tmp_path / "tokenizer_config.json", extra_special_tokens=["<e1>", TOKENS[7]])
    with pytest.warns(
        UserWarning, match=r"tokenizer.json lacks the tokens <e1> \(1 in all\) that .*: they are read as text"
    ):
        Tokenizer.load(tmp_path)


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
    edit_json(folder / "tokenizer_config.json", tokenizer_class=name, backend=None)  # as before version 5


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


@pytest.mark.parametrize("is_older", [True, False])
def test_special_tokens_that_two_files_name_differently(is_older: bool, tmp_path: Path) -> None:
    write_vocabulary(tmp_path, [*TOKENS, "[END]"])
    decoder = {"99": stated("[END]", normalized=False, special=True)}
    edit_json(tmp_path / "tokenizer_config.json", sep_token="[SEP]", added_tokens_decoder=None if is_older else decoder)
    (tmp_path / "special_tokens_map.json").write_text(json.dumps({"sep_token": "[END]"}))
    assert_same_tokens(tmp_path)
    assert Tokenizer.load(tmp_path).sep_id == (99 if is_older else 3)


def _bert(folder: Path) -> None:
    write_vocabulary(folder, [*TOKENS, "<e1>"])


@pytest.mark.parametrize("where", ["special_tokens_map.json", "tokenizer_config.json", "added_tokens_decoder"])
@pytest.mark.parametrize(("make", "mask"), [(roberta, "<mask>"), (mpnet, "<mask>"), (_bert, "[MASK]")])
def test_flags_of_special_tokens_as_stated(make: Any, mask: str, where: str, tmp_path: Path) -> None:
    make(tmp_path)
    for file in ("tokenizer_config.json", "special_tokens_map.json"):
        if not (tmp_path / file).exists():
            (tmp_path / file).write_text('{"tokenizer_class": "RobertaTokenizer"}' if "config" in file else "{}")
    texts = [f"the {mask} cat", f"a{mask}b", f"THE {mask.upper()} cat", f"the {mask.lower()} cat", f"{mask} {mask}"]
    tokens = []
    for flags in [{}, {"lstrip": True}, {"rstrip": True}, {"single_word": True}, {"normalized": True}]:
        entry = stated(mask, normalized=False, special=True) | flags
        if where == "added_tokens_decoder":
            number = Tokenizer.load(tmp_path).vocabulary.id(mask)
            edit_json(tmp_path / "tokenizer_config.json", mask_token=mask, added_tokens_decoder={str(number): entry})
        else:
            del entry["special"]
            edit_json(tmp_path / where, mask_token=entry | ({} if "map" in where else {"__type": "AddedToken"}))
        ours, theirs = Tokenizer.load(tmp_path), transformers.AutoTokenizer.from_pretrained(tmp_path)
        tokens.append([ours.encode(text, special_tokens_in_text=True).input_ids.tolist() for text in texts])
        assert tokens[-1] == [theirs(text).input_ids for text in texts], flags
    assert any(other != tokens[0] for other in tokens[1:])


MARKERS = ["<e1>", "</e1>", "[unused0]"]
MARKED = ["<e1> the cat </e1> sat", "the<e1>cat</e1>s", "<e1><e1>  </e1>", "THE <E1> [unused0] cat", "[UNUSED0]<e2>"]


def marked(folder: Path, layout: str) -> None:
    """Markers of entities next to a vocabulary or in a tokenizer.json, added to it or among its entries."""
    names = MARKERS[:2]
    if layout.startswith("saved"):
        saved(folder, additional_special_tokens=names)
        if layout == "saved before 5":
            settings = json.loads((folder / "tokenizer_config.json").read_text())
            edit_json(folder / "tokenizer_config.json", additional_special_tokens=settings.pop("extra_special_tokens"))
        return
    write_vocabulary(folder, [*vocabulary_tokens(99), *MARKERS])
    if layout == "decoder":
        added = {str(99 + number): stated(name, normalized=False, special=True) for number, name in enumerate(MARKERS)}
        edit_json(folder / "tokenizer_config.json", added_tokens_decoder=added)
    elif layout == "added_tokens.json":
        write_vocabulary(folder, vocabulary_tokens(99))
        (folder / "added_tokens.json").write_text(json.dumps({name: 99 + index for index, name in enumerate(names)}))
        (folder / "special_tokens_map.json").write_text(json.dumps({"extra_special_tokens": names}))
    else:
        edit_json(folder / "tokenizer_config.json", **{f"{layout}_special_tokens": MARKERS})


@pytest.mark.parametrize("layout", ["saved", "saved before 5", "decoder", "added_tokens.json", "additional", "extra"])
def test_markers_of_entities_are_one_token_as_in_transformers(layout: str, tmp_path: Path) -> None:
    marked(tmp_path, layout)
    assert_same_tokens(tmp_path, MARKED)
    ours = Tokenizer.load(tmp_path)
    assert ours.encode("<e1>").input_ids.tolist() == [2, ours.vocabulary.id("<e1>"), 3]
    assert ours.decode(ours.encode("<e1> the cat").input_ids) == "the cat"
    assert "[MASK]" not in ours.tokens(ours.encode("<e1> [MASK] </e1>"))
    (tmp_path / "again").mkdir()
    ours.save(tmp_path / "again")
    assert_same_tokens(tmp_path / "again", MARKED)


@pytest.mark.parametrize("make", [roberta, lambda folder: write_vocabulary(folder, vocabulary_tokens(99))])
def test_markers_that_no_vocabulary_has_are_appended(make: Any, tmp_path: Path) -> None:
    make(tmp_path)
    size = len(Tokenizer.load(tmp_path).vocabulary)
    file = tmp_path / "tokenizer_config.json"
    settings = json.loads(file.read_text()) if file.exists() else {"tokenizer_class": "RobertaTokenizer"}
    file.write_text(json.dumps(settings | {"extra_special_tokens": ["<e9>", "</e9>"]}))
    assert_same_tokens(tmp_path, ["a</e9>b<e9>"])
    assert Tokenizer.load(tmp_path).vocabulary.id("</e9>") == size + 1


def test_markers_that_the_tokenizer_json_has_as_plain_entries(tmp_path: Path) -> None:
    write_vocabulary(tmp_path, [*vocabulary_tokens(99), *MARKERS])
    transformers.BertTokenizerFast(vocab=str(tmp_path / "vocab.txt")).save_pretrained(tmp_path)
    (tmp_path / "vocab.txt").unlink()
    assert Tokenizer.load(tmp_path).encode("<e1>").input_ids.tolist() != [2, 99, 3]
    edit_json(tmp_path / "tokenizer_config.json", extra_special_tokens=MARKERS)
    assert_same_tokens(tmp_path, MARKED)


# --- letter case where no file states it -----------------------------------------------------------------------------

CAPITALS = [*"ACDEFGHIKLMNPQRSTVWY", "Paris", "##S"]


def alone(folder: Path, tokens: list[str], end: str = "") -> Path:
    """A vocabulary without a tokenizer_config.json."""
    file = folder / "vocab.txt"
    file.write_text("".join(token + "\n" for token in tokens) + end, encoding="utf-8")
    return file


@pytest.mark.parametrize("settings", [None, {}, {"tokenizer_class": "BertTokenizer"}])
def test_cased_vocabulary_alone_is_recognized_and_said(settings: dict | None, tmp_path: Path) -> None:
    file = alone(tmp_path, [*vocabulary_tokens(5), *CAPITALS])
    if settings is not None:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    message = (
        f"22 of the 27 entries of {file} have uppercase letters, such as 'A'.*: they are not; write .do_lower_case"
    )
    with pytest.warns(UserWarning, match=message):
        ours = Tokenizer.load(tmp_path)
    assert ours.tokens(ours.encode("E V Paris")) == ["[CLS]", "E", "V", "Paris", "[SEP]"]
    with pytest.warns(UserWarning, match="such as 'A'.*: they are not; pass lowercase=True or lowercase=False"):
        assert Tokenizer.load(file).engine.normalization == ours.engine.normalization
    for lowercase in (True, False):
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": lowercase}))
        with warnings.catch_warnings(action="error"):
            assert Tokenizer.load(tmp_path).engine.normalization.lowercase == lowercase
            assert Tokenizer.from_vocab(file, lowercase=lowercase).engine.normalization.lowercase == lowercase


def test_uncased_vocabulary_alone_is_lowercased(tmp_path: Path) -> None:
    file = alone(tmp_path, [*vocabulary_tokens(99), "[NUM]", "[URL_2]"])
    with warnings.catch_warnings(action="error"):
        assert Tokenizer.load(tmp_path).engine.normalization.lowercase
        assert Tokenizer.load(file).engine.normalization.lowercase
    alone(tmp_path, [*vocabulary_tokens(99), "COVID"])
    with pytest.warns(UserWarning, match="1 of the 100 entries of .* such as 'COVID', .*: they are; "):
        assert Tokenizer.load(tmp_path).engine.normalization.lowercase


def test_blank_lines_at_the_end_of_a_vocabulary_are_no_entries(tmp_path: Path) -> None:
    file = alone(tmp_path, TOKENS)
    expected = Tokenizer.load(tmp_path)
    for end in ("\n", "\r\n", "\n\n\n"):
        alone(tmp_path, TOKENS, end)
        assert Tokenizer.load(tmp_path) == Tokenizer.load(file) == expected
    alone(tmp_path, [*TOKENS[:9], "", *TOKENS[9:]])  # ids count lines
    assert Tokenizer.load(tmp_path).vocabulary.id(TOKENS[9]) == 10
    file.write_text("\n\n")
    with pytest.raises(DataError, match="is empty"):
        Tokenizer.load(tmp_path)
