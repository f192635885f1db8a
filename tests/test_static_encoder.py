"""Static encoders: files and folders of word vectors, equal to gensim, sentence-transformers and model2vec."""

import errno
import json
import os
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers
from word2vec_files import write_word2vec

import bertkit
from bertkit import InferenceReport, StaticEncoder
from bertkit.cli import run
from bertkit.errors import CheckpointError, DataError, OverLengthError, UnknownWordsWarning, UsageError
from bertkit.neighbors import top_pairs
from bertkit.words.opening import open_encoder
from bertkit.words.word_files import read_word_file

WORDS = "the cat sat there . café new_york dogs in".split()
DIM = 7


@pytest.fixture
def vectors() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(len(WORDS), DIM)).astype(np.float32)


def gensim_vectors(vectors):
    gensim = pytest.importorskip("gensim.models")
    keyed = gensim.KeyedVectors(DIM)
    keyed.add_vectors(WORDS, vectors)
    return keyed


@pytest.mark.full(sample=1)
@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("header", [True, False])
def test_word2vec_and_glove_files_equal_gensim(tmp_path, vectors, binary, header):
    if binary and not header:
        pytest.skip("the binary format has a header")
    keyed, path = gensim_vectors(vectors), tmp_path / "words.vec"
    keyed.save_word2vec_format(str(path), binary=binary, write_header=header)
    encoder = StaticEncoder.open(path)
    assert encoder.words == WORDS
    theirs = type(keyed).load_word2vec_format(str(path), binary=binary, no_header=not header)
    np.testing.assert_allclose(encoder.vectors, theirs.vectors, atol=1e-6)
    assert encoder.embedding_dim == DIM


@pytest.mark.parametrize("begin", [b"\n\xd7\xa3\x3d", b"\x35\n\x80\x3f", b"\n\0\0\0"])
def test_binary_vectors_that_begin_with_a_newline_byte(tmp_path, begin):
    path = tmp_path / "words.bin"
    path.write_bytes(b"2 2\nthe " + begin + struct.pack("<f", 0.1) + b"\ncat " + struct.pack("<2f", 0.25, -0.3))
    encoder = StaticEncoder.open(path)
    assert encoder.words == ["the", "cat"]
    assert encoder.vectors[0].tobytes() == begin + struct.pack("<f", 0.1)


def binary(path, words, vectors, newline):
    """word2vec's binary format, with a newline after each vector (word2vec.c) or without (gensim)."""
    rows = [word.encode() + b" " + row.tobytes() + newline for word, row in zip(words, vectors, strict=True)]
    path.write_bytes(b"%d %d\n" % vectors.shape + b"".join(rows))


@pytest.mark.parametrize("newline", [b"", b"\n"])
@pytest.mark.parametrize("dim", [3, 50])
@pytest.mark.parametrize("rest", ["y", "yor", "york", "yorks", "york ny", "yor ks u", "caf\xe9", "of the new york tim"])
def test_binary_words_with_spaces_have_their_own_vectors(tmp_path, newline, dim, rest):
    words = ["the", f"new {rest}", "of", f"a {rest}", f"b {rest}", "\u65e5\u672c", f"last {rest}"]
    for kind in ("normal", "round"):
        vectors = np.random.default_rng(len(rest)).normal(size=(7, dim)).astype(np.float32)
        vectors = vectors if kind == "normal" else np.round(2 * vectors) / 2
        binary(tmp_path / "words.bin", words, vectors, newline)
        encoder = StaticEncoder.open(tmp_path / "words.bin")
        assert encoder.words == words
        np.testing.assert_array_equal(encoder.vectors, vectors)


@pytest.mark.parametrize("newline", [b"", b"\n"])
def test_binary_words_with_control_characters_are_read_or_refused(tmp_path, newline):
    vectors = np.random.default_rng(1).normal(size=(4, 20)).astype(np.float32)
    for words in (["a\x01b", "\x02", "c\x7f", "d\te"], ["a\rb", "of", "c", "a\nb"]):
        binary(tmp_path / "words.bin", words, vectors, newline)
        encoder = StaticEncoder.open(tmp_path / "words.bin")
        assert encoder.words == words
        np.testing.assert_array_equal(encoder.vectors, vectors)
    for words in (["a", "\nb", "c", "d"], ["a", "new york", "\x01", "d"]):
        binary(tmp_path / "words.bin", words, vectors, newline)
        with pytest.raises(
            DataError, match="cannot be distinguished from the numbers, as words hold spaces or control"
        ):
            StaticEncoder.open(tmp_path / "words.bin")


