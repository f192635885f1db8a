"""bertkit generate"""

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from bertkit.cli.output import Device, InputFile, Values, emit
from bertkit.errors import UsageError
from bertkit.files.whole_files import check_writable
from bertkit.generation.settings import GenerationSettings

DEFAULTS = GenerationSettings()


def command(
    *texts: str,
    model: str,
    input: InputFile | None = None,
    columns: Values = None,
    page: Path | None = None,
    device: Device = "cpu",
    settings: Annotated[GenerationSettings, Parameter(name="*")] = DEFAULTS,
) -> None:
    """Generate text: continue prompts, or transform source texts (for example, translate them).

    Parameters
    ----------
    texts
        Prompts for a causal language model, or source texts for an encoder-decoder model.
    model
        A causal language model or an encoder-decoder model: a folder or a hub name.
    input
        A file of texts, one on each line, or a table with a column of texts; "-" is standard input.
    columns
        The column of texts, such as text=source, where its name is not recognized.
    page
        Write an HTML page instead: the most likely tokens at each step, and their attention to the source.
    """
    from bertkit.cli.labeled_files import columns_of
    from bertkit.generation import load_generator
    from bertkit.generation.page import write_generation_page
    from bertkit.tasks.reading.texts import read_labeled_texts

    if bool(texts) == (input is not None):
        raise UsageError("give texts, or a file of them with --input: one of the two")
    if columns and input is None:
        raise UsageError("--columns names columns of a file: give one with --input")
    if page is not None:
        check_writable(page, input, endings=(".html",))
    sources = list(texts)
    if input is not None:
        for example in read_labeled_texts(input, None, columns=columns_of(columns)):
            if not example.text.strip():
                raise example.error("has an empty text: write some, or remove the row")
            sources.append(example.text)
    generator = load_generator(model, device=device)
    if page is not None:
        write_generation_page(page, generator, sources, settings)
        emit([{"page": str(page), "bytes": page.stat().st_size}])
        return
    rows: list[dict[str, Any]] = []
    for source, made in zip(sources, generator.generate(sources, settings), strict=True):
        rows.append({"text": source, "generated": made.text, "score": made.score, "tokens": made.num_tokens,
                     "ended": made.has_ended})  # fmt: skip
        if settings.num_candidates:
            rows[-1]["candidates"] = made.candidates
    emit(rows)
