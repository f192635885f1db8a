"""bertkit embed"""

from dataclasses import asdict

from bertkit.cli.models import AS_PUBLISHED, EMBEDDING_MODEL, EXACT, Compute, Pooled, note_unknown, open_encoder
from bertkit.cli.output import Column, InputFile, ModelName, OutPath, note
from bertkit.corpus.texts import read_texts
from bertkit.tokenizer.layout import OnLong


def command(
    input: InputFile,
    *,
    out: OutPath | None = None,
    model: ModelName = EMBEDDING_MODEL,
    column: Column = None,
    pooled: Pooled = AS_PUBLISHED,
    normalize: bool | None = None,
    dimensions: int | None = None,
    prompt: str | None = None,
    prompt_name: str | None = None,
    max_length: int | None = None,
    on_long: OnLong = "truncate",
    stride: int | None = None,
    compute: Compute = EXACT,
) -> None:
    """Embed every text of a file as a vector.

    Parameters
    ----------
    input
        A txt file (a text on each line), jsonl, csv, tsv or parquet, or a folder of them; "-" is standard input.
    out
        A npy, jsonl or parquet file, written atomically; by default JSON lines on stdout.
    normalize
        Scale vectors to length 1; by default as in the model's settings.
    dimensions
        Keep the first N components.
    prompt
        Prefix of every text.
    prompt_name
        Name of a prompt stored in the model.
    max_length
        Maximum sequence length in tokens; by default the model's.
    on_long
        Policy for longer texts: truncate, raise an error, or encode in windows.
    stride
        Number of tokens from the start of one window to the next.
    """
    from bertkit.cli.vector_files import check_vector_file, print_vectors, write_vectors
    from bertkit.inference import InferenceReport

    if out is not None:
        check_vector_file(out, input)
    report = InferenceReport()
    embedded = open_encoder(model, compute).embed_stream(
        read_texts(input, column),
        report=report,
        **asdict(pooled),
        normalize=normalize,
        dimensions=dimensions,
        prompt=prompt,
        prompt_name=prompt_name,
        max_length=max_length,
        on_long=on_long,
        stride=stride,
    )
    if out is None:
        print_vectors(embedded)
    else:
        write_vectors(out, embedded)
        note(f"{out}: {report.num_texts} vectors")
    note_unknown(report)
    if report.num_texts_cut:
        note(
            f"{report.num_texts_cut} texts were cut to the maximum length and lost {report.num_tokens_cut} tokens; "
            "--on-long window encodes them in full"
        )
