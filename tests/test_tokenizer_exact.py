"""Exact tokens: ids, types, offsets and word ids as published tokenizers give them, on every code point and real text.

Three independent references: transformers' fast tokenizer (Rust), `wordpiece_reference` (plain Python, in this folder)
and transformers' `BertTokenizerLegacy` (Python, on Python's own Unicode tables). Expected literals: the BERT paper's
repository (google-research/bert) and transformers' own tests, as kept in `bert_reference`.
"""

import gc
import json
import math
import random
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import chain, islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import BertTokenizerFast
from transformers.models.bert.tokenization_bert_legacy import BertTokenizerLegacy
from wordpiece_reference import (
    ALSO_MARK,
    ALSO_PUNCTUATION,
    CJK,
    NOT_CONTROL,
    NOT_MARK,
    NOT_PUNCTUATION,
    normalize,
    reference_tokens,
    words,
)

from bertkit.errors import DataError
from bertkit.tokenizer import Encoding, Tokenizer, Vocabulary

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
DIFFERENCES = Path(__file__).parent / "data" / "published_tokenizer_differences.json"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"needs the data folder {DATA}")

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
CASES = ("uncased", "cased")
each_vocabulary = pytest.mark.parametrize("case", [pytest.param(case, marks=needs_data) for case in CASES])


# The tokenizers compared --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Peers:
    """One vocabulary in our tokenizer, the published fast one and, as a dict, in the reference."""

    ours: Tokenizer
    fast: BertTokenizerFast
    vocab: dict[str, int]
    lowercase: bool
    strip_accents: bool | None = None


@cache
def published(case: str) -> Peers:
    path, lowercase = DATA / "bert_reference" / f"bert-base-{case}" / "vocab.txt", case == "uncased"
    ours = Tokenizer.from_vocab(path, lowercase=lowercase)
    fast = BertTokenizerFast(str(path), do_lower_case=lowercase)
    assert len(fast) == len(ours.vocabulary)  # transformers falls back to 5 tokens where it misses the file
    return Peers(ours, fast, {token: index for index, token in enumerate(ours.vocabulary.tokens)}, lowercase)


@cache
def legacy(case: str) -> BertTokenizerLegacy:
    path = DATA / "bert_reference" / f"bert-base-{case}" / "vocab.txt"
    return BertTokenizerLegacy(str(path), do_lower_case=case == "uncased")


@cache
def spelled_out(lowercase: bool, strip_accents: bool | None) -> Peers:
    """Every character is an entry, alone and continuing, so that no [UNK] hides its normal form. One ideograph in
    16."""
    tokens = [*SPECIAL, *few_ideographs(), *("##" + char for char in few_ideographs())]
    vocab = {token: index for index, token in enumerate(tokens)}
    return Peers(
        Tokenizer.from_vocab(tokens, lowercase=lowercase, strip_accents=strip_accents),
        BertTokenizerFast(vocab=vocab, do_lower_case=lowercase, strip_accents=strip_accents),
        vocab,
        lowercase,
        strip_accents,
    )


@cache
def assigned() -> tuple[str, ...]:
    """Every assigned code point but surrogates and private use, of this Python's Unicode."""
    return tuple(char for char in map(chr, range(0x110000)) if unicodedata.category(char) not in ("Cn", "Cs", "Co"))


@cache
def few_ideographs() -> tuple[str, ...]:
    ideographs = [char for char in assigned() if char in CJK]
    return (*(char for char in assigned() if char not in CJK), *ideographs[::16])


@cache
def private_use() -> tuple[str, ...]:
    return tuple(char for char in map(chr, range(0x110000)) if unicodedata.category(char) == "Co")


# The comparison: one row a token -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Table:
    """The tokens of many texts: `lengths` (texts,), `rows` (tokens, columns) in the order of the texts."""

    lengths: np.ndarray
    rows: np.ndarray

    def of_text(self, index: int) -> list[list[int]]:
        start = int(self.lengths[:index].sum())
        return self.rows[start : start + self.lengths[index]].tolist()


def table(lengths: Iterable[int], *columns: Iterable[int]) -> Table:
    return Table(
        np.fromiter(lengths, np.int64), np.stack([np.fromiter(column, np.int32) for column in columns], axis=1)
    )


def from_ours(encodings: Sequence[Encoding]) -> Table:
    """Columns: id, type, start, end, word; special tokens have word -1."""
    columns = (
        np.concatenate([encoding.input_ids for encoding in encodings]),
        np.concatenate([encoding.token_type_ids for encoding in encodings]),
        *np.concatenate([encoding.offsets for encoding in encodings]).T,
        np.concatenate([encoding.word_ids for encoding in encodings]),
    )
    return Table(np.array([len(encoding.input_ids) for encoding in encodings]), np.stack(columns, axis=1))


