"""bertkit inspect heads"""

from pathlib import Path

from bertkit.cli.inspect.shown import INSIDE, InspectedInside, check_limit, show
from bertkit.cli.output import Column
from bertkit.errors import UsageError


def command(
    texts: Path,
    /,
    *,
    column: Column = None,
    limit: int = 200,
    inspected: InspectedInside = INSIDE,
) -> None:
    """Statistics of each head over a corpus: attended tokens, syntactic relations, effect of removal.

    Parameters
    ----------
    texts
        txt, jsonl, csv, tsv or parquet: one text per row; or .conllu, whose trees add syntactic relations.
    limit
        Maximum number of texts to read.
    """
    from itertools import islice

    from bertkit.corpus.texts import read_texts
    from bertkit.files.lines import extension
    from bertkit.inspection import inspect_heads, read_trees

    check_limit(limit)
    is_treebank = extension(texts) == ".conllu"
    if is_treebank and column is not None:
        raise UsageError(f"--column {column}: CoNLL-U files have no named columns, omit it")
    rows = read_trees(texts, limit) if is_treebank else list(islice(read_texts(texts, column), limit))
    show(inspected, lambda model: inspect_heads(model, rows), texts)