def test_binary_vectors_of_any_size_and_words_that_are_not_utf8(tmp_path):
    vectors = np.float32([[1e-30, 1e30], [0, -1e-20], [3, 4]])
    binary(tmp_path / "words.bin", ["the", "of", "cat"], vectors, b"")
    np.testing.assert_array_equal(StaticEncoder.open(tmp_path / "words.bin").vectors, vectors)
    content = (tmp_path / "words.bin").read_bytes().replace(b"of ", b"\xe9f ")
    (tmp_path / "words.bin").write_bytes(content.replace(np.float32([1e-30, 1e30]).tobytes(), bytes(8)))
    with pytest.warns(UserWarning, match="1 words are not UTF-8"):
        assert StaticEncoder.open(tmp_path / "words.bin").words == ["the", "\ufffdf", "cat"]


def test_numbers_are_read_as_python_reads_them(tmp_path):
    numbers = (
        "1 -0.5 .25 +3. 1e-3 -2.5E+2 0.1234567890123456789012 123456789012345678901 1e-45 3.4e38 1e-400 -0".split()
    )
    path = tmp_path / "words.txt"
    path.write_text("one " + " ".join(numbers) + "\r\ntwo\t" + "\t".join(reversed(numbers)) + " \n")
    encoder = StaticEncoder.open(path)
    np.testing.assert_array_equal(encoder.vector("one"), np.array([float(one) for one in numbers], np.float32))
    np.testing.assert_array_equal(encoder.vector("two"), encoder.vector("one")[::-1])


def test_words_with_spaces_of_glove_and_a_last_line_without_a_newline(tmp_path):
    path = tmp_path / "glove.txt"
    path.write_text("the 1 2 3\n. . . 4 5 6\nat name@domain.com 7 8 9")
    encoder = StaticEncoder.open(path)
    assert encoder.words == ["the", ". . .", "at name@domain.com"]
    np.testing.assert_array_equal(encoder.vectors, np.arange(1, 10).reshape(3, 3))


@pytest.mark.parametrize("header", ["", "2 3\n"])
@pytest.mark.parametrize("word", [". . .", "New York", "a\vb", "\fb", "the\x1cold cat"])
def test_words_with_white_space_in_the_first_line(tmp_path, header, word):
    """Not taken for the binary format, and not counted as numbers."""
    (tmp_path / "words.txt").write_text(f"{header}{word} 1 -2.5 3e-2\ncat 4 5 6\n")
    words, vectors, _ = read_word_file(tmp_path / "words.txt")
    assert words == [word, "cat"]
    np.testing.assert_array_equal(vectors, np.array([[1, -2.5, 3e-2], [4, 5, 6]], np.float32))


def test_spaces_after_a_word_are_not_part_of_it(tmp_path):
    (tmp_path / "words.txt").write_text("cat  1 2 3\n17 \t 4 5 6\n. .  7 8 9\n")
    encoder = StaticEncoder.open(tmp_path / "words.txt")
    assert encoder.words == ["cat", "17", ". ."]
    np.testing.assert_array_equal(encoder.vectors, np.arange(1, 10).reshape(3, 3))


@pytest.mark.parametrize("header", ["", "2 3\n"])
def test_byte_order_mark_is_skipped(tmp_path, header):
    (tmp_path / "words.txt").write_text(f"{header}the 1 2 3\ncat 4 5 6\n", encoding="utf-8-sig")
    encoder = StaticEncoder.open(tmp_path / "words.txt")
    assert encoder.words == ["the", "cat"]
    np.testing.assert_array_equal(encoder.vectors, np.arange(1, 7).reshape(2, 3))
    (tmp_path / "words.txt").write_text(f"{header}the 1 2 3\ncat 4 x 6\n", encoding="utf-8-sig")
    with pytest.raises(DataError, match=f"line {2 + bool(header)}: a column of 'cat'"):
        StaticEncoder.open(tmp_path / "words.txt")


