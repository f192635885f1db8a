"""Results of `bertkit evaluate` for sentence encoders and cross-encoders."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from bertkit.cli.output import emit

if TYPE_CHECKING:
    from bertkit.evidence import Measured
    from bertkit.inference.text_encoder import TextEncoder

Against = Annotated[str | None, Parameter(help="Another model, for the paired differences.")]
ScoreReport = Annotated[Path | None, Parameter(help="An HTML report of the scores with a JSON file next to it.")]


def remarks_of(name: str, encoder: "TextEncoder", compared_by: tuple[str, ...] = ("cosine",)) -> list[str]:
    """What to say of a model that is not published with one of the similarities that are used here."""
    settings = encoder.sentence_settings
    other = "" if settings.similarity in compared_by else settings.other_than_cosine
    return [f"{name} is published with the {other}, and is compared by the cosine"] if other else []


def give(
    model: str,
    sizes: str,
    measured: Mapping[str, "Measured"],
    against: str | None,
    differences: Mapping[str, "Measured"],
    report: Path | None,
) -> None:
    """Print the scores, and write the report."""
    rows = []
    for name, score in measured.items():
        row = {"metric": name, "value": score.value, "low": score.low, "high": score.high}
        if name in differences:
            other = differences[name]
            row |= {"difference": other.value, "difference_low": other.low, "difference_high": other.high}
        rows.append(row)
    if report is not None:
        from bertkit.reports.vectors import write_vector_report

        write_vector_report(report, model, sizes, measured, against, differences)
    emit(rows)
