"""Results of searches: passages, and answers in them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from bertkit.documents.document import FileState
from bertkit.documents.metadata import Value
from bertkit.errors import check_type, checked_count, warn
from bertkit.search.filters import note_of_keys
from bertkit.search.passage_records import CONTEXT, context_and_text
from bertkit.search.records import Record
from bertkit.search.snippets import Snippet, snippet_of, word_matches
from bertkit.search.source_table import StoredSource
from bertkit.search.store.snapshot import Snapshot


@dataclass(frozen=True, eq=False)
class Result:
    """A passage returned by a search."""

    rank: int  # from 1
    score: float  # of this query alone: a larger one is better; its scale is that of the mode, see `Index.search`
    id: str
    document_id: str
    text: str  # text of the passage: characters ``start`` to ``end`` of the document
    start: int
    end: int
    lines: tuple[int, int] | None  # first and last line in its file; None for text that is not in lines, as of a pdf
    context: str  # the title and headings above it
    snippet: Snippet  # its sentences with the most words of the query
    matches: tuple[tuple[int, int], ...]  # words of the query in the snippet, in characters of the document
    metadata: Mapping[str, Value] = field(default_factory=dict)
    other_documents: tuple[str, ...] = ()  # further documents with the same passage
    source: StoredSource | None = None  # its file as it was indexed; None if it is of a `Document`

    @property
    def file_state(self) -> FileState:
        """The state of its file now, compared with that which was indexed; always "current" of a `Document`."""
        return self.source.state if self.source else "current"

    def line_of(self, character: int) -> int | None:
        """The line of a character of the passage, given as one of the document."""
        if self.lines is None:
            return None
        return min(self.lines[0] + self.text.count("\n", 0, character - self.start), self.lines[1])

    @property
    def location(self) -> dict[str, Any]:
        """Where the passage is, as metadata for other programs: its document, offsets and, if any, lines and copies."""
        location: dict[str, Any] = {"document": self.document_id, "start": self.start, "end": self.end}
        location |= {"lines": list(self.lines)} if self.lines else {}
        location |= {"file_state": self.file_state} if self.file_state != "current" else {}
        return location | ({"also_in": list(self.other_documents)} if self.other_documents else {})


class FoundAnswer(NamedTuple):
    """A span of a document that answers a question."""

    text: str
    start: int  # characters of the document
    end: int
    document_id: str
    probability: float  # among the spans of its passage
    result: Result  # the passage

    @property
    def row(self) -> dict[str, Any]:
        """The answer, its document and characters, and its probability, for other programs."""
        location = {"document": self.document_id, "start": self.start, "end": self.end}
        return {"answer": self.text, **location, "probability": self.probability}


class Results(list[Result]):
    """The passages that a search returned, best first.

    Args:
        results: the passages.
        missing: words, phrases and file names of the query, as they are written there, that no passage has.
        missing_keys: metadata keys of the filter that no passage has.
        known_keys: the keys that passages have, if there is a filter.
    """

    def __init__(
        self,
        results: Iterable[Result] = (),
        missing: Sequence[str] = (),
        missing_keys: Iterable[str] = (),
        known_keys: Iterable[str] = (),
    ) -> None:
        super().__init__(results)
        self.missing, self.missing_keys, self.known_keys = tuple(missing), tuple(missing_keys), tuple(known_keys)

    @property
    def note_of_keys(self) -> str:
        """A sentence that names the missing keys and those that passages have; "" if none is missing."""
        return note_of_keys(self.missing_keys, self.known_keys)

    def warn_of_keys(self) -> Self:
        """The same results, with a UserWarning if the filter has metadata keys that no passage has."""
        if self.missing_keys:
            warn(self.note_of_keys)
        return self


def result_of(
    rank: int,
    score: float,
    record: Record,
    weights: Mapping[str, float],
    words_of: Callable[[str], Iterable[str]],
    document_ids: Sequence[str] = (),
    source: StoredSource | None = None,
) -> Result:
    """The result of a record, and of copies in other documents; its snippet is chosen by the weights of words, see
    `snippet_of`."""
    context, text = context_and_text(record)
    metadata = {key: value for key, value in record.metadata.items() if key != CONTEXT}
    snippet = snippet_of(text, record.start, weights, words_of)
    other_documents = tuple(dict.fromkeys(id for id in document_ids if id != record.document_id))
    return Result(
        rank,
        score,
        record.id,
        record.document_id,
        text,
        record.start,
        record.end,
        record.lines if record.lines[0] else None,
        context,
        snippet,
        word_matches(snippet, weights, words_of),
        metadata,
        other_documents,
        source,
    )


def text_around(snapshot: Snapshot, result: Result, num_passages: int) -> tuple[int, str]:
    """The first character in the document, and the text, of a result with passages before and after it. White space
    between passages is not stored: it is replaced by as many line breaks and spaces."""
    check_type("the result", result, Result)
    num_passages = checked_count("num_passages", num_passages, 0)
    query = "SELECT number FROM record WHERE document_id = ? AND start {} ? ORDER BY start {} LIMIT ?"
    numbers: list[int] = []
    for sign, order, count in (("<=", "DESC", num_passages + 1), (">", "ASC", num_passages)):
        values = result.document_id, result.start, count
        numbers += [one for (one,) in snapshot.connection.execute(query.format(sign, order), values)]
    records = sorted(snapshot.records(numbers), key=lambda one: one.start)
    if not records:  # removed since the search
        return result.start, result.text
    text, end, last_line = "", records[0].start, records[0].lines[0]
    for record in records:
        num_breaks = record.lines[0] - last_line if record.lines[0] else 2
        gap = max(0, record.start - end)
        text += ("\n" * num_breaks).ljust(gap)[:gap] + context_and_text(record)[1][max(0, end - record.start) :]
        end, last_line = record.end, record.lines[1]
    return records[0].start, text
