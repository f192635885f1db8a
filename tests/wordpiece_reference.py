"""BERT tokenization in plain Python, the slow reference for the exactness tests.

Written from the paper (Devlin et al. 2018, section 3; Wu et al. 2016, section 4.1, for WordPiece) and from what the
published fast tokenizer (`tokenizers` 0.23) can be seen to do with every code point. One character at a time, no tables
but the ones below: they say where that library differs from Python's `unicodedata` (14.0 in Python 3.11; the ranges
hold for every version to 18.0).
"""

import unicodedata
from collections.abc import Callable
from functools import cache


def _code_points(ranges: str) -> frozenset[str]:
    """Characters of "A B-D": hexadecimal code points and ranges of them, both ends included."""
    ends = ([int(end, 16) for end in part.split("-")] for part in ranges.split())
    return frozenset(chr(code) for end in ends for code in range(end[0], end[-1] + 1))


# White_Space of Unicode. Python's str.isspace has 1C-1F besides, which are control characters here.
SPACES = _code_points("9-D 20 85 A0 1680 2000-200A 2028-2029 202F 205F 3000")
# These become a space even though they are control characters; all other control characters vanish.
SPACE_CONTROLS = frozenset("\t\n\r")
# Format characters (Cf) that stay: unknown to the library's categories, which are those of Unicode 8.
NOT_CONTROL = _code_points("890-891 8E2 110CD 13430-1343F")
# One word for each: the CJK blocks as published. Extension E starts at 2B920 in the library, at 2B820 in Unicode.
CJK = _code_points("3400-4DBF 4E00-9FFF F900-FAFF 20000-2A6DF 2A700-2B81F 2B920-2CEAF 2F800-2FA1F")
# Punctuation (P*) that does not split: younger than Unicode 8, or made punctuation since.
NOT_PUNCTUATION = _code_points(
    "61D 9FD A76 C77 C84 1B4E-1B4F 1B7D-1B7F 2E43-2E4F 2E52-2E5D 2E60-2E63 10D6E 10EAD 10ED0 10F55-10F59 10F86-10F89 "
    "113D4-113D5 113D7-113D8 1144B-1144F 1145A-1145B 1145D 11660-1166C 116B9 1183B 11944-11946 119E2 11A3F-11A46 "
    "11A9A-11A9C 11A9E-11AA2 11B00-11B09 11BE1 11C41-11C45 11C70-11C71 11EF7-11EF8 11F43-11F4F 11FFF 12FF1-12FF2 "
    "16D6D-16D6F 16E97-16E9A 16FE2 1E5FF 1E95E-1E95F"
)
# Punctuation in Unicode 8 that is a symbol (166D) or a mark (111C9) today.
ALSO_PUNCTUATION = _code_points("166D 111C9")
# Marks (Mn) that are not dropped: younger than Unicode 8, or made marks since.
NOT_MARK = _code_points(
    "5C8-5C9 7FD 897-89F 8CA-8E1 9FE AFA-AFF B53-B55 C04 C3C D00 D3B-D3C D81 EBA ECE 180F 1885-1886 1ABF-1AF0 "
    "1DF6-1DFB A82C A8C5 A8FF A9BD 10D24-10D27 10D69-10D6D 10EAB-10EAC 10ECB-10ECF 10EF0-10EFF 10F46-10F50 "
    "10F82-10F85 11070 11073-11074 110C2 111C9 111CF 1123E 11241 1133B 113BB-113C0 113CE 113D0 113D2 113E1-113E2 "
    "11438-1143F 11442-11444 11446 1145E 1182F-11837 11839-1183A 1193B-1193C 1193E 11943 119D4-119D7 119DA-119DB "
    "119E0 11A01-11A0A 11A33-11A38 11A3B-11A3E 11A47 11A51-11A56 11A59-11A5B 11A8A-11A96 11A98-11A99 11B60 "
    "11B62-11B64 11B66 11C30-11C36 11C38-11C3D 11C3F 11C92-11CA7 11CAA-11CB0 11CB2-11CB3 11CB5-11CB6 11D31-11D36 "
    "11D3A 11D3C-11D3D 11D3F-11D45 11D47 11D90-11D91 11D95 11D97 11DF0 11EF3-11EF4 11F00-11F01 11F36-11F3A 11F40 "
    "11F42 11F5A 13440 13447-13455 1611E-16129 1612D-1612F 16F4F 16FE4 1CF00-1CF2D 1CF30-1CF46 1D127-1D128 "
    "1D25B-1D25C 1E000-1E006 1E008-1E018 1E01B-1E021 1E023-1E024 1E026-1E02A 1E08F 1E130-1E136 1E2AE 1E2EC-1E2EF "
    "1E4EC-1E4EF 1E5EE-1E5EF 1E6E3 1E6E6 1E6EE-1E6EF 1E6F5 1E944-1E94A"
)
# Marks in Unicode 8 that are spacing marks (Mc) today.
ALSO_MARK = _code_points("1734 1171E")
# Characters that stay whole: decompositions younger than the library's, which are those of Unicode 9.
NOT_DECOMPOSED = _code_points("105C9 105E4 11383 11385 1138E 11391 113C5 113C7-113C8 11938 16121-16128 16D68-16D6A")
# Marks that canonical ordering leaves where they are: combining classes younger than Unicode 9.
NOT_ORDERED = _code_points(
    "5C8-5C9 7FD 897-89F 8CA-8D3 9FE C3C D3B-D3C EBA 1715 1ABF-1AF0 1DF6-1DFA A82C 10D24-10D27 10D69-10D6D 10EAB-10EAC "
    "10ECB-10ECF 10EF0-10EFB 10EFD-10EFF 10F46-10F50 10F82-10F85 11070 1133B 113CE-113D0 1145E 11839-1183A 1193D-1193E "
    "11943 119E0 11A34 11A47 11A99 11D42 11D44-11D45 11D97 11F41-11F42 1612F 16FF0-16FF1 1D127-1D128 1D250-1D252 "
    "1D25B-1D25C 1D25F 1D280-1D281 1E08F 1E130-1E136 1E2AE 1E2EC-1E2EF 1E4EC-1E4EF 1E5EE-1E5EF 1E6E3 1E6E6 1E6EE-1E6EF "
    "1E6F5"
)
# Capitals of Unicode 16 and 17, which the library lower-cases and Python 3.11 does not know yet.
YOUNG_CAPITALS = {
    **{chr(a): chr(b) for a, b in ((0x1C89, 0x1C8A), (0xA7CB, 0x264), (0xA7DA, 0xA7DB), (0xA7DC, 0x19B))},
    **{chr(code): chr(code + 1) for code in (0xA7CC, 0xA7CE, 0xA7D2, 0xA7D4)},
    **{chr(code): chr(code + 0x20) for code in range(0x10D50, 0x10D66)},
    **{chr(code): chr(code + 0x1B) for code in range(0x16EA0, 0x16EB9)},
}

