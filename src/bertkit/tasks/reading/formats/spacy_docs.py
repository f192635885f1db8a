"""spaCy's binary training data, a DocBin in a .spacy file."""

from collections.abc import Iterator
from pathlib import Path

from bertkit.errors import DataError, DependencyError
from bertkit.files import extension
from bertkit.files.tables import Row
from bertkit.tasks.reading.formats.format import Format

_LEAST_OF_A_LABEL = 0.5  # of doc.cats


def _rows(path: Path) -> Iterator[Row]:
    try:
        import spacy  # pyrefly: ignore
        from spacy.tokens import DocBin  # pyrefly: ignore
    except ImportError:
        raise DependencyError(f"{path} is read by spaCy: pip install spacy") from None
    try:
        docs = DocBin().from_disk(path)
    except Exception as error:
        raise DataError(f"{path} is no DocBin of spaCy: {type(error).__name__} {error}") from None
    for number, doc in enumerate(docs.get_docs(spacy.blank("xx").vocab), start=1):
        words = [[token.idx, token.idx + len(token)] for token in doc if not token.is_space]
        row = {
            "text": doc.text,
            "word_spans": words,
            "spans": [[one.start_char, one.end_char, one.label_] for one in doc.ents],
        }
        if doc.cats:
            row["label"] = [name for name, share in doc.cats.items() if share >= _LEAST_OF_A_LABEL]
        yield Row(number, row)


SPACY = Format("spaCy", lambda sample: extension(sample.path) == ".spacy", _rows)
