"""bertkit extract"""

from dataclasses import asdict
from pathlib import Path

from bertkit.cli.models import EXACT, Compute, labels_given, open_model
from bertkit.cli.output import InputFile, emit, note
from bertkit.cli.text_files import text_pieces
from bertkit.errors import UsageError


def command(
    text: str | None = None,
    /,
    *,
    model: str,
    labels: str | None = None,
    schema: Path | None = None,
    input: InputFile | None = None,
    threshold: float | None = None,
    nested: bool = False,
    compute: Compute = EXACT,
) -> None:
    """Find what labels name, such as persons and places, in a text of any length.

    Parameters
    ----------
    text
        The text, unless --input is given.
    model
        An extraction model: a folder in the form of GLiNER, with gliner_config.json, or of GLiNER2; or a model that was
        fine-tuned for token classification.
    labels
        What to look for, separated by commas: person,place; of a token classification by default all of its labels.
    schema
        A JSON file instead: {"entities": [...], "relations": [...]} for a model that relates entities; a model in the
        form of GLiNER2 also reads "records": {...}, "classes": {...} and "multilabel_classes": {...}.
    input
        A text in UTF-8 instead; "-" is standard input.
    threshold
        Score above which something counts as found; from 0 to 1; by default what bertkit calibrate stored, else 0.5.
    nested
        Also print entities inside others.
    """
    from bertkit.extraction import ExtractionReport, Schema
    from bertkit.files.json_files import read_json_value

    if (text is None) == (input is None):
        raise UsageError("expected a text or --input FILE, and not both")
    if labels is not None and schema is not None:
        raise UsageError("expected either --labels or --schema")
    whole = "".join(text_pieces(input)) if input is not None else text or ""
    opened, report = open_model(model, compute), ExtractionReport()
    if schema is not None:
        if (content := read_json_value(schema)) is None:
            raise UsageError(f"--schema {schema}: no such file")
        reading = opened.extract(whole, schema=Schema.from_json(content), threshold=threshold, report=report)
        emit([asdict(reading)], as_json=True)
    else:
        given = labels_given(labels)
        entities = opened.extract(whole, given, threshold=threshold, nested=nested, report=report)
        if not entities:
            note("no entity has a score above the threshold: lower --threshold, or name other --labels")
        emit(
            {"text": each.text, "label": each.label, "score": each.score, "start": each.start, "end": each.end}
            for each in entities
        )
    if input is not None:
        windows = f" in {report.num_windows:,} windows" if report.num_windows else ""
        many = schema is None and len(report.label_groups) > 1
        groups = f"; labels in {len(report.label_groups)} groups" if many else ""
        note(f"{input}: {report.num_characters:,} characters{windows}{groups}")
