"""Reader of words with tags: CoNLL files, CoNLL-U, and jsonl files with words or with character spans.

The tags of a file may be of any scheme and notation in `bertkit.tasks.tags`, or plain labels; both are identified from
all tags. They are converted to BIO, BIOES, IO, names or plain labels.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bertkit.errors import DataError, UsageError
from bertkit.files import BadRows, extension, location
from bertkit.files.labeled_tables import check_roles, id_of, open_table, text_of, text_row, unknown_label
from bertkit.files.lines import Line, open_lines
from bertkit.files.tables import Row
from bertkit.tasks.examples import TaggedText
from bertkit.tasks.tags import (
    STANDARD,
    Entity,
    FileScheme,
    Notation,
    Scheme,
    Tags,
    entities_in,
    guess_file_scheme,
    guess_notation,
    meant_tag,
    misspelled,
    spell,
)
from bertkit.tasks.words import Words, entities_of_spans, joined, words_of
from bertkit.tasks.twins import spelled_alike
from bertkit.tokenizer.encoding import Span

CONLL_ROLES = ("word", "tag")
JSONL_ROLES = ("text", "spans", "words", "tags")
CONLLU_COLUMNS = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")

_KNOWN: Mapping[str, tuple[str, ...]] = {
    "text": ("text", "sentence"),
    "spans": ("spans", "entities", "label", "labels"),
    "words": ("words", "tokens"),
    "tags": ("tags", "ner_tags", "pos_tags", "labels"),
}
_DOCUMENT_START = "-DOCSTART-"
_SHOWN = 8  # names in a note


@dataclass(frozen=True)
class _Item:
    """A text of a file."""

    line: int
    text: str = ""
    words: tuple[Span, ...] | None = None
    tags: Sequence[str] | None = None  # for a file with tags
    entities: Sequence[Entity] | None = None  # for a file with spans
    problem: str = ""
    id: str = ""
    num_snapped: int = 0  # spans that were moved to the borders of words


@dataclass(frozen=True)
class _Reading:
    """How the tags of a file are read."""

    file_scheme: FileScheme
    notation: Notation
    scheme: Scheme | None  # requested; None: that of the file, as BIO if it is IOB1, IOE or has spans
    label_names: Sequence[str] | None
    known: Sequence[str]  # the tags of the file, the most frequent first


def read_tagged(
    path: str | Path,
    *,
    labeled: bool = True,
    columns: Mapping[str, str] = {},
    scheme: Scheme | None = None,
    label_names: Sequence[str] | None = None,
    class_names: Sequence[str] | None = None,
    words: Words = "punctuation",
    snap_spans: bool = False,
    bad_rows: BadRows | None = None,
) -> Iterator[TaggedText]:
    """Read the texts of a file with words and tags, one at a time; words of CoNLL files are joined by spaces.

    Args:
        path: .jsonl and .parquet; .conllu; any other is a CoNLL file, but without labels a .txt file that has no
            ".conll" in its name, and "-", standard input, hold a text on each line, and .csv files, and .tsv files
            that name one, have a column of texts.
        labeled: False: no tags are read, and words only where they are given.
        columns: of a CoNLL file the numbers, from 1, of "word" (the first) and "tag" (the last); of CoNLL-U the name
            of the column "tag" (upos); of a jsonl file the keys of "text" and "spans", or of "words" and "tags"; of
            a table the name of "text".
        scheme: requested scheme of the tags; None: that of the file, as BIO if it is IOB1, IOE or has spans.
        label_names: allowed tags, in any notation; None: any, in the notation B-PER.
        class_names: names of tags that the file has as integers from 0.
        words: the rule that splits a text with spans into words.
        snap_spans: move spans that begin or end inside a word to its borders, with a note on their number.
        bad_rows: receives unusable texts, and notes; None: such a text is an error.

    Raises:
        DataError: no such file, no column for text or tags, a bad text, no text at all.
        UsageError: a csv file with labels, or an unknown role.
    """
    bad_rows = bad_rows or BadRows()
    reading, tags_of_file = _Reading("plain", STANDARD, scheme, label_names, ()), []
    source = _Source(path, labeled, columns, words, snap_spans, class_names)
    if labeled and scheme != "plain":
        tags_of_file = [item.tags for item in _items(source) if item.tags is not None]
        reading = _reading(tags_of_file, scheme, label_names)
    has_any = False
    for item in _items(source):
        tags, problem = None, item.problem
        if labeled and not problem:
            tags, problem = _tags(item, reading)
        if problem:
            bad_rows.add(path, item.line, problem, item.text)
            continue
        if item.num_snapped:
            bad_rows.note(path, "spans were moved to the borders of words", item.num_snapped)
        has_any = True
        yield TaggedText(item.text, item.words, tags, location(path, item.line), item.id)
    if not has_any:
        raise bad_rows.none_left(path)
    if tags_of_file:
        bad_rows.note(path, _described(reading))
    if sentence := spelled_alike(reading.known):
        bad_rows.note(path, sentence)


def _reading(texts: Sequence[Sequence[str]], scheme: Scheme | None, label_names: Sequence[str] | None) -> _Reading:
    counts = Counter(tag for tags in texts for tag in tags)
    notation = guess_notation(counts)
    file_scheme = "plain" if notation is None else guess_file_scheme(texts, notation)
    known = [tag for tag, _ in counts.most_common()]
    return _Reading(file_scheme, notation or STANDARD, scheme, label_names, known)


def _described(reading: _Reading) -> str:
    """The scheme of a file in a few words.

    >>> _described(_Reading("IOB1", STANDARD, None, None, ["O", "I-PER", "B-PER"]))
    'scheme IOB1, 1 type: PER'
    """
    if reading.file_scheme == "plain":
        names, kind = sorted(reading.known), "plain labels"
    else:
        names = sorted({reading.notation.parts(tag)[1] for tag in reading.known} - {""})
        kind = f"scheme {reading.file_scheme}"
        if reading.notation not in (STANDARD, Notation("")):
            kind += f", written as {reading.notation.tag('B', 'TYPE')}"
    unit = "" if reading.file_scheme == "plain" else " type" if len(names) == 1 else " types"
    return f"{kind}, {len(names)}{unit}: {', '.join(names[:_SHOWN])}{', ...' if len(names) > _SHOWN else ''}"


def _tags(item: _Item, reading: _Reading) -> tuple[tuple[str, ...] | None, str]:
    """Tags of a text in the requested scheme, and a problem or ""."""
    assert item.words is not None
    tags, file_scheme, notation = list(item.tags or ()), reading.file_scheme, reading.notation
    of_model = "BIO" if item.tags is None or file_scheme in ("IOB1", "IOE1", "IOE2") else file_scheme
    scheme: Scheme = reading.scheme or of_model  # pyrefly: ignore
    if item.tags is not None:
        wrong = misspelled(tags, file_scheme, notation)
        if file_scheme == "plain" and scheme != "plain":
            wrong = next((number for number, tag in enumerate(tags) if tag != "O"), None)
        if wrong is not None:
            word, tag = item.text[slice(*item.words[wrong])], tags[wrong]
            parts = notation.parts if file_scheme != "plain" else STANDARD.parts
            meant = "" if parts(tag)[0] is not None else meant_tag(tag, [one for one in reading.known if one != tag])
            return None, (
                f": the tag {tag!r} of word {wrong + 1}, {word!r}, is not part of an entity in scheme "
                f"{scheme if file_scheme == 'plain' else file_scheme}: correct it, or read the "
                "tags as plain labels (read_tagged, scheme='plain')" + (f"; did you mean {meant!r}?" if meant else "")
            )
    if scheme != "plain":
        entities = list(item.entities or ()) if item.tags is None else entities_in(tags, file_scheme, notation)
        tags = spell(entities, len(item.words), scheme)
        if entities_in(tags, scheme) != entities:
            return None, f": two entities of one type are adjacent, which {scheme} tags cannot express: use BIO"
    if reading.label_names is not None:
        if scheme != "plain":
            tags = Tags(tuple(reading.label_names), scheme).named(tags)
        for tag in tags:
            if tag not in reading.label_names:
                return None, unknown_label(tag, reading.label_names)
    return tuple(tags), ""


@dataclass(frozen=True)
class _Source:
    """A file, with the arguments of `read_tagged`."""

    path: str | Path
    labeled: bool
    columns: Mapping[str, str]
    words: Words
    snap_spans: bool
    class_names: Sequence[str] | None


def _items(source: _Source) -> Iterator[_Item]:
    path, labeled, columns = source.path, source.labeled, source.columns
    if not labeled and (extension(path) == ".csv" or (extension(path) == ".tsv" and _has_text(path, columns))):
        yield from _of_table(path, columns)
    elif extension(path) == ".csv":
        raise UsageError(f"{path}: expected a CoNLL, jsonl or parquet file for words with tags: convert it to jsonl")
    elif extension(path) in (".jsonl", ".parquet", ".json", ".ndjson"):  # the last two are refused
        yield from _of_jsonl(source)
    elif not labeled and (str(path) == "-" or (extension(path) == ".txt" and ".conll" not in Path(path).suffixes)):
        with open_lines(path) as lines:
            for row in map(text_row, lines):
                yield _Item(row.line, row.values["text"], problem=row.problem)
    else:
        yield from _of_conll(path, labeled, columns)


def _has_text(path: str | Path, columns: Mapping[str, str]) -> bool:
    """Whether a tab-separated file has a column of texts, by its first line or the caller's choice; else it is
    CoNLL."""
    with open_lines(path) as lines:
        names = next(lines, Line(1, "", "")).text.rstrip("\r\n").split("\t")
    return "text" in columns or (not columns and any(name in names for name in _KNOWN["text"]))


def _of_table(path: str | Path, columns: Mapping[str, str]) -> Iterator[_Item]:
    """The texts of a table, without tags."""
    check_roles(columns, ("text",))
    with open_table(path, columns.values(), _KNOWN["text"]) as table:
        name = table.require("text", columns.get("text"), _KNOWN["text"])
        for row in table.rows:
            text, problem = ("", row.problem) if row.problem else text_of(row.values, name)
            yield _Item(row.line, text, problem=problem, id=id_of(row.values))


def _of_conll(path: str | Path, labeled: bool, columns: Mapping[str, str]) -> Iterator[_Item]:
    check_roles(columns, CONLL_ROLES)
    is_conllu = extension(path) == ".conllu"
    width = 0  # width of the first line
    with open_lines(path) as lines:
        for block in _blocks(lines, is_conllu):
            words: list[str] = []
            tags: list[str] = []
            line, problem = block[0].number, ""
            for number, text, invalid in block:
                fields = text.rstrip("\r\n").split("\t") if "\t" in text else text.split()
                if is_conllu and not fields[0].isdecimal():
                    continue  # 8-9 is a multiword token, whose parts follow; 8.1 an empty node
                width = width or len(fields)
                problem = invalid or _wrong_fields(fields, width, labeled)
                if problem:
                    line = number
                    break
                word, tag = _columns_of(columns, is_conllu, width)
                words.append(fields[word])
                tags.append(fields[tag].strip())
                if not fields[word].strip() or (labeled and not fields[tag].strip()):
                    line, problem = number, f" has an empty field: {text.strip():.60}"
                    break
            if words:
                yield _Item(line, *joined(words), tags if labeled and not problem else None, problem=problem)
            elif problem:
                yield _Item(line, problem=problem)


def _blocks(lines: Iterator[Line], is_conllu: bool) -> Iterator[list[Line]]:
    """The lines between empty ones, without comments and document markers."""
    block: list[Line] = []
    for line in lines:
        if not line.text.strip():
            if block:
                yield block
            block = []
        elif not (line.text.startswith("#") if is_conllu else line.text.startswith(_DOCUMENT_START)):
            block.append(line)
    if block:
        yield block


def _wrong_fields(fields: Sequence[str], width: int, labeled: bool) -> str:
    if len(fields) != width:
        return f" has {len(fields)} fields, the first line has {width}: expected the same number on each line"
    if labeled and width < 2:
        return " has no tag: expected a word and its tag on each line, with a tab or a space between them"
    return ""


def _columns_of(columns: Mapping[str, str], is_conllu: bool, width: int) -> tuple[int, int]:
    """Column indices of the word and its tag."""
    indices = {"word": 1, "tag": CONLLU_COLUMNS.index("upos")} if is_conllu else {"word": 0, "tag": width - 1}
    for role, column in columns.items():
        if is_conllu and column in CONLLU_COLUMNS:
            indices[role] = CONLLU_COLUMNS.index(column)
        elif column.isdecimal() and 1 <= int(column) <= width:
            indices[role] = int(column) - 1
        else:
            known = ", ".join(CONLLU_COLUMNS) if is_conllu else "a number"
            raise DataError(f"no column {column!r} for the {role}: expected {known}, of {width} columns")
    return indices["word"], indices["tag"]


def _of_jsonl(source: _Source) -> Iterator[_Item]:
    path, labeled, columns = source.path, source.labeled, source.columns
    check_roles(columns, JSONL_ROLES)
    with open_table(path, columns.values(), ()) as table:

        def key(role: str) -> str | None:
            return table.column(role, columns.get(role), _KNOWN[role])

        words_key = key("words")
        if words_key is not None:
            tags_key = table.require("tags", columns.get("tags"), _KNOWN["tags"]) if labeled else ""
            for row in table.rows:
                yield _Item(row.line, problem=row.problem) if row.problem else _of_words(row, words_key, tags_key)
            return
        text_key = table.require("text", columns.get("text"), _KNOWN["text"])
        spans_key = table.require("spans", columns.get("spans"), _KNOWN["spans"]) if labeled else ""
        for row in table.rows:
            text, problem = ("", row.problem) if row.problem else text_of(row.values, text_key)
            if problem or not labeled:
                yield _Item(row.line, text, problem=problem, id=id_of(row.values))
            else:
                spans, name = words_of(text, source.words), id_of(row.values)
                entities, problem, snapped = entities_of_spans(
                    row.values.get(spans_key), text, spans, snap=source.snap_spans
                )
                yield _Item(row.line, text, spans, None, entities, problem, name, snapped)


def _of_words(row: Row, words_key: str, tags_key: str) -> _Item:
    words, tags = row.values.get(words_key), row.values.get(tags_key) if tags_key else None
    for key, value in ((words_key, words), (tags_key, tags)):
        if key and not (isinstance(value, list) and value and all(isinstance(part, str) and part for part in value)):
            return _Item(row.line, problem=f": {key!r} is {value!r:.60}, expected a list of strings, none empty")
    assert isinstance(words, list)
    if tags is not None and len(words) != len(tags):
        return _Item(row.line, problem=f" has {len(words)} words and {len(tags)} tags: expected one tag for each word")
    text, spans = joined(words)
    _, problem = text_of({"text": text}, "text")
    tags = None if tags is None else [tag.strip() for tag in tags]
    return _Item(row.line, text, spans, tags, problem=problem, id=id_of(row.values))
