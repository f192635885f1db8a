"""Token shards: equal to tokenizing sentence by sentence, bit-identical after resuming, rejected if they do not fit."""

import hashlib
import itertools
import json
import math
import random
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

from bertkit.corpus.documents import Part, Reading, read_sentences
from bertkit.corpus.duplicates import SeenSentences
from bertkit.corpus.part_tokens import hash_sentences, take_sentences, tokenize_part
from bertkit.corpus.shard_writing import ShardSettings, write_shard
from bertkit.corpus.shards import TokenShard, open_shard
from bertkit.errors import DataError, UsageError
from bertkit.files import SkippedRow
from bertkit.files.whole_files import only_writer
from bertkit.pretraining.text import text_not_used
from bertkit.tokenizer import Tokenizer, Vocabulary
from bertkit.tokenizer.added_tokens import AddedToken
from bertkit.tokenizer.wordpiece import WordPiece

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
LETTERS = [chr(code) for code in range(ord("a"), ord("z") + 1)]
TOKENS = (*SPECIAL, *LETTERS, *("##" + letter for letter in LETTERS), *".,!?é0123456789", "the", "cat", "sat", "##at")
TOKENIZER = Tokenizer.from_vocab(TOKENS)
Documents = list[list[list[int]]]


def documents_of(shard: TokenShard) -> Documents:
    """Ids by sentence by document."""
    return [
        [shard.tokens[shard.sentences[index] : shard.sentences[index + 1]].tolist() for index in range(first, last)]
        for first, last in zip(shard.documents[:-1], shard.documents[1:], strict=True)
    ]


def reference(sources: list[str | Path], reading: Reading | None = None, tokenizer=TOKENIZER) -> Documents:
    """The same, one sentence at a time."""
    results: Documents = []
    starts_document = True
    for sentence in read_sentences(sources, reading or Reading(), []):
        starts_document |= sentence.starts_document
        if ids := tokenizer.encode(sentence.text).input_ids[1:-1].tolist():
            if starts_document:
                results.append([])
            results[-1].append(ids)
            starts_document = False
    return results


def write_texts(folder: Path, seed: int = 0) -> list[str | Path]:
    """Files of every layout, an empty one among them; documents of very different size, sentences without tokens."""
    folder.mkdir()
    rng = random.Random(seed)
    words = ["the", "cat", "sat.", "Fox!", "A", "é", "Xyz", "1.", "\u200b", "Mr.", "unable", "end."]

    def lines(number: int) -> list[str]:
        return [" ".join(rng.choices(words, k=rng.randrange(1, 9))) for _ in range(number)]

    (folder / "a.txt").write_text("\ufeff" + "\n".join(lines(300)).replace("1.", "\n") + "\n\u200b\n\nLast.")
    (folder / "b.txt").write_bytes("\r\n".join(line + " " + line for line in lines(200)).encode())
    (folder / "c.jsonl").write_text(
        "".join(json.dumps({"text": "\n".join(lines(rng.randrange(5)))}) + "\n" for _ in range(90))
    )
    (folder / "d.txt").write_text("")
    (folder / "e.csv").write_text('text\n"the cat"\n"\u200b"\n"sat,\n!"\n')
    return [folder / "b.txt", folder]


