"""Speed and agreement of systems: the rows of the table of `embed.py`."""

import statistics

import numpy as np
from peers import REFERENCE, System
from turns import shown
from worker import Turn

EXPLANATION = (
    "vs ST: speed over that of sentence-transformers fp32 as its users call it. bertkit/it: bertkit's speed at the "
    "same precision over this row's. max diff, min cosine: largest difference of a component and smallest cosine to "
    "the vectors of sentence-transformers fp32, over all texts. peak: most memory its process held meanwhile. Speeds "
    "are medians."
)
_COLUMNS = ("system", "texts/s", "vs ST", "bertkit/it", "max diff", "min cosine", "peak MiB", "seconds", "used with")


def compare(turns: dict[System, list[Turn]], settings: dict[System, dict]) -> list[dict]:
    """One row for each system, from its turns after the first; None for values that need a system that was skipped."""
    medians = {system.name: statistics.median(turn.seconds for turn in taken[1:]) for system, taken in turns.items()}
    ours = {system.precision: medians[system.name] for system in turns if system.module == "bertkit"}
    reference = next((taken[-1].result for system, taken in turns.items() if system.name == REFERENCE), None)
    rows = []
    for system, (warm_up, *taken) in turns.items():
        median, vectors = medians[system.name], taken[-1].result
        row = {
            "system": system.name,
            "precision": system.precision,
            "setting": settings[system],
            "warm_up_seconds": round(warm_up.seconds, 4),
            "seconds": [round(turn.seconds, 4) for turn in taken],
            "texts_per_second": round(len(vectors) / median, 2),
            "ratio_to_reference": round(medians[REFERENCE] / median, 4) if REFERENCE in medians else None,
            "bertkit_ratio": round(median / ours[system.precision], 4) if system.precision in ours else None,
            "max_abs_difference": None,
            "min_cosine": None,
            "peak_bytes": taken[-1].peak_bytes,
        }
        if reference is not None:
            row["max_abs_difference"] = float(np.abs(vectors - reference).max())
            row["min_cosine"] = float(cosines(vectors, reference).min())
        rows.append(row)
    return rows


def cells(rows: list[dict]) -> list[list[str]]:
    """Header and rows of the table, as text."""
    return [
        list(_COLUMNS),
        *(
            [
                row["system"],
                f"{row['texts_per_second']:.0f}",
                number(row["ratio_to_reference"], ".2f"),
                number(row["bertkit_ratio"], ".2f"),
                number(row["max_abs_difference"], ".1e"),
                number(row["min_cosine"], ".6f"),
                f"{row['peak_bytes'] / 2**20:.0f}",
                f"{min(row['seconds']):.2f}-{max(row['seconds']):.2f}",
                shown(row["setting"]),
            ]
            for row in rows
        ),
    ]


def cosines(vectors: np.ndarray, others: np.ndarray) -> np.ndarray:
    """(N,) cosines of the rows of two (N, D) arrays."""
    a, b = vectors.astype(np.float64), others.astype(np.float64)
    return (a * b).sum(1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))


def number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
