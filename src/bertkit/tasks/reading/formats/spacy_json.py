"""spaCy's JSON of training data, as spaCy 2 and tools for it wrote it: documents, paragraphs, sentences, tokens."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bertkit.files.lines import open_lines
from bertkit.files.tables import Row, json_list_rows
from bertkit.tasks.reading.formats.format import Format, Sample


def _is_spacy_json(sample: Sample) -> bool:
    paragraphs = sample.row.get("paragraphs")
    return isinstance(paragraphs, list) and all(isinstance(part, dict) and "sentences" in part for part in paragraphs)


def _rows(path: Path) -> Iterator[Row]:
    with open_lines(path) as lines:
        documents = list(json_list_rows(path, lines))
    for document in documents:
        try:
            sentences = [sentence for part in document.values["paragraphs"] for sentence in part["sentences"]]
            rows = [_row(sentence) for sentence in sentences]
        except (KeyError, TypeError) as error:
            yield document._replace(values={}, problem=document.problem or f": it lacks {error}")
            continue
        for row in rows:
            problem = " has a token without a tag, '-': tag it, or remove the sentence" if "-" in row["tags"] else ""
            yield Row(document.line, {} if problem else row, problem)


def _row(sentence: dict[str, Any]) -> dict[str, Any]:
    tokens = sentence["tokens"]
    return {"words": [token["orth"] for token in tokens], "tags": [token["ner"] for token in tokens]}


SPACY_JSON = Format("spaCy JSON", _is_spacy_json, _rows)
