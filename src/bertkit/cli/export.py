"""bertkit export"""

from dataclasses import asdict
from pathlib import Path

from bertkit.cli.output import ModelName, OutPath, Values, emit
from bertkit.errors import UsageError


def command(
    *,
    model: ModelName,
    out: OutPath,
    format: str = "onnx",
    precision: str = "float32",
    examples: Path | None = None,
    columns: Values = None,
    words: str | None = None,
    snap_spans: bool = False,
    label_names: Values = None,
    max_loss: float | None = None,
) -> None:
    """Export a model for runtimes without torch: a graph of its encoder with pooling or head, and its tokenizer.

    The graph is run on sample texts and refused if its outputs differ from the model's.

    Parameters
    ----------
    out
        The folder to write.
    format
        onnx, for onnxruntime; openvino.
    precision
        float32, or int8: smaller and faster, with other results. It is measured on examples, and refused if it loses
        too much.
    examples
        With int8: labeled examples of the model's task, as for bertkit evaluate --data; for sentence encoders and
        cross-encoders scored pairs, as for --pairs.
    columns
        With int8: columns of the examples by role, such as text=sentence label=polarity.
    words
        For taggers, the rule for splitting texts into words, punctuation or spaces, that the export records; by default
        the model's.
    snap_spans
        With int8, for taggers: move spans that begin or end inside a word to its borders, and count them.
    label_names
        Names of labels that are integers in the examples or LABEL_0 and so on in the model, in order from 0.
    max_loss
        With int8: the largest loss of the metric on the examples that is accepted, such as 0.01.
    """
    from bertkit.cli.labeled_files import columns_of, note_reading
    from bertkit.cli.models import Compute, change_trained, open_model
    from bertkit.export import examples_for, export_model
    from bertkit.files import BadRows

    if (columns or snap_spans) and examples is None:
        raise UsageError(f"--{'columns' if columns else 'snap-spans'} is for reading a file: give one with --examples")
    opened, rows = open_model(model, Compute(device="cpu")), []
    change_trained(opened, words=words, label_names=label_names, are_of_data=examples is not None)
    if examples is not None:
        reading = {"snap_spans": snap_spans, "class_names": label_names}
        reading, bad_rows = {name: value for name, value in reading.items() if value}, BadRows()
        rows = examples_for(opened, examples, columns_of(columns), bad_rows=bad_rows, **reading)
        note_reading(bad_rows)
    exported = export_model(opened, out, format, precision=precision, examples=rows, max_loss=max_loss)
    emit(
        [
            {
                "folder": str(out),
                "task": exported.task,
                "precision": exported.precision,
                "outputs": list(exported.outputs),
                "checked_with": exported.checked_with,
                "largest_difference": exported.largest_difference,
                **({} if exported.accuracy is None else asdict(exported.accuracy)),
            }
        ]
    )
