"""bertkit pairs"""

from bertkit.cli.models import EMBEDDING_MODEL, EXACT, Compute, embed_texts
from bertkit.cli.output import Column, InputFile, ModelName, emit, note
from bertkit.errors import checked_count


def command(
    input: InputFile,
    *,
    top: int = 100,
    min_score: float = -1.0,
    model: ModelName = EMBEDDING_MODEL,
    column: Column = None,
    compute: Compute = EXACT,
) -> None:
    """Most similar pairs of texts in a file, each pair once, most similar first.

    All pairs are compared, five billion for 100,000 texts, in little memory.

    Parameters
    ----------
    input
        A txt file (a text on each line), jsonl, csv, tsv or parquet, or a folder of them; "-" is standard input.
    top
        Maximum number of pairs.
    min_score
        Minimum cosine of a pair.
    """
    from bertkit.neighbors import top_pairs

    checked_count("top", top)
    texts, vectors = embed_texts(input, column, model, compute)
    pairs = top_pairs(vectors, top, min_score=min_score)
    if not len(pairs.scores):
        note(f"{len(texts)} texts have no pair with a cosine of at least {min_score}")
    emit(
        {"text_a": texts[first], "text_b": texts[second], "score": score, "row_a": first, "row_b": second}
        for first, second, score in zip(*(values.tolist() for values in pairs), strict=True)
    )