def from_fast(
    fast: BertTokenizerFast,
    texts: Sequence[str],
    pairs: Sequence[str] | None = None,
    special_tokens_in_text: bool = True,
) -> Table:
    """As `from_ours`, from transformers' engine; `test_public_call` holds the same for its public call."""
    engine = fast.backend_tokenizer
    engine.no_truncation()  # a call with truncation leaves it switched on
    engine.encode_special_tokens = not special_tokens_in_text
    encodings = engine.encode_batch(texts if pairs is None else list(zip(texts, pairs, strict=True)))
    engine.encode_special_tokens = False
    offsets = [pair for encoding in encodings for pair in encoding.offsets]
    return table(
        map(len, encodings),
        chain.from_iterable(encoding.ids for encoding in encodings),
        chain.from_iterable(encoding.type_ids for encoding in encodings),
        (start for start, _ in offsets),
        (end for _, end in offsets),
        (-1 if word is None else word for encoding in encodings for word in encoding.word_ids),
    )


def from_reference(peers: Peers, texts: Sequence[str]) -> Table:
    """Columns: id, start, end, word; no special tokens."""
    results = [reference_tokens(text, peers.vocab, peers.lowercase, peers.strip_accents) for text in texts]
    tokens = list(chain.from_iterable(results))
    return table(
        map(len, results), (peers.vocab[token[0]] for token in tokens), *([t[i] for t in tokens] for i in (1, 2, 3))
    )


def without_special(ours: Table) -> Table:
    """`from_ours` of single texts as `from_reference` has it."""
    return Table(ours.lengths - 2, ours.rows[ours.rows[:, 4] >= 0][:, [0, 2, 3, 4]])


def assert_same(ours: Table, theirs: Table, texts: Sequence[str]) -> None:
    if np.array_equal(ours.lengths, theirs.lengths) and np.array_equal(ours.rows, theirs.rows):
        return
    wrong = [i for i in range(len(texts)) if ours.of_text(i) != theirs.of_text(i)] if len(texts) < 2_000 else []
    if not wrong:  # many texts: find the first by halves of the common prefix
        ours_end, theirs_end = np.cumsum(ours.lengths), np.cumsum(theirs.lengths)
        common = min(len(ours.rows), len(theirs.rows))
        unequal = np.flatnonzero((ours.rows[:common] != theirs.rows[:common]).any(axis=1))
        first_row = int(unequal[0]) if len(unequal) else common
        other_length = np.flatnonzero(ours_end != theirs_end)
        wrong = [min(int(np.searchsorted(ours_end, first_row, "right")), *other_length[:1].tolist(), len(texts) - 1)]
    shown = [f"{texts[i]!a}\n  ours   {ours.of_text(i)}\n  theirs {theirs.of_text(i)}" for i in wrong[:3]]
    pytest.fail("tokens differ: id, [type,] start, end, word of each\n" + "\n".join(shown), pytrace=False)


def assert_all_equal(peers: Peers, texts: Sequence[str], ours: Table | None = None) -> None:
    """Ours = transformers fast, special tokens in text allowed, = the reference; for texts without special tokens."""
    if ours is None:
        ours = from_ours(peers.ours.encode_batch(texts, special_tokens_in_text=True))
    assert_same(ours, from_fast(peers.fast, texts), texts)
    assert_same(without_special(ours), from_reference(peers, texts), texts)


def in_chunks(texts: Sequence[str], size: int = 10_000) -> Iterable[Sequence[str]]:
    """A few thousand at a time keeps memory low."""
    return (texts[start : start + size] for start in range(0, len(texts), size))


@pytest.fixture(autouse=True, scope="module")
def no_garbage_collection():
    """Millions of small objects and no cycles: looking for garbage would take a fifth of the time."""
    gc.disable()
    yield
    gc.enable()


# Every code point ----------------------------------------------------------------------------------------------------


def side_by_side(words_of_text: Sequence[str], number: int = 64) -> list[str]:
    """Texts of `number` words each, a space between."""
    return [" ".join(words_of_text[start : start + number]) for start in range(0, len(words_of_text), number)]


def inside_words(characters: Iterable[str]) -> list[str]:
    return ["a" + char + "b" for char in characters]


@pytest.mark.full
@each_vocabulary
def test_every_code_point_alone(case):
    """Each as a separate text; ideographs and Hangul syllables, and some of private use, as words of longer texts."""
    many = [char for char in assigned() if char in CJK or "\uac00" <= char <= "\ud7a3"]
    few = sorted(set(assigned()) - set(many))
    for texts in (*in_chunks(few), side_by_side([*many, *private_use()[::64]])):
        assert_all_equal(published(case), texts)


@pytest.mark.full
@each_vocabulary
def test_every_code_point_inside_a_word(case):
    """ "a" + c + "b", 64 words to a text."""
    assert_all_equal(published(case), side_by_side(inside_words([*assigned(), *private_use()[::64]])))