def digest(folder: Path) -> dict[str, str]:
    files = [file for file in folder.rglob("*") if file.is_file()]
    return {file.relative_to(folder).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertkit.corpus.documents._PART_BYTES", 500)
    monkeypatch.setattr("bertkit.corpus.documents._AHEAD_BYTES", 100)


# What is written -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["auto", "lines", "paragraphs", "running"])
def test_shard_equals_sentence_by_sentence_tokenization(tmp_path: Path, layout, small_parts: None) -> None:
    sources = write_texts(tmp_path / "texts")
    shard = write_shard(sources, tmp_path / "shard", TOKENIZER, ShardSettings(layout))
    expected = reference(sources, Reading(layout))
    assert documents_of(shard) == expected and len(expected) > 50
    assert all(document and all(document) for document in expected)
    assert (shard.tokens.dtype, shard.sentences.dtype, shard.documents.dtype) == (np.uint16, np.int64, np.int64)
    assert not shard.tokens.flags.writeable
    manifest = json.loads((tmp_path / "shard" / "manifest.json").read_text())
    assert manifest == shard.manifest and manifest["finished"] and "progress" not in manifest
    flat = [ids for document in expected for ids in document]
    counts = np.bincount(np.concatenate(flat), minlength=len(TOKENS))
    assert np.array_equal(np.fromfile(tmp_path / "shard" / "counts.bin", np.int64), counts)
    shares = counts[counts > 0] / counts.sum()
    assert manifest["unigram_entropy"] == pytest.approx(-(shares * np.log(shares)).sum())
    assert manifest["num_documents"] == len(expected) and manifest["num_sentences"] == len(flat)
    assert manifest["num_tokens"] == sum(map(len, flat)) == len(shard.tokens)
    assert manifest["num_duplicates"] == len(flat) - len(set(map(tuple, flat)))
    names = ["b.txt", "a.txt", "b.txt", "c.jsonl", "d.txt", "e.csv"]
    files = [tmp_path / "texts" / name for name in names]
    assert [Path(source["path"]).name for source in manifest["sources"]] == names
    assert [source["size"] for source in manifest["sources"]] == [file.stat().st_size for file in files]
    assert [source["sha256"] for source in manifest["sources"]] == [
        hashlib.sha256(file.read_bytes()).hexdigest() for file in files
    ]
    taken = [source["layout"] for source in manifest["sources"]]
    assert taken.pop(4) is None  # nothing stands there
    assert set(taken) <= {"lines", "paragraphs", "running"} if layout == "auto" else set(taken) == {layout}


def test_parts_and_threads_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = write_texts(tmp_path / "texts")
    settings = ShardSettings(held_out_share=0.3, drop_duplicates=True)
    write_shard(sources, tmp_path / "whole", TOKENIZER, settings, num_threads=1)
    monkeypatch.setattr("bertkit.corpus.documents._PART_BYTES", 400)
    monkeypatch.setattr("bertkit.corpus.documents._AHEAD_BYTES", 90)
    for number in (1, 2, 5):
        write_shard(sources, tmp_path / str(number), TOKENIZER, settings, num_threads=number)
        assert digest(tmp_path / str(number)) == digest(tmp_path / "whole")


@pytest.mark.full
def test_large_vocabulary_takes_int32(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_vocab((*TOKENS, *(f"x{number}" for number in range(66_000)), "fox"))
    (tmp_path / "a.txt").write_text("The fox.\nThe cat.\n")
    shard = write_shard(tmp_path / "a.txt", tmp_path / "shard", tokenizer)
    assert shard.tokens.dtype == np.int32 and shard.tokens.max() == len(tokenizer.vocabulary) - 1
    assert documents_of(shard) == reference([tmp_path / "a.txt"], tokenizer=tokenizer)
    assert tokenizer.decode(shard.tokens[:3]) == "the fox."


def test_added_tokens_equal_tokenizers_library(tmp_path: Path) -> None:
    tokenizer = Tokenizer(WordPiece(Vocabulary((*TOKENS, "cat sat")), added_tokens=(AddedToken("cat sat"),)))
    sources = write_texts(tmp_path / "texts")
    shard = write_shard(sources, tmp_path / "shard", tokenizer)
    assert documents_of(shard) == reference(sources, tokenizer=tokenizer)
    assert len(tokenizer.vocabulary) - 1 in shard.tokens


def test_unreadable_text_is_skipped_and_listed(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"the cat.\nthe b\xe4d\xff\ncat.\nsat.\n")
    (tmp_path / "b.jsonl").write_bytes(b'"the cat."\n{"text": 3}\n"b\xe4d"\n')
    sources = [tmp_path / "a.txt", tmp_path / "b.jsonl"]
    shard = write_shard(sources, tmp_path / "shard", TOKENIZER, ShardSettings("lines"))
    assert documents_of(shard) == reference(sources, Reading("lines"))
    set_aside: list[SkippedRow] = []
    assert len(list(read_sentences(sources, Reading("lines"), set_aside))) == 4
    lines = [json.loads(line) for line in (tmp_path / "shard" / "set_aside.jsonl").read_text().splitlines()]
    assert [(line["path"], line["line"], line["text"]) for line in lines] == [
        (str(tmp_path / "a.txt"), 2, "the b\ufffdd\ufffd"),
        (str(tmp_path / "b.jsonl"), 2, ""),
        (str(tmp_path / "b.jsonl"), 3, "b\ufffdd"),
    ]
    assert "expected text" in lines[1]["why"] and "not UTF-8" in lines[2]["why"]
    assert [(one.path, one.line) for one in set_aside] == [(line["path"], line["line"]) for line in lines]
    assert (shard.manifest["num_set_aside"], shard.manifest["num_invalid"]) == (3, 2)


def test_duplicates_are_reported_and_dropped_on_request(tmp_path: Path, small_parts: None) -> None:
    lines = [
        "the cat sat on a mat.",
        "Yes.",
        "The cat sat on a MAT .",
        "fox fox fox fox fox",
        "Yes.",
        "yes.",
        "fox " * 5,
    ]
    (tmp_path / "a.txt").write_text("\n".join(lines * 40) + "\n\n" + "\n".join([*lines, "a b"]) + "\n\nyes.\n\nc d\n")
    shard = write_shard(tmp_path / "a.txt", tmp_path / "shard", TOKENIZER, ShardSettings("lines"))
    manifest = shard.manifest
    assert manifest["num_duplicates"] == 7 * 41 + 3 - 5 and manifest["num_forgotten"] == 0
    dropped = write_shard(tmp_path / "a.txt", tmp_path / "d", TOKENIZER, ShardSettings("lines", drop_duplicates=True))
    seen: set[tuple[int, ...]] = set()
    expected = [
        [ids for ids in document if tuple(ids) not in seen and not seen.add(tuple(ids))]
        for document in documents_of(shard)
    ]
    assert documents_of(dropped) == [document for document in expected if document]
    assert len(documents_of(dropped)) == 3  # that of "yes." alone is gone
    assert all(dropped.manifest[name] == manifest[name] for name in ("num_duplicates", "num_forgotten"))


def test_documents_with_markup_are_counted_once(tmp_path: Path, small_parts: None) -> None:
    long = "<p>the cat</p>\n" * 300  # of several parts
    path = tmp_path / "a.txt"
    path.write_text(f"a < b > c, <3\n\n{long}\n{long}a <br/>\n\nb\n\none.<|endoftext|>two.\n\n<module> b\n")
    shard = write_shard(path, tmp_path / "shard", TOKENIZER, ShardSettings("lines"))
    assert shard.manifest["num_marked_up"] == 3
    line = text_not_used(shard, tmp_path / "shard", TOKENIZER)
    assert "documents with tags of HTML or marks such as <|endoftext|>: 3, trained on as text" in line


def test_hashes_of_sentences() -> None:
    """Equal for equal tokens at any position, and different for others, including reordered or shifted ones."""
    rng = np.random.default_rng(0)
    sentences = [rng.integers(0, 65_536, size) for size in rng.integers(1, 12, 3_000)]
    sentences += [np.sort(one) for one in sentences] + [np.append(one, 0) for one in sentences] + sentences
    lengths = np.array([len(one) for one in sentences])
    for dtype in (np.uint16, np.int32):
        hashes = hash_sentences(np.concatenate(sentences).astype(dtype), lengths)
        assert len(set(hashes.tolist())) == len({tuple(one.tolist()) for one in sentences})
        assert np.array_equal(hashes[:3_000], hashes[-3_000:])
    wide = np.array(
        [[1, 2, 3, 4], [1, 2, 3, 65_540], [1, 65_538, 3, 4], [65_537, 2, 3, 4], [1, 2, 65_539, 4]], np.int32
    )
    assert len(set(hash_sentences(wide.ravel(), np.full(5, 4)).tolist())) == 5
    chosen = rng.random(len(sentences)) < 0.3
    taken = take_sentences(np.concatenate(sentences).astype(np.uint16), lengths, chosen)
    assert taken.tolist() == [int(token) for one, own in zip(sentences, chosen, strict=True) if own for token in one]


def test_full_table_forgets_and_counts() -> None:
    """Its content does not depend on the order; new sentences are never taken for duplicates."""
    hashes = np.random.default_rng(1).integers(0, 2**64, 5_000, np.uint64)
    one, other = SeenSentences(4_000), SeenSentences(4_000)
    seen, num_forgotten = one.add(hashes)
    assert not seen.any() and 4_000 < num_forgotten < 5_000
    other.add(hashes[::-1].copy())
    assert np.array_equal(np.sort(one._table, axis=1), np.sort(other._table, axis=1))
    enough = SeenSentences(200_000)
    assert enough.add(hashes)[1] == 0 and enough.add(hashes)[0].all()
    assert SeenSentences(1 << 40)._table.nbytes == 128 << 20


# Held out ------------------------------------------------------------------------------------------------------------


def test_documents_are_held_out_by_number_and_seed(tmp_path: Path, small_parts: None) -> None:
    texts = [f"the cat {' '.join(str(number))}.\n" + "sat. " * (number % 9) for number in range(600)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(text) + "\n" for text in texts))
    whole = documents_of(write_shard(tmp_path / "a.jsonl", tmp_path / "whole", TOKENIZER))
    held_out: dict[tuple[float, int], Documents] = {}
    for share, seed in ((0.25, 0), (0.25, 1), (0.5, 0)):
        folder = tmp_path / f"{share} {seed}"
        settings = ShardSettings(held_out_share=share, seed=seed)
        shard = write_shard(tmp_path / "a.jsonl", folder, TOKENIZER, settings)
        other = open_shard(folder / "held-out", TOKENIZER)
        trained, held_out[share, seed] = documents_of(shard), documents_of(other)
        assert trained[0] == whole[0] and held_out[share, seed][0] == whole[1]
        numbers = [whole.index(document) for document in trained]
        others = [whole.index(document) for document in held_out[share, seed]]
        assert sorted(numbers + others) == list(range(600)) and numbers == sorted(numbers) and others == sorted(others)
        assert abs(len(others) - 600 * share) < 4 * (600 * share * (1 - share)) ** 0.5
        assert other.manifest["num_documents"] == len(others)
        assert other.manifest["unigram_entropy"] != shard.manifest["unigram_entropy"]
        counts = [
            np.fromfile(index / "counts.bin", np.int64) for index in (folder, folder / "held-out", tmp_path / "whole")
        ]
        assert np.array_equal(counts[0] + counts[1], counts[2])
    assert held_out[0.25, 0] != held_out[0.25, 1]
    assert all(document in held_out[0.5, 0] for document in held_out[0.25, 0])


@pytest.mark.parametrize("share", [0.001, 0.999])
def test_neither_shard_is_empty(tmp_path: Path, share: float) -> None:
    (tmp_path / "a.txt").write_text("the cat\nsat\n\nthe fox\nsat\n")
    shard = write_shard(tmp_path / "a.txt", tmp_path / "s", TOKENIZER, ShardSettings("lines", held_out_share=share))
    assert (len(shard.documents), len(open_shard(tmp_path / "s" / "held-out", TOKENIZER).documents)) == (2, 2)


def test_more_documents_can_be_held_out_at_least(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("".join(f'"the cat {number}"\n' for number in range(6)))
    settings = ShardSettings(held_out_share=1e-9, least_held_out=2)
    shard = write_shard(tmp_path / "a.jsonl", tmp_path / "s", TOKENIZER, settings)
    whole = documents_of(write_shard(tmp_path / "a.jsonl", tmp_path / "whole", TOKENIZER))
    assert documents_of(open_shard(tmp_path / "s" / "held-out", TOKENIZER)) == [whole[1], whole[3]]
    assert documents_of(shard) == [whole[0], whole[2], whole[4], whole[5]]
    assert documents_of(write_shard(tmp_path / "a.jsonl", tmp_path / "s", TOKENIZER, settings)) == documents_of(shard)


# Interrupted and refused ---------------------------------------------------------------------------------------------


class Stopped(Exception):
    pass


def stop_after(monkeypatch: pytest.MonkeyPatch, number: int | None) -> list[Part]:
    """Make writing raise after a number of parts, with the others committed at once; returns the started parts."""
    begun: list[Part] = []

    def work(part: Part, *args, **kwargs):
        begun.append(part)
        if number is not None and len(begun) > number:
            raise Stopped
        return tokenize_part(part, *args, **kwargs)

    monkeypatch.setattr("bertkit.corpus.shard_writing.tokenize_part", work)
    monkeypatch.setattr("bertkit.corpus.shard_writing._SECONDS_BETWEEN_COMMITS", -1.0)
    return begun


@pytest.mark.full(sample=1)
@pytest.mark.parametrize(
    "settings",
    [
        ShardSettings(),
        ShardSettings(drop_duplicates=True, held_out_share=0.3),
        ShardSettings("lines", held_out_share=0.9),
    ],
)
def test_interrupted_work_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_parts: None, settings: ShardSettings
) -> None:
    sources = write_texts(tmp_path / "texts")
    all_parts = stop_after(monkeypatch, None)
    write_shard(sources, tmp_path / "whole", TOKENIZER, settings, num_threads=1)
    begun, folder, rng = [], tmp_path / "shard", random.Random(1)
    while True:
        parts = stop_after(monkeypatch, rng.randrange(0, 30))
        begun.append(parts)
        try:
            write_shard(sources, folder, TOKENIZER, settings, num_threads=1)
            break
        except Stopped:
            with pytest.raises(DataError, match="is unfinished: write it again with the same sources"):
                open_shard(folder, TOKENIZER)
        for name in ("tokens.bin", "sentences.bin", "documents.bin", "set_aside.jsonl"):
            with open(folder / name, "ab") as file:  # written, and not committed
                file.write(bytes(rng.randrange(9)))
    assert len(begun) > 3 and digest(folder) == digest(tmp_path / "whole")
    num_again = 5 * (len(begun) - 1)  # those that were at work when it stopped
    assert sum(map(len, begun)) - num_again <= len(all_parts) and len(begun[-1]) < len(all_parts)


@pytest.mark.slow
def test_survives_kills_at_any_moment(tmp_path: Path) -> None:
    sources = write_texts(tmp_path / "texts")
    for number in range(4):
        lines = (f"The cat {' '.join(str(number + 4 * line))} sat.\n" for line in range(10_000))
        (tmp_path / "texts" / f"x{number}.txt").write_text("".join(lines))
    program = f"""
        import sys, time
        from pathlib import Path
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from bertkit.corpus import documents, shard_writing
        from test_shards import TOKENIZER, ShardSettings
        documents._PART_BYTES, shard_writing._SECONDS_BETWEEN_COMMITS = 20_000, 0.0
        settings = ShardSettings(held_out_share=0.3, drop_duplicates=True)
        shard_writing.write_shard({[str(source) for source in sources]!r}, Path(sys.argv[1]), TOKENIZER, settings)
        """

    def run(folder: Path, num_tokens: float) -> int:
        """Kill it when a number of tokens is committed, unless it has finished."""
        process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(program), str(folder)])
        with process:
            while process.poll() is None and committed(folder) < num_tokens:
                time.sleep(0.001)
            process.kill()
        return process.returncode

    def committed(folder: Path) -> int:
        manifest = folder / "manifest.json"
        return json.loads(manifest.read_text())["num_tokens"] if manifest.exists() else 0

    whole, shard, rng = tmp_path / "whole", tmp_path / "shard", random.Random(2)
    assert run(whole, math.inf) == 0
    for share in (0.1, 0.4, 0.7):
        before = committed(shard)
        assert run(shard, (share + rng.uniform(0, 0.2)) * committed(whole)) == -signal.SIGKILL
        assert before < committed(shard) < committed(whole)
    (shard / ".manifest.json.killed.partial").touch()
    assert run(shard, math.inf) == 0
    assert digest(shard) == digest(whole)


