"""Passages of documents as records without vectors, with ids that depend on their content alone."""

import hashlib
from collections import Counter
from collections.abc import Iterator

import numpy as np

from bertkit.search.documents import Document
from bertkit.search.passages import PassageOptions, cut_passages
from bertkit.search.store import Record

_NO_VECTOR = np.empty(0, np.float32)


class PassageRecords:
    """Makes records of documents; equal passages of a document get different ids.

    Args:
        options: how documents are split.
    """

    def __init__(self, options: PassageOptions) -> None:
        self._options = options
        self._of, self._counts = "", Counter[bytes]()

    def of(self, name: str, document: Document) -> Iterator[tuple[Record, str]]:
        """The passages of a document, or of a part of one.

        Args:
            name: name of the document in ids; the same for all its parts, which are consecutive.

        Yields:
            A record, and the part of its id after the name.
        """
        if name != self._of:
            self._of, self._counts = name, Counter()
        for passage in cut_passages(document, self._options):
            text = passage.context + passage.text
            digest = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=12).digest()
            self._counts[digest] += 1
            suffix = f"#{digest.hex()}" + (f".{self._counts[digest]}" if self._counts[digest] > 1 else "")
            metadata = {key: value for key, value in document.metadata.items() if value is not None}
            if passage.context:
                metadata["context"] = passage.context.removesuffix(": ")
            yield Record(name + suffix, text, _NO_VECTOR, document.id, passage.start, passage.end, metadata), suffix
