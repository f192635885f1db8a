"""bertkit finetune extraction"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from bertkit.cli.models import EMBEDDING_MODEL
from bertkit.cli.output import OutPath, note
from bertkit.cli.task_options import HELP, given_options, settings_of
from bertkit.cli.training_command import result_row, run_training
from bertkit.extraction.training_settings import ExtractionTrainingSettings
from bertkit.files.whole_files import check_folder_writable
from bertkit.training.recipe_files import read_recipe_file

if TYPE_CHECKING:
    from bertkit.training import Ranks

SUMMARY = "Entities for labels that are given at run time, from tagged texts."


def command() -> Callable[..., None]:
    """The command, with the settings as options."""
    settings_type = settings_of(ExtractionTrainingSettings, {})
    no_settings = settings_type()

    def finetune(
        *,
        train: Annotated[list[Path], Parameter(consume_multiple=True)],
        out: OutPath,
        model: str = EMBEDDING_MODEL,
        dev: Path | None = None,
        columns: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
        skip_bad: bool = False,
        recipe: Path | None = None,
        settings: settings_type = no_settings,
        resume: bool = False,
        device: str = "auto",
    ) -> None:
        from bertkit.cli.labeled_files import bad_rows_of, columns_of, note_reading
        from bertkit.extraction.training import ExtractionTraining
        from bertkit.tasks.reading.tagged import read_tagged

        check_folder_writable(out)
        chosen, _ = read_recipe_file(recipe, ExtractionTrainingSettings())
        chosen, roles = chosen.changed(**given_options(settings)), columns_of(columns)
        bad_rows = bad_rows_of(skip_bad)
        examples = [
            [one for path in paths for one in read_tagged(path, columns=roles, scheme="BIO", bad_rows=bad_rows)]
            for paths in (train, [dev] if dev else [])
        ]
        note_reading(bad_rows)

        def start(ranks: "Ranks", should_stop: Callable[[], bool]) -> dict[str, Any]:
            run = ExtractionTraining(out, model, chosen, device=device, log_line=note, ranks=ranks)
            outcome = run.start(*examples, resume=resume, should_stop=should_stop)
            return result_row(out, outcome, rows_skipped=len(bad_rows.rows))

        run_training("finetune extraction", out, device, start)

    finetune.__doc__ = f"""{SUMMARY}

    The folder that is written opens with bertkit extract, and has the published form of GLiNER. The labels of each
    text are those of its entities, and a draw of others. Ctrl-C or SIGTERM finishes the step, saves and exits;
    --resume continues.

    Parameters
    ----------
    train
        Tagged texts: CoNLL files, or jsonl or parquet files with words and tags, or texts and spans.
    out
        {HELP["out"]}
    model
        The encoder to start from: a folder, a hub name, or the import name of an installed model package.
    dev
        {HELP["dev"]}
    columns
        {HELP["columns"]}
    skip_bad
        {HELP["skip_bad"]}
    recipe
        {HELP["recipe"]}
    resume
        {HELP["resume"]}
    device
        {HELP["device"]}
    """
    return finetune