def test_finished_shard_is_opened_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = write_texts(tmp_path / "texts")
    settings = ShardSettings(held_out_share=0.2)
    write_shard(sources, tmp_path / "shard", TOKENIZER, settings)
    before = digest(tmp_path / "shard")
    monkeypatch.setattr("bertkit.corpus.shard_writing.read_parts", None)
    (tmp_path / "texts" / "a.txt").touch()  # of the same content
    moved = tmp_path / "moved"
    (tmp_path / "texts").rename(moved)
    assert documents_of(write_shard([moved / "b.txt", moved], tmp_path / "shard", TOKENIZER, settings))
    assert digest(tmp_path / "shard") == before


def test_shard_has_one_writer(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("the cat.\nsat.\n")
    with only_writer(tmp_path / "shard"):  # another process
        with pytest.raises(UsageError, match="shard is being written by another process: wait until it has finished"):
            write_shard(tmp_path / "a.txt", tmp_path / "shard", TOKENIZER)
        assert not list((tmp_path / "shard").iterdir())
    shard = write_shard(tmp_path / "a.txt", tmp_path / "shard", TOKENIZER)
    with only_writer(tmp_path / "shard"):  # a finished one is read by any number
        assert documents_of(write_shard(tmp_path / "a.txt", tmp_path / "shard", TOKENIZER)) == documents_of(shard)
    with pytest.raises(UsageError, match=r"a\.txt is not a folder"):
        write_shard(tmp_path / "a.txt", tmp_path / "a.txt" / "shard", TOKENIZER)
    with pytest.raises(UsageError, match=r"a\.txt is not a folder"):
        write_shard(tmp_path / "a.txt", tmp_path / "a.txt", TOKENIZER)


@pytest.mark.full
def test_other_sources_vocabulary_or_settings_raise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_parts: None
) -> None:
    sources = write_texts(tmp_path / "texts")
    a, c = tmp_path / "texts" / "a.txt", tmp_path / "texts" / "c.jsonl"
    cased = Tokenizer.from_vocab(TOKENS, lowercase=False)
    for finished in (False, True):
        folder = tmp_path / f"shard {finished}"
        stop_after(monkeypatch, None if finished else 30)
        try:
            write_shard(sources, folder, TOKENIZER)
        except Stopped:
            assert not finished
        for other in (cased, Tokenizer.from_vocab((*TOKENS, "fox"))):
            with pytest.raises(DataError, match="made with another vocabulary: choose another folder, or delete"):
                write_shard(sources, folder, other)
        with pytest.raises(DataError, match="made with drop_duplicates=False, not True"):
            write_shard(sources, folder, TOKENIZER, ShardSettings(drop_duplicates=True))
        with pytest.raises(DataError, match="a shard of 6 files, but 5 are given"):
            write_shard(sources[1:], folder, TOKENIZER)
        with pytest.raises(DataError, match=r"but .*a.txt is given"):
            write_shard([a, *sources[1:]], folder, TOKENIZER)
        content = a.read_bytes()
        a.write_bytes(content[:-1] + b"!")
        with pytest.raises(DataError, match=r"holds a shard of .*a.txt, but it has changed"):
            write_shard(sources, folder, TOKENIZER)
        a.write_bytes(content)
        if not finished:  # what was not begun may change
            c.write_text(c.read_text() + '"more"\n')
            stop_after(monkeypatch, None)
        assert write_shard(sources, folder, TOKENIZER).manifest["finished"]
    for other in (cased, Tokenizer.from_vocab((*TOKENS, "fox"))):
        with pytest.raises(DataError, match=f"made with another vocabulary than this one of {len(other.vocabulary)}"):
            open_shard(folder, other)


