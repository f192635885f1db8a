"""bertkit inspect next"""

from pathlib import Path

from bertkit.cli.inspect.shown import PRETRAINED, ShownPretrained


def command(texts: Path, /, *, shown: ShownPretrained = PRETRAINED) -> None:
    """Probabilities that one sentence of a file follows another.

    Parameters
    ----------
    texts
        txt, jsonl, csv, tsv or parquet: one sentence per row.
    """
    from bertkit.corpus.texts import read_texts
    from bertkit.inspection import inspect_next_sentence

    rows = list(read_texts(texts))
    shown.show(lambda model: inspect_next_sentence(model, rows))
