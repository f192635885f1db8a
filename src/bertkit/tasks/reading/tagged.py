"""Reader of words with tags: CoNLL files, CoNLL-U, and jsonl files with words or with character spans.

The tags of a file may be of any scheme and notation in `bertkit.tasks.tags`, or plain labels; both are identified from
all tags. They are converted to BIO, BIOES, IO, names or plain labels.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from bertkit.errors import UsageError
from bertkit.files import BadRow, BadRows, extension, location
from bertkit.files.labeled_tables import (
    WITH_TABS,
    Table,
    check_roles,
    id_of,
    named_classes,
    open_table,
    text_of,
    text_row,
    unknown_label,
)
from bertkit.files.lines import Line, open_lines
from bertkit.files.tables import Row
from bertkit.tasks.example_file import ExampleFile
from bertkit.tasks.examples import TaggedText
from bertkit.tasks.reading.conll import DOCUMENT_START, Item, conll_items
from bertkit.tasks.reading.formats import format_of, open_rows
from bertkit.tasks.reading.formats.format import TABLES, Sample
from bertkit.tasks.reading.labels import items_in
from bertkit.tasks.tags import (
    STANDARD,
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
from bertkit.tokenizer.encoding import Span

JSONL_ROLES = ("text", "spans", "words", "tags")
WORD_SPANS = "word_spans"
"""Column with the character spans of the words of a text; without it the text is split."""

_KNOWN: Mapping[str, tuple[str, ...]] = {
    "text": ("text", "sentence"),
    "spans": ("spans", "entities", "annotations", "label", "labels"),
    "words": ("words", "tokens"),
    "tags": ("tags", "ner_tags", "pos_tags", "chunk_tags", "labels"),
}
_SHOWN = 8  # names in a note
_SAMPLE_LINES = 1_000


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
        path: .jsonl and .parquet; .conllu; any other is a CoNLL file, but without labels a .txt file that has neither
            tags of entities nor ".conll" in its name, and "-", standard input, hold a text on each line, and .csv
            files, and .tsv files that name one, have a column of texts.
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
    options = {"words": words, "snap_spans": snap_spans}
    return read_tagged_file(ExampleFile(path, labeled, columns, label_names, bad_rows, options, class_names), scheme)


def read_tagged_file(file: ExampleFile, scheme: Scheme | None) -> Iterator[TaggedText]:
    """As `read_tagged`; "words" and "snap_spans" are options of the file."""
    path, bad_rows = file.path, file.bad_rows or BadRows()
    reading = None
    items: Iterable[Item] = _items(file, lambda sentence: bad_rows.note(path, sentence))
    if file.labeled and scheme != "plain":
        items = list(items)
        if tags_of_file := [item.tags for item in items if item.tags is not None]:
            reading = _reading(tags_of_file, scheme, file.label_names)
    how = reading or _Reading("plain", STANDARD, scheme, file.label_names, ())

    def tagged(item: Item) -> TaggedText:
        tags = _tags(item, how) if file.labeled else None
        if item.num_snapped:
            bad_rows.note(path, "spans were moved to the borders of words", item.num_snapped)
        return TaggedText(item.text, item.words, tags, location(item.path or path, item.line), item.id)

    yield from bad_rows.usable(path, items, tagged, lambda item: item.text)
    if reading is not None:
        bad_rows.note(path, _described(reading))


def _reading(texts: Sequence[Sequence[str]], scheme: Scheme | None, label_names: Sequence[str] | None) -> _Reading:
    counts = Counter(tag for tags in texts for tag in tags)
    notation = guess_notation(counts)
    file_scheme = "plain" if notation is None else guess_file_scheme(texts, notation)
    if notation is not None and file_scheme == "plain":  # all tags are misspelled
        file_scheme = "BIO"
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


def _tags(item: Item, reading: _Reading) -> tuple[str, ...]:
    """Tags of a text in the requested scheme."""
    assert item.words is not None
    tags, file_scheme, notation = list(item.tags or ()), reading.file_scheme, reading.notation
    of_model = "BIO" if item.tags is None or file_scheme in ("IOB1", "IOE1", "IOE2") else file_scheme
    scheme: Scheme = reading.scheme or of_model  # pyrefly: ignore
    if item.tags is not None:
        for number, tag in enumerate(tags) if file_scheme != "plain" else ():
            if "|" in tag and all(notation.parts(part)[0] is not None for part in tag.split("|")):
                several = f"has the tags {tag!r}, but each word is in one entity: keep one of them"
                raise BadRow(f": word {number + 1} {several}")
        wrong = misspelled(tags, file_scheme, notation)
        if file_scheme == "plain" and scheme != "plain":
            wrong = next((number for number, tag in enumerate(tags) if tag != "O"), None)
        if wrong is not None:
            word, tag = item.text[slice(*item.words[wrong])], tags[wrong]
            parts = notation.parts if file_scheme != "plain" else STANDARD.parts
            meant = "" if parts(tag)[0] is not None else meant_tag(tag, [one for one in reading.known if one != tag])
            raise BadRow(
                f": the tag {tag!r} of word {wrong + 1}, {word!r}, is not part of an entity in scheme "
                f"{scheme if file_scheme == 'plain' else file_scheme}: correct it, or read the "
                "tags as plain labels with scheme='plain'" + (f"; did you mean {meant!r}?" if meant else "")
            )
    if scheme != "plain":
        entities = list(item.entities or ()) if item.tags is None else entities_in(tags, file_scheme, notation)
        tags = spell(entities, len(item.words), scheme)
        if entities_in(tags, scheme) != entities:
            raise BadRow(f": two entities of one type are adjacent, which {scheme} tags cannot express: use BIO")
    if reading.label_names is not None:
        if scheme != "plain":
            tags = Tags(tuple(reading.label_names), scheme).named(tags)
        for tag in tags:
            if tag not in reading.label_names:
                raise BadRow(unknown_label(tag, reading.label_names))
    return tuple(tags)


def _items(file: ExampleFile, note: Callable[[str], None]) -> Iterator[Item]:
    """The texts of a file; ``note`` is called with what is guessed."""
    path, labeled, columns, suffix = file.path, file.labeled, file.columns, extension(file.path)
    if not labeled and (str(path) == "-" or (suffix == ".txt" and not _is_conll(file, note))):
        with open_lines(path) as lines:
            for row in map(text_row, lines):
                if "\t" in row.values["text"]:
                    note(WITH_TABS)
                yield Item(row.line, row.values["text"], problem=row.problem)
    elif (
        suffix in (".jsonl", ".parquet", ".json", ".ndjson")
        or format_of(path) is not None
        or (suffix in TABLES and _has_lists(path, columns))
    ):
        known = [name for names in _KNOWN.values() for name in names]
        with open_rows(path, columns.values(), known, note=note) as table:
            yield from _of_rows(file, table)
    elif not labeled and (suffix == ".csv" or (suffix == ".tsv" and _has_text(path, columns))):
        yield from _of_table(path, columns)
    elif suffix == ".csv":
        raise UsageError(
            f"{path}: expected a CoNLL, jsonl or parquet file for words with tags, or columns for a word, its tag and "
            "its sentence: convert it to jsonl"
        )
    else:
        for item in conll_items(path, labeled, columns, note):
            yield item if item.tags is None or file.class_names is None else _named(item, file.class_names)


def _is_conll(file: ExampleFile, note: Callable[[str], None]) -> bool:
    """Whether a txt file without labels to read is CoNLL: by its name, the columns of the caller, or tags of entities
    at the ends of its first lines, of which it then has as many fields in each."""
    if ".conll" in Path(file.path).suffixes or file.columns:
        return True
    with open_lines(file.path) as lines:
        rows = [line.text.split() for line in islice(lines, _SAMPLE_LINES)]
    rows = [fields for fields in rows if fields and fields[0] != DOCUMENT_START]
    tags = Counter(fields[-1] for fields in rows)
    if len({len(fields) for fields in rows}) != 1 or len(rows[0]) < 2 or "O" not in tags or not guess_notation(tags):
        return False
    note("read as CoNLL, with a tag at the end of each line")
    return True


def _has_text(path: str | Path, columns: Mapping[str, str]) -> bool:
    """Whether a tab-separated file has a column of texts, by its first line or the caller's choice; else it is
    CoNLL."""
    with open_lines(path) as lines:
        names = next(lines, Line(1, "", "")).text.rstrip("\r\n").split("\t")
    return "text" in columns or (not columns and any(name in names for name in _KNOWN["text"]))


def _has_lists(path: str | Path, columns: Mapping[str, str]) -> bool:
    """Whether the first row of a table has a list in a column of words, tags or spans."""
    names = {*columns.values(), *_KNOWN["words"], *_KNOWN["tags"], *_KNOWN["spans"]}
    return any(items_in(str(value)) is not None for name, value in Sample(Path(path)).row.items() if name in names)


def _listed(value: Any) -> Any:
    """The list that a table has as text."""
    return value if not isinstance(value, str) or (items := items_in(value)) is None else items


def _of_table(path: str | Path, columns: Mapping[str, str]) -> Iterator[Item]:
    """The texts of a table, without tags."""
    check_roles(columns, ("text",))
    with open_table(path, columns.values(), _KNOWN["text"]) as table:
        name = table.require("text", columns.get("text"), _KNOWN["text"])
        for row in table.rows:
            text, problem = ("", row.problem) if row.problem else text_of(row.values, name)
            yield Item(row.line, text, problem=problem, id=id_of(row.values))


def _of_rows(file: ExampleFile, table: Table) -> Iterator[Item]:
    """The texts of a table with words and tags, or with a text and spans."""
    labeled, columns = file.labeled, file.columns
    check_roles(columns, JSONL_ROLES)

    def key(role: str) -> str | None:
        return table.column(role, columns.get(role), _KNOWN[role])

    words_key = None if {"text", "spans"} & columns.keys() else key("words")
    if words_key is not None:
        tags_key = table.require("tags", columns.get("tags"), _KNOWN["tags"]) if labeled else ""
        for row in table.rows:
            yield _bad(row, row.problem) if row.problem else _of_words(row, words_key, tags_key, file.class_names)
        return
    text_key = table.require("text", columns.get("text"), _KNOWN["text"])
    if not labeled:
        spans_key = ""
    elif "spans" in table.names and "spans" not in columns:
        spans_key = "spans"
    elif "tags" in table.names and WORD_SPANS in table.names:
        spans_key = "tags"
    else:
        spans_key = table.require("spans", columns.get("spans"), _KNOWN["spans"])
    for row in table.rows:
        text, problem = ("", row.problem) if row.problem else text_of(row.values, text_key)
        name = id_of(row.values)
        if problem or not labeled:
            yield Item(row.line, text, problem=problem, id=name, path=row.path)
            continue
        spans, given = words_of(text, file.options.get("words") or "punctuation"), row.values.get(WORD_SPANS)
        if given is not None:
            spans, problem = _given_words(given, text)
        if problem:
            yield Item(row.line, text, problem=problem, id=name, path=row.path)
        elif spans_key == "tags":
            tags = row.values["tags"]
            if not isinstance(tags, list) or len(tags) != len(spans) or not all(isinstance(tag, str) for tag in tags):
                problem = f": 'tags' is {tags!r:.60}, expected a list of {len(spans)} strings, one for each word"
            yield Item(row.line, text, spans, None if problem else tags, problem=problem, id=name, path=row.path)
        else:
            value = _named_spans(_listed(row.values.get(spans_key)), file.class_names)
            snap = bool(file.options.get("snap_spans"))
            entities, problem, snapped = entities_of_spans(value, text, spans, snap=snap)
            yield Item(row.line, text, spans, None, entities, problem, name, snapped, row.path)


def _bad(row: Row, problem: str) -> Item:
    return Item(row.line, problem=problem, path=row.path)


def _given_words(given: Any, text: str) -> tuple[tuple[Span, ...], str]:
    """The words of a text from their character spans, and a problem or ""."""
    parts = [tuple(part) for part in given] if isinstance(given, list) and all(map(_is_pair, given)) else []
    borders = [0, *(border for part in parts for border in part), len(text)]
    if len(parts) != len(given) or borders != sorted(borders) or any(start == end for start, end in parts):
        return (), f": {WORD_SPANS!r} is {given!r:.60}, expected [start, end] of each word, in order"
    return tuple((start, end) for start, end in parts if text[start:end].strip()), ""


def _is_pair(value: Any) -> bool:
    return isinstance(value, list | tuple) and len(value) == 2 and all(type(number) is int for number in value)


def _named_spans(spans: Any, class_names: Sequence[str] | None) -> Any:
    """Spans with names for labels that are integers."""
    if class_names is None or not isinstance(spans, list):
        return spans
    results = []
    for span in spans:
        label = span.get("label") if isinstance(span, dict) else span[-1] if isinstance(span, list) and span else None
        if type(label) is int and 0 <= label < len(class_names):
            span = span | {"label": class_names[label]} if isinstance(span, dict) else [*span[:-1], class_names[label]]
        results.append(span)
    return results


def _named(item: Item, class_names: Sequence[str]) -> Item:
    """A text of a CoNLL file with names for tags that are numbers."""
    try:
        return replace(item, tags=named_classes(item.tags or (), "the tags", class_names))
    except BadRow as error:
        return replace(item, tags=None, problem=str(error))


def _of_words(row: Row, words_key: str, tags_key: str, class_names: Sequence[str] | None) -> Item:
    words, tags = _listed(row.values.get(words_key)), _listed(row.values.get(tags_key)) if tags_key else None
    if isinstance(tags, list) and (class_names is not None or any(type(tag) is int for tag in tags)):
        try:
            tags = named_classes(tags, tags_key, class_names)
        except BadRow as error:
            return _bad(row, str(error))
    for key, value in ((words_key, words), (tags_key, tags)):
        if not key:
            continue
        if not isinstance(value, list) or not value or not all(isinstance(part, str) for part in value):
            return _bad(row, f": {key!r} is {value!r:.60}, expected a list of strings, none empty")
        if not all(part.strip() for part in value):
            number = next(number for number, part in enumerate(value, start=1) if not part.strip())
            return _bad(row, f": {key!r} has an empty string at {number}: expected none empty")
    assert isinstance(words, list)
    if tags is not None and len(words) != len(tags):
        return _bad(row, f" has {len(words)} words and {len(tags)} tags: expected one tag for each word")
    text, spans = joined(words)
    _, problem = text_of({"text": text}, "text")
    tags = None if tags is None else [tag.strip() for tag in tags]
    return Item(row.line, text, spans, tags, problem=problem, id=id_of(row.values), path=row.path)