@pytest.mark.full
@pytest.mark.parametrize(
    ("lowercase", "strip_accents"),
    [
        (True, True),
        (False, False),
        pytest.param(True, False, marks=pytest.mark.slow),
        pytest.param(False, True, marks=pytest.mark.slow),
    ],
)
def test_every_code_point_with_nothing_unknown(lowercase, strip_accents):
    """As above over a vocabulary that has an entry for each character, to check the offset of every one."""
    assert_all_equal(spelled_out(lowercase, strip_accents), side_by_side(inside_words(few_ideographs())))


@pytest.mark.parametrize("lowercase", [True, False])
def test_every_mark_among_marks(lowercase):
    """Canonical ordering: after a mark of the highest combining class, before one of the lowest, and both."""
    marks = [char for char in assigned() if unicodedata.category(char)[0] == "M"]
    among = [
        "a" + before + char + after + "b"
        for char in marks
        for before, after in (("\u0345", ""), ("", "\u0334"), ("\u0345", "\u0334"))
    ]
    assert_all_equal(spelled_out(lowercase, True), side_by_side(among))


@pytest.mark.slow
@each_vocabulary
def test_every_code_point_as_a_text(case):
    """As the first two tests, with all of private use, and nothing side by side."""
    everything = [*assigned(), *private_use()]
    for texts in in_chunks([*everything, *inside_words(everything)]):
        assert_all_equal(published(case), texts)


# Where published tokenizers differ -----------------------------------------------------------------------------------


def read_ranges(ranges: str) -> list[str]:
    ends = ([int(end, 16) for end in part.split("-")] for part in ranges.split())
    return [chr(code) for end in ends for code in range(end[0], end[-1] + 1)]


def known_differences(case: str) -> list[str]:
    return read_ranges(json.loads(DIFFERENCES.read_text(encoding="utf-8"))[case]["code_points"])


@pytest.mark.full
@pytest.mark.skipif(unicodedata.unidata_version != "14.0.0", reason="the list is that of Python 3.11 (Unicode 14)")
@each_vocabulary
def test_published_differences_are_those_listed(case):
    """Fast and legacy tokenizer on "a" + c + "b": they differ exactly where the list says, each time for a reason.

    Ours follows the fast one there as everywhere.
    """
    listed = json.loads(DIFFERENCES.read_text(encoding="utf-8"))
    assert len(assigned()) == listed["code_points_compared"] == 144_762
    fast, slow = published(case).fast, legacy(case)
    differing = []
    for start in range(0, len(assigned()), 64):  # a closer look where 64 words side by side differ
        characters = assigned()[start : start + 64]
        together = " ".join(inside_words(characters))
        if fast.tokenize(together) != slow.tokenize(together):
            both = [(fast.tokenize(word), slow.tokenize(word)) for word in inside_words(characters)]
            differing += [char for char, (one, other) in zip(characters, both, strict=True) if one != other]
    assert len(differing) == listed[case]["count"] == {"uncased": 759, "cased": 453}[case]
    assert differing == known_differences(case)
    assert [char for char in differing if not reason(char, case)] == []

    for word in inside_words(differing):
        assert inner_tokens(published(case).ours, word) == fast.tokenize(word) != slow.tokenize(word)


def reason(char: str, case: str) -> bool:
    """Whether a table of the reference, or composition by the legacy tokenizer, explains a difference."""
    cjk_of_unicode_only = "\U0002b820" <= char < "\U0002b920"  # the start of extension E
    tables = NOT_CONTROL | NOT_PUNCTUATION | ALSO_PUNCTUATION
    if case == "uncased":
        return cjk_of_unicode_only or char in tables | NOT_MARK | ALSO_MARK
    composed = unicodedata.normalize("NFC", f"a{char}b") != f"a{char}b"
    return cjk_of_unicode_only or char in tables or composed


# Real lines ----------------------------------------------------------------------------------------------------------

# Lines of every 20,000, by source: 380 languages, tweets, novels, encyclopedia, questions, tables, markup.
LINES_OF_20_000 = {
    "udhr2/*.txt": 6_000,
    "tweet_sentiment_extraction/*.csv": 2_000,
    "xquad/xquad.*.json": 1_500,
    "banking77/*.csv": 1_200,
    "glue_sst2/*.tsv": 2_000,
    "coarsewsd20/*/*.data.txt": 800,
    "wikitext2/*": 300,
    "sts_2012_2016/*/*.tsv": 500,
    "sts_benchmark/*.csv": 500,
    "ud_english_ewt/*.conllu": 500,
    "mrpc/*.tsv": 300,
    "zorro/*.txt": 580,
    "ner_wnut17/**/*.*": 200,
    "sick2014/*.txt": 200,
    "openbookqa/Main/*.tsv": 150,
    "rte_derived/*.jsonl": 150,
    "cranfield/beir_like/*.jsonl": 20,
    "word_benchmarks/**/*.csv": 100,
    "english_novels/*.txt": 3_000,
}


