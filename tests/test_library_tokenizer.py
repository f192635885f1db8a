"""Published tokenizers that are not WordPiece: ids, offsets and words equal transformers' for the same file."""

import json
import pickle
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tokenizers
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from random_models import edit_json, randomize
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers

import bertkit
from bertkit import BertConfig, Model, Tokenizer
from bertkit.checkpoint.checkpoint import Provenance
from bertkit.cli import run
from bertkit.corpus.shard_writing import ShardSettings, write_shard
from bertkit.corpus.shards import vocabulary_sha256
from bertkit.errors import CheckpointError, DataError, OverLengthError, UsageError
from bertkit.tokenizer import chunks
from bertkit.tokenizer.library import LibraryTokenizer
from bertkit.vocabulary_extension import find_domain_words

pytestmark = pytest.mark.usefixtures("one_thread", "cached")


@pytest.fixture
def cached(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caches of chunks for the shortest texts, too."""
    monkeypatch.setattr(chunks, "_FEWEST_CHARACTERS", 0)


CORPUS = [
    "The unable cat walked and talked, walking dogs talk and talk.",
    "def walk(dog):\n    return dog.talk  # the dog's name",
    "Ünable naïve café, 日本語の犬 and 1234 cats — the end…",
] * 5

TEXTS = [
    "the unable cat walked",
    "",
    "   two  spaces,\ttabs\nand lines ",
    "caf\u00e9 cafe\u0301 日本 \U0001f600 \u200d x",
    "a [MASK] b <mask> c [SEP]|||IP_ADDRESS|||d",
    "naïve " * 9,
    "def walk(dog): return 12345",
]

MODERN_SETTINGS = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": {"__type": "AddedToken", "content": "[MASK]", "lstrip": True},
    "model_max_length": 37,
    "model_input_names": ["input_ids", "attention_mask"],
}


def byte_level() -> tokenizers.Tokenizer:
    """As ModernBERT's: byte-level BPE, NFC, special tokens after the vocabulary, a mask that takes the space before."""
    library = tokenizers.Tokenizer(models.BPE())
    library.normalizer = normalizers.NFC()
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    library.train_from_iterator(
        CORPUS, trainers.BpeTrainer(vocab_size=350, initial_alphabet=alphabet, show_progress=False)
    )
    library.add_tokens([AddedToken("|||IP_ADDRESS|||", normalized=True), AddedToken("  ", normalized=True)])
    names = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", AddedToken("[MASK]", lstrip=True)]
    library.add_special_tokens(names)
    library.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(name, library.token_to_id(name)) for name in ("[CLS]", "[SEP]")],
    )
    library.enable_truncation(4)  # what a publisher left there does not count
    library.enable_padding(length=9)
    return library


def trimmed() -> tokenizers.Tokenizer:
    """The same with RoBERTa's post-processor: two separators, type 0 alone, offsets without the space before a word."""
    library = byte_level()
    ends = [(name, library.token_to_id(name)) for name in ("[SEP]", "[CLS]")]
    library.post_processor = processors.RobertaProcessing(*ends, trim_offsets=True, add_prefix_space=False)
    return library


def unigram() -> tokenizers.Tokenizer:
    """Other names of special tokens, the second text of type 0, offsets trimmed."""
    library = tokenizers.Tokenizer(models.Unigram())
    library.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    library.pre_tokenizer = pre_tokenizers.Metaspace()
    library.decoder = decoders.Metaspace()
    names = ["<pad>", "<unk>", "<s>", "</s>", "<mask>"]
    trainer = trainers.UnigramTrainer(vocab_size=90, special_tokens=names, unk_token="<unk>", show_progress=False)
    library.train_from_iterator(CORPUS, trainer)
    library.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B </s>", special_tokens=[("<s>", 2), ("</s>", 3)]
    )
    return library