@pytest.mark.parametrize("limit", [1 << 10, 1 << 24])
def test_cache_with_many_parts_and_other_files(tmp_path, monkeypatch, limit):
    monkeypatch.setattr("bertkit.words.word_files._BYTES_AT_A_TIME", limit)
    monkeypatch.setattr("bertkit.words.room._BYTES_IN_MEMORY", limit)
    vectors = np.random.default_rng(1).normal(size=(5_003, 9)).astype(np.float32)
    words = [f"w{number}" for number in range(len(vectors))]
    write_word2vec(tmp_path / "words.vec", words, vectors)
    encoder = StaticEncoder.open(tmp_path / "words.vec")
    np.testing.assert_array_equal(encoder.vectors, vectors)
    assert encoder.words == words
    keyed = pytest.importorskip("gensim.models").KeyedVectors(9)
    keyed.add_vectors(words, vectors)
    keyed.save_word2vec_format(str(tmp_path / "words.bin"), binary=True)
    np.testing.assert_array_equal(StaticEncoder.open(tmp_path / "words.bin").vectors, vectors)


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="the system cannot reserve space")
def test_full_disk_is_named_before_vectors_are_mapped(tmp_path, monkeypatch):
    def no_space(handle, offset, num_bytes):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("bertkit.words.room._BYTES_IN_MEMORY", 0)
    monkeypatch.setattr(os, "posix_fallocate", no_space)
    (tmp_path / "words.txt").write_text("the 1 2 3\ncat 4 5 6\n")
    with pytest.raises(DataError, match=r"need a temporary file of 24 bytes in .*: No space left.* set TMPDIR"):
        StaticEncoder.open(tmp_path / "words.txt")


