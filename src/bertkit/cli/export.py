"""bertkit export"""

from pathlib import Path

from bertkit.cli.output import emit


def command(
    *,
    model: str,
    out: Path,
    format: str = "onnx",
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
    """
    from bertkit.export import export_model
    from bertkit.model import load

    exported = export_model(load(model, device="cpu"), out, format)
    emit(
        [
            {
                "folder": str(out),
                "task": exported.task,
                "precision": exported.precision,
                "outputs": list(exported.outputs),
                "checked_with": exported.checked_with,
                "largest_difference": exported.largest_difference,
            }
        ]
    )