def files_of(pattern: str) -> list[list[str]]:
    """The unmodified lines of each file of a source, without empty ones."""
    files = []
    for path in sorted(path for path in DATA.glob(pattern) if path.is_file()):
        text = path.read_text(encoding="utf-8")
        lines = text.split("\n")
        if path.suffix == ".json":
            paragraphs = [paragraph for article in json.loads(text)["data"] for paragraph in article["paragraphs"]]
            lines = [line for one in paragraphs for line in (one["context"], *(qa["question"] for qa in one["qas"]))]
        files.append([line for line in lines if line.strip()])
    return files


def evenly(lines: Sequence[str], number: int) -> list[str]:
    return [lines[index * len(lines) // number] for index in range(number)]


@cache
def real_lines(number: int) -> list[str]:
    """By the table above, some of every file; a source with fewer lines gives all it has, and the novels fill up."""
    assert sum(LINES_OF_20_000.values()) == 20_000
    *others, novels = LINES_OF_20_000
    lines: list[str] = []
    for source in others:
        files = files_of(source)
        share = min(1.0, LINES_OF_20_000[source] * number / 20_000 / sum(map(len, files)))
        lines += chain.from_iterable(evenly(file, math.ceil(len(file) * share)) for file in files)
    lines += evenly(list(chain.from_iterable(files_of(novels))), number - len(lines))
    assert len(lines) == number
    return lines


@lru_cache(maxsize=2)
def ours_on_real_lines(case: str, number: int) -> list[Table]:
    """For each chunk of the lines, literal special tokens read as special."""
    ours = published(case).ours
    return [from_ours(ours.encode_batch(lines, special_tokens_in_text=True)) for lines in in_chunks(real_lines(number))]


few_and_many = pytest.mark.parametrize("number", [5_000, pytest.param(200_000, marks=pytest.mark.slow)])


@pytest.mark.full
@few_and_many
@each_vocabulary
def test_real_lines(case, number):
    """Ours = transformers fast = the reference, line by line."""
    for lines, ours in zip(in_chunks(real_lines(number)), ours_on_real_lines(case, number), strict=True):
        assert_all_equal(published(case), lines, ours)


@pytest.mark.full
@few_and_many
@each_vocabulary
def test_real_lines_as_pairs(case, number):
    """Each tenth line with another one as its pair: types and word numbers start again in the second text."""
    texts = real_lines(number)[::10]
    pairs = texts[::-1]
    ours = from_ours(published(case).ours.encode_batch(texts, pairs, special_tokens_in_text=True))
    assert_same(ours, from_fast(published(case).fast, texts, pairs), list(zip(texts, pairs, strict=True)))


@pytest.mark.full
@few_and_many
@each_vocabulary
def test_real_lines_against_the_legacy_tokenizer(case, number):
    """The same tokens as the Python tokenizer, but for the listed code points and its two rules about context.

    It composes (NFC) before all else, which shows where marks are kept, and lower-cases a capital sigma at a word's end
    to ς. A line that differs must become equal once it is written without these.
    """
    ours, slow, vocabulary = published(case).ours, legacy(case), published(case).ours.vocabulary.tokens
    listed = re.compile("[" + "".join(map(re.escape, known_differences(case))) + "]")

    def plain(line: str) -> str:
        return listed.sub(" ", unicodedata.normalize("NFC", line)).replace("Σ", "σ" if case == "uncased" else "Σ")

    num_different = 0
    for lines, on_lines in zip(in_chunks(real_lines(number)), ours_on_real_lines(case, number), strict=True):
        ids = np.split(on_lines.rows[:, 0], np.cumsum(on_lines.lengths)[:-1])
        for line, line_ids in zip(lines, ids, strict=True):
            if [vocabulary[token_id] for token_id in line_ids[1:-1].tolist()] == slow.tokenize(line):
                continue
            num_different += 1
            assert plain(line) != line, f"not explained: {line!a}"
            assert ours.tokens(ours.encode(plain(line)))[1:-1] == slow.tokenize(plain(line)), ascii(line)
    assert num_different < number * 0.01


@each_vocabulary
def test_public_call(case):
    """transformers' own call gives what its engine gives, which the other tests compare with."""
    texts, pairs = real_lines(20_000)[::80], real_lines(20_000)[7::80]
    for second in (None, pairs):
        batch = published(case).fast(texts, second, return_offsets_mapping=True)
        offsets = list(chain.from_iterable(batch["offset_mapping"]))
        called = table(
            map(len, batch["input_ids"]),
            chain.from_iterable(batch["input_ids"]),
            chain.from_iterable(batch["token_type_ids"]),
            (start for start, _ in offsets),
            (end for _, end in offsets),
            (-1 if word is None else word for index in range(len(texts)) for word in batch.word_ids(index)),
        )
        assert_same(from_ours(published(case).ours.encode_batch(texts, second)), called, texts)


@each_vocabulary
def test_truncation_and_windows_keep_the_published_tokens(case):
    """max_length 16: truncated as transformers' longest-first, and windows 8 apart as its overflow with overlap 6."""
    ours, fast = published(case).ours, published(case).fast
    texts, pairs = real_lines(20_000)[3::100], real_lines(20_000)[59::100]
    for second in (None, pairs):
        cut = ours.encode_batch(texts, second, max_length=16, on_long="truncate")
        theirs = fast(texts, second, truncation=True, max_length=16)
        assert [encoding.input_ids.tolist() for encoding in cut] == theirs["input_ids"]
        assert [encoding.token_type_ids.tolist() for encoding in cut] == theirs["token_type_ids"]
    windows = ours.encode_batch(texts, max_length=16, on_long="window", stride=8)
    theirs = fast(
        texts, truncation=True, max_length=16, stride=6, return_overflowing_tokens=True, return_offsets_mapping=True
    )
    assert [window.input_ids.tolist() for window in windows] == theirs["input_ids"]
    assert [list(map(tuple, window.offsets.tolist())) for window in windows] == theirs["offset_mapping"]
    assert [window.text_index for window in windows] == theirs["overflow_to_sample_mapping"]


# Fuzzed strings ------------------------------------------------------------------------------------------------------

SCRIPTS = """
the unaffable embedding WordPiece naïve Ångström ﬁnal ŒUVRE İstanbul ıŞIK straße ẞ ΣΊΣΥΦΟΣ ὈΔΥΣΣΕΎΣ Москва Київ ՀԱՅԱՍՏԱՆ
שָׁלוֹם עִבְרִית السَّلَام فارسی‌ها हिन्दी क्षत्रिय বাংলা কোথায় ਪੰਜਾਬੀ தமிழ் తెలుగు ಕನ್ನಡ മലയാളം සිංහල ภาษาไทย ພາສາລາວ
བོད་ཡིག မြန်မာ ქართული ᲡᲐᲥᲐᲠᲗᲕᲔᲚᲝ አማርኛ ᏣᎳᎩ ខ្មែរ ᠮᠣᠩᠭᠣᠯ 日本語ひらがなカタカナ 漢字 豈更車 한국어 각
𠀀𪛖𫝀𫠠𫤠 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𐐀𐐁 👩‍👩‍👧 👍🏽 🇩🇪 ☺️ ①②Ⅳ ½ 10°C £5 “quoted” l’été co-operate can't a.b,c;d ¿qué? ¡no! 「日」 U.S.A.
""".split()
CONTROLS = (
    "\x00\x01\x07\x08\x1b\x1c\x1f\x7f\x80\x85\x9f\xad\u200b\u200c\u200d\u200e\u202e\u2060\ufeff\ufffd\ue000\U000f0000"
)
WHITE = " \t\n\r\x0b\x0c\xa0\u1680\u2003\u2028\u2029\u202f\u205f\u3000"
MARKS = (
    "\u0300\u0301\u0308\u0315\u031b\u0323\u0327\u0334\u0338\u0345\u0344\u20d0\u20dd\u0591\u05bc\u064b\u0651\u093c\u094d"
)
ODD_MARKS = (
    "\u0f71\u0f72\u0f73\u0f81\u302a\u302e\u3099\u1dc0\u08d4\u1df6\u1cf2\u1734\U0001171e\U0001d165\U0001d16d\U0001e000"
)
LITERALS = (*SPECIAL, "[mask]", "[ SEP ]", "[[CLS]]", "##ing", "[unused7]", "[UNK", "MASK]")


def seeded_texts(number: int, seed: int) -> list[str]:
    """Scripts, marks, controls, white space, symbols and very long words, mixed."""
    rng = random.Random(seed)
    decomposing = [char for char in assigned() if len(unicodedata.normalize("NFD", char)) > 1]
    marks = [char for char in assigned() if unicodedata.category(char)[0] == "M"]

    def fragment() -> str:
        kind = rng.randrange(12)
        if kind < 3:
            return rng.choice(SCRIPTS)
        if kind == 3:
            return rng.choice(SCRIPTS).upper() + rng.choice(SCRIPTS).title()
        if kind == 4:
            return "".join(rng.choices(MARKS + ODD_MARKS, k=rng.randrange(1, 5)))
        if kind == 5:
            return "".join(rng.choices(marks, k=rng.randrange(1, 4)))
        if kind == 6:
            return rng.choice(CONTROLS)
        if kind == 7:
            return rng.choice(decomposing)
        if kind == 8:
            return "".join(rng.choices(assigned(), k=rng.randrange(1, 4)))
        if kind == 9:
            return rng.choice(LITERALS)
        if kind == 10 and rng.random() < 0.3:  # about the limit of 100 characters, which marks do not count towards
            return rng.choice(("a", "é", "ab\u0301", "x\u200d", "각", "##")) * rng.randrange(95, 106)
        return rng.choice(WHITE) * rng.randrange(1, 3)

    return ["".join(fragment() for _ in range(rng.randrange(0, 12))) for _ in range(number)]


def check_both_readings(peers: Peers, texts: Sequence[str]) -> None:
    """Literal special tokens read as special and as text: equal to transformers, and to the reference as text."""
    special = from_ours(peers.ours.encode_batch(texts, special_tokens_in_text=True))
    assert_same(special, from_fast(peers.fast, texts), texts)
    encodings = peers.ours.encode_batch(texts)
    plain = from_ours(encodings)
    assert_same(plain, from_fast(peers.fast, texts, special_tokens_in_text=False), texts)
    assert_same(without_special(plain), from_reference(peers, texts), texts)
    for text, encoding in zip(texts, encodings, strict=True):
        check_spans(peers, text, encoding)


def check_spans(peers: Peers, text: str, encoding: Encoding) -> None:
    """Spans are ordered and non-empty, and a token is its slice of the text, normalized.

    But [UNK] slices to its whole word, and pieces of one decomposing character share its span.
    """
    normal, indices = normalize(text, peers.lowercase, peers.strip_accents)
    whole_words = [(indices[start], indices[end - 1] + 1) for start, end in words(normal)]
    by_span: dict[tuple[int, int], str] = {}
    previous_end, previous_word = 0, -1
    inner = zip(peers.ours.tokens(encoding), encoding.offsets.tolist(), encoding.word_ids.tolist(), strict=True)
    for token, (start, end), word in islice(inner, 1, len(encoding.input_ids) - 1):
        assert 0 <= start < end <= len(text)
        assert start >= previous_end or (start, end) in by_span
        if token == "[UNK]":
            assert (start, end) == whole_words[word]
        else:
            piece = token.removeprefix("##") if word == previous_word else token
            by_span[start, end] = by_span.get((start, end), "") + piece
        previous_end, previous_word = end, word
    if not moves_marks(text):  # where canonical ordering moves marks, positions do not follow: see the reference
        assert by_span == {span: peers.ours.normalize(text[slice(*span)]).strip(" ") for span in by_span}


def moves_marks(text: str) -> bool:
    """Whether canonical ordering puts the marks of a text in another order."""
    parts = "".join(unicodedata.normalize("NFD", char) for char in text)
    return unicodedata.normalize("NFD", parts) != parts


@each_vocabulary
def test_seeded_fuzz(case):
    check_both_readings(published(case), seeded_texts(2_500, seed=20_181_011))


@pytest.mark.full
@pytest.mark.parametrize(("lowercase", "strip_accents"), [(True, None), (True, False), (False, True), (False, None)])
def test_seeded_fuzz_with_nothing_unknown(lowercase, strip_accents):
    """Every option of accents and case, over a vocabulary of single characters, with the offset of each character."""
    check_both_readings(spelled_out(lowercase, strip_accents), seeded_texts(1_000, seed=1_706))


@pytest.mark.slow
@each_vocabulary
def test_seeded_fuzz_at_length(case):
    for seed in range(40):
        check_both_readings(published(case), seeded_texts(2_500, seed))


WILD = (
    *(
        "👩🏽‍🚀",
        "👨‍👩‍👧‍👦",
        "🏳️‍🌈",
        "1️⃣",
        "🇺🇳",
        "\u1100\u1161\u11a8",
        "\u0344\u0323",
        "\u0f73\u0f71",
        "ΑΣ",
        "ẞ",
        "İ",
        "≠",
    ),
    *("\u1fef", "\u037e", "\ud7ff", "\ue000", "\uffff", "\ufffe", "\ufdd0", "\U0001ffff", "\U0010ffff"),
)


def wild_texts(number: int, seed: int) -> list[str]:
    """Random code points except surrogates, assigned or not, mixed with the fragments above."""
    rng = random.Random(seed)
    every_mark = [char for char in assigned() if unicodedata.category(char)[0] == "M"]

    def any_point() -> str:
        code = rng.choice(
            (rng.randrange(0x250), rng.randrange(0x3100), rng.randrange(0x20000), rng.randrange(0x110000))
        )
        return chr(code) if not 0xD800 <= code < 0xE000 else "\ud7ff"

    def fragment() -> str:
        kind = rng.randrange(8)
        if kind < 2:
            return "".join(any_point() for _ in range(rng.randrange(1, 5)))
        if kind == 2:
            return "".join(rng.choices(every_mark, k=rng.randrange(1, 9)))
        if kind == 3:
            return rng.choice(WILD)
        if kind == 4:
            return rng.choice(SCRIPTS)
        if kind == 5:
            return rng.choice(CONTROLS + WHITE)
        if kind == 6:
            return rng.choice(MARKS + ODD_MARKS) * rng.randrange(1, 4)
        return (
            rng.choice(("ab", "é", "각", "\u00c5")) * rng.choice((1, 2, 10, 24, 51, 101)) if rng.random() < 0.2 else "a"
        )

    return ["".join(fragment() for _ in range(rng.randrange(1, 9))) for _ in range(number)]


@pytest.mark.parametrize(
    "seeds",
    [range(1), *(pytest.param(range(start, start + 10), marks=pytest.mark.slow) for start in range(0, 100, 10))],
)
@each_vocabulary
def test_wild_fuzz(case, seeds):
    """All seeds: a million strings, half of them for each vocabulary; the reference reads a tenth."""
    for seed in seeds:
        texts = wild_texts(5_000, seed if case == "uncased" else ~seed)
        ours = from_ours(published(case).ours.encode_batch(texts, special_tokens_in_text=True))
        assert_same(ours, from_fast(published(case).fast, texts), texts)
        few = texts[::10]
        assert_same(
            without_special(from_ours(published(case).ours.encode_batch(few))),
            from_reference(published(case), few),
            few,
        )


any_character = st.characters(exclude_categories=["Cs"])
fragments = st.one_of(
    st.sampled_from((*SCRIPTS, *LITERALS, "x" * 99, "é" * 101)),
    st.text(any_character, max_size=4),
    st.text(st.sampled_from(MARKS + ODD_MARKS), min_size=1, max_size=4),
    st.sampled_from(CONTROLS),
    st.text(st.sampled_from(WHITE), min_size=1, max_size=2),
)
texts = st.lists(fragments, max_size=8).map("".join)
quick = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])