def test_source_changed_while_read_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text("the cat.\nsat.\n")

    def work(part: Part, *args, **kwargs):
        (tmp_path / "a.txt").write_text("the cat.\nsat. More.\n")
        return tokenize_part(part, *args, **kwargs)

    monkeypatch.setattr("bertkit.corpus.shard_writing.tokenize_part", work)
    with pytest.raises(DataError, match=r"a.txt changed while it was read"):
        write_shard(tmp_path / "a.txt", tmp_path / "shard", TOKENIZER)


@pytest.mark.parametrize(
    ("content", "settings", "message"),
    [
        ("", ShardSettings(), "hold no sentences"),
        ("\n\n \u200b\n", ShardSettings(), "hold no sentences"),
        ("the cat", ShardSettings(), "hold one sentence in all; expected several"),
        ("b\xe4d\nb\xf6d\n", ShardSettings("lines"), "2 of 2 .* line 1: the sentence holds .*set_aside.jsonl"),
        (
            "the cat\nsat",
            ShardSettings("lines", held_out_share=0.5),
            "one document, which cannot be split into training and held-out text: expected 2 or more files",
        ),
        (
            "the cat\n\nsat\n\non the mat",
            ShardSettings("lines", held_out_share=0.5, least_held_out=2),
            "3 documents, which cannot be split into training and held-out text of 2 documents each: expected 4",
        ),
    ],
)
def test_too_little_text_raises(tmp_path: Path, content: str, settings: ShardSettings, message: str) -> None:
    (tmp_path / "a.txt").write_bytes(content.encode("latin-1" if "\xe4" in content else "utf-8"))
    for _ in range(2):
        with pytest.raises(DataError, match=message):
            write_shard(tmp_path / "a.txt", tmp_path / "shard", TOKENIZER, settings)


