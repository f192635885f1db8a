"""bertkit inspect next"""

from pathlib import Path

from bertkit.cli.inspect.shown import PRETRAINED, InspectedPretrained, show


def command(
    texts: Path,
    /,
    *,
    inspected: InspectedPretrained = PRETRAINED,
) -> None:
    """Probabilities that one sentence of a file follows another.

    Parameters
    ----------
    texts
        txt, jsonl, csv, tsv or parquet: one sentence per row.
    """
    from bertkit.corpus.texts import read_texts
    from bertkit.inspection import inspect_next_sentence

    rows = list(read_texts(texts))
    show(inspected, lambda model: inspect_next_sentence(model, rows))
