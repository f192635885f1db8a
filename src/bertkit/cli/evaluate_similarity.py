"""bertkit evaluate similarity"""

from pathlib import Path

from bertkit.cli.evaluated_vectors import Against, ScoreReport, give, remarks_of
from bertkit.cli.models import EMBEDDING_MODEL, EXACT, Compute, open_encoder
from bertkit.cli.output import ModelName, Values, note


def command(
    pairs: Path,
    /,
    *,
    model: ModelName = EMBEDDING_MODEL,
    columns: Values = None,
    against: Against = None,
    report: ScoreReport = None,
    compute: Compute = EXACT,
) -> None:
    """Evaluate vectors or a cross-encoder on scored pairs of texts.

    The correlations of the scores with the cosines of a sentence encoder, or with the scores of a cross-encoder; for
    scores of 0 and 1, average precision and the best threshold. All with confidence intervals.

    Parameters
    ----------
    pairs
        Scored pairs: csv, tsv, jsonl or parquet.
    columns
        Columns by role, such as text_a=question text_b=answer score=rating, where their names are not recognized.
    """
    from bertkit.cli.labeled_files import columns_of
    from bertkit.evidence.pair_scores import measured_pairs, scores_of_pairs
    from bertkit.reports.report_file import checked_report
    from bertkit.tasks import ExampleFile, Similarity
    from bertkit.words.opening import encoder_path

    if report is not None:
        checked_report(report, pairs)
    if against is not None:
        encoder_path(against)
    rows = list(Similarity.read(ExampleFile(pairs, columns=columns_of(columns))))
    encoder = open_encoder(model, compute)
    scores, differences, remarks = scores_of_pairs(encoder, rows), {}, remarks_of(model, encoder)
    measured = measured_pairs(rows, scores)
    if against is not None:
        encoder = open_encoder(against, compute)
        differences = measured_pairs(rows, scores, scores_of_pairs(encoder, rows))
        remarks += remarks_of(against, encoder)
    sizes = ". ".join([f"{pairs}: {len(rows)} pairs", *remarks])
    note(sizes)
    give(model, sizes, measured, against, differences, report)