BAD_FILES = {
    "columns": (b"2 3\nthe 1 2 3\ncat 1 2\n", r"line 3: 2 numbers after 'cat', expected 3"),
    "columns_without_header": (b"the 1 2 3\ncat 1 2 3 4\n", r"line 2: 4 numbers after 'cat', expected 3"),
    "no_number": (b"the 1 2 3\ncat 1 x 3\n", r"line 2: a column of 'cat' is not a number"),
    "nan": (b"the 1 2 3\ncat 1 nan 3\n", r"line 2: a number of 'cat' is NaN or infinite"),
    "infinite": (b"the 1 2 1e39\n", r"line 1: a number of 'the' is NaN or infinite"),
    "empty": (b"", r"holds no word vectors"),
    "header_only": (b"4 3\n", r"holds no words"),
    "text_cut": (b"3 3\nthe 1 2 3\ncat 1 2 3\n", r"has 2 lines of words, line 1 names 3 words: copy it again"),
    "more_lines": (b"1 3\nthe 1 2 3\ncat 1 2 3\n", r"has 2 lines of words, line 1 names 1 words: .* correct line 1"),
    "spaces_and_columns": (b"the 1 2 3\ncat 1 2  3 4\n", r"line 2: 4 numbers after 'cat', expected 3"),
    "word_alone": ("2 3\nthé\ncat 1 2 3\n".encode(), r"line 2: 0 numbers after 'thé', expected 3"),
    "no_words_named": (b"0 3\n", r"names 0 words of 3 numbers"),
    "words_only": (b"the\ncat\n", r"line 1: 'the' has no numbers"),
    "binary_cut": (b"2 3\nthe " + struct.pack("<3f", 1, 2, 3) + b"cat \0\0", r"too few for the 2 words"),
    "binary_more": (
        b"1 2\nthe " + struct.pack("<2f", 1, 2) + b"\ncat " + struct.pack("<2f", 3, 4),
        r"continues after .* 1 words",
    ),
    "binary_nan": (b"1 3\nthe " + struct.pack("<3f", 1, float("nan"), 3), r"word 1 is NaN or infinite"),
    "gzip": (b"\x1f\x8b\x08\0", r"is compressed: .* decompress it"),
    "zip": (b"PK\x03\x04\x14\0the 1 2", r"is compressed: .* decompress it"),
    "utf-16": ("the 1 2\ncat 3 4\n".encode("utf-16"), r"the file is in UTF-16 \(iconv"),
    "commas": (b"the 1,5 2,5\n", r"line 1: 'the 1,5 2,5' has no numbers"),
    "fasttext": (b"\xba\x16\x4f\x2f\x0c\0\0\0", r"give its .vec file"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_files_raise_in_one_sentence(tmp_path, capfd, name):
    content, message = BAD_FILES[name]
    (tmp_path / "words.txt").write_bytes(content)
    with pytest.raises(DataError, match=message):
        StaticEncoder.open(tmp_path / "words.txt")
    assert run(["similarity", "a", "b", "--model", str(tmp_path / "words.txt")]) == 2
    assert len(capfd.readouterr().err.splitlines()) == 1


def test_repeated_words_keep_their_first_vector_and_are_counted(tmp_path):
    (tmp_path / "words.txt").write_text("the 1 2\ncat 3 4\nthe 5 6\n")
    with pytest.warns(UserWarning, match="1 lines repeat a word, 'the' first"):
        encoder = StaticEncoder.open(tmp_path / "words.txt")
    assert encoder.words == ["the", "cat"]
    np.testing.assert_array_equal(encoder.vector("the"), [1, 2])


def test_words_that_are_not_utf8_are_counted(tmp_path):
    (tmp_path / "words.txt").write_bytes(b"caf\xe9 1 2\ncaf\xe8 3 4\n\xef\xbf\xbd 5 6\n")
    with pytest.warns(UserWarning) as warned:
        encoder = StaticEncoder.open(tmp_path / "words.txt")
    assert encoder.words == ["caf\ufffd", "\ufffd"]
    messages = [str(one.message) for one in warned]
    assert "2 words are not UTF-8, 'caf\ufffd' first" in messages[0] and "1 lines repeat a word" in messages[1]


def test_averages_leave_unknown_words_out_and_count_them(vectors):
    encoder = StaticEncoder.of_words(WORDS, vectors)
    report = InferenceReport()
    given = ["The cat sat zzz there.", "zzz", "", "café"]
    embedded = encoder.embed(given, report=report)
    np.testing.assert_allclose(embedded[0], vectors[:5].mean(axis=0), atol=1e-6)
    np.testing.assert_array_equal(embedded[1:3], np.zeros((2, DIM)))
    np.testing.assert_allclose(embedded[3], vectors[WORDS.index("café")], atol=1e-6)
    assert (report.num_texts, report.num_tokens, report.num_unknown, report.num_empty) == (4, 8, 2, 2)
    with pytest.warns(UnknownWordsWarning, match="2 of 8 tokens have no vector"):
        encoder.embed(given)
    np.testing.assert_array_equal(
        encoder.embed("The cat"), encoder.embed(["x", "The cat"], report=InferenceReport())[1]
    )
    assert encoder.similarity("cat", "cat") == pytest.approx(1)


def test_entries_that_look_like_pieces_do_not_continue_words():
    encoder = StaticEncoder.of_words(["dog", "##s", "#"], np.eye(3, dtype=np.float32))
    report = InferenceReport()
    np.testing.assert_array_equal(encoder.embed("dogs", report=report), np.zeros(3))
    assert report.num_unknown == 1
    assert "##s" in encoder


def test_vectors_are_equal_regardless_of_batch_and_threads(vectors):
    encoder, random = StaticEncoder.of_words(WORDS, vectors), np.random.default_rng(2)
    texts = [" ".join(random.choice(WORDS, random.integers(1, 30))) for _ in range(1_037)]
    together = encoder.embed(texts, report=InferenceReport())
    alone = np.stack([encoder.embed(text, report=InferenceReport()) for text in texts[:50]])
    np.testing.assert_array_equal(together[:50], alone)
    np.testing.assert_array_equal(encoder.embed(texts[::-1], report=InferenceReport())[::-1], together)


def test_sif_and_idf_weights(vectors):
    encoder, texts = StaticEncoder.of_words(WORDS, vectors), ["the cat the", "the dogs", "cat"]
    sif = encoder.weighted("sif", texts, smoothing=0.01)
    assert sif.weights[0] == pytest.approx(0.01 / (0.01 + 3 / 6))
    idf = encoder.weighted("idf", texts)
    assert idf.weights[0] == pytest.approx(np.log(4 / 3) + 1)
    assert idf.weights[WORDS.index("in")] == pytest.approx(np.log(4 / 1) + 1)
    expected = (vectors[0] * sif.weights[0] + vectors[1] * sif.weights[1]) / 2
    np.testing.assert_allclose(sif.embed("the cat"), expected, atol=1e-6)
    for smoothing in (0, -0.1, np.nan, np.inf):
        with pytest.raises(UsageError, match="expected a finite number above 0"):
            encoder.weighted("sif", texts, smoothing=smoothing)
    assert np.all(np.diff(encoder.weighted("sif").weights) > 0)
    with pytest.raises(UsageError, match="pass texts"):
        encoder.weighted("idf")


def spacy_folder(folder: Path, words: list[str], vectors: np.ndarray, hashes: list[int]) -> Path:
    vocab = folder / "en_tiny-1.0" / "vocab"
    vocab.mkdir(parents=True)
    with (vocab / "vectors").open("wb") as file:
        np.save(file, vectors)
    (vocab / "strings.json").write_text(json.dumps(["", "no vector", *words]))
    pairs = b"".join(b"\xcf" + struct.pack(">Q", key) + bytes([row]) for row, key in enumerate(hashes))
    (vocab / "key2row").write_bytes(bytes([0x80 | len(hashes)]) + pairs)
    return folder


@pytest.mark.full
def test_vectors_of_a_spacy_pipeline(tmp_path):
    # Hashes that the documentation of spaCy prints.
    hashes = {"coffee": 3197928453018144401, "I": 4690420944186131903, "love": 3702023516439754181}
    vectors = np.random.default_rng(3).normal(size=(3, 5)).astype(np.float32)
    folder = spacy_folder(tmp_path / "en_tiny", list(hashes), vectors, list(hashes.values()))
    encoder = StaticEncoder.open(folder)
    assert encoder.words == list(hashes)
    np.testing.assert_array_equal(encoder.vector("love"), vectors[2])
    np.testing.assert_allclose(encoder.embed("I love coffee"), vectors.mean(axis=0), atol=1e-6)
    (folder / "en_tiny-1.0" / "vocab" / "key2row").write_bytes(b"\x81\xcf\0")
    with pytest.raises(DataError, match="cannot be read as the vectors of a spaCy pipeline"):
        StaticEncoder.open(folder)


def published_tokenizer(kind: str) -> tokenizers.Tokenizer:
    pieces = ["[PAD]", "[UNK]", *WORDS, "##s", "##t", "un", "##k", "a", "b", "c"]
    vocab = {piece: number for number, piece in enumerate(pieces)}
    if kind == "wordpiece":
        tokenizer = tokenizers.Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    else:
        tokenizer = tokenizers.Tokenizer(models.WordLevel(vocab, unk_token="[UNK]"))
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return tokenizer


TEXTS = ["The cat sat there.", "unks in the catss zzz", "", "dogs " * 40, "a b c [UNK] café"]


@pytest.mark.parametrize("kind", ["wordpiece", "words"])
def test_static_embedding_equals_sentence_transformers(tmp_path, kind):
    library = pytest.importorskip("sentence_transformers")
    from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding

    tokenizer = published_tokenizer(kind)
    weights = np.random.default_rng(4).normal(size=(tokenizer.get_vocab_size(), 11)).astype(np.float32)
    for number, after in enumerate(([], [Normalize()])):
        theirs = library.SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_weights=weights), *after])
        theirs.save(str(tmp_path / f"model{number}"))
        ours = StaticEncoder.open(tmp_path / f"model{number}")
        report = InferenceReport()
        np.testing.assert_allclose(ours.embed(TEXTS, report=report), theirs.encode(TEXTS), atol=1e-6)
        ours.save(tmp_path / f"saved{number}")
        again = library.SentenceTransformer(str(tmp_path / f"saved{number}"))
        np.testing.assert_allclose(again.encode(TEXTS), theirs.encode(TEXTS), atol=1e-6)
        np.testing.assert_array_equal(
            StaticEncoder.open(tmp_path / f"saved{number}").embed(TEXTS, report=report),
            ours.embed(TEXTS, report=report),
        )
        with pytest.raises(UsageError, match="expected str"):
            ours.embed(["the cat", ("the", "dog")])
        with pytest.raises(DataError, match="text 1 is not valid Unicode"):
            ours.embed(["the cat", "\ud800"])