def xlm_r() -> tokenizers.Tokenizer:
    """As XLM-R's: two separators between the texts of a pair, type 0 alone, a mask that takes the space before it."""
    library = tokenizers.Tokenizer(models.Unigram())
    library.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    library.pre_tokenizer = pre_tokenizers.Metaspace()
    library.decoder = decoders.Metaspace()
    names = ["<s>", "<pad>", "</s>", "<unk>", AddedToken("<mask>", lstrip=True)]
    trainer = trainers.UnigramTrainer(vocab_size=120, special_tokens=names, unk_token="<unk>", show_progress=False)
    library.train_from_iterator(CORPUS, trainer)
    library.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return library


def other_wordpiece() -> tokenizers.Tokenizer:
    """WordPiece that is not BERT's: another normalizer and splitter, and a post-processor in a sequence."""
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    library = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    library.normalizer = normalizers.NFKC()
    library.pre_tokenizer = pre_tokenizers.Whitespace()
    library.decoder = decoders.WordPiece()
    library.train_from_iterator(
        CORPUS, trainers.WordPieceTrainer(vocab_size=80, special_tokens=names, show_progress=False)
    )
    library.post_processor = processors.Sequence(
        [processors.ByteLevel(trim_offsets=True), processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))]
    )
    return library


KINDS: dict[str, tuple[Callable[[], tokenizers.Tokenizer], dict]] = {
    "byte-level": (byte_level, MODERN_SETTINGS),
    "trimmed": (trimmed, MODERN_SETTINGS),
    "unigram": (
        unigram,
        {"pad_token": "<pad>", "unk_token": "<unk>", "cls_token": "<s>", "sep_token": "</s>", "mask_token": "<mask>"},
    ),
    "xlm-r": (
        xlm_r,
        {
            "pad_token": "<pad>",
            "unk_token": "<unk>",
            "cls_token": "<s>",
            "sep_token": "</s>",
            "bos_token": "<s>",
            "mask_token": {"__type": "AddedToken", "content": "<mask>", "lstrip": True},
        },
    ),
    "wordpiece": (other_wordpiece, {}),
}


