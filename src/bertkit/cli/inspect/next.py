"""bertkit inspect next"""

from pathlib import Path

from bertkit.cli.inspect.shown import NOWHERE, Shown, show
from bertkit.cli.models import EXACT, PRETRAINED_MODEL, Compute, open_model


def command(
    texts: Path,
    /,
    *,
    shown: Shown = NOWHERE,
    model: str = PRETRAINED_MODEL,
    compute: Compute = EXACT,
) -> None:
    """Probabilities that one sentence of a file follows another.

    Parameters
    ----------
    texts
        txt, jsonl, csv, tsv or parquet: one sentence per row.
    model
        A model with a next sentence head: a folder, a hub name, or the import name of an installed model package.
    """
    from bertkit.corpus.texts import read_texts
    from bertkit.inspection import inspect_next_sentence

    rows = list(read_texts(texts))
    show(shown, lambda: inspect_next_sentence(open_model(model, compute), rows))