def test_saved_word_vectors_have_the_same_cosines_in_sentence_transformers(tmp_path, vectors):
    library = pytest.importorskip("sentence_transformers")
    encoder = StaticEncoder.of_words(WORDS, vectors).weighted("sif")
    encoder.save(tmp_path / "model")
    texts = ["the cat", "zzz dogs in new york", "Café."]
    theirs = library.SentenceTransformer(str(tmp_path / "model")).encode(texts, normalize_embeddings=True)
    np.testing.assert_allclose(encoder.embed(texts, normalize=True, report=InferenceReport()), theirs, atol=1e-6)
    again = StaticEncoder.open(tmp_path / "model").embed(texts, report=InferenceReport())
    np.testing.assert_allclose(again, encoder.embed(texts, report=InferenceReport()), atol=1e-6)


@pytest.mark.parametrize("kind", ["wordpiece", "words"])
@pytest.mark.parametrize("quantized", [False, True])
def test_model2vec_folders_equal_model2vec(tmp_path, kind, quantized):
    model2vec = pytest.importorskip("model2vec")
    tokenizer, random = published_tokenizer(kind), np.random.default_rng(5)
    number = tokenizer.get_vocab_size()
    extra = {}
    if quantized:
        extra = {"weights": random.random(number), "token_mapping": random.integers(4, size=number)}
    vectors = random.normal(size=(4 if quantized else number, 11)).astype(np.float32)
    theirs = model2vec.StaticModel(vectors, tokenizer, normalize=quantized, max_length=9, **extra)
    theirs.save_pretrained(tmp_path / "model")
    ours, report = StaticEncoder.open(tmp_path / "model"), InferenceReport()
    np.testing.assert_allclose(ours.embed(TEXTS, report=report), theirs.encode(TEXTS), atol=1e-6)
    assert report.num_texts_cut >= 1
    whole = ours.embed(TEXTS, report=InferenceReport(), on_long="window")
    np.testing.assert_allclose(whole, theirs.encode(TEXTS, max_length=None), atol=1e-6)
    with pytest.raises(OverLengthError, match="text 3 has 40 tokens, more than the 9 read"):
        ours.embed(TEXTS, on_long="error")


