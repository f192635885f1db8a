"""Passages of documents as records without vectors, with ids that depend on their content alone."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np

from bertkit.documents.document import Document, SkippedFile
from bertkit.documents.metadata import Value, stored_metadata
from bertkit.documents.passages import PassageOptions, cut_passages
from bertkit.errors import UsageError
from bertkit.search.records import Identity, Record

_NO_VECTOR = np.empty(0, np.float32)
CONTEXT = "context"
"""Key of the metadata of a passage."""


class PassageRecords:
    """Makes records of documents; equal passages of a document get different ids.

    Args:
        options: how documents are split.
    """

    def __init__(self, options: PassageOptions) -> None:
        self._options = options
        self._of, self._counts, self._line = "", Counter[bytes](), 1

    def of(self, name: str, document: Document) -> Iterator[tuple[Record, str]]:
        """The passages of a document, or of a part of one.

        Args:
            name: name of the document in ids; the same for all its parts, which are consecutive.

        Yields:
            A record, and the part of its id after the name.

        Raises:
            UsageError: metadata that cannot be stored, or with the key "context".
        """
        metadata = _metadata_of(document)
        if name != self._of:
            self._of, self._counts, self._line = name, Counter(), 1
        counted = 0  # characters whose line breaks are
        for passage in cut_passages(document, self._options):
            text = passage.context + passage.text
            digest = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=12).digest()
            self._counts[digest] += 1
            suffix = f"#{digest.hex()}" + (f".{self._counts[digest]}" if self._counts[digest] > 1 else "")
            above = {CONTEXT: passage.context.removesuffix(": ")} if passage.context else {}
            first = passage.start - document.offset
            self._line += document.text.count("\n", counted, first)
            counted, line = first, self._line if document.line is None else document.line
            lines = line, line + (passage.text.count("\n") if document.line is None else 0)
            location = document.id, passage.start, passage.end
            yield Record(name + suffix, text, _NO_VECTOR, *location, metadata | above, lines), suffix
        self._line += document.text.count("\n", counted)


def _metadata_of(document: Document) -> dict[str, Value]:
    if CONTEXT in document.metadata:
        raise UsageError(
            f"document {document.id!r} has metadata {CONTEXT!r}, which an index keeps for the title and headings above "
            "each passage: rename it"
        )
    try:
        return stored_metadata(document.metadata)
    except UsageError as error:
        raise UsageError(f"document {document.id!r:.60}: {error}") from None


def without_zeros(records: Iterable[Record], identity: Identity, skipped: list[SkippedFile]) -> Iterator[Record]:
    """Records that the store can compare: for the cosine, those whose vector is not zero.

    Args:
        skipped: receives the others.
    """
    for record in records:
        if identity.similarity == "cosine" and not record.vector.any():
            why = f"characters {record.start} to {record.end} have no word that the model knows: their vector is zero"
            skipped.append(SkippedFile(record.document_id, why, is_part=True))
        else:
            yield record


def context_and_text(record: Record) -> tuple[str, str]:
    """The title and headings above a passage, "" if there are none, and the passage without them."""
    context = str(record.metadata.get(CONTEXT, ""))
    return context, record.text.removeprefix(f"{context}: ") if context else record.text
