"""The tokenizer's engine apart from its results: added tokens, bytes, files, threads, memory, worst cases."""

import itertools
import json
import os
import pickle
import random
import re
import signal
import subprocess
import sys
import threading
import time
import unicodedata
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from bertkit.errors import CheckpointError, DataError, OverLengthError, UsageError
from bertkit.tokenizer import Tokenizer, Vocabulary
from bertkit.tokenizer.added_tokens import AddedToken, Finder, _is_in_words
from bertkit.tokenizer.encoding import Encodings
from bertkit.tokenizer.layout import Side
from bertkit.tokenizer.published import tokenizer_json
from bertkit.tokenizer.wordpiece import Normalization, WordPiece, join_pieces
from bertkit.tokenizer.workspaces import CACHE_BYTES, Workspaces
from bertkit.vocabulary_extension import extend_vocabulary, find_domain_words

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
LETTERS = [chr(code) for code in range(ord("a"), ord("z") + 1)]
CHARACTERS = [*LETTERS, *"ABCE0123456789.,!=<>'-[]é̀漢각ςσ"]
WORDS = ("the", "cat", "##at", "sat", "un", "##able", "<url>", "new york", "ångström")
TOKENS = (*SPECIAL, *WORDS, *CHARACTERS, *("##" + char for char in CHARACTERS))
TOKENIZER = Tokenizer.from_vocab(TOKENS)
CASED = Tokenizer.from_vocab(TOKENS, lowercase=False)


def library(tokenizer: Tokenizer) -> tokenizers.Tokenizer:
    """The same tokenizer in the library, through the file that we write."""
    return tokenizers.Tokenizer.from_str(json.dumps(tokenizer_json(tokenizer.engine)))


def rows(encodings: Encodings) -> list[list[tuple[int, int, int, int]]]:
    """(id, start, end, word) of each token."""
    return [
        [(token, *offsets, word) for token, offsets, word in zip(
            encoding.input_ids.tolist(), encoding.offsets.tolist(), encoding.word_ids.tolist(), strict=True
        )]
        for encoding in encodings
    ]  # fmt: skip


def library_rows(engine: tokenizers.Tokenizer, texts: Sequence[str]) -> list[list[tuple[int, int, int, int]]]:
    return [
        [(token, *offsets, -1 if word is None else word) for token, offsets, word in zip(
            encoding.ids, encoding.offsets, encoding.word_ids, strict=True
        )]
        for encoding in engine.encode_batch(list(texts))
    ]  # fmt: skip


def random_texts(number: int, seed: int, fragments: Sequence[str]) -> list[str]:
    rng = random.Random(seed)
    return ["".join(rng.choices(fragments, k=rng.randrange(0, 9))) for _ in range(number)]


FRAGMENTS = (
    *(
        "the",
        "cat",
        "unable",
        "xyz",
        " ",
        "  ",
        "\t",
        ".",
        "≠",
        "é",
        "É",
        "e\u0301\u0323",
        "a\u0323\u0301",
        "각",
        "漢字",
    ),
    *("\u200b", "\u3000", "\ue000", "\x00", "\U0001f600"),
)


# Added tokens --------------------------------------------------------------------------------------------------------

ADDED = (
    AddedToken("<url>"),
    AddedToken("new york", normalized=False),
    AddedToken("Ångström", single_word=True),
    AddedToken("each", single_word=True, normalized=False),
    AddedToken("ea", normalized=False, lstrip=True),
    AddedToken("cat.", rstrip=True),
    AddedToken("[TAG]", normalized=False, special=True, lstrip=True, rstrip=True),
    AddedToken("=", normalized=True),
)
ADDED_FRAGMENTS = (
    *(*FRAGMENTS, "<url>", "<URL>", "new york", "New York", "Ångström", "angstrom", "ANGSTROM", "each", "ea", "cat."),
    *("CAT.", "[TAG]", "[MASK]", "[SEP]", "=", "_", "\u00b2", "\u24d0", "\u1160"),
)