def test_cut_texts_have_the_unknown_words_of_the_part_that_is_read(vectors):
    ngrams = np.random.default_rng(3).normal(size=(50, DIM)).astype(np.float32)
    encoder, report = replace(StaticEncoder.of_words(WORDS, vectors), ngrams=ngrams), InferenceReport()
    cut = encoder.embed("the zzz yyy xxx www", max_length=2, report=report)
    expected = encoder.embed("the zzz", report=InferenceReport())
    np.testing.assert_array_equal(cut, expected)
    assert (report.num_tokens, report.num_unknown, report.num_tokens_cut) == (2, 0, 3)


def test_windows_include_every_token(vectors):
    encoder, report = StaticEncoder.of_words(WORDS, vectors), InferenceReport()
    whole = encoder.embed("the cat sat", max_length=2, on_long="window", report=report)
    np.testing.assert_array_equal(whole, encoder.embed("the cat sat"))
    assert report.num_texts_cut == 0


def test_limits_of_a_text_are_saved(tmp_path, vectors):
    encoder = replace(StaticEncoder.of_words(WORDS, vectors), max_length=3, max_characters=9)
    encoder.save(tmp_path / "model")
    again = StaticEncoder.open(tmp_path / "model")
    assert (again.max_length, again.max_characters) == (3, 9)
    np.testing.assert_allclose(
        again.embed("the cat sat", report=InferenceReport()),
        encoder.embed("the cat sat", report=InferenceReport()),
        atol=1e-6,
    )