@each_vocabulary
@quick
@given(st.lists(texts, min_size=1, max_size=5))
def test_hypothesis_fuzz(case, batch):
    check_both_readings(published(case), batch)


@pytest.mark.full
@pytest.mark.parametrize("lowercase", [True, False])
@quick
@given(st.lists(texts, min_size=1, max_size=5))
def test_hypothesis_fuzz_with_nothing_unknown(lowercase, batch):
    """As above without any data: a vocabulary of single characters."""
    check_both_readings(spelled_out(lowercase, None), batch)


# Published expectations and literal examples -------------------------------------------------------------------------


def expectations() -> dict:
    return json.loads((DATA / "bert_reference" / "hf_tokenizer_expectations.json").read_text(encoding="utf-8"))


def inner_tokens(tokenizer: Tokenizer, text: str, special_tokens_in_text: bool = False) -> list[str]:
    return tokenizer.tokens(tokenizer.encode(text, special_tokens_in_text=special_tokens_in_text))[1:-1]


@needs_data
def test_expected_full_tokenization():
    case = expectations()["full"]
    tokenizer = Tokenizer.from_vocab(case["vocab"])
    assert inner_tokens(tokenizer, case["text"]) == case["tokens"]
    assert tokenizer.encode(case["text"]).input_ids[1:-1].tolist() == case["ids"]


