"""bertkit inspect heads"""

from pathlib import Path

from bertkit.cli.inspect.shown import NOWHERE, Shown, show
from bertkit.cli.models import EMBEDDING_MODEL, EXACT, Compute, open_model


def command(
    texts: Path,
    /,
    *,
    limit: int = 200,
    shown: Shown = NOWHERE,
    model: str = EMBEDDING_MODEL,
    compute: Compute = EXACT,
) -> None:
    """Statistics of each head over a corpus: attended tokens, syntactic relations, effect of removal.

    Parameters
    ----------
    texts
        txt, jsonl, csv, tsv or parquet: one text per row; or .conllu, whose trees add syntactic relations.
    limit
        Maximum number of texts to read.
    model
        A folder, a hub name, or the import name of an installed model package.
    """
    from itertools import islice

    from bertkit.corpus.texts import read_texts
    from bertkit.inspection import inspect_heads, read_trees

    rows = read_trees(texts, limit) if texts.suffix == ".conllu" else list(islice(read_texts(texts), limit))
    show(shown, lambda: inspect_heads(open_model(model, compute), rows))