@pytest.mark.full(sample=1)
@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("kinds", ["raw", "normalized", "both"])
def test_added_tokens_match_the_library(lowercase: bool, kinds: str) -> None:
    added = tuple(token for token in ADDED if kinds == "both" or token.normalized == (kinds == "normalized"))
    contents = [token.content for token in added if token.content not in TOKENS]
    wordpiece = WordPiece(Vocabulary((*TOKENS, *contents)), Normalization(lowercase), added)
    ours = Tokenizer(wordpiece)
    texts = random_texts(4_000, 7, ADDED_FRAGMENTS)
    assert rows(ours.encode_batch(texts, special_tokens_in_text=True)) == library_rows(library(ours), texts)
    in_every_text = tuple(replace(token, special=False) for token in added if token.content not in SPECIAL)
    without_special = Tokenizer(WordPiece(wordpiece.vocabulary, wordpiece.normalization, in_every_text))
    engine = library(without_special)
    engine.encode_special_tokens = True
    assert rows(ours.encode_batch(texts)) == library_rows(engine, texts)


def test_added_tokens_that_the_vocabulary_lacks_are_no_pieces(tmp_path: Path) -> None:
    engine = library(Tokenizer.from_vocab((*SPECIAL, "co", "##vid", "##s", "ur", "##l", "the")))
    engine.add_tokens([tokenizers.AddedToken("covid", single_word=True)])
    engine.add_special_tokens([tokenizers.AddedToken("url", normalized=False)])
    engine.save(str(tmp_path / "tokenizer.json"))
    texts = ["covid covids", "the url", "URL urls the covid"]
    expected = library_rows(engine, texts)
    for _ in range(2):  # as published, and as saved
        ours = Tokenizer.load(tmp_path)
        assert rows(ours.encode_batch(texts, special_tokens_in_text=True)) == expected
        assert rows(ours.encode_batch(texts)) == expected
        assert library_rows(tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json")), texts) == expected
        ours.save(tmp_path)
    assert [word.word for word in find_domain_words(ours, ["the url covids"] * 5)] == ["covids"]
    extended = extend_vocabulary(ours, ["covids"])
    extended.save(tmp_path)
    assert Tokenizer.load(tmp_path) == extended
    engine = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert rows(extended.encode_batch(texts, special_tokens_in_text=True)) == library_rows(engine, texts)


def test_first_of_added_tokens_with_one_normalized_spelling_is_found() -> None:
    """The library finds either, by chance: each time it reads a tokenizer, its hash map has another order."""
    added = (AddedToken("CATS"), AddedToken("Cats"))
    ours = Tokenizer(WordPiece(Vocabulary((*TOKENS, "CATS", "Cats")), added_tokens=added))
    encodings = ours.encode_batch(["cats", "the Cats CATS"])
    assert [ours.tokens(one)[1:-1] for one in encodings] == [["CATS"], ["the", "CATS", "CATS"]]


@pytest.mark.full
def test_thousands_of_added_tokens_take_little_time() -> None:
    rng = random.Random(3)
    words = {"".join(rng.choices("abcdefghij", k=rng.randrange(3, 12))) for _ in range(8_000)}
    data = "".join(rng.choices("abcdefghij ", k=30_000)).encode()
    seconds = []
    for number in (40, len(words)):
        finder = Finder([AddedToken(word) for word in sorted(words)[:number]], range(number))
        start = time.process_time()
        finder.marks(data, np.array([0, len(data)]))
        seconds.append(time.process_time() - start)
    assert seconds[1] < 20 * seconds[0] + 0.2


@settings(deadline=None)
@given(st.sets(st.text("ab.é", min_size=1, max_size=6), min_size=1, max_size=9), st.text("ab.é", max_size=30))
def test_longest_added_token_is_found(contents: set[str], text: str) -> None:
    data, order = text.encode(), sorted(contents)
    marks = Finder([AddedToken(content) for content in order], range(len(order))).marks(data, np.array([0, len(data)]))
    longest = sorted(contents, key=lambda content: -len(content.encode()))
    found = re.finditer("|".join(map(re.escape, longest)), text)
    assert [order[number] for _, _, number in marks[:-1].tolist()] == [match.group() for match in found]


def test_special_token_does_not_span_two_texts() -> None:
    encodings = TOKENIZER.encode_batch(["a [MA", "SK] b", "[MASK]"], special_tokens_in_text=True)
    assert [TOKENIZER.vocabulary.special.mask in TOKENIZER.tokens(one) for one in encodings] == [False, False, True]


@pytest.mark.full
def test_letters_of_words_equal_those_of_the_library() -> None:
    """A single-word token next to each code point that this Python knows."""
    tokenizer = Tokenizer(
        WordPiece(Vocabulary((*TOKENS, "QQ")), added_tokens=(AddedToken("QQ", single_word=True, normalized=False),))
    )
    known = [chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) not in ("Cn", "Cs")]
    engine = library(tokenizer)
    added = tokenizer.vocabulary.id("QQ")
    results = [added in encoding.ids for encoding in engine.encode_batch_fast([char + "QQ" for char in known])]
    assert [char for char, free in zip(known, results, strict=True) if free == _is_in_words(char)] == []