@needs_data
def test_expected_basic_tokenization():
    """Each case over a vocabulary that is exactly the expected words, so that any other word is [UNK]."""
    cases = expectations()["basic"]
    assert len(cases) == 11
    for case in cases:
        options = dict(case["opts"])
        never_split = options.pop("never_split", [])
        tokenizer = Tokenizer.from_vocab(
            [*SPECIAL, *sorted(set(case["tokens"]) - set(SPECIAL))],
            lowercase=options.pop("do_lower_case", True),
            strip_accents=options.pop("strip_accents", None),
        )
        assert not options and set(never_split) <= set(SPECIAL)
        assert inner_tokens(tokenizer, case["text"], bool(never_split)) == case["tokens"], case


@needs_data
def test_expected_wordpiece():
    expected = expectations()["wordpiece"]
    tokenizer = Tokenizer.from_vocab(expected["vocab"], lowercase=False)
    for text, tokens in expected["cases"]:
        assert inner_tokens(tokenizer, text) == tokens


@each_vocabulary
def test_expected_offsets(case):
    expected = expectations()["offsets"]
    ours = published(case).ours
    encoding = ours.encode(expected["text"], special_tokens_in_text=True)
    assert [
        [offsets, token] for offsets, token in zip(encoding.offsets.tolist(), ours.tokens(encoding), strict=True)
    ] == (expected[case])


