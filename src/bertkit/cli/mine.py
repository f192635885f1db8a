"""bertkit mine"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from bertkit.cli.models import EMBEDDING_MODEL, EXACT, Compute, open_model
from bertkit.cli.output import InputFile, OutPath, Values, note
from bertkit.errors import DataError
from bertkit.files.json_files import write_json_lines
from bertkit.files.whole_files import check_writable
from bertkit.locate import locate
from bertkit.mining import MiningOptions

_DEFAULTS = MiningOptions()


def command(
    input: InputFile,
    *,
    out: OutPath,
    model: str = EMBEDDING_MODEL,
    columns: Values = None,
    corpus: str | None = None,
    cross_encoder: str | None = None,
    format: Literal["list", "triplet", "tuple", "pair"] = "list",
    options: Annotated[MiningOptions, Parameter(name="*")] = _DEFAULTS,
    compute: Compute = EXACT,
) -> None:
    """Find hard negatives: texts near a query that are not among its positives.

    Parameters
    ----------
    input
        Queries with positives, as for bertkit finetune similarity, without scores: csv, tsv, jsonl or parquet.
    out
        A jsonl file for bertkit finetune similarity, written atomically. Vectors and scores are cached in
        OUTPUT-kept until then, so that the same command resumes after a stop.
    model
        A sentence encoder: a folder, a hub name, or the import name of an installed model package.
    columns
        Columns by role, such as query=question positive=answer, where their names are not recognized.
    corpus
        A file of further texts to search, in the column text; by default all positives are searched.
    cross_encoder
        A cross-encoder that rescores candidates and positives before margins and limits apply.
    format
        list: a row with lists of positives and negatives; triplet; tuple: negative_1, negative_2, ...; pair: scores of
        1 and 0. triplet omits queries without negatives, tuple those with fewer than --num-negatives.
    """
    import shutil

    from bertkit.checkpoint.content_hash import content_hash
    from bertkit.cli.labeled_files import columns_of
    from bertkit.corpus.texts import read_texts
    from bertkit.mining import MiningReport, formatted, mine_negatives
    from bertkit.tasks import ExampleFile, Similarity

    check_writable(out, input, corpus, endings=(".jsonl",))
    models = "-".join(content_hash(locate(name)) for name in (model, cross_encoder) if name is not None)
    kept = out.with_name(f"{out.name}-kept") / f"{models}-{compute.precision}"
    rows, report = list(Similarity.read(ExampleFile(input, columns=columns_of(columns)))), MiningReport()
    mined = mine_negatives(
        open_model(model, compute),
        rows,
        options,
        corpus=[] if corpus is None else list(read_texts(corpus)),
        cross_encoder=None if cross_encoder is None else open_model(cross_encoder, compute),
        report=report,
        kept=kept,
    )
    written: list[int] = []  # numbers of negatives
    needed = options.num_negatives if format == "tuple" else 1

    def contents() -> Iterator[dict[str, Any]]:
        for row in mined:
            lines = list(formatted(row, format, options.num_negatives))
            yield from lines
            if lines:
                written.append(len(row.negatives))
        if not written:
            raise DataError(
                f"no query has enough negatives for --format {format} (at least {needed}): search more texts "
                "(--corpus), or change the margins and limits"
            )

    write_json_lines(out, contents())
    shutil.rmtree(kept)
    with suppress(OSError):  # holds other files
        kept.parent.rmdir()
    note(f"{out}: {sum(written)} negatives for {len(written)} queries, {written.count(0)} of them without any")
    if len(written) < report.num_queries:
        note(f"{report.num_queries - len(written)} queries with fewer than {needed} negatives are left out of {format}")
    for name, number in report.left_out.items():
        note(f"{name} removed {number} candidates")