def test_error_on_unreadable_table_can_be_corrected(tmp_path: Path, small_parts: None) -> None:
    """Work done before it is kept."""
    sources = [*write_texts(tmp_path / "texts"), tmp_path / "z.csv"]
    (tmp_path / "z.csv").write_text("id,body\n1,The cat.\n")
    with pytest.raises(DataError, match=r"z.csv has no column 'text', it has id, body"):
        write_shard(sources, tmp_path / "shard", TOKENIZER)
    manifest = json.loads((tmp_path / "shard" / "manifest.json").read_text())
    assert manifest["num_tokens"] == sum(len(ids) for document in reference(sources[:-1]) for ids in document)
    (tmp_path / "z.csv").write_text("id,text\n1,The cat.\n")
    assert documents_of(write_shard(sources, tmp_path / "shard", TOKENIZER)) == reference(sources)


def test_wrong_calls(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("the cat.\nsat.\n")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "x").write_text("x")
    with pytest.raises(UsageError, match="exists and holds no token shard"):
        write_shard(tmp_path / "a.txt", tmp_path / "other", TOKENIZER)
    with pytest.raises(UsageError, match="txt files have no column 'text'"):
        write_shard(tmp_path / "a.txt", tmp_path / "shard", TOKENIZER, ShardSettings(column="text"))
    with pytest.raises(UsageError, match=r"held_out_share=1.0: expected at least 0 and below 1"):
        ShardSettings(held_out_share=1.0)
    with pytest.raises(DataError, match="holds no token shard"):
        open_shard(tmp_path / "other", TOKENIZER)
    with pytest.raises(DataError, match="no such file"):
        write_shard(tmp_path / "b.txt", tmp_path / "shard", TOKENIZER)
    assert not (tmp_path / "shard").exists()


