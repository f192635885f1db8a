"""Where sentences begin: literal examples, an independent slow splitter, real text, layouts of files."""

import random
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sentence_reference import reference_sentences

from bertkit.corpus.documents import _part_end
from bertkit.corpus.layouts import guess_layout
from bertkit.corpus.sentences import AFTER_EMPTY_LINE, STARTS_TEXT, TEXT_LAYOUTS, cut_sentences, split_sentences

EXAMPLES = """
    One. | Two! | Three? | Four...
    Mr. Smith met Mrs. Jones. | They talked.
    DEAR MR. ORCHAM. | I write to you.
    He met J. R. R. Tolkien and J.R.R. Tolkien. | Both were one.
    Plan B. | It failed.
    Use tools, e.g. Emacs, i.e. Lisp. | Done.
    The U.S. Senate met in the U.S. | The end.
    It rose at 5 a.m. | The sun did. | At 6 p.m. Tom came.
    Acme Inc. Paris sells etc. and more etc. | We buy.
    See No. 5 and p. 12, Fig. 3, Vol. II. | No. | I will not.
    On Jan. 3 it was 3.14 degrees. | In 1999. | Then 2000.
    1. First things. | 2. Second things. | IV. Of Birds.
    1.2. A heading.
    "Go!" he said. | "Why?" | "Because."
    'Was it?' | 'It was,' thought I. | "Really.
    He left (at last). | (She stayed.) | Then...
    Well... | I think so. | He went … and came … | Then left.
    He said . . . nothing. | Next.
    What?! | No!! | Yes.
    "What?" | John said that: a limit.
    end.Next is not split. | Google.com is one word.
    lower case. is not split. | Upper is.
    St. John lives in St. Ives on Main St. | The house is old.
    Ça va. | Être ou ne pas être ? | «Oui.» | Élan.
    А. С. Пушкин писал. | Хорошо. | Да!
    It cost little. | $5 or £6. | @you know.
    – Yes. | – No. | * Item.
    他来了。|你好！|「行く。」と言った。|“好。”|他说。 | Then.
    हाँ। | नहीं। | هل؟ | نعم.
    M. Paul and Dr. Rob, Esq. | He wrote A.D. 1851.
"""


@pytest.mark.parametrize("line", [line.strip() for line in EXAMPLES.strip().splitlines()])
def test_examples(line: str) -> None:
    """A bar marks the beginning of a sentence."""
    text, sentences = line.replace("| ", "").replace("|", ""), re.split(r" ?\| ?", line)
    assert split_sentences(text) == sentences
    assert reference_sentences(text, "running") == sentences


def test_line_ends() -> None:
    text = "One\ntwo. Three\r\n\r\n \t\nFour\nFive.  \n\n"
    assert split_sentences(text) == ["One two.", "Three", "Four Five."]
    assert split_sentences(text, "paragraphs") == ["One", "two.", "Three", "Four", "Five."]
    assert split_sentences(text, "lines") == ["One", "two. Three", "Four", "Five."]
    assert split_sentences("CHAPTER I\n\nIt was. A\nday.") == ["CHAPTER I", "It was.", "A day."]
    assert split_sentences("") == split_sentences(" \n\n\t") == []
    assert split_sentences("I\n.\tAa") == reference_sentences("I\n.\tAa", "running") == ["I .", "Aa"]


def test_bounds_and_flags() -> None:
    texts = [b"  A b. C d.", b" \n ", b"E\n\nF\nG ", b"\n\nH"]
    data, starts = np.frombuffer(b"".join(texts), np.uint8), np.cumsum([0, *map(len, texts)])
    bounds, flags = cut_sentences(data, starts, "running")
    assert bounds.tolist() == [2, 7, 14, 17, 23, 24] and bounds.dtype == np.int64
    assert flags.tolist() == [STARTS_TEXT, 0, STARTS_TEXT, AFTER_EMPTY_LINE, STARTS_TEXT | AFTER_EMPTY_LINE]
    bounds, flags = cut_sentences(data, starts, "lines")
    assert bounds.tolist() == [2, 14, 17, 19, 23, 24]
    assert flags.tolist() == [STARTS_TEXT, STARTS_TEXT, AFTER_EMPTY_LINE, 0, STARTS_TEXT | AFTER_EMPTY_LINE]


FRAGMENTS = (
    *"Aa Bb I i V IX 1 23 1234 . . . ! ? … 。 ！ \" ' “ ” 「 」 ( ) [ - — * , :".split(),
    *"é É Я я 漢 と ア ؟ । @ $ 😀 ™ ß ǅ ﬁ Ａ ａ".split(),
    *(" ", " ", " ", " ", "\n", "\n", "\r\n", "\n\n", "\t", "\u00a0", "\u3000", "\u2028", "\x1c", "\x00"),
    *"Mr Mrs. e.g. i.e U.S. a.m Ph.D J. R. p. No. Fig Jan etc Inc. St The He It Then word Wordlonger".split(),
    *"A.B.C.D.E.F.G.H.I.J 1.2. 3.14 .5 ..A x.y. XII. IIII. viz. MR. E.G. CO. NO. NO THE I'm A. I. Well".split(),
)


