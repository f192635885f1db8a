"""bertkit inspect heads"""

from pathlib import Path

from bertkit.cli.inspect.shown import INSIDE, InspectedInside, Limit, show, some_texts
from bertkit.cli.output import Column
from bertkit.errors import UsageError, checked_count


def command(texts: Path, /, *, column: Column = None, limit: Limit = 200, inspected: InspectedInside = INSIDE) -> None:
    """Statistics of each head over a corpus: attended tokens, syntactic relations, effect of removal.

    Parameters
    ----------
    texts
        txt, jsonl, csv, tsv or parquet: one text per row; or .conllu, whose trees add syntactic relations.
    """
    from bertkit.files.lines import extension
    from bertkit.inspection import inspect_heads, read_trees

    is_treebank = extension(texts) == ".conllu"
    if is_treebank and column is not None:
        raise UsageError(f"--column {column}: CoNLL-U files have no named columns, omit it")
    rows = read_trees(texts, checked_count("limit", limit)) if is_treebank else some_texts(texts, column, limit)
    show(inspected, lambda model: inspect_heads(model, rows), texts)
