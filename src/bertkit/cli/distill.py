"""bertkit distill"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertkit.cli.output import Columns, Device, Files, OutPath, Values, note
from bertkit.cli.task_options import given_options, settings_of
from bertkit.cli.training_command import run_training
from bertkit.errors import UsageError
from bertkit.files import read_json, whole_folder, write_json
from bertkit.finetuning.settings import StudentSettings
from bertkit.training.recipe_files import read_recipe_file

if TYPE_CHECKING:
    from bertkit.model import Model
    from bertkit.training import Ranks

SettingsOfRun: Any = settings_of(StudentSettings)
NONE_GIVEN, DEFAULTS = SettingsOfRun(), StudentSettings()


def command(
    *,
    teacher: str,
    train: Files,
    out: OutPath,
    layers: int,
    dev: Path | None = None,
    columns: Columns = None,
    words: str | None = None,
    snap_spans: bool = False,
    label_names: Values = None,
    recipe: Path | None = None,
    settings: SettingsOfRun = NONE_GIVEN,
    unlabeled: bool = False,
    resume: bool = False,
    device: Device = "auto",
) -> None:
    """Distill a larger model into a smaller one.

    The student starts with some layers of the teacher and all its other weights; this initial model is stored in
    OUT-student. A student of a classifier or tagger learns the teacher's probabilities and hidden states and the labels
    (DistilBERT's recipe); for unlabeled texts, labels are those that the teacher predicts. A student of a masked LM
    learns the same from raw text, by the recipe domain-adapt. A student of a sentence encoder learns the teacher's
    vectors of unlabeled texts, which are cached in OUT-teacher.

    Parameters
    ----------
    teacher
        A fine-tuned model, a masked LM or a sentence encoder.
    train
        Examples, with or without labels; for a sentence encoder files of texts; for a masked LM a corpus.
    out
        The folder of the student to write; for a masked LM the folder of the run.
    layers
        Number of layers of the student, taken from the teacher.
    dev
        Examples that select the best weights; for a masked LM a held-out text.
    words
        For taggers, the rule for splitting texts into words, punctuation or spaces; by default the teacher's.
    snap_spans
        For taggers, move spans that begin or end inside a word to its borders, and count them.
    label_names
        Names of labels that are integers in the files or LABEL_0 and so on in the teacher, in order from 0.
    recipe
        A TOML file of settings by name, those of the training loop in [training], those of the losses in
        [distillation]; options given here take precedence.
    unlabeled
        The texts have no labels: learn the labels that the teacher predicts.
    resume
        Resume the run in the folder, or start it if there is none.
    """
    from bertkit.cli.labeled_files import columns_of, note_reading
    from bertkit.cli.models import Compute, change_trained, open_model
    from bertkit.files import BadRows
    from bertkit.finetuning import PAPER, Finetuning
    from bertkit.finetuning.distillation import Distillation, labeled_by, task_to_distill
    from bertkit.tasks import Alignment, ExampleFile, TextTask
    from bertkit.tasks.example_file import labeled_file

    chosen = read_recipe_file(recipe, DEFAULTS)[0].changed(**given_options(settings))
    changed = [name for name, value in chosen.values().items() if value != DEFAULTS.all_values().get(name)]
    weights = chosen.distillation.values()
    chosen.check_untimed("distillation", "pass --num-epochs or --num-steps")
    of_labels = {"words": words, "snap_spans": snap_spans, "label_names": label_names}
    model = open_model(teacher, Compute(device="cpu"))
    is_of_task = model.checkpoint.trained is not None and bool(model.trained.task.head)
    if not is_of_task and "masked_lm" in model.network.heads and model.checkpoint.sentence is None:
        for_examples = {"columns": columns, "unlabeled": unlabeled, **of_labels}
        _check_none(
            [
                *(name for name, given in for_examples.items() if given),
                *(name for name in changed if name not in ("num_steps", *weights)),
            ],
            "a masked LM: its recipe is domain-adapt",
        )
        _distill_masked_lm(model, teacher, layers, train, out, dev, chosen, resume, device)
        return
    if not is_of_task:
        of_examples = [name for name, value in of_labels.items() if value]
        _check_none(
            [*of_examples, *(name for name in changed if name in weights)],
            "a sentence encoder: the loss is the squared distance of vectors",
        )
    kind: type[TextTask] = Alignment
    files = [ExampleFile(path, not unlabeled, columns_of(columns)) for path in (*train, *([dev] if dev else []))]
    bad_rows = BadRows()
    if is_of_task:
        kind = type(task_to_distill(model))
        change_trained(model, words=words, label_names=label_names, are_of_data=True)
        how = {"class_names": label_names, "snap_spans": snap_spans}
        as_trained = partial(labeled_file, model.trained.task, bad_rows=bad_rows, **how)
        files = [replace(as_trained(file.path, columns=file.columns), labeled=file.labeled) for file in files]
    parts = [list(kind.read(file)) for file in files]
    note_reading(bad_rows)
    if unlabeled and is_of_task:
        parts = [labeled_by(model, part) for part in parts]
    held_out = [] if dev is None else parts.pop()
    examples = [example for part in parts for example in part]

    def start(ranks: "Ranks", should_stop: Callable[[], bool]) -> dict[str, Any]:
        with ranks.first_before_others():
            student = _initial_student(model, teacher, layers, out, of_labels)
        how: dict[str, Any] = {"device": device, "log_line": note, "ranks": ranks}
        if is_of_task:
            run: Finetuning = Distillation(out, student, kind.name, chosen.completed(PAPER), teacher=teacher, **how)
        else:
            run = Finetuning(out, student, Alignment.name, chosen, {"teacher": teacher}, **how)
        outcome = run.start(examples, held_out, resume=resume, should_stop=should_stop)
        return {"model": str(out), "reason": outcome.reason, "step": outcome.step, **outcome.metrics}

    run_training("distill", out, device, start)


def _check_none(names: list[str], teacher: str) -> None:
    """Raise a UsageError if options were given that have no effect with a kind of teacher."""
    if names:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in names)
        verb, omitted = ("has", "it") if len(names) == 1 else ("have", "them")
        raise UsageError(f"{options} {verb} no effect on {teacher}; omit {omitted}")


def _initial_student(model: "Model", teacher: str, layers: int, out: Path, settings: Mapping[str, Any] = {}) -> Path:
    """The folder OUT-student with the student before training, written unless OUT has a run, which began with it.

    Args:
        settings: further settings of the teacher on the command line.

    Raises:
        UsageError: the run in OUT began with other layers, settings or another teacher, or an invalid number of layers.
    """
    from bertkit.checkpoint.content_hash import content_hash
    from bertkit.finetuning.student import student_of
    from bertkit.locate import locate

    out = out.absolute()
    folder = out.with_name(f"{out.name}-student")
    record, made_of = folder / "student.json", {"teacher": content_hash(locate(teacher)), "layers": layers}
    made_of |= {name: value for name, value in settings.items() if value}
    if out.is_dir() and any(out.iterdir()):
        if read_json(record) != made_of:
            raise UsageError(
                f"{out} exists and was not started with {layers} layers of the present {teacher}: resume it with the "
                "layers and teacher that it was started with, or choose another folder"
            )
        return folder
    with whole_folder(folder, overwrite=record.is_file()) as temporary:
        student_of(model, layers).save(temporary)
        write_json(temporary / record.name, made_of)
    return folder


def _distill_masked_lm(
    model: "Model", teacher: str, layers: int, corpus: list[str], out: Path, held_out: Path | None,
    settings: StudentSettings, resume: bool, device: str,
) -> None:  # fmt: skip
    """Run the distillation of a masked LM like `bertkit pretrain`."""
    from bertkit.pretraining import Inputs, Pretraining, read_recipe, with_length
    from bertkit.training.distillation import distilled

    recipe = with_length(read_recipe("domain-adapt"), num_steps=settings.training.num_steps)

    def start(ranks: "Ranks", should_stop: Callable[[], bool]) -> dict[str, Any]:
        with ranks.first_before_others():
            student = _initial_student(model, teacher, layers, out)
        inputs = Inputs(tuple(corpus), () if held_out is None else (held_out,), model=str(student))
        run = Pretraining(out, recipe, inputs, ranks=ranks, log_line=note, device=device)
        run.make_task = partial(distilled, model.network, "masked_lm", settings.distillation)
        outcome = run.start(resume=resume, should_stop=should_stop)
        return {"run": str(out), "reason": outcome.reason, "step": outcome.step, **outcome.metrics}

    run_training("distill", out, device, start)