@pytest.mark.full
def test_damaged_shards_raise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertkit.corpus.shards._NUMBERS_AT_A_TIME", 3)
    sources = write_texts(tmp_path / "texts")
    folder = tmp_path / "shard"
    write_shard(sources, folder, TOKENIZER)

    def refused(message: str, name: str, content: bytes) -> None:
        before = (folder / name).read_bytes()
        (folder / name).write_bytes(content)
        with pytest.raises(DataError, match=message):
            open_shard(folder, TOKENIZER)
        (folder / name).write_bytes(before)

    for name in ("tokens.bin", "sentences.bin", "documents.bin"):
        content = (folder / name).read_bytes()
        for wrong in (b"", content[:-2], content + content):
            refused(f"damaged: .*{name} has {len(wrong)} bytes", name, wrong)
        if name != "tokens.bin":
            for index in (0, 1, 2, 3, 4, 5, 6, -2, -1):  # every index of a piece of three, and the last
                for wrong in (1 << 62, -(1 << 63), (1 << 63) - 1):
                    bounds = np.frombuffer(content, np.int64).copy()
                    bounds[index] = wrong
                    refused(f"damaged: the bounds in .*{name} do not increase from 0 to", name, bounds.tobytes())
            refused(f"damaged: the bounds in .*{name} do not increase from 0 to", name, content[:-8] + bytes(8))
            refused(f"damaged: the bounds in .*{name} do not increase from 0 to", name, b"\1" + content[1:])
    content = np.fromfile(folder / "tokens.bin", np.uint16)
    for index, wrong in ((0, content[0] ^ 1), (-1, content[-1] ^ 1), (4, 65_535)):  # an entry, and none
        changed = content.copy()
        changed[index] = wrong
        refused("does not have the tokens that were written", "tokens.bin", changed.tobytes())
    manifest = json.loads((folder / "manifest.json").read_text())
    for number, message in ((2, "has format 2, expected 1: update"), (0, "was not made by this version .*: write the")):
        refused(f"manifest.json {message}", "manifest.json", json.dumps(manifest | {"format": number}).encode())
    for wrong in (b"", b"[]", b"{}", b'{"format": 1}', b"\xff"):
        refused("is not the manifest of a token shard", "manifest.json", wrong)
    (folder / "tokens.bin").unlink()
    with pytest.raises(DataError, match=r"tokens.bin has 0 bytes"):
        open_shard(folder, TOKENIZER)