def saved(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tokenizer of KINDS."""
    make, names = KINDS[kind]
    folder = tmp_path_factory.mktemp(kind)
    make().save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(names))
    return folder


@pytest.fixture(scope="module", params=list(KINDS))
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(request.param, tmp_path_factory)


@pytest.fixture(scope="module")
def ours(folder: Path) -> Tokenizer:
    return Tokenizer.load(folder)


def published(folder: Path) -> transformers.PreTrainedTokenizerFast:
    """Without the publisher's truncation and padding settings, which apply only on request."""
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.backend_tokenizer.no_padding()
    return tokenizer


@pytest.fixture(scope="module")
def theirs(folder: Path) -> transformers.PreTrainedTokenizerFast:
    return published(folder)


def check(ours: Tokenizer, theirs, texts: list[str], pairs: list[str] | None = None, special: bool = True) -> None:
    """Ids, types, offsets, words, tokens."""
    encodings = ours.encode_batch(texts, pairs, special_tokens_in_text=special)
    assert len(encodings) == len(texts)
    names = theirs.init_kwargs.get("model_input_names", ["token_type_ids"])  # types, as in transformers 4
    expected = theirs(
        texts,
        pairs,
        return_offsets_mapping=True,
        return_token_type_ids="token_type_ids" in names,
        split_special_tokens=not special,
    )
    types = expected.get("token_type_ids", [[0] * len(ids) for ids in expected["input_ids"]])
    for index, encoding in enumerate(encodings):
        assert encoding.input_ids.tolist() == expected["input_ids"][index]
        assert encoding.token_type_ids.tolist() == types[index]
        inside = ~encoding.special_tokens_mask
        assert [tuple(span) for span in encoding.offsets[inside].tolist()] == [
            span for span, kept in zip(expected["offset_mapping"][index], inside, strict=True) if kept
        ]
        assert [None if word < 0 else word for word in encoding.word_ids.tolist()] == expected.word_ids(index)
        assert ours.tokens(encoding) == theirs.convert_ids_to_tokens(expected["input_ids"][index])
    ids_alone = ours.encode_batch(texts, pairs, special_tokens_in_text=special, with_offsets=False)
    assert ids_alone.input_ids.tolist() == encodings.input_ids.tolist()


def test_texts_are_as_in_transformers(ours: Tokenizer, theirs) -> None:
    assert isinstance(ours.engine, LibraryTokenizer)
    check(ours, theirs, TEXTS)
    check(ours, theirs, TEXTS, TEXTS[::-1])
    ordinary = [text for text in TEXTS if "mask" not in text.lower()]
    assert len(ordinary) == len(TEXTS) - 1
    check(ours, theirs, ordinary, special=False)


def test_special_tokens_are_text_unless_asked_for(ours: Tokenizer) -> None:
    names = ours.vocabulary.special
    text = f"a {names.mask} b{names.sep}{names.cls} {names.unk}{names.pad} c"
    special = ours.vocabulary.special_ids() - {ours.vocabulary.id(names.unk)}
    for written in (text, text.replace(names.mask, f"\uffff{names.mask}").replace(names.sep, f"\uffff{names.sep}")):
        assert not special & set(ours.encode(written).input_ids[1:-1].tolist())
    assert ours.encode(text, special_tokens_in_text=True).input_ids.tolist().count(ours.mask_id) == 1
    if "|||IP_ADDRESS|||" in ours.vocabulary:  # added, and not special
        assert ours.vocabulary.id("|||IP_ADDRESS|||") in ours.encode("at |||IP_ADDRESS|||").input_ids


@pytest.mark.full(sample=1)
@settings(max_examples=150, deadline=None)
@given(text=st.text(max_size=30), pair=st.text(max_size=9))
def test_any_text_equals_transformers(ours: Tokenizer, theirs, text: str, pair: str) -> None:
    check(ours, theirs, [text], [pair])


def test_real_lines_are_as_in_transformers(ours: Tokenizer, theirs, shared_data: Path) -> None:
    files = sorted((shared_data / "udhr2").rglob("*"))[::17]
    lines = [line for file in files if file.is_file() for line in file.read_text("utf-8", errors="ignore").split("\n")]
    assert len(lines) > 500
    check(ours, theirs, lines[::11])


def test_texts_cut_at_their_start(ours: Tokenizer, folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    edit_json(tmp_path / "tokenizer_config.json", truncation_side="left")
    left = Tokenizer.load(tmp_path)
    (tmp_path / "saved").mkdir()
    left.save(tmp_path / "saved")
    theirs, long = published(tmp_path / "saved"), TEXTS[5]
    for tokenizer in (left, Tokenizer.load(tmp_path / "saved")):
        for pair in (None, TEXTS[0], long[::-1]):
            cut = tokenizer.encode(long, pair, max_length=9, on_long="truncate")
            assert cut.input_ids.tolist() == theirs(long, pair, truncation=True, max_length=9)["input_ids"]
    whole, cut = ours.encode(long), left.encode(long, max_length=8, on_long="truncate")
    assert cut.num_tokens_cut == len(whole) - 8
    assert cut.cut_spans == ((int(whole.offsets[1, 0]), int(whole.offsets[-8, 1])),)


def test_side_that_only_the_tokenizer_json_states(tmp_path: Path) -> None:
    library = byte_level()
    library.enable_truncation(4, direction="left")
    save(library, tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(MODERN_SETTINGS))
    ours, theirs = Tokenizer.load(tmp_path), published(tmp_path)
    cut = ours.encode(TEXTS[5], max_length=8, on_long="truncate").input_ids.tolist()
    assert cut == theirs(TEXTS[5], truncation=True, max_length=8)["input_ids"]
    assert ours.truncation_side == "left"
    edit_json(tmp_path / "tokenizer_config.json", truncation_side="right")
    assert Tokenizer.load(tmp_path).truncation_side == "right"


def test_unknown_truncation_side_is_refused(tmp_path: Path) -> None:
    save(byte_level(), tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(MODERN_SETTINGS | {"truncation_side": "middle"}))
    with pytest.raises(CheckpointError, match="truncation_side is 'middle', expected 'right' or 'left'"):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize("max_length", [5, 8])
def test_long_texts(ours: Tokenizer, theirs, max_length: int) -> None:
    long = TEXTS[5]
    cut = ours.encode(long, max_length=max_length, on_long="truncate")
    assert cut.input_ids.tolist() == theirs(long, truncation=True, max_length=max_length)["input_ids"]
    whole = ours.encode(long)
    assert cut.num_tokens_cut == len(whole) - max_length
    pair = ours.encode(TEXTS[0], long, max_length=max_length, on_long="truncate")
    assert pair.input_ids.tolist() == theirs(TEXTS[0], long, truncation=True, max_length=max_length)["input_ids"]
    with pytest.raises(OverLengthError, match=f"more than max_length {max_length}"):
        ours.encode(long, max_length=max_length)
    windows = ours.encode_batch([long], max_length=max_length, on_long="window")
    owned = [token for window in windows for token in window.input_ids[slice(*window.owned)].tolist()]
    assert owned == whole.input_ids.tolist()
    assert all(len(window) <= max_length for window in windows)


def test_decoding(ours: Tokenizer, theirs) -> None:
    ids = ours.encode("the unable cat walked, talking").input_ids.tolist()
    for skip in (True, False):
        expected = theirs.backend_tokenizer.decode(ids, skip_special_tokens=skip)
        assert ours.decode(ids, skip_special_tokens=skip) == expected
    with pytest.raises(DataError, match="outside the vocabulary"):
        ours.decode([len(ours.vocabulary)])


def test_shards_hold_its_tokens(ours: Tokenizer, tmp_path: Path) -> None:
    sentences = ["The cat  walked.", "Dogs talk!", "日本 [MASK] naïve"]
    (tmp_path / "corpus.txt").write_text("\n".join(sentences[:2]) + "\n\n" + sentences[2] + "\n")
    shard = write_shard(tmp_path / "corpus.txt", tmp_path / "shard", ours)
    starts = ["", " ", ""]  # the second sentence is in the document of the first
    texts = [start + " ".join(sentence.split()) for start, sentence in zip(starts, sentences, strict=True)]
    expected = ours.encode_batch(texts)
    assert shard.tokens.tolist() == expected.input_ids[~expected.special_tokens_mask].tolist()
    assert np.diff(shard.sentences).tolist() == (expected.seqlens - 2).tolist()


@pytest.mark.parametrize("space", [" ", ""])
def test_shards_of_running_text_hold_the_tokens_of_the_text(ours: Tokenizer, tmp_path: Path, space: str) -> None:
    """A space between two sentences is part of a token; in Japanese there is none."""
    sentences = ["The cat walked.", "Dogs talk, and talk.", "Cats walk."] if space else ["犬は歩く。", "猫も歩く。"]
    (tmp_path / "text.txt").write_text(space.join(sentences) + "\n")
    shard = write_shard(tmp_path / "text.txt", tmp_path / "shard", ours, ShardSettings("running"))
    assert len(shard.sentences) - 1 == len(sentences)
    texts = [space.join(sentences)] if space else sentences
    assert shard.tokens.tolist() == [token for text in texts for token in ours.encode(text).input_ids[1:-1].tolist()]


def test_saved_and_opened_again(ours: Tokenizer, folder: Path, tmp_path: Path) -> None:
    ours.save(tmp_path)
    assert (tmp_path / "tokenizer.json").read_bytes() == (folder / "tokenizer.json").read_bytes()
    reopened = Tokenizer.load(tmp_path)
    assert reopened.vocabulary == ours.vocabulary and reopened.model_max_length == ours.model_max_length
    assert vocabulary_sha256(reopened) == vocabulary_sha256(ours)
    assert vocabulary_sha256(ours) != vocabulary_sha256(Tokenizer.from_vocab(ours.vocabulary))
    theirs = published(tmp_path)
    check(reopened, theirs, TEXTS)
    assert (theirs.mask_token_id, theirs.pad_token_id, theirs.cls_token_id) == (ours.mask_id, ours.pad_id, ours.cls_id)
    again = pickle.loads(pickle.dumps(ours))
    assert again.encode_batch(TEXTS).input_ids.tolist() == ours.encode_batch(TEXTS).input_ids.tolist()


def test_parts_are_as_the_whole(ours: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = ours.encode_batch(TEXTS * 3)
    monkeypatch.setattr("bertkit.tokenizer.library._CHARACTERS_AT_A_TIME", 40)
    parts = ours.encode_batch(TEXTS * 3)
    for name in ("input_ids", "cu_seqlens", "offsets", "word_ids"):
        np.testing.assert_array_equal(getattr(parts, name), getattr(whole, name))
    with pytest.raises(UsageError, match="text 23 is int"):
        ours.encode_batch([*TEXTS, 3, *TEXTS], first_index=16)  # pyrefly: ignore


def test_threads_share_it(ours: Tokenizer) -> None:
    expected = [
        ours.encode(text, special_tokens_in_text=bool(n % 2)).input_ids.tolist() for n, text in enumerate(TEXTS)
    ]

    def encode(number: int) -> bool:
        n = number % len(TEXTS)
        results = ours.encode(TEXTS[n], special_tokens_in_text=bool(n % 2))
        return results.input_ids.tolist() == expected[n]

    with ThreadPoolExecutor(4) as executor:
        assert all(executor.map(encode, range(200)))


def test_rejects_invalid_texts(ours: Tokenizer) -> None:
    with pytest.raises(UsageError, match="text 8 is tuple"):
        ours.encode_batch(["a", ("a", "b")], first_index=7)  # pyrefly: ignore
    with pytest.raises(DataError, match="text 1 is not valid Unicode: it has an unpaired surrogate at character 2"):
        ours.encode_batch(["a", "ab\ud800"])
    assert len(ours.encode_batch([])) == 0


def test_wordpiece_only_methods(ours: Tokenizer, folder: Path, tmp_path: Path, capsys) -> None:
    with pytest.raises(UsageError, match="only a WordPiece vocabulary can be extended"):
        find_domain_words(ours, ["the cat"])
    model = Model.create(config(ours), ours)
    model.save(tmp_path / "model")
    export = str(tmp_path / "vocab.txt")
    assert run(["vocab", "show", "--model", str(tmp_path / "model"), "--export", export]) == 2
    assert "has no WordPiece vocabulary" in capsys.readouterr().err
    assert run(["vocab", "show", "--model", str(tmp_path / "model")]) == 0
    assert json.loads(capsys.readouterr().out) == {"num_entries": len(ours.vocabulary), "num_special": 5}


def config(tokenizer: Tokenizer) -> BertConfig:
    return BertConfig(
        vocab_size=len(tokenizer.vocabulary), hidden_size=20, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=37, max_position_embeddings=41,
    )  # fmt: skip


def test_encode_with_special_tokens_in_text(ours: Tokenizer, tmp_path: Path) -> None:
    model = Model.create(config(ours), ours, ["masked_lm"])
    randomize(model.network, 3)
    model.checkpoint.provenance = dict.fromkeys(model.checkpoint.provenance, Provenance("trained"))
    model.save(tmp_path / "model")
    reopened = bertkit.load(tmp_path / "model")
    mask = ours.vocabulary.special.mask
    (filled,) = reopened.fill_mask(f"the {mask} walked", top_k=3)
    assert f"the {mask} walked"[slice(*filled.offsets)].strip() == mask
    assert [one.token_id for one in filled.candidates] == [
        one.token_id for one in model.fill_mask(f"the {mask} walked", top_k=3)[0].candidates
    ]
    network = transformers.BertForMaskedLM.from_pretrained(tmp_path / "model").eval()
    best = network(**published(tmp_path / "model")(f"the {mask} walked", return_tensors="pt")).logits[0]
    index = (
        reopened.tokenizer.encode(f"the {mask} walked", special_tokens_in_text=True)
        .input_ids.tolist()
        .index(ours.mask_id)
    )
    assert best[index].topk(3).indices.tolist() == [one.token_id for one in filled.candidates]
    np.testing.assert_allclose(reopened.embed(["the cat"]), model.embed(["the cat"]), atol=1e-5)
    assert reopened.pseudo_log_likelihood("the cat walked", method="l2r") < 0


def save(library: tokenizers.Tokenizer, folder: Path, change: Callable[[dict], object] = lambda content: None) -> None:
    content = json.loads(library.to_str())
    change(content)
    (folder / "tokenizer.json").write_text(json.dumps(content))


@pytest.mark.parametrize(
    "template",
    [
        None,
        processors.ByteLevel(),
        processors.TemplateProcessing(
            single="[CLS] $A [SEP]",
            pair="[CLS] $A [SEP] [SEP] [SEP] $B [SEP]",
            special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
        ),
        processors.TemplateProcessing(single="[CLS] $A", pair="[CLS] $A $B", special_tokens=[("[CLS]", 2)]),
        processors.TemplateProcessing(
            single="[CLS] $A [SEP]", pair="[CLS] $B [SEP] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
        ),
        processors.TemplateProcessing(
            single="[CLS]:1 $A:1 [SEP]:1", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
        ),
    ],
)
def test_templates_that_cannot_be_honored(template, tmp_path: Path) -> None:
    library = other_wordpiece()
    save(library, tmp_path)
    Tokenizer.load(tmp_path)
    if template is None:
        save(library, tmp_path, lambda content: content.pop("post_processor"))
    else:
        library.post_processor = template
        save(library, tmp_path)
    with pytest.raises(CheckpointError, match=r"its template makes '.*' of 'a' .* which is not supported"):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize("second_type", [0, 1])
def test_templates_with_two_separators(second_type: int, tmp_path: Path) -> None:
    library = other_wordpiece()
    library.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair=f"[CLS] $A [SEP] [SEP] $B:{second_type} [SEP]:{second_type}",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    if second_type == 0:
        library.post_processor = processors.RobertaProcessing(("[SEP]", 3), ("[CLS]", 2))
    save(library, tmp_path)
    check(Tokenizer.load(tmp_path), published(tmp_path), TEXTS[:2], TEXTS[2:4])


def test_windows_over_pairs(ours: Tokenizer) -> None:
    first, second = "the cat", "walked and talked with dogs " * 5
    whole = ours.encode(first, second)
    special = whole.special_tokens_mask.sum()
    start = int(np.flatnonzero(whole.special_tokens_mask)[-2]) + 1
    windows = ours.encode_batch([first], [second], max_length=start + 9, on_long="window")
    assert len(windows) > 3 and all(len(window) <= start + 9 for window in windows)
    for window in windows:
        assert window.input_ids[:start].tolist() == whole.input_ids[:start].tolist()
        assert window.special_tokens_mask.sum() == special and window.input_ids[-1] == ours.sep_id
        assert window.token_type_ids[:start].tolist() == whole.token_type_ids[:start].tolist()
        assert set(window.token_type_ids[start:].tolist()) == {int(whole.token_type_ids[-1])}
    owned = [token for window in windows for token in window.input_ids[slice(*window.owned)].tolist()]
    assert owned == whole.input_ids.tolist()
    with pytest.raises(OverLengthError, match="leaves no room for text B"):
        ours.encode_batch([second], [second], max_length=20, on_long="window")


def test_pairs_without_room_for_a_token(ours: Tokenizer, theirs) -> None:
    room = int(ours.encode("the", "cat").special_tokens_mask.sum())
    cut = ours.encode("the cat", "walked", max_length=room, on_long="truncate")
    assert cut.input_ids.tolist() == theirs.backend_tokenizer.encode("", "").ids
    if room > 3:
        with pytest.raises(UsageError, match="a pair has 4 special tokens"):
            ours.encode("the cat", "walked", max_length=3, on_long="truncate")


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content["model"].pop("vocab"),
        lambda content: content.update(model={"type": "Spells"}),
        lambda content: content.update(model={"type": "BPE", "vocab": {"a": 0}, "merges": ["a b"]}),
        lambda content: content.update(normalizer={"type": "Python", "code": "print(1)"}),
        lambda content: content.update(added_tokens=[{"id": 3}]),
        lambda content: content.pop("model"),
        lambda content: content.update(normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAA"}),  # a panic
        lambda content: content.update(model=content["model"] | {"type": "Unigram", "vocab": [], "unk_id": 3}),
        lambda content: content["post_processor"]["special_tokens"]["[CLS]"].update(ids=[7]),
    ],
)
def test_definitions_that_cannot_be_read(change: Callable[[dict], object], tmp_path: Path) -> None:
    save(byte_level(), tmp_path, change)
    with pytest.raises(CheckpointError, match=r"tokenizer.json"):
        Tokenizer.load(tmp_path)


def test_merges_are_not_dropped_at_random(tmp_path: Path) -> None:
    save(byte_level(), tmp_path)
    expected = Tokenizer.load(tmp_path).encode(TEXTS[0] * 5).input_ids.tolist()
    save(byte_level(), tmp_path, lambda content: content["model"].update(dropout=0.5))
    assert Tokenizer.load(tmp_path).encode(TEXTS[0] * 5).input_ids.tolist() == expected


def test_markers_of_entities_are_one_token_as_in_transformers(folder: Path, tmp_path: Path) -> None:
    theirs = published(folder)
    theirs.add_special_tokens({"additional_special_tokens": ["<e1>", "</e1>"]})
    theirs.save_pretrained(tmp_path)
    ours = Tokenizer.load(tmp_path)
    texts = ["<e1> the cat </e1> sat", "the<e1>cat</e1>s", "<e1><e1>  </e1>", "THE <E1> cat"]
    assert [one.input_ids.tolist() for one in ours.encode_batch(texts)] == theirs(texts).input_ids
    assert ours.vocabulary.id("<e1>") in ours.encode(texts[0]).input_ids
    names = ours.vocabulary.special
    assert ours.mask_id not in ours.encode(f"<e1> {names.mask} {names.sep}").input_ids[1:-1]


@pytest.mark.parametrize("as_text", [False, True])
def test_special_tokens_that_merges_make_are_text(as_text: bool, tmp_path: Path) -> None:
    library = byte_level()
    library.add_special_tokens(["talk"])
    assert library.encode("talking", add_special_tokens=False).tokens[0] == "talk"
    spelled = (lambda merges: [" ".join(merge) for merge in merges]) if as_text else list
    save(library, tmp_path, lambda content: content["model"].update(merges=spelled(content["model"]["merges"])))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"mask_token": "talk"}))
    tokenizer = Tokenizer.load(tmp_path)
    encoding = tokenizer.encode("talking dogs talk")
    assert "talk" not in tokenizer.tokens(encoding) and tokenizer.decode(encoding.input_ids) == "talking dogs talk"
    assert "talk" in tokenizer.tokens(tokenizer.encode("dogs talk", special_tokens_in_text=True))


