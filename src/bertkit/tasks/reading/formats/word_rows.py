"""Tables with a word and its tag in each row, and a column that separates the texts, as on Kaggle."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from bertkit.files import extension
from bertkit.files.labeled_tables import open_table
from bertkit.files.tables import Row
from bertkit.tasks.reading.formats.format import TABLES, Format, Sample

_COLUMNS = {  # by role, in lowercase
    "word": ("word", "words", "token", "tokens", "form"),
    "tag": ("tag", "tags", "label", "labels", "ner_tag", "ner", "ner tag", "entity"),
    "text": ("sentence #", "sentence", "sentence_id", "sentence id", "sent_id", "sentence_idx", "sentence_number"),
}


def _columns(names: list[str]) -> dict[str, str]:
    """The columns of the roles, the first of each; missing ones are absent."""
    by_name = {name.strip().strip('"').casefold(): name.strip().strip('"') for name in names}
    known = (
        (role, next((by_name[each] for each in each_role if each in by_name), ""))
        for role, each_role in _COLUMNS.items()
    )
    return {role: name for role, name in known if name}


def _is_word_rows(sample: Sample) -> bool:
    if extension(sample.path) not in TABLES or not sample.lines:
        return False
    header = sample.lines[0]
    return len(_columns(header.split(next((mark for mark in "\t;" if mark in header), ",")))) == len(_COLUMNS)


def _rows(path: Path) -> Iterator[Row]:
    header = Sample(path).lines[0]
    roles = _columns(header.split(next((mark for mark in "\t;" if mark in header), ",")))
    with open_table(path, [], roles.values()) as table:
        words: list[str] = []
        tags: list[str] = []
        first, text_id = 0, None
        for row in table.rows:
            if row.problem:
                yield Row(row.line, problem=row.problem)
                continue
            name = str(row.values[roles["text"]]).strip()
            if name and name != text_id and words:
                yield _text(first, words, tags, text_id)
                words, tags = [], []
            text_id = name or text_id
            first = first if words else row.line
            words.append(_value(row.values, roles["word"]))
            tags.append(_value(row.values, roles["tag"]))
        if words:
            yield _text(first, words, tags, text_id)


def _value(values: Mapping[str, object], name: str) -> str:
    return str(values[name]).strip()


def _text(line: int, words: list[str], tags: list[str], name: str | None) -> Row:
    return Row(line, {"id": name, "words": words, "tags": tags})


WORD_ROWS = Format("a word in each row", _is_word_rows, _rows)