# What the library writes and reads -----------------------------------------------------------------------------------


@pytest.mark.parametrize("lowercase", [True, False])
def test_tokenizer_json_is_what_the_library_writes(lowercase: bool) -> None:
    vocabulary = Vocabulary((*TOKENS, "[TAG]"))
    ours = Tokenizer(
        WordPiece(vocabulary, Normalization(lowercase), (ADDED[0], AddedToken("[TAG]", normalized=False, special=True)))
    )
    written = tokenizer_json(ours.engine)
    assert json.loads(library(ours).to_str()) == written


@pytest.mark.parametrize("entry", ["\0", "\0a", "##\0", "a\0"])
def test_entry_with_nul_is_never_matched(entry: str) -> None:
    """No text contains NUL after cleaning, and the trie has no letter 0."""
    with_nul = Tokenizer.from_vocab((*TOKENS, entry))
    texts = [chr(code) for code in range(33, 0x3000)]
    assert np.array_equal(with_nul.encode_batch(texts).input_ids, TOKENIZER.encode_batch(texts).input_ids)


def test_decoding_joins_pieces_as_the_library_does() -> None:
    engine = library(TOKENIZER)
    rng = random.Random(3)
    for _ in range(2_000):
        ids = rng.choices(range(len(TOKENS)), k=rng.randrange(0, 9))
        assert TOKENIZER.decode(ids) == engine.decode(ids)
        assert TOKENIZER.decode(ids, skip_special_tokens=False) == engine.decode(ids, skip_special_tokens=False)
    spoken = ["do", "not", "'", "s", "n't", "I", "'m", "we", "'ve", "they", "'re", ".", "?", "!", ",", "##s"]
    decoder = tokenizers.decoders.WordPiece(cleanup=True)
    for _ in range(2_000):
        tokens = rng.choices(spoken, k=rng.randrange(0, 9))
        assert join_pieces(tokens) == decoder.decode(tokens)


@pytest.mark.parametrize("tokenizer", [TOKENIZER, CASED])
def test_normalized_text_is_the_library_s(tokenizer: Tokenizer) -> None:
    engine = library(tokenizer)
    for text in random_texts(3_000, 11, FRAGMENTS):
        assert tokenizer.normalize(text) == engine.normalizer.normalize_str(text)


def test_many_marks_on_a_letter_that_decomposes_are_normalized() -> None:
    """More letters before accents are dropped than bytes."""
    text = "\u01d6" + "\u0344" * 300
    assert TOKENIZER.normalize(text) == library(TOKENIZER).normalizer.normalize_str(text) == "u"
    ours = Tokenizer(WordPiece(Vocabulary(TOKENS), added_tokens=(AddedToken("<url>"),)))
    assert ours.tokens(ours.encode(text)) == ["[CLS]", "u", "[SEP]"]


@pytest.mark.slow
def test_stored_tables_are_as_derived() -> None:
    script = Path(__file__).resolve().parents[1] / "tools" / "make_character_tables.py"
    subprocess.run([sys.executable, str(script), "--check"], check=True)


# Packed arrays -------------------------------------------------------------------------------------------------------


