"""bertkit export"""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from bertkit.cli.output import OutPath, emit
from bertkit.errors import UsageError


def command(
    *,
    model: str,
    out: OutPath,
    format: str = "onnx",
    precision: str = "float32",
    examples: Path | None = None,
    columns: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    max_loss: float | None = None,
) -> None:
    """Export a model for runtimes without torch: a graph of its encoder with pooling or head, and its tokenizer.

    The graph is run on sample texts and refused if its outputs differ from the model's.

    Parameters
    ----------
    model
        A folder, a hub name, or the import name of an installed model package.
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
    max_loss
        With int8: the largest loss of the metric on the examples that is accepted, such as 0.01.
    """
    from bertkit.cli.labeled_files import columns_of
    from bertkit.cli.models import refuse_encoder_decoder
    from bertkit.export import examples_for, export_model
    from bertkit.model import load

    if columns and examples is None:
        raise UsageError("--columns names columns of a file: give one with --examples")
    refuse_encoder_decoder(model)
    opened = load(model, device="cpu")
    given = examples_for(opened, examples, columns_of(columns)) if examples is not None else ()
    exported = export_model(opened, out, format, precision=precision, examples=given, max_loss=max_loss)
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
