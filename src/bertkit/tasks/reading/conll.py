"""CoNLL files, with a word on each line and its tag in a column, and CoNLL-U."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bertkit.errors import DataError
from bertkit.files import extension
from bertkit.files.labeled_tables import check_roles
from bertkit.files.lines import Line, open_lines
from bertkit.tasks.tags import OUTSIDE, STANDARD, Entity
from bertkit.tasks.words import joined
from bertkit.tokenizer.encoding import Span

CONLL_ROLES = ("word", "tag")
CONLLU_COLUMNS = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")

DOCUMENT_START = "-DOCSTART-"
_HEADER = {"word", "words", "token", "tokens", "form", "tag", "tags", "label", "labels", "ner", "ner_tag", "pos"}


@dataclass(frozen=True)
class Item:
    """A text of a file."""

    line: int
    text: str = ""
    words: tuple[Span, ...] | None = None
    tags: Sequence[str] | None = None  # for a file with tags
    entities: Sequence[Entity] | None = None  # for a file with spans
    problem: str = ""
    id: str = ""
    num_snapped: int = 0  # spans that were moved to the borders of words
    path: str = ""  # its file, where a folder is read


def conll_items(
    path: str | Path, labeled: bool, columns: Mapping[str, str], note: Callable[[str], None]
) -> Iterator[Item]:
    """The texts of a file with a word on each line.

    Args:
        columns: as in `read_tagged`.
        note: called with what is guessed.
    """
    check_roles(columns, CONLL_ROLES)
    with open_lines(path) as opened:
        lines = list(opened)  # all of them decide which are comments
    if lines and (first := _fields(lines[0].text.lower()))[:1] and {first[0].strip(), first[-1].strip()} < _HEADER:
        note(f"the first line was read as a header: {lines[0].content}")
        lines = [line for line in lines if line.content != lines[0].content]  # also where files were joined
    layout = _layout(lines, columns, note, is_conllu=extension(path) == ".conllu")
    if layout.num_comments:
        note(f"lines with # at their start were read as comments: {layout.num_comments:,}")
    for block in _blocks(lines, layout):
        words: list[str] = []
        tags: list[str] = []
        line, problem = block[0].number, ""
        for number, text, invalid in block:
            fields = _fields(text)
            if layout.is_conllu and not fields[0].isdecimal():
                continue  # 8-9 is a multiword token, whose parts follow; 8.1 an empty node
            problem = invalid or _wrong_fields(fields, layout.width, labeled)
            if not problem:
                words.append(fields[layout.word])
                tags.append(fields[layout.tag].strip())
                for what, field in (("word", words[-1]), ("tag", tags[-1] if labeled else "-")):
                    if not problem and not field.strip():
                        ending = "; does it end in a tab?" if text.rstrip("\r\n").endswith("\t") else ""
                        problem = f" has an empty field, the {what}: {text.rstrip()!r:.60}{ending}"
            if problem:
                line = number
                break
        if words or problem:
            yield Item(line, *joined(words), tags if labeled and not problem else None, problem=problem)


@dataclass(frozen=True)
class _Layout:
    """The columns of a file."""

    is_conllu: bool
    width: int  # number of fields of the first line
    word: int  # column indices
    tag: int
    tags: frozenset[str]  # the last fields of lines that do not start with #
    num_comments: int

    def is_comment(self, text: str) -> bool:
        """Whether a line that starts with # is a comment; else # begins a word."""
        fields, words = _fields(text), text.split()
        is_alone = words[0] == "#" and len(words) > 1
        return self.is_conllu or (is_alone and (len(fields) != self.width or fields[-1].strip() not in self.tags))


