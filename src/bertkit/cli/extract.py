"""bertkit extract"""

from typing import Annotated

from cyclopts import Parameter

from bertkit.cli.models import EXACT, Compute
from bertkit.cli.output import emit, note
from bertkit.cli.text_files import text_pieces
from bertkit.errors import UsageError


def command(
    text: str | None = None,
    /,
    *,
    labels: str,
    model: str,
    input: Annotated[str | None, Parameter(name=["--input", "-i"], allow_leading_hyphen=True)] = None,
    threshold: float | None = None,
    nested: bool = False,
    compute: Compute = EXACT,
) -> None:
    """Find what labels name, such as persons and places, in a text of any length.

    Parameters
    ----------
    text
        The text, unless --input is given.
    labels
        What to look for, separated by commas: person,place.
    model
        An extraction model in the form of GLiNER: a folder with gliner_config.json.
    input
        A text in UTF-8 instead; "-" is standard input.
    threshold
        Score above which something counts as found; from 0 to 1; by default what bertkit calibrate stored, else 0.5.
    nested
        Also print entities inside others.
    """
    from bertkit.extraction import ExtractionReport, open_extractor

    if (text is None) == (input is None):
        raise UsageError("expected a text or --input FILE, and not both")
    names = [label.strip() for label in labels.split(",")] if labels.strip() else []
    whole = "".join(text_pieces(input)) if input is not None else text or ""
    report = ExtractionReport()
    extractor = open_extractor(model, precision=compute.precision, device=compute.device)
    (entities,) = extractor.extract([whole], names, threshold=threshold, nested=nested, report=report)
    emit(
        {"text": each.text, "label": each.label, "score": each.score, "start": each.start, "end": each.end}
        for each in entities
    )
    if input is not None:
        groups = "" if len(report.label_groups) == 1 else f"; labels in {len(report.label_groups)} groups"
        note(f"{input}: {report.num_characters:,} characters in {report.num_windows:,} windows{groups}")
