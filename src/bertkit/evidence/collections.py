"""Retrieval collections: queries, documents and judgments; BEIR folders, SQuAD files, tables of labeled texts."""

from collections.abc import Container, Mapping
from dataclasses import dataclass
from pathlib import Path

from bertkit.errors import DataError, UsageError
from bertkit.files import location
from bertkit.files.labeled_tables import open_table, text_of
from bertkit.tasks.reading.questions import read_questions
from bertkit.tasks.reading.texts import read_labeled_texts

_CORPUS, _QUERIES = "corpus.jsonl", "queries.jsonl"
_JUDGMENTS = ("qrels/test.tsv", "qrels.tsv")
_MOST_JUDGMENTS = 10_000_000  # about 1 GB


@dataclass(frozen=True)
class Collection:
    """Queries and documents by id, and the judgments: query id -> document id -> grade, 0 for not relevant."""

    queries: Mapping[str, str]
    documents: Mapping[str, str]
    judgments: Mapping[str, Mapping[str, int]]
    num_without_positives: int = 0  # judged queries without a relevant document, which are skipped
    own_documents: Container[str] = ()  # ids of queries that are documents, too, and do not retrieve themselves


def read_collection(path: Path, columns: Mapping[str, str] = {}) -> Collection:
    """Read a collection.

    Args:
        path: a folder in the layout of BEIR (Thakur et al. 2021): corpus.jsonl with _id, title and text, queries.jsonl
            with _id and text, and judgments with query-id, corpus-id and score in qrels/test.tsv or qrels.tsv; the text
            of a document is its title and text joined; a query with the id and the text of a document does not
            retrieve it. A SQuAD file, .json: the paragraph of each question is relevant to it. Another file: texts with
            labels. Each text is a query, and the others with its label are relevant.
        columns: of texts with labels, by role, as in `read_labeled_texts`.

    Raises:
        DataError: a missing file, an unreadable row, a repeated id, a judgment of an unknown query or document, two
            different ones of a document, or no query with a relevant document.
        UsageError: columns of another collection than texts with labels, or an unknown role.
    """
    if path.suffix == ".json" or path.is_dir() or not path.suffix:
        if columns:
            raise UsageError(f"{path}: columns can be chosen only in a table of texts with labels; omit them")
        return _of_questions(path) if path.suffix == ".json" else _of_folder(path)
    return _of_labeled_texts(path, columns)


def collection_files(path: Path) -> list[Path]:
    """The files that `read_collection` reads, also those that do not exist."""
    return [path / name for name in (_CORPUS, _QUERIES, *_JUDGMENTS)] if path.is_dir() else [path]


def _of_folder(folder: Path) -> Collection:
    corpus = _texts(folder / _CORPUS)
    documents = {
        name: f"{row['title']} {text}".strip() if isinstance(row.get("title"), str) else text
        for name, (text, row) in corpus.items()
    }
    queries = {name: text for name, (text, _) in _texts(folder / _QUERIES).items()}
    path = next(filter(Path.is_file, (folder / name for name in _JUDGMENTS)), None)
    if path is None:
        raise DataError(f"{folder} has neither {' nor '.join(_JUDGMENTS)}: expected judgments in one of them")
    judgments: dict[str, dict[str, int]] = {}
    columns = ("query-id", "corpus-id", "score")
    with open_table(path, [], columns) as table:
        for column in columns:
            table.require(column, column, ())
        for row in table.rows:
            query, document, grade = (str(row.values.get(column, "")) for column in columns)
            problem = row.problem
            if not problem and not grade.removeprefix("-").isdecimal():
                problem = f" has the grade {grade!r:.40}: expected an integer"
            for name, known in ((query, queries), (document, documents)):
                if not problem and name not in known:
                    problem = f" judges {name!r:.60}, which is in neither {_CORPUS} nor {_QUERIES}"
            if not problem and judgments.setdefault(query, {}).setdefault(document, int(grade)) != int(grade):
                problem = f" judges {document!r:.60} for {query!r:.60} again, with another grade: keep one"
            if problem:
                raise DataError(f"{location(path, row.line)}{problem}")
    kept = {query: grades for query, grades in judgments.items() if max(grades.values()) > 0}
    if not kept:
        raise DataError(f"{path} has no query with a relevant document")
    own = {name for name in kept if name in corpus and corpus[name][0].split() == queries[name].split()}
    return Collection(queries, documents, kept, len(judgments) - len(kept), own)


def _texts(path: Path) -> dict[str, tuple[str, Mapping[str, object]]]:
    """Texts and whole rows by id."""
    results: dict[str, tuple[str, Mapping[str, object]]] = {}
    with open_table(path, [], ["_id", "text"]) as table:
        for row in table.rows:
            text, problem = text_of(row.values, "text")
            name = str(row.values.get("_id"))
            if "_id" not in row.values:
                problem = problem or " has no _id"
            elif name in results:
                problem = problem or f" repeats the _id {name!r:.60}: expected each once"
            if problem or row.problem:
                raise DataError(f"{location(path, row.line)}{row.problem or problem}")
            results[name] = text, row.values
    return results


def _of_questions(path: Path) -> Collection:
    questions = list(read_questions(path, labeled=False))
    numbers = {text: str(number) for number, text in enumerate(dict.fromkeys(one.context for one in questions))}
    return Collection(
        {str(number): one.question for number, one in enumerate(questions)},
        {number: text for text, number in numbers.items()},
        {str(number): {numbers[one.context]: 1} for number, one in enumerate(questions)},
    )


def _of_labeled_texts(path: Path, columns: Mapping[str, str]) -> Collection:
    texts, labels = {}, {}
    for number, example in enumerate(read_labeled_texts(path, "class", columns=columns)):
        if example.pair is not None:
            raise DataError(
                f"{path} has pairs of texts: expected single texts; bertkit evaluate similarity takes scored pairs"
            )
        texts[str(number)], labels[str(number)] = example.text, str(example.label)
    with_label: dict[str, list[str]] = {}
    for name, label in labels.items():
        with_label.setdefault(label, []).append(name)
    num_judgments = sum(len(names) ** 2 for names in with_label.values())
    if num_judgments > _MOST_JUDGMENTS:
        raise DataError(
            f"{path} has {num_judgments:,} pairs of texts with the same label: expected at most {_MOST_JUDGMENTS:,}; "
            "use a part of the rows"
        )
    judgments = {
        name: {other: 1 for other in with_label[label] if other != name}
        for name, label in labels.items()
        if len(with_label[label]) > 1
    }
    if not judgments:
        raise DataError(f"{path} has no two texts with the same label")
    return Collection(texts, texts, judgments, len(texts) - len(judgments), own_documents=texts)