# Speed and memory ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large_files(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Novels again and again, 250 MB and 1 GB of them; the vocabulary of bert-base-uncased."""
    folder = tmp_path_factory.mktemp("large")
    novels = [novel.read_bytes() for novel in sorted((shared_data / "english_novels").glob("*.txt"))]
    for name, size in (("250 MB", 250_000_000), ("1 GB", 1_000_000_000)):
        with open(folder / f"{name}.txt", "wb") as file:
            for novel in itertools.cycle(novels):
                if file.write(novel + b"\r\n\r\n") and file.tell() > size:
                    break
    return {name: folder / f"{name}.txt" for name in ("250 MB", "1 GB")} | {
        "vocabulary": shared_data / "bert_reference" / "bert-base-uncased" / "vocab.txt"
    }


@pytest.mark.slow
def test_memory_is_flat(large_files: dict[str, Path], tmp_path: Path) -> None:
    program = f"""
        import resource, sys
        from bertkit.corpus.shard_writing import ShardSettings, write_shard
        from bertkit.tokenizer import Tokenizer
        tokenizer = Tokenizer.from_vocab({str(large_files["vocabulary"])!r})
        shard = write_shard(sys.argv[1], sys.argv[2], tokenizer, ShardSettings(drop_duplicates=len(sys.argv) > 3))
        print(len(shard.tokens), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
        """

    def run(name: str, *options: str) -> tuple[int, float]:
        arguments = [str(large_files[name]), str(tmp_path / f"{name}{options}"), *options]
        program_and_arguments = [sys.executable, "-c", textwrap.dedent(program), *arguments]
        output = subprocess.run(program_and_arguments, capture_output=True, text=True, check=True).stdout
        num_tokens, megabytes = output.split()
        print(f"{name} {options}: {num_tokens} tokens, {megabytes} MB of memory")
        return int(num_tokens), float(megabytes)

    small, large, dropped = run("250 MB"), run("1 GB"), run("1 GB", "drop duplicates")
    assert large[0] > 3.9 * small[0] and dropped[0] < 0.1 * large[0]
    assert max(large[1], dropped[1]) - small[1] < 50  # megabytes