@pytest.mark.full
@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from(FRAGMENTS), max_size=12).map("".join), max_size=6),
    st.booleans(),
    st.sampled_from([None, 5, 9, 14]),
    st.sampled_from(["truncate", "window"]),
    st.data(),
)
def test_packed_is_the_same_as_one_by_one(
    texts: list[str], paired: bool, max_length: int | None, on_long: str, data
) -> None:
    pairs = texts[::-1] if paired and on_long == "truncate" else None
    options = {"max_length": max_length, "on_long": on_long}
    together = TOKENIZER.encode_batch(texts, pairs, **options)
    alone = [
        one
        for index, text in enumerate(texts)
        for one in TOKENIZER.encode_batch([text], None if pairs is None else [pairs[index]], **options)
    ]
    assert len(together) == len(alone) == len(together.seqlens)
    names = ("input_ids", "token_type_ids", "special_tokens_mask", "offsets", "word_ids")
    for one, other in zip(together, alone, strict=True):
        assert all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names)
        assert (one.num_tokens_cut, one.cut_spans, one.owned) == (other.num_tokens_cut, other.cut_spans, other.owned)
    ids_only = TOKENIZER.encode_batch(texts, pairs, with_offsets=False, **options)
    assert np.array_equal(ids_only.input_ids, together.input_ids)
    assert np.array_equal(ids_only.num_tokens_cut, together.num_tokens_cut)
    indices = np.array(data.draw(st.lists(st.sampled_from(range(len(alone))), max_size=5)) if alone else [], np.int64)
    for one, index in zip(together.take(indices), indices, strict=True):
        assert all(np.array_equal(getattr(one, name), getattr(alone[index], name)) for name in names)
    assert list(map(len, together[:3])) == list(map(len, together.between(0, min(3, len(alone)))))


@pytest.mark.parametrize(("pair", "length"), [(None, 4), ("sat", 6)])
def test_longest_text_that_fits(pair: str | None, length: int) -> None:
    """The first text that is longer is named, though another is longer still."""
    texts = ["the", "the cat", "the cat sat"]
    pairs = None if pair is None else [pair] * 3
    fitting = TOKENIZER.encode_batch(texts[:2], pairs and pairs[:2], max_length=length)
    assert fitting.seqlens.tolist() == [length - 1, length]
    with pytest.raises(OverLengthError, match=f"text 6 has {length} tokens, 1 more than max_length {length - 1}:") as e:
        TOKENIZER.encode_batch(texts, pairs, max_length=length - 1, first_index=5)
    assert e.value.index == 1
    cut = TOKENIZER.encode_batch(texts, pairs, max_length=length, on_long="truncate")
    assert np.array_equal(cut.between(0, 2).input_ids, fitting.input_ids)
    assert cut.num_tokens_cut.tolist() == [0, 0, 1] and cut.seqlens[2] == length


def test_pairs_that_fit_are_not_judged_by_their_windows() -> None:
    """Text A alone leaves room for two tokens of a window, or none, but B is as short."""
    texts, pairs = ["the " * 6, "the " * 8, "the"], ["cat", "", "cat " * 30]
    encodings = TOKENIZER.encode_batch(texts, pairs, max_length=11, on_long="window", stride=3)
    assert encodings.text_index[:3].tolist() == [0, 1, 2] and encodings.seqlens[:3].tolist() == [10, 11, 11]
    with pytest.raises(UsageError, match="stride=8 would skip tokens: a window holds 7 of them here"):
        TOKENIZER.encode_batch(texts, pairs, max_length=11, on_long="window", stride=8)
    with pytest.raises(OverLengthError, match="pair 11 has 8 tokens in text A and leaves no room for text B"):
        TOKENIZER.encode_batch(texts, ["cat"] * 3, max_length=11, on_long="window", first_index=10)


@pytest.mark.parametrize(("max_length", "stride"), [(3, None), (3, 1), (4, 2), (6, 4)])
def test_windows_without_overlap(max_length: int, stride: int | None) -> None:
    """A window of one token, which half a window would not move, and strides of a whole window."""
    windows = TOKENIZER.encode_batch(["the cat sat unable"], max_length=max_length, on_long="window", stride=stride)
    assert TOKENIZER.decode(windows.input_ids.tolist()) == "the cat sat unable"
    assert windows.owned.tolist() == [
        [int(number > 0), size - (number < len(windows) - 1)] for number, size in enumerate(windows.seqlens)
    ]