def _layout(
    lines: Sequence[Line], columns: Mapping[str, str], note: Callable[[str], None], *, is_conllu: bool
) -> _Layout:
    first: list[str] = []
    with_hash: list[str] = []
    names: Sequence[str] = CONLLU_COLUMNS
    tags = {OUTSIDE}
    for line in lines:
        if line.text.split()[:1] == ["#"] or (is_conllu and line.text.startswith("#")):
            with_hash.append(line.text)
            if "global.columns" in line.text:
                names, is_conllu = tuple(line.text.partition("=")[2].lower().split()), True
        elif line.text.strip() and not line.text.startswith(DOCUMENT_START):
            fields = _fields(line.text)
            first = first or fields
            tags.add(fields[-1].strip())
    is_conllu = is_conllu or (len(first) == len(CONLLU_COLUMNS) and re.fullmatch(r"1|1-\d+", first[0]) is not None)
    word, tag = _columns_of(columns, names if is_conllu else (), len(first)) if first else (0, 0)
    layout = _Layout(is_conllu, len(first), word, tag, frozenset(tags), 0)
    if is_conllu:
        return layout
    if len(first) > 2 and "word" not in columns and _counts_words(lines, layout):
        layout = replace(layout, word=1)
        note("the first column counts the words, which are in the second")
    if len(first) > 2 and "tag" not in columns and (others := _columns_of_tags(lines, layout)):
        shown = " and ".join(str(column + 1) for column in others)
        note(f"column {shown} has tags too: the last column was taken, --columns tag={others[-1] + 1} takes another")
    return replace(layout, num_comments=sum(map(layout.is_comment, with_hash)))


def _counts_words(lines: Sequence[Line], layout: "_Layout") -> bool:
    """Whether the first column is 1, 2, 3, ... or 0, 1, 2, ... in each text."""
    for block in _blocks(lines, layout):
        numbers = [_fields(line.text)[0] for line in block]
        if not any(numbers == [str(number) for number in range(start, start + len(block))] for start in (0, 1)):
            return False
    return True


def _columns_of_tags(lines: Sequence[Line], layout: "_Layout") -> list[int]:
    """Columns before the last that have tags in the notation B-PER, if the last has."""
    columns = [column for column in range(layout.width) if column != layout.word]
    for block in _blocks(lines, layout):
        for fields in (_fields(line.text) for line in block):
            columns = [
                column
                for column in columns
                if column < len(fields) and STANDARD.parts(fields[column].strip())[0] is not None
            ]
    return columns[:-1] if columns[-1:] == [layout.tag] else []


def _fields(text: str) -> list[str]:
    content = text.rstrip("\r\n")
    return content.split("\t") if "\t" in content else content.split()


def _blocks(lines: Iterable[Line], layout: _Layout) -> Iterator[list[Line]]:
    """The lines between empty ones, without comments and document markers."""
    block: list[Line] = []
    for line in lines:
        if not line.text.strip():
            if block:
                yield block
            block = []
        elif line.text.startswith("#") and layout.is_comment(line.text):
            continue
        elif not line.text.startswith(DOCUMENT_START):
            block.append(line)
    if block:
        yield block


def _wrong_fields(fields: Sequence[str], width: int, labeled: bool) -> str:
    if len(fields) != width:
        return f" has {len(fields)} fields, the first line has {width}: expected the same number on each line"
    if labeled and width < 2:
        return " has no tag: expected a word and its tag on each line, with a tab or a space between them"
    return ""


def _columns_of(columns: Mapping[str, str], names: Sequence[str], width: int) -> tuple[int, int]:
    """Column indices of the word and its tag.

    Args:
        names: of the columns of CoNLL-U; () for CoNLL.
    """
    indices = {"word": 0, "tag": width - 1}
    if names:
        usual = "upos" if "upos" in names else names[-1]
        indices = {"word": names.index("form") if "form" in names else 0, "tag": names.index(usual)}
    for role, column in columns.items():
        if column in names:
            indices[role] = names.index(column)
        elif column.isdecimal() and 1 <= int(column) <= width:
            indices[role] = int(column) - 1
        else:
            known = ", ".join(names) or "a number"
            raise DataError(f"no column {column!r} for the {role}: expected {known}, of {width} columns")
    return indices["word"], indices["tag"]
