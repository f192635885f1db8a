"""Results of searches: passages, and answers in them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from bertkit.documents.document import FileState
from bertkit.documents.metadata import Scalar
from bertkit.search.passage_records import CONTEXT, context_and_text
from bertkit.search.records import Record
from bertkit.search.snippets import Snippet, snippet_of
from bertkit.search.source_table import StoredSource


@dataclass(frozen=True, eq=False)
class Result:
    """A passage returned by a search."""

    rank: int  # from 1
    score: float  # fused, or the cosine, or BM25, or that of the reranker
    id: str
    document_id: str
    text: str  # text of the passage: characters ``start`` to ``end`` of the document
    start: int
    end: int
    context: str  # the title and headings above it
    snippet: Snippet  # its sentences with the most words of the query
    metadata: Mapping[str, Scalar] = field(default_factory=dict)
    other_documents: tuple[str, ...] = ()  # further documents with the same passage
    source: StoredSource | None = None  # its file as it was indexed; None if it is of a `Document`

    @property
    def file_state(self) -> FileState:
        """The state of its file now, compared with that which was indexed; always "current" of a `Document`."""
        return self.source.state if self.source else "current"


class FoundAnswer(NamedTuple):
    """A span of a document that answers a question."""

    text: str
    start: int  # characters of the document
    end: int
    document_id: str
    probability: float  # among the spans of its passage
    result: Result  # the passage


class Results(list[Result]):
    """The passages that a search returned, best first.

    Args:
        results: the passages.
        missing: words, phrases and file names of the query, as they are written there, that no passage has.
    """

    def __init__(self, results: Iterable[Result] = (), missing: Sequence[str] = ()) -> None:
        super().__init__(results)
        self.missing = tuple(missing)


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
        context,
        snippet,
        metadata,
        other_documents,
        source,
    )