def test_inapplicable_options_raise(vectors):
    encoder = StaticEncoder.of_words(WORDS, vectors)
    for options, message in (
        ({"pooling": "cls"}, "pooling='cls'"),
        ({"layers": "all"}, "layers|all"),
        ({"dimensions": 8}, "have 7"),
        ({"on_long": "ignore"}, "on_long='ignore': expected 'error', 'truncate', 'window'"),
        ({"max_length": 0}, "max_length=0: expected an int of at least 1"),
        ({"max_length": -1}, "max_length=-1: expected an int of at least 1"),
    ):
        with pytest.raises(UsageError, match=message):
            encoder.embed("the cat", **options)
    np.testing.assert_allclose(encoder.embed("the cat", dimensions=3), encoder.embed("the cat")[:3])
    with pytest.raises(UsageError, match="texts is a str"):
        encoder.weighted("idf", "the cat")
    with pytest.raises(UsageError, match="'zebra' has no vector among the 9 words"):
        encoder.vector("zebra")
    with pytest.raises(UsageError, match="expected one or more, each once"):
        StaticEncoder.of_words([], np.empty((0, 3)))
    with pytest.raises(UsageError, match="a vector for each word"):
        StaticEncoder.of_words(["a"], np.empty((2, 3)))


@pytest.mark.parametrize("rows", [[0, 2], [0, 5_000], [0.0, 1.0], [[0], [1]], [True, False]])
def test_rows_outside_the_vectors_raise(rows):
    with pytest.raises(UsageError, match=r"rows .*: expected 2 integers below 2, the number of vectors"):
        StaticEncoder.of_words(["cat", "dog"], np.ones((2, 3)), np.array(rows))


def test_words_with_a_negative_row_have_no_vector():
    encoder = StaticEncoder.of_words(["cat", "dog", "cow"], np.ones((2, 3)), np.array([1, -1, 1 - 2**32]))
    assert encoder.words == ["cat"] and not encoder.embed("dog cow", report=InferenceReport()).any()


def test_vectors_in_lists_tables_and_nan(vectors):
    encoder = StaticEncoder.of_words(WORDS, vectors.tolist())
    np.testing.assert_array_equal(encoder.vectors, vectors)
    assert top_pairs(vectors.tolist(), 1).first.tolist() == top_pairs(vectors, 1).first.tolist()
    with pytest.raises(UsageError, match="expected texts, got a DataFrame: pass one of its columns"):
        encoder.embed(pd.DataFrame({"text": WORDS}))
    with pytest.raises(UsageError, match="expected texts, got None: pass a str, or several"):
        encoder.similarity("cat", None)
    vectors[2, 1] = np.nan
    with pytest.raises(UsageError, match="vector 2: a number is NaN or infinite"):
        StaticEncoder.of_words(WORDS, vectors)


def test_folder_without_vectors_raises(tmp_path):
    with pytest.raises(CheckpointError, match="holds no word vectors"):
        StaticEncoder.open(tmp_path)


def test_search_features_and_evaluation_take_word_vectors(tmp_path, vectors, capfd):
    path = tmp_path / "words.vec"
    write_word2vec(path, WORDS, vectors)
    (tmp_path / "files").mkdir()
    for number, text in enumerate(("the cat sat there", "dogs in café")):
        (tmp_path / "files" / f"{number}.txt").write_text(text)
    with bertkit.Index.open(tmp_path / "store", path) as index:
        index.add(tmp_path / "files")
    with bertkit.Index.open(tmp_path / "store") as index:
        assert index.search("dogs in café", 1, mode="dense")[0].score == pytest.approx(1, abs=1e-3)
    features = bertkit.Features(path).fit(["the"])
    np.testing.assert_allclose(features.transform(["the cat"])[0], vectors[:2].mean(axis=0), atol=1e-6)
    assert open_encoder(path).embed("the").shape == (DIM,)
    with pytest.warns(UnknownWordsWarning, match="1 of 4 tokens have no vector"):
        assert run(["similarity", "the cat", "the zzz", "--model", str(path)]) == 0
    printed = capfd.readouterr()
    assert json.loads(printed.out)["score"] == pytest.approx(StaticEncoder.open(path).similarity("the cat", "the"))