def test_vocabulary_without_unk(tmp_path: Path) -> None:
    save(unigram(), tmp_path, lambda content: content["model"].update(unk_id=None))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(KINDS["unigram"][1]))
    tokenizer = Tokenizer.load(tmp_path)
    assert len(tokenizer.encode("the cat")) > 2
    with pytest.raises(DataError, match=r"cannot tokenize the texts: .*unknown token"):
        tokenizer.encode_batch(["the cat", "😀"])


def test_code_in_model_folder_is_never_run(tmp_path: Path) -> None:
    save(byte_level(), tmp_path)
    (tmp_path / "mine.py").write_text(f"open({str(tmp_path / 'was_run')!r}, 'w')\nclass Mine: pass\n")
    code = {"auto_map": {"AutoTokenizer": [None, "mine.Mine"]}, "tokenizer_class": "Mine"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(MODERN_SETTINGS | code))
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.model_max_length == 37
    (tmp_path / "saved").mkdir()
    tokenizer.save(tmp_path / "saved")
    saved = json.loads((tmp_path / "saved" / "tokenizer_config.json").read_text())
    assert "auto_map" not in saved and saved["tokenizer_class"] == "PreTrainedTokenizerFast"
    assert saved["model_input_names"] == ["input_ids", "attention_mask"]
    assert not (tmp_path / "was_run").exists()


