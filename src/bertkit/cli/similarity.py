"""bertkit similarity"""

from itertools import combinations

from bertkit.cli.defaults import EMBEDDING_MODEL
from bertkit.cli.output import emit
from bertkit.errors import UsageError


def command(
    *texts: str,
    model: str = EMBEDDING_MODEL,
    precision: str = "float32",
    device: str = "auto",
) -> None:
    """How alike are texts in meaning? The cosine of their vectors for every pair: 1 is the same, 0 unrelated.

    Parameters
    ----------
    texts
        Two texts or more.
    model
        A folder, a hub name, or the import name of an installed model package.
    precision
        float32 or float64.
    device
        auto, cpu, cuda.
    """
    if len(texts) < 2:
        raise UsageError("similarity compares texts: give at least two")
    from bertkit.model import load

    vectors = load(model, precision=precision, device=device).embed(texts, normalize=True)
    emit(
        {"text_a": texts[a], "text_b": texts[b], "score": float(vectors[a] @ vectors[b])}
        for a, b in combinations(range(len(texts)), 2)
    )
