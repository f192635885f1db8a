"""Make src/bertkit/tokenizer/characters.npz: what BERT's published tokenizer does with every Unicode code point.

    python tools/make_character_tables.py            # write the file
    python tools/make_character_tables.py --check    # derive it anew and compare

Everything is asked of the `tokenizers` library itself, one code point at a time: which it drops, takes for white space,
punctuation or CJK, what each decomposes to (NFD), which marks stripping accents drops, each one's lower case, and, by
letting marks change places with one another, the order of marks. The file's layout: bertkit/tokenizer/characters.py.
"""

import argparse
import sys
import unicodedata
from collections.abc import Callable, Iterable
from functools import cache

import numpy as np
from tokenizers import normalizers, pre_tokenizers

from bertkit.tokenizer.characters import CLASS_SHIFT, DROPPED, FILE, PAGE_SIZE, PUNCTUATION, table_name

NUM_CODE_POINTS = 0x110000
SURROGATES = range(0xD800, 0xE000)

Letters = tuple[int, ...]
"""What one character becomes: letters packed as characters.py has them."""


def bert(**chosen: bool) -> Callable[[str], str]:
    """One step of BERT's normalization alone."""
    off = {"clean_text": False, "handle_chinese_chars": False, "strip_accents": False, "lowercase": False}
    return normalizers.BertNormalizer(**(off | chosen)).normalize_str


clean = bert(clean_text=True)
space_cjk = bert(handle_chinese_chars=True)
decompose = normalizers.NFD().normalize_str
strip_accents = bert(strip_accents=True)
lower_case = bert(lowercase=True)
split = pre_tokenizers.BertPreTokenizer().pre_tokenize_str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    tables = derive()
    if not check:
        np.savez_compressed(FILE, **tables)
        print(f"written: {FILE.name}, {FILE.stat().st_size} bytes")
        return
    stored = np.load(FILE)
    wrong = [name for name in tables if not np.array_equal(tables[name], stored[name])]
    if wrong or set(stored) != set(tables):
        sys.exit(f"{FILE.name} is not what this version of tokenizers gives: {', '.join(wrong)} differ")
    print(f"{FILE.name}: as derived")


def derive() -> dict[str, np.ndarray]:
    """The arrays of the file, for each of the four ways to normalize, and for text that is normal already."""
    arrays = {}
    for lowercase in (True, False):
        for strip in (True, False):
            becomes = [what_becomes(chr(code), lowercase, strip) for code in valid_code_points()]
            arrays |= pack(table_name(lowercase, strip), becomes)
    return arrays | pack(table_name(None, None), [as_it_is(chr(code)) for code in valid_code_points()])


def valid_code_points() -> Iterable[int]:
    return (code for code in range(NUM_CODE_POINTS) if code not in SURROGATES)


def what_becomes(char: str, lowercase: bool, strip: bool) -> tuple[str, Letters]:
    """Kind of a character ("space", "punctuation", "cjk" or "other") and the letters it becomes."""
    cleaned = clean(char)
    if not cleaned:
        return "other", ()
    if cleaned == " ":
        return "space", ()
    cjk = space_cjk(char) != char
    parts = decompose(char) if strip else char
    letters: list[int] = []
    for part in parts:
        ordering = combining_class(part) << CLASS_SHIFT if strip else 0
        if strip and not strip_accents(part):
            letters.append(DROPPED | ordering)
            continue
        for letter in lower_case(part) if lowercase else part:
            itself = 0 if letter == char else ord(letter)
            letters.append(itself | ordering | (PUNCTUATION if is_punctuation(letter) else 0))
    assert sum(not letter & DROPPED for letter in letters) <= len(char.encode())  # the engine's output has that room
    kind = "cjk" if cjk else "punctuation" if is_punctuation(char) else "other"
    if kind != "other" and (len(letters) > 1 or letters[0] >> CLASS_SHIFT & 0xFF or letters[0] & DROPPED):
        assert not cjk, f"U+{ord(char):04X} is CJK and does not stay one letter"
        kind = "other"  # punctuation that is a mark or decomposes stands in no way between the letters around it
    return kind, tuple(letters)


def as_it_is(char: str) -> tuple[str, Letters]:
    """The same for a character of text that is normal already: nothing changes, words still end."""
    if len(split(f"a{char}b")) == 2:
        return "space", ()
    return ("punctuation", (PUNCTUATION,)) if is_punctuation(char) else ("other", (0,))


@cache
def is_punctuation(char: str) -> bool:
    """Splits a word in three: what stands before it, itself, what stands after it."""
    return len(split(f"a{char}b")) == 3


@cache
def combining_class(char: str) -> int:
    """Canonical combining class as the library orders marks: 0 for what stays where it stands.

    A mark moves before one of a higher class, and one of a lower class moves before it; so the classes of a few marks
    known from Python's table give all others'.
    """
    highest, lowest = known_marks()[-1], known_marks()[0]
    if not (moves(char, after=highest) or moves(lowest, after=char)):
        return 0
    at_least = [mark for mark in known_marks() if not moves(char, after=mark)]  # of this class or below
    found = unicodedata.combining(at_least[-1])
    assert not moves(at_least[-1], after=char), f"U+{ord(char):04X} is of a class between those known"
    return found


def moves(char: str, after: str) -> bool:
    return decompose(f"a{after}{char}") == f"a{char}{after}" != f"a{after}{char}"


@cache
def known_marks() -> list[str]:
    """One mark of each combining class, in ascending order, that the library orders."""
    highest = "\u0345"
    marks = {unicodedata.combining(highest): highest}
    for char in map(chr, valid_code_points()):
        order = unicodedata.combining(char)
        if order and order not in marks and moves(char, after=highest):
            marks[order] = char
    return [marks[order] for order in sorted(marks)]


def pack(name: str, becomes: list[tuple[str, Letters]]) -> dict[str, np.ndarray]:
    """Forms numbered as characters.py wants them, and the form of each code point in two stages."""
    itself = {"space": (), "punctuation": (PUNCTUATION,), "cjk": (0,), "other": (0,)}
    found: dict[str, dict[Letters, None]] = {kind: {itself[kind]: None} for kind in ("space", "punctuation", "cjk")}
    found["other"] = {}
    for kind, letters in becomes:
        if (kind, letters) != ("other", (0,)):
            found[kind].setdefault(letters)
    forms = [("other", (0,)), *((kind, letters) for kind, several in found.items() for letters in several)]
    numbers = {form: number for number, form in enumerate(forms)}
    form_of = np.zeros(NUM_CODE_POINTS, np.uint16)
    form_of[list(valid_code_points())] = [numbers[form] for form in becomes]
    blocks: dict[bytes, int] = {}  # in the order of Unicode, so that ASCII is the first
    starts = [blocks.setdefault(page.tobytes(), PAGE_SIZE * len(blocks)) for page in form_of.reshape(-1, PAGE_SIZE)]
    kinds = [kind for kind, _ in forms]
    lengths = [len(letters) for _, letters in forms]
    bounds = len(forms) + 1 + np.concatenate([[0], np.cumsum(lengths)])
    all_letters = [letter for _, letters in forms for letter in letters]
    return {
        f"{name}_pages": np.array(starts, np.uint16),
        f"{name}_forms": np.frombuffer(b"".join(blocks), np.uint16),
        f"{name}_form_letters": np.concatenate([bounds, all_letters]).astype(np.uint32),
        f"{name}_first_cjk": np.int64(kinds.index("cjk")),
        f"{name}_first_other": np.int64(kinds.index("other", 1) if "other" in kinds[1:] else len(kinds)),
    }


if __name__ == "__main__":
    main()
