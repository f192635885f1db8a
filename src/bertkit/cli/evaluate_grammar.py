"""bertkit evaluate grammar"""

import sys
from pathlib import Path
from typing import Literal

from bertkit.cli.models import EXACT, PRETRAINED_MODEL, Compute, open_model
from bertkit.cli.output import emit, note


def command(
    suite: Path,
    /,
    *,
    model: str = PRETRAINED_MODEL,
    method: Literal["plain", "l2r"] = "plain",
    limit: int | None = None,
    compute: Compute = EXACT,
) -> None:
    """Evaluate a masked LM on grammatical minimal pairs: the share in which the grammatical sentence is more likely.

    Parameters
    ----------
    suite
        Grammatical minimal pairs, a file or a folder: jsonl as in BLiMP, txt as in Zorro.
    model
        A model with a masked LM head: a folder, a hub name, or the import name of an installed model package.
    method
        How likelihood is measured: plain, each token from all others; l2r, without the later pieces of the same word.
    limit
        Number of pairs of each paradigm to use, from the start.
    """
    from bertkit.evidence import read_suite, score_minimal_pairs

    paradigms = read_suite(suite, limit)
    score = score_minimal_pairs(open_model(model, compute), paradigms, method=method)
    emit({"method": score.method, **row} for row in score.rows())
    if sys.stdout.isatty():
        note("accuracy: the good sentence is strictly more likely; interval: 95 %")