@pytest.mark.parametrize(
    ("text", "owned"),
    [("unable " * 5, [[0, 5], [2, 4], [1, 6]]),  # overlaps of tokens 3 to 5 and 6 to 8; words start at 4 and 6
     ("zzzzzzzzzz", [[0, 5], [2, 5], [2, 6]])],
)  # fmt: skip
def test_words_are_owned_by_one_window_if_an_overlap_has_their_start(text: str, owned: list[list[int]]) -> None:
    windows = TOKENIZER.encode_batch(["the", text], max_length=8, on_long="window", stride=3)
    assert windows.owned.tolist() == [[0, 3], *owned]


@pytest.mark.parametrize(
    ("options", "message"),
    [({"max_length": 2}, "max_length=2: expected an int of at least 3, for"),
     ({"max_length": 5.5}, "max_length=5.5: expected an int"), ({"max_length": "5"}, "max_length='5': expected an int"),
     ({"on_long": "cut"}, "on_long='cut': expected 'error'"),
     ({"on_long": "window", "stride": 0}, "stride=0: expected an int of at least 1"),
     ({"on_long": "truncate", "stride": 2}, "stride=2 requires on_long='window', got 'truncate'")],
)  # fmt: skip
def test_lengths_that_make_no_sense_are_refused(options: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        TOKENIZER.encode_batch(["the"], **options)


@pytest.mark.parametrize(("side", "kept", "lost"), [("right", "thecat", (8, 14)), ("left", "satun", (0, 7))])
def test_characters_that_were_cut(side: Side, kept: str, lost: tuple[int, int]) -> None:
    ours = replace(TOKENIZER, truncation_side=side)
    one, two = ours.encode_batch(["the cat sat un", "the"], max_length=4, on_long="truncate")
    assert "".join(ours.tokens(one)[1:-1]) == kept and (one.num_tokens_cut, one.cut_spans) == (2, (lost,))
    assert (two.num_tokens_cut, two.cut_spans, two.text_index, two.owned) == (0, (None,), 1, (0, 3))


def test_pairs_of_all_lengths_are_truncated_as_in_the_library() -> None:
    """Words of one letter: the second text is another letter."""
    engine = library(TOKENIZER)
    lengths = [(a, b) for a in range(7) for b in range(7)]
    texts, pairs = ["a " * a for a, _ in lengths], ["b " * b for _, b in lengths]
    for max_length in range(4, 16):
        engine.enable_truncation(max_length)
        ours = TOKENIZER.encode_batch(texts, pairs, max_length=max_length, on_long="truncate")
        theirs = engine.encode_batch(list(zip(texts, pairs, strict=True)))
        assert [one.input_ids.tolist() for one in ours] == [one.ids for one in theirs]


def test_a_str_is_no_list_of_texts() -> None:
    for texts, pairs in (("ab", None), (["a", "b"], "ab")):
        with pytest.raises(UsageError, match="expected a list of texts, got a str"):
            TOKENIZER.encode_batch(texts, pairs)


@pytest.mark.parametrize("content", [{"vocab": {"\ud800": len(TOKENS)}}, {"added": "a\udfff"}])
def test_tokenizer_json_with_half_a_character_raises(content: dict, tmp_path: Path) -> None:
    published = tokenizer_json(TOKENIZER.engine)
    published["model"]["vocab"] |= content.get("vocab", {})
    if "added" in content:
        published["added_tokens"].append({"id": len(TOKENS), "content": content["added"]})
    (tmp_path / "tokenizer.json").write_text(json.dumps(published))
    with pytest.raises(CheckpointError, match=r"tokenizer.json is not readable JSON .* surrogates not allowed"):
        Tokenizer.load(tmp_path)
    with pytest.raises(DataError, match="the vocabulary holds the unpaired surrogate"):
        Vocabulary(("a", "b\ud800"))
    with pytest.raises(DataError, match="text 0 is not valid Unicode: it has an unpaired surrogate at character 1"):
        TOKENIZER.normalize("a\ud800")


def test_without_offsets_there_is_no_single_encoding_to_look_at() -> None:
    encodings = TOKENIZER.encode_batch(["the cat"], with_offsets=False)
    assert TOKENIZER.vocabulary.tokens[encodings.input_ids[1]] == "the"
    for look in (lambda: encodings[0], lambda: encodings.offsets, lambda: encodings.word_ids):
        with pytest.raises(UsageError, match="with_offsets=False"):
            look()
    with pytest.raises(IndexError):
        TOKENIZER.encode_batch(["the cat"])[1]


def test_many_parts_are_put_together_in_order() -> None:
    """More text than one call of the engine is given, some of it in one text."""
    texts = [f"the cat sat {number} é" * (1 + number % 50) for number in range(3_000)] + [
        "unable " * 100_000,
        "",
        "sat",
    ]
    one, several = (TOKENIZER.encode_batch(texts, num_threads=number) for number in (1, 3))
    assert np.array_equal(one.input_ids, several.input_ids) and np.array_equal(one.offsets, several.offsets)
    for index in (0, 1, 777, 2_999, 3_001, 3_002):
        alone = TOKENIZER.encode(texts[index])
        assert np.array_equal(several[index].input_ids, alone.input_ids)
        assert np.array_equal(several[index].offsets, alone.offsets)
    with pytest.raises(DataError, match=r"text 3007 .* character 1"):
        TOKENIZER.encode_batch([*texts, "a", "b", "c", "d\ud800"], first_index=1)
    with pytest.raises(UsageError, match="text 3003 is int"):
        TOKENIZER.encode_batch([*texts, 3])


# Bytes and files -----------------------------------------------------------------------------------------------------

BAD = st.binary(max_size=4) | st.sampled_from(
    [b"\xff", b"\xc0\x80", b"\xe2\x82", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xf0\x9f\x98", b"\x80", b"\xe0\x9f\x80"]
)


@pytest.mark.full
@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(FRAGMENTS).map(str.encode) | BAD, max_size=10).map(b"".join))
def test_bytes_that_are_not_utf8_are_read_as_python_replaces_them(data: bytes) -> None:
    array = np.frombuffer(data, np.uint8)
    bounds = np.unique(np.concatenate([[0], np.flatnonzero(array == ord("\n")) + 1, [len(array)]]))
    pieces, num_invalid = TOKENIZER.engine.tokenize_bytes(array, bounds, with_spans=True, num_threads=1)
    lines = [data.decode(errors="replace")] if data else []
    if b"\n" in data:
        lines = data.decode(errors="replace").removesuffix("\n").split("\n")
    expected = TOKENIZER.encode_batch(lines)
    assert np.array_equal(pieces.input_ids, expected.input_ids)
    assert pieces.spans is not None and np.array_equal(pieces.spans[:, :2], expected.offsets)
    assert num_invalid.sum() == sum(line.count("\ufffd") for line in lines) - data.count("\ufffd".encode())