def _bpe(pre_tokenizer: pre_tokenizers.PreTokenizer, *steps: normalizers.Normalizer) -> tokenizers.Tokenizer:
    library = tokenizers.Tokenizer(models.BPE())
    library.normalizer, library.pre_tokenizer = normalizers.Sequence(list(steps)), pre_tokenizer
    trainer = trainers.BpeTrainer(vocab_size=200, limit_alphabet=60, show_progress=False)  # other characters: no token
    library.train_from_iterator(CORPUS, trainer)
    return library


def _split(pattern: str) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Split(Regex(pattern), "isolated")


def _roberta(**options: bool) -> tokenizers.Tokenizer:
    library = trimmed()
    library.pre_tokenizer = pre_tokenizers.ByteLevel(**options)
    return library


CACHED: dict[str, Callable[[], tokenizers.Tokenizer]] = {
    **{name: make for name, (make, _) in KINDS.items()},
    **{f"pattern {number}": lambda one=one: _bpe(_split(one)) for number, one in enumerate(sorted(chunks._PATTERNS))},
    "words": lambda: _bpe(pre_tokenizers.Whitespace(), normalizers.NFD(), normalizers.StripAccents()),
    "stripped": lambda: _bpe(
        pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]),
        normalizers.Lowercase(),
        normalizers.Strip(left=False),
    ),
    "prefix": lambda: _roberta(add_prefix_space=True),
}
ALPHABET = [
    *"  \n\tabB1é日\u0301\u00a0\u200b\u3000\x1c\x85,'-▁Σß\u180e\u00a8", "  ", " s", "'s", "23", "[MASK]", "<mask>",
    "walk", "\U0001f600", "|||IP_ADDRESS|||", "\r\n",
]  # fmt: skip


