"""bertkit rank"""

from typing import Literal

from bertkit.cli.models import EXACT, Compute, open_model
from bertkit.cli.output import Column, InputFile, emit
from bertkit.corpus.texts import read_texts


def command(
    query: str,
    input: InputFile,
    *,
    model: str,
    column: Column = None,
    top_k: int | None = None,
    on_long: Literal["truncate", "error"] = "truncate",
    compute: Compute = EXACT,
) -> None:
    """Rank the texts of a file by their score with a query, by a cross-encoder or a late interaction model, best first.

    Parameters
    ----------
    query
        The text that each text of the file is scored with.
    model
        A cross-encoder, such as cross-encoder/ms-marco-MiniLM-L6-v2, or a late interaction model: a folder or a hub
        name.
    input
        A txt file (a text on each line), jsonl, csv, tsv or parquet; "-" is standard input.
    top_k
        Number of texts to print; by default all.
    on_long
        Policy for pairs longer than the model's limit: truncate, or raise an error.
    """
    ranked = open_model(model, compute).rank(query, list(read_texts(input, column)), top_k=top_k, on_long=on_long)
    emit({"index": one.index, "score": one.score, "text": one.text} for one in ranked)
