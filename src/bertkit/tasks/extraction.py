"""Extraction: the rows of models that `bertkit.extraction` trains."""

from collections.abc import Iterator
from typing import ClassVar

from bertkit.tasks.example_file import ExampleFile
from bertkit.tasks.examples import TaggedText
from bertkit.tasks.reading.tagged import read_tagged_file
from bertkit.tasks.task import RowTask


class Extraction(RowTask):
    """Entities for labels that are given at run time, from tagged texts."""

    name: ClassVar[str] = "extraction"
    example_type: ClassVar[type] = TaggedText
    files: ClassVar[str] = (
        "Tagged texts: CoNLL files, or jsonl or parquet files with words and tags, or texts and spans."
    )
    about: ClassVar[str] = (
        "The folder that is written opens with bertkit extract, and has the published form of GLiNER. The labels of "
        "each text are those of its entities, and a draw of others."
    )

    @classmethod
    def read(cls, file: ExampleFile) -> Iterator[TaggedText]:
        return read_tagged_file(file, "BIO")