# Threads, memory, processes ------------------------------------------------------------------------------------------


def test_threads_share_a_tokenizer() -> None:
    """A fresh tokenizer met by eight threads at once, as a server's first requests do."""
    tokenizer = Tokenizer.from_vocab(TOKENS)
    texts = random_texts(2_000, 5, FRAGMENTS)
    expected = TOKENIZER.encode_batch(texts).input_ids
    wrong, barrier = [], threading.Barrier(8)

    def serve() -> None:
        barrier.wait()
        for _ in range(5):
            if not np.array_equal(tokenizer.encode_batch(texts).input_ids, expected):
                wrong.append(threading.current_thread())

    threads = [threading.Thread(target=serve) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(tokenizer.engine._workspaces._made) <= (os.cpu_count() or 1)


@pytest.mark.parametrize("number", [1, 2, 3, 64, 1_000])
def test_all_caches_together_are_bounded(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertkit.tokenizer.workspaces.num_processors", lambda: number)
    workspaces = Workspaces(100)
    with workspaces.lend() as one:
        assert one.cache.nbytes * number <= CACHE_BYTES == 64 << 20
        assert len(one.cache) & (len(one.cache) - 1) == 0


def test_small_cache_gives_the_same_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four rows: nearly every run drives another one out."""
    monkeypatch.setattr("bertkit.tokenizer.workspaces._LARGEST_CACHE_BYTES", 2_048)
    texts = random_texts(2_000, 9, FRAGMENTS)
    small = Tokenizer.from_vocab(TOKENS).encode_batch(texts)
    large = TOKENIZER.encode_batch(texts)
    assert np.array_equal(small.input_ids, large.input_ids) and np.array_equal(small.offsets, large.offsets)


@pytest.mark.parametrize("cache_bytes", [2_048, 64 << 10])
def test_words_that_differ_in_one_byte_are_not_confused(cache_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Words of lengths around eight bytes, twelve pieces and the longest that are cached, learned and then known, in
    the middle and at the end of the data. Their pieces, of four letters or one, spell them."""
    monkeypatch.setattr("bertkit.tokenizer.workspaces._LARGEST_CACHE_BYTES", cache_bytes)
    forward = "bcdefghijklmnopqrstuvwxyz0123456789"
    words = [
        letters[:at] + other + letters[at + 1 : length]
        for letters in (forward, forward[::-1])
        for length in (1, 7, 8, 9, 12, 13, 14, 16, 17, 24, 25, 30, 31, 32, 33)
        for at in range(length)
        for other in "Aa"
    ]
    random.Random(0).shuffle(words)
    entries = [*CHARACTERS, *(forward[at : at + 4] for at in range(0, 32, 4))]
    ours = Tokenizer.from_vocab([*SPECIAL, *entries, *("##" + entry for entry in entries)], lowercase=False)
    for texts in ([f"{word} {word}" for word in words], words, words[:1]):
        for text, encoding in zip(texts, ours.encode_batch(texts, num_threads=1), strict=True):
            tokens = [token.removeprefix("##") for token in ours.tokens(encoding)]
            starts = np.flatnonzero(np.diff(encoding.word_ids)) + 1
            assert " ".join("".join(tokens[a:b]) for a, b in itertools.pairwise(starts)) == text


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_forked_child_does_not_wait_for_threads_of_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertkit.tokenizer.workspaces.num_processors", lambda: 1)
    workspaces = Workspaces(100)
    with workspaces.lend():  # as in a thread of the parent
        child = os.fork()
        if not child:
            signal.alarm(10)  # ends it if it waits
            try:
                with workspaces.lend():
                    os._exit(0)
            finally:
                os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


def test_tokenizer_can_be_pickled() -> None:
    TOKENIZER.encode("the cat")
    copy = pickle.loads(pickle.dumps(TOKENIZER))
    assert np.array_equal(copy.encode("the cats").input_ids, TOKENIZER.encode("the cats").input_ids)


# Worst cases ---------------------------------------------------------------------------------------------------------

MARKS = "".join(map(chr, (0x301, 0x323, 0x327, 0x334, 0x345, 0x302E, 0x5B0, 0x93C, 0x94D)))


def worst_cases(size: int) -> dict[str, tuple[str, int]]:
    """Texts and their number of tokens."""
    mixed = "".join(random.Random(0).choices(MARKS, k=size))
    return {
        "one word": ("a" * size, 3),
        "punctuation": ("!" * size, size + 2),
        "one mark": ("a" + "\u0301" * size, 3),
        "marks in disorder": ("a" + mixed, 3),
        "characters that decompose to punctuation": ("≠" * size, size + 2),
        "dropped characters": ("\ue000" * size, 2),
        "syllables": ("각" * size, 3),
    }


@pytest.mark.parametrize("name", worst_cases(1))
def test_worst_cases_are_linear(name: str) -> None:
    """Ten times the text in at most thirty times the time; a quadratic method would take a hundred."""
    seconds = []
    for size in (30_000, 300_000):
        text, num_tokens = worst_cases(size)[name]
        assert len(TOKENIZER.encode(text)) == num_tokens
        taken = []
        for _ in range(3):
            start = time.process_time()  # a busy machine does not add to it
            TOKENIZER.encode(text)
            taken.append(time.process_time() - start)
        seconds.append(min(taken))
    assert seconds[1] < 30 * seconds[0] + 0.02


@pytest.mark.slow
def test_worst_cases_at_length() -> None:
    for name, (text, num_tokens) in worst_cases(10_000_000).items():
        start = time.perf_counter()
        assert len(TOKENIZER.encode(text)) == num_tokens
        assert time.perf_counter() - start < 20, name
    assert len(TOKENIZER.encode("a" * 100_000_000)) == 3