Placed = tuple[str, list[int]]
"""Characters, and for each the position in the original text that it stands for."""


def reference_tokens(
    text: str,
    vocab: dict[str, int],
    lowercase: bool,
    strip_accents: bool | None = None,
    max_chars_per_word: int = 100,
) -> list[tuple[str, int, int, int]]:
    """(token, start, end, word number) of each token of `text`; end exclusive, in characters of `text` as given.

    No [CLS] or [SEP], and none is read from the text. `strip_accents` None means: as `lowercase`.
    """
    normal, indices = normalize(text, lowercase, strip_accents)
    tokens = []
    for number, (start, end) in enumerate(words(normal)):
        for piece, first, last in pieces(normal[start:end], vocab, max_chars_per_word):
            tokens.append((piece, indices[start + first], indices[start + last] + 1, number))
    return tokens


def normalize(text: str, lowercase: bool, strip_accents: bool | None = None) -> Placed:
    """Clean, separate CJK characters, decompose and drop marks, lowercase, in this order."""
    normal, indices = replace((text, list(range(len(text)))), clean)
    if strip_accents or (strip_accents is None and lowercase):
        normal, indices = replace(decompose((normal, indices)), without_mark)
    if lowercase:
        normal, indices = replace((normal, indices), lower_case)
    return normal, indices