@pytest.mark.slow
def test_writing_takes_little_longer_than_tokenizing(large_files: dict[str, Path], tmp_path: Path) -> None:
    """At least 0.8 of the tokenizer's own speed on two threads, for any layout; the best of three runs each."""
    tokenizer, path = Tokenizer.from_vocab(large_files["vocabulary"]), large_files["1 GB"]
    seconds: dict[str, list[float]] = {}
    for turn in range(3):
        start = time.perf_counter()
        data = np.memmap(path, np.uint8, "r")
        for first in range(0, len(data), 64 << 20):
            part = data[first : first + (64 << 20)]
            bounds = np.unique(np.concatenate([[0], np.flatnonzero(part == ord("\n")) + 1, [len(part)]]))
            tokenizer.engine.tokenize_bytes(part, bounds, with_spans=False, num_threads=2)
        seconds.setdefault("tokenizer", []).append(time.perf_counter() - start)
        for layout in ("lines", "running"):
            start = time.perf_counter()
            write_shard(path, tmp_path / f"{layout} {turn}", tokenizer, ShardSettings(layout), num_threads=2)
            seconds.setdefault(layout, []).append(time.perf_counter() - start)
            shutil.rmtree(tmp_path / f"{layout} {turn}")
    best = {name: min(taken) for name, taken in seconds.items()}
    print({name: f"{path.stat().st_size / taken / 1e6:.0f} MB/s" for name, taken in best.items()})
    assert best["tokenizer"] / max(best["lines"], best["running"]) > 0.8
