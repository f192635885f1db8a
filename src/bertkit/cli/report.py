"""bertkit report"""

from pathlib import Path

from bertkit.cli.output import OutPath, emit
from bertkit.files.whole_files import check_writable


def command(run: Path, /, *, out: OutPath) -> None:
    """Write a self-contained page about a training run: findings, curves, samples, settings.

    Parameters
    ----------
    run
        The folder of a pre-training run or of a fine-tuned model; the run may still be in progress.
    out
        The HTML file to write.
    """
    from bertkit.reports.recorded_run import read_run
    from bertkit.reports.training import write_training_report
    from bertkit.reports.training_findings import findings_of

    check_writable(out, endings=(".html",))
    read = read_run(run)
    write_training_report(read, out)
    warnings = [sentence for kind, sentence in findings_of(read) if kind == "warning"]
    emit([{"report": str(out), "step": int(read.steps["step"][-1]), "warnings": warnings}])