@needs_data
def test_literal_examples():
    """Sentences of the BERT literature, ids of bert-base-uncased."""
    ours = published("uncased").ours
    sentence = "Our friends won't buy this analysis, let alone the next one we propose."
    ids = [2256, 2814, 2180, 1005, 1056, 4965, 2023, 4106, 1010, 2292, 2894, 1996, 2279, 2028, 2057, 16599, 1012]
    assert ours.encode(sentence).input_ids.tolist() == [101, *ids, 102]

    pair = ours.encode("I was thirsty!", "I drank water :D")
    assert pair.input_ids.tolist() == [101, 1045, 2001, 24907, 999, 102, 1045, 10749, 2300, 1024, 1040, 102]
    assert pair.token_type_ids.tolist() == [0] * 6 + [1] * 6
    assert np.flatnonzero(pair.special_tokens_mask).tolist() == [0, 5, 11]

    assert inner_tokens(ours, "Transformer") == ["transform", "##er"]
    assert ours.encode("Transformer").input_ids[1:-1].tolist() == [10938, 2121]
    assert len(inner_tokens(ours, "embedding")) > 1
    assert ours.encode("He will get scared").input_ids.tolist() == [101, 2002, 2097, 2131, 6015, 102]
    assert ours.encode("She will get the drinks").input_ids.tolist() == [101, 2016, 2097, 2131, 1996, 8974, 102]


