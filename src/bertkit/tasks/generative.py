"""Generative tasks, whose models write text: their rows. `bertkit.sequence_training` trains the models."""

from collections.abc import Iterator
from typing import ClassVar

from bertkit.errors import DataError
from bertkit.tasks.example_file import ExampleFile
from bertkit.tasks.examples import SequenceExample
from bertkit.tasks.reading.pairs import read_pairs
from bertkit.tasks.reading.texts import read_labeled_file
from bertkit.tasks.task import RowTask


class GenerativeTask(RowTask):
    """A task whose model writes text, from a source or from the beginning of a text."""

    example_type: ClassVar[type] = SequenceExample
    about: ClassVar[str] = "Defaults are mostly those of Vaswani et al. 2017."
    first_model: ClassVar[str | None] = "new"
    has_sources: ClassVar[bool]  # by an encoder-decoder; else by a causal language model


class SequenceToSequence(GenerativeTask):
    """Target texts from source texts, by an encoder-decoder."""

    name: ClassVar[str] = "seq2seq"
    has_sources: ClassVar[bool] = True
    files: ClassVar[str] = "Pairs of source and target: csv, tsv, jsonl or parquet."
    models: ClassVar[str] = "A new model, new-tiny, new or new-base; or one to start from, a folder or a hub name."

    @classmethod
    def read(cls, file: ExampleFile) -> Iterator[SequenceExample]:
        return read_pairs(file)


class CausalLanguageModel(GenerativeTask):
    """Texts, each token from those before it."""

    name: ClassVar[str] = "causal-language-model"
    has_sources: ClassVar[bool] = False
    files: ClassVar[str] = "Texts: lines of a txt file, or a column of csv, tsv, jsonl or parquet."
    models: ClassVar[str] = "The left-to-right model to start from: a folder or a hub name."

    @classmethod
    def read(cls, file: ExampleFile) -> Iterator[SequenceExample]:
        """As `RowTask.read`; empty texts are left out.

        Raises:
            DataError: no such file, no column for the text, or no text at all.
        """
        has_any = False
        for example in read_labeled_file(file, None):
            if example.text.strip():
                has_any = True
                yield SequenceExample(example.text, location=example.location)
        if not has_any:
            raise DataError(f"{file.path} has no text: expected at least one, one on each line")