@pytest.mark.full
@settings(max_examples=1_500, deadline=None)
@given(st.lists(st.sampled_from(FRAGMENTS), max_size=14).map("".join), st.sampled_from(TEXT_LAYOUTS))
def test_random_text_is_split_as_by_the_slow_splitter(text: str, layout) -> None:
    assert split_sentences(text, layout) == reference_sentences(text, layout)


@pytest.mark.full
@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.sampled_from(FRAGMENTS).map(str.encode) | st.binary(max_size=3), max_size=12).map(b"".join),
    st.sampled_from(TEXT_LAYOUTS),
)
def test_sentences_cover_any_bytes_in_order(data: bytes, layout) -> None:
    array = np.frombuffer(b"x. " + data + b" Y", np.uint8)
    bounds, flags = cut_sentences(array[3:-2], np.array([0, len(data)]), layout)
    assert bounds[-1] == len(data) and (np.diff(bounds) > 0).all() and len(flags) == len(bounds) - 1
    assert not data[: bounds[0]].decode("utf-8", "replace").strip()


def read(path: Path, limit: int) -> str:
    return path.read_bytes()[:limit].decode("utf-8-sig", "ignore").replace("\x00", "")


def test_real_text_is_split_as_by_the_slow_splitter(shared_data: Path) -> None:
    novels = sorted((shared_data / "english_novels").glob("*.txt"))
    files = [
        *novels[::11],
        shared_data / "wikitext2" / "wiki.test.raw",
        *sorted((shared_data / "udhr2").glob("*.txt"))[::25],
    ]
    num_sentences = 0
    for file in files:
        text = read(file, 60_000)
        for layout in ("running", "paragraphs"):
            results = split_sentences(text, layout)
            assert results == reference_sentences(text, layout), file
            num_sentences += len(results)
    assert num_sentences > 5_000


def test_parts_of_a_text_are_split_as_the_whole(shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever a part ends, also in novels of one paragraph."""
    monkeypatch.setattr("bertkit.corpus.documents._AHEAD_BYTES", 500)
    rng = random.Random(0)
    for name in ("Conrad_Almayer_1895", "Dickens_Oliver_1839", "Forster_View_1908"):
        data = np.frombuffer((shared_data / "english_novels" / f"{name}.txt").read_bytes()[3:200_000], np.uint8)
        whole, _ = cut_sentences(data, np.array([0, len(data)]), "running")
        bounds, position = [whole[0]], 0
        while position < len(data):
            size = rng.randrange(700, 9_000)
            monkeypatch.setattr("bertkit.corpus.documents._PART_BYTES", size)
            window = data[position : position + size + 500]
            part = window[: _part_end(window, "running")]
            results, _ = cut_sentences(part, np.array([0, len(part)]), "running")
            bounds += (position + results[1:]).tolist()
            position += len(part)
        assert bounds == whole.tolist()


WRAPPED = """It was a bright cold day in April, and the clocks were
striking thirteen. Winston Smith, his chin nuzzled into
his breast in an effort to escape the vile wind, slipped
quickly through the glass doors of Victory Mansions.
"""
PARAGRAPHS = """It was a bright day. The clocks were striking. He slipped through the doors, quickly.
Then he came. It was late.
"""
LINES = """It was a bright day in April.
The clocks were striking thirteen, as they do.
He slipped in.

Then he came.
It was late.
"""


@pytest.mark.parametrize(
    ("text", "layout"),
    [
        *((WRAPPED, "running"), (PARAGRAPHS, "paragraphs"), (LINES, "lines"), ("", "lines"), ("\n\n", "lines")),
        *((WRAPPED.upper(), "running"), (LINES.replace("\n", "\r\n"), "lines"), ("One sentence.", "paragraphs")),
        *((WRAPPED.replace("\n", "\r\n\r\n", 1), "running"), (LINES.replace("\n", "\n\n"), "paragraphs")),
        *((LINES.lower().replace(".", ""), "lines"), (LINES.replace(".", ""), "lines")),
    ],
)
def test_layouts_are_guessed(text: str, layout: str) -> None:
    assert guess_layout(np.frombuffer(text.encode(), np.uint8)) == layout


def test_layouts_of_novels(shared_data: Path) -> None:
    """Wrapped where no line is long; each has a paragraph a line else."""
    novels = sorted((shared_data / "english_novels").glob("*.txt"))
    guessed = {"running": 0, "paragraphs": 0}
    for novel in novels:
        data = novel.read_bytes()[: 1 << 18]
        lengths = sorted(len(line) for line in data.split(b"\n") if line.strip())
        expected = "running" if lengths[len(lengths) * 95 // 100] < 130 else "paragraphs"
        assert guess_layout(np.frombuffer(data, np.uint8)) == expected, novel.name
        guessed[expected] += 1
    assert min(guessed.values()) > 30
    for path, layout in {
        "zorro/island-effects-adjunct_island.txt": "lines",
        "wikitext2/wiki.test.raw": "paragraphs",
    }.items():
        assert guess_layout(np.fromfile(shared_data / path, np.uint8)) == layout
