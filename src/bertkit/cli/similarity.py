"""bertkit similarity"""

from dataclasses import asdict
from itertools import combinations

from bertkit.cli.models import AS_PUBLISHED, EMBEDDING_MODEL, EXACT, Compute, Pooled, open_encoder
from bertkit.cli.output import ModelName, emit
from bertkit.errors import UsageError
from bertkit.tokenizer.layout import OnLong


def command(
    *texts: str,
    model: ModelName = EMBEDDING_MODEL,
    pooled: Pooled = AS_PUBLISHED,
    on_long: OnLong = "truncate",
    compute: Compute = EXACT,
) -> None:
    """Cosine similarity of every pair of texts: 1 for equal meaning, 0 for unrelated texts.

    Parameters
    ----------
    texts
        At least two texts.
    on_long
        Policy for texts longer than the model's limit: truncate, raise an error, or encode in windows.
    """
    if len(texts) < 2:
        raise UsageError("similarity compares texts: give at least two")
    vectors = open_encoder(model, compute).embed(texts, normalize=True, on_long=on_long, **asdict(pooled))
    emit(
        {"text_a": texts[a], "text_b": texts[b], "score": float(vectors[a] @ vectors[b])}
        for a, b in combinations(range(len(texts)), 2)
    )