@pytest.mark.parametrize("name", list(CACHED))
@pytest.mark.parametrize("with_spans", [False, True])
def test_tokens_of_chunks_are_those_of_whole_texts(name: str, with_spans: bool) -> None:
    library, draw = CACHED[name](), np.random.default_rng(5)
    library.no_truncation()
    library.no_padding()
    caching = chunks.CachingLibrary(library)
    near = [text.format(chr(code)) for code in range(0x2100) for text in ("walk {} dog", "a{} b", "a {}b")]
    texts = ["".join(draw.choice(ALPHABET, draw.integers(12))) for _ in range(2_000)] + TEXTS
    for several in (texts, near, texts[::-1]):
        expected = chunks.encode(library, several, with_spans)
        found = caching.encode(several, with_spans)
        assert caching._caches and (found.lengths == expected.lengths).all() and (found.ids == expected.ids).all()
        assert np.array_equal(found.spans, expected.spans) if with_spans else found.spans is None


@pytest.mark.parametrize(
    "change",
    [
        lambda library: setattr(library, "pre_tokenizer", _split(r"\d")),
        lambda library: setattr(library, "pre_tokenizer", pre_tokenizers.ByteLevel(use_regex=False)),
        lambda library: setattr(library, "pre_tokenizer", pre_tokenizers.Metaspace(split=False)),
        lambda library: setattr(library, "normalizer", normalizers.Strip()),
        lambda library: setattr(library, "normalizer", normalizers.Replace("a b", "c")),
        lambda library: setattr(library, "normalizer", normalizers.Prepend("x")),
        lambda library: library.add_tokens(["the cat"]),
        lambda library: library.add_tokens([AddedToken("dog", rstrip=True)]),
    ],
)
def test_tokens_that_may_depend_on_other_words_are_not_cached(change: Callable[[tokenizers.Tokenizer], object]) -> None:
    library = trimmed()
    assert chunks.have_equal_tokens(library)
    change(library)
    assert not chunks.have_equal_tokens(library)


def test_full_cache_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "_MOST_CHARACTERS", 45)
    library = trimmed()
    library.no_truncation()
    library.no_padding()
    caching, calls = chunks.CachingLibrary(library), []
    monkeypatch.setattr(chunks, "encode", lambda *given, work=chunks.encode: calls.append(given[1]) or work(*given))
    for text in ["the cat walked " * 9, "the cat talked " * 9, "the cat " * 99] * 3:
        for _ in range(2):
            assert caching.encode([text], False).ids.tolist() == library.encode(text, add_special_tokens=False).ids
    assert 3 < len(calls) < 18
