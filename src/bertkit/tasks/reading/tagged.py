"""Reader of words with tags: CoNLL files, CoNLL-U, and jsonl files with words or with character spans.

The tags of a file may be BIO, IOB1, BIOES (also with L- and U- for E- and S-), IO, or plain labels; the scheme is
identified from all of them. They are converted to BIO, BIOES, IO or plain labels.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bertkit.errors import DataError, UsageError
from bertkit.files import BadRows, extension, location
from bertkit.files.labeled_tables import check_roles, id_of, open_table, text_of, text_row, unknown_label
from bertkit.files.lines import Line, open_lines
from bertkit.files.tables import Row
from bertkit.tasks.examples import TaggedText
from bertkit.tasks.tags import Entity, FileScheme, Scheme, entities_in, guess_file_scheme, misspelled, spell
from bertkit.tasks.words import Words, entities_of_spans, spaced, words_of
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


def read_tagged(
    path: str | Path,
    *,
    labeled: bool = True,
    columns: Mapping[str, str] = {},
    scheme: Scheme | None = None,
    label_names: Sequence[str] | None = None,
    words: Words = "punctuation",
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
        scheme: requested scheme of the tags; None: that of the file, as BIO if it is IOB1 or has spans.
        label_names: allowed tags; None: any.
        words: the rule that splits a text with spans into words.
        bad_rows: receives unusable texts; None: such a text is an error.

    Raises:
        DataError: no such file, no column for text or tags, a bad text, no text at all.
        UsageError: a csv file with labels, or an unknown role.
    """
    bad_rows = bad_rows or BadRows()
    found_scheme: FileScheme = "plain"
    if labeled and scheme != "plain":
        found_scheme = guess_file_scheme(
            item.tags for item in _items(path, labeled, columns, words) if item.tags is not None
        )
    has_any = False
    for item in _items(path, labeled, columns, words):
        tags, problem = None, item.problem
        if labeled and not problem:
            tags, problem = _tags(item, found_scheme, scheme, label_names)
        if problem:
            bad_rows.add(path, item.line, problem, item.text)
            continue
        has_any = True
        yield TaggedText(item.text, item.words, tags, location(path, item.line), item.id)
    if not has_any:
        raise bad_rows.none_left(path)


def _tags(
    item: _Item, file_scheme: FileScheme, wanted: Scheme | None, label_names: Sequence[str] | None
) -> tuple[tuple[str, ...] | None, str]:
    """Tags of a text in the requested scheme, and a problem or ""."""
    assert item.words is not None
    tags = list(item.tags or ())
    scheme: Scheme = wanted or ("BIO" if item.tags is None or file_scheme == "IOB1" else file_scheme)
    if item.tags is not None:
        wrong = misspelled(tags, file_scheme)
        if file_scheme == "plain" and scheme != "plain":
            wrong = next((number for number, tag in enumerate(tags) if tag != "O"), None)
        if wrong is not None:
            word = item.text[slice(*item.words[wrong])]
            return None, (
                f": the tag {tags[wrong]!r} of word {wrong + 1}, {word!r}, is not part of an entity in scheme "
                f"{scheme if file_scheme == 'plain' else file_scheme}: correct it, or read the "
                "tags as plain labels (read_tagged, scheme='plain')"
            )
    if scheme != "plain":
        entities = entities_in(tags, file_scheme) if item.entities is None else list(item.entities)
        tags = spell(entities, len(item.words), scheme)
        if entities_in(tags, scheme) != entities:
            return None, ": two entities of one type are adjacent, which IO tags cannot express: use BIO"
    if label_names is not None:
        for tag in tags:
            if tag not in label_names:
                return None, unknown_label(tag, label_names)
    return tuple(tags), ""


def _items(path: str | Path, labeled: bool, columns: Mapping[str, str], words: Words) -> Iterator[_Item]:
    if not labeled and (extension(path) == ".csv" or (extension(path) == ".tsv" and _has_text(path, columns))):
        yield from _of_table(path, columns)
    elif extension(path) == ".csv":
        raise UsageError(f"{path}: expected a CoNLL, jsonl or parquet file for words with tags: convert it to jsonl")
    elif extension(path) in (".jsonl", ".parquet", ".json", ".ndjson"):  # the last two are refused
        yield from _of_jsonl(path, labeled, columns, words)
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
                tags.append(fields[tag].strip())  # as classes are read
                if not fields[word].strip() or (labeled and not fields[tag].strip()):
                    line, problem = number, f" has an empty field: {text.strip():.60}"
                    break
            yield _Item(
                line, " ".join(words), spaced(words), tags if labeled and not problem else None, problem=problem
            )


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


def _of_jsonl(path: str | Path, labeled: bool, columns: Mapping[str, str], words: Words) -> Iterator[_Item]:
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
                spans = words_of(text, words)
                entities, problem = entities_of_spans(row.values.get(spans_key), text, spans)
                yield _Item(row.line, text, spans, entities=entities, problem=problem, id=id_of(row.values))


def _of_words(row: Row, words_key: str, tags_key: str) -> _Item:
    words, tags = row.values.get(words_key), row.values.get(tags_key) if tags_key else None
    if isinstance(tags, list):
        tags = [tag.strip() if isinstance(tag, str) else tag for tag in tags]
    for key, value in ((words_key, words), (tags_key, tags)):
        if key and not (isinstance(value, list) and value and all(isinstance(part, str) and part for part in value)):
            return _Item(row.line, problem=f": {key!r} is {value!r:.60}, expected a list of strings, none empty")
    assert isinstance(words, list)
    if tags is not None and len(words) != len(tags):
        return _Item(row.line, problem=f" has {len(words)} words and {len(tags)} tags: expected one tag for each word")
    text, problem = text_of({"text": " ".join(words)}, "text")
    return _Item(row.line, text, spaced(words), tags, problem=problem, id=id_of(row.values))
