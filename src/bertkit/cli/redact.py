"""bertkit redact"""

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from bertkit.cli.models import EXACT, Compute, labels_given, open_model
from bertkit.cli.output import InputFile, OutPath, Values, note
from bertkit.cli.text_files import text_pieces
from bertkit.errors import UsageError
from bertkit.files.lines import extension
from bertkit.files.whole_files import check_not_input, check_writable, whole_file

if TYPE_CHECKING:
    from bertkit.redaction import RedactionReport


def command(
    input: InputFile,
    *,
    out: OutPath | None = None,
    kinds: Values = None,
    regions: Values = None,
    model: str | None = None,
    labels: str | None = None,
    threshold: float | None = None,
    key: Path | None = None,
    restore: bool = False,
    report: Path | None = None,
    compute: Compute = EXACT,
) -> None:
    """Replace personal data in a text of any size by placeholders such as [EMAIL]; the rest keeps its bytes.

    Parameters
    ----------
    input
        A text in UTF-8: prose, JSON, CSV, logs, mail or code; "-" is standard input.
    out
        The file to write, atomically; by default the text goes to stdout.
    kinds
        What to replace, such as EMAIL PHONE, and the labels of the model; by default everything.
    regions
        Countries (two letters) of telephone numbers without an international prefix; by default US GB DE FR.
    model
        A model fine-tuned for token classification, whose entities, such as names and places, are replaced too; or an
        extraction model.
    labels
        What an extraction model looks for, separated by commas: person,place.
    threshold
        Score above which an entity of the model is replaced; by default that of the model.
    key
        Numbers the placeholders, and writes what they stand for to this file; an existing one is extended.
    restore
        The input has placeholders of --key: write the original text.
    report
        A JSON file with what was examined, and how many of each kind were replaced; never what.
    """
    from bertkit.files.json_files import write_json
    from bertkit.redaction import Key
    from bertkit.redaction.redactor import Redactor

    paths = [path for path in (out, report, None if restore else key) if path is not None]
    for path in paths:
        check_writable(path)
        check_not_input(path, input)
    if len(set(paths)) < len(paths):
        raise UsageError("--out, --key and --report name the same file: give each its own")
    if restore:
        if key is None:
            raise UsageError("--restore needs --key: the file that was written with the text")
        if kinds or regions or model or labels or report:
            raise UsageError("--restore takes --key and --out only: placeholders say what they stand for")
        _write(Key.read(key).restore(text_pieces(input)), out)
        return
    redactor = Redactor(
        kinds,
        regions=regions,
        tagger=None if model is None else open_model(model, compute),
        labels=labels_given(labels),
        threshold=threshold,
        key=None if key is None else Key.read(key) if key.exists() else Key(),
        is_json=extension(input) in (".json", ".jsonl", ".ndjson"),
    )

    def write_key() -> None:
        if redactor.key is not None and key is not None:
            redactor.key.write(key)

    _write(redactor.redact_stream(text_pieces(input)), out, write_key)
    if report is not None:
        write_json(report, redactor.report.to_json())
    note(_summary(input, redactor.report))


def _write(pieces: Iterable[str], out: Path | None, write_key: Callable[[], None] = lambda: None) -> None:
    """Write a text; the key that restores it is written before a file has its name, and after what was printed."""
    if out is None:
        try:
            _copy(pieces, sys.stdout.buffer)
        finally:
            write_key()
        return
    with whole_file(out) as temporary:
        with open(temporary, "wb") as file:
            _copy(pieces, file)
        write_key()


def _copy(pieces: Iterable[str], file: BinaryIO) -> None:
    for piece in pieces:
        file.write(piece.encode())
    file.flush()


def _summary(input: str, report: "RedactionReport") -> str:
    counts = ", ".join(f"{count} {kind}" for kind, count in sorted(report.replacements.items())) or "nothing"
    line = f"{input}: {report.num_characters:,} characters: replaced {counts}"
    if report.regions:
        line += f"; telephone numbers without + are those of {', '.join(report.regions)} (--regions)"
    return line if report.tagger else f"{line}; names and places only with --model"