def replace(placed: Placed, rule: Callable[[str], str]) -> Placed:
    """Each character as the rule has it: dropped, kept, or replaced by several."""
    replaced = [rule(char) for char in placed[0]]
    if "" not in replaced and len("".join(replaced)) == len(replaced):
        return "".join(replaced), placed[1]  # one for one
    return "".join(replaced), [index for new, index in zip(replaced, placed[1], strict=True) for _ in new]


def decompose(placed: Placed) -> Placed:
    """Canonical decomposition (NFD): each character to its parts, then marks in a row by combining class.

    Indices do not move with a mark: the n-th character of the text keeps the n-th index among those that
    are not additional parts, and an additional part has the index of what is now before it.
    """
    if placed[0].isascii():
        return placed
    parts = [(part, number > 0) for char in placed[0] for number, part in enumerate(decomposed(char))]
    start = 0
    while start < len(parts):
        end = start
        while end < len(parts) and combining_class(parts[end][0]):
            end += 1
        parts[start:end] = sorted(parts[start:end], key=lambda part: combining_class(part[0]))
        start = end + 1
    indices, number = [], -1
    for _, additional in parts:
        number += not additional
        indices.append(placed[1][number])
    return "".join(part for part, _ in parts), indices


def words(normal: str) -> list[tuple[int, int]]:
    """Start and end (exclusive) of each word: split at white space, which goes, and around punctuation, each a word."""
    results, start = [], 0
    for position, char in enumerate(normal + " "):
        if not is_border(char):
            continue
        if start < position:
            results.append((start, position))
        if char not in SPACES:
            results.append((position, position + 1))
        start = position + 1
    return results


def pieces(word: str, vocab: dict[str, int], max_chars_per_word: int) -> list[tuple[str, int, int]]:
    """(token, first, last character of `word`): the longest entry first, then the longest ## entry, and so on."""
    unknown = [("[UNK]", 0, len(word) - 1)]
    if len(word) > max_chars_per_word:
        return unknown
    results, start = [], 0
    while start < len(word):
        for end in range(len(word), start, -1):
            piece = ("##" if start else "") + word[start:end]
            if piece in vocab:
                break
        else:
            return unknown
        results.append((piece, start, end - 1))
        start = end
    return results


@cache
def clean(char: str) -> str:
    """Nothing for a control character, a space for any white space, spaces around a CJK character."""
    if is_control(char):
        return ""
    if char in SPACES:
        return " "
    return f" {char} " if char in CJK else char


@cache
def is_control(char: str) -> bool:
    """Dropped before anything else: control, format and private use characters, NUL, the replacement character."""
    if char in SPACE_CONTROLS or char in NOT_CONTROL:
        return False
    return char == "\ufffd" or unicodedata.category(char) in ("Cc", "Cf", "Co")


@cache
def without_mark(char: str) -> str:
    return "" if is_mark(char) else char


@cache
def is_mark(char: str) -> bool:
    """A non-spacing mark (Mn): what stripping accents drops."""
    return char in ALSO_MARK or (unicodedata.category(char) == "Mn" and char not in NOT_MARK)


@cache
def is_border(char: str) -> bool:
    """White space or punctuation: ends a word."""
    return char in SPACES or is_punctuation(char)


@cache
def is_punctuation(char: str) -> bool:
    """A Unicode P*, or any ASCII character that is no letter, digit, space or control."""
    if char < "\x7f":
        return char > " " and not char.isalnum()
    return char in ALSO_PUNCTUATION or (unicodedata.category(char)[0] == "P" and char not in NOT_PUNCTUATION)


@cache
def combining_class(char: str) -> int:
    return 0 if char in NOT_ORDERED else unicodedata.combining(char)


@cache
def lower_case(char: str) -> str:
    """One character by itself: a final capital sigma becomes σ as anywhere else."""
    return YOUNG_CAPITALS.get(char) or char.lower()


@cache
def decomposed(char: str) -> str:
    return char if char in NOT_DECOMPOSED else unicodedata.normalize("NFD", char)