def test_byte_order_mark_of_a_vocabulary_is_skipped(tmp_path):
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n\ufeffa\n", encoding="utf-8-sig")
    assert Vocabulary.load(tmp_path / "vocab.txt").tokens == ("[PAD]", "[UNK]", "\ufeffa")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b"[PAD]\n[UNK]\nthe\t52\ncat\t9\n##s\t3\n",
            r"3 of the 5 .* such as 'the\\t52', and match no word",
        ),
        (b"[PAD]\nthe \ncat \n", "2 of the 3 entries .* have spaces or tabs, such as 'the '"),
        ("[PAD]\nthe\n".encode("utf-16"), r"not UTF-8 \(byte 0\): the file is in UTF-16 \(iconv"),
        (b"[PAD]\nk\xe4se\n", r"not UTF-8 \(byte 7\): convert the file \(iconv -f windows-1252"),
    ],
)
def test_files_that_are_no_vocabulary_are_refused(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_bytes(content)
    with pytest.raises(DataError, match=message):
        Vocabulary.load(tmp_path / "vocab.txt")


@needs_data
def test_vocabulary_figures():
    """The entries of bert-base-uncased by kind and position; the number of entries of bert-base-cased."""
    vocabulary = published("uncased").ours.vocabulary
    tokens = vocabulary.tokens
    assert len(vocabulary) == len(tokens) == len(set(tokens)) == 30_522
    named = {
        "[PAD]": 0,
        "[UNK]": 100,
        "[CLS]": 101,
        "[SEP]": 102,
        "[MASK]": 103,
        "the": 1996,
        "##s": 2015,
        "love": 2293,
    }
    named |= {"vacant": 10_030, "organization": 3_029, "concern": 5_142, "transform": 10_938, "##er": 2_121}
    assert {token: vocabulary.id(token) for token in named} == named
    assert sum(bool(re.fullmatch(r"\[unused\d+\]", token)) for token in tokens) == 994
    single = [index for index, token in enumerate(tokens) if len(token) == 1]
    assert single == list(range(999, 1996)) and len(single) == 997
    assert sum(token.startswith("##") and len(token) > 2 for token in tokens) == 5_828
    assert max(index for index, token in enumerate(tokens) if not token.startswith("##")) == 29_611
    assert "embedding" not in tokens

    cased = published("cased").ours.vocabulary
    assert len(cased) == 28_996
    assert [cased.id(token) for token in SPECIAL] == [0, 100, 101, 102, 103]


@each_vocabulary
def test_special_tokens_in_text_are_text_unless_asked_for(case):
    ours = published(case).ours
    mask = ["[", "mask", "]"] if case == "uncased" else ["[", "MA", "##S", "##K", "]"]
    assert inner_tokens(ours, "a [MASK] b") == ["a", *mask, "b"]
    assert inner_tokens(ours, "a [MASK] b", special_tokens_in_text=True) == ["a", "[MASK]", "b"]
    assert inner_tokens(ours, "x[SEP]y", special_tokens_in_text=True) == ["x", "[SEP]", "y"]
    assert not set(SPECIAL) & set(inner_tokens(ours, " ".join(SPECIAL)))
    assert inner_tokens(ours, " ".join(SPECIAL), special_tokens_in_text=True) == list(SPECIAL)
    encoding = ours.encode("x[SEP]y")
    assert encoding.special_tokens_mask.sum() == 2 and (encoding.word_ids == -1).sum() == 2
