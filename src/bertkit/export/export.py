"""Export a model: write its graph, run it in its runtime, and compare the outputs with the model's own."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bertkit.errors import UsageError
from bertkit.export.comparison import difference, pad_token_id
from bertkit.export.graph import OPSET, Graph
from bertkit.export.network import graph_of
from bertkit.export.runtimes import FORMATS, Runtime, check_format, convert
from bertkit.files.json_files import write_json
from bertkit.files.whole_files import whole_folder
from bertkit.heads import HEADS, HEADS_WITH_LABELS
from bertkit.inference import Runner
from bertkit.inference.embed import max_sequence_length
from bertkit.model import Model
from bertkit.tasks import task_settings
from bertkit.tokenizer.layout import Layout
from bertkit.version import __version__

LARGEST_DIFFERENCE = 1e-5
"""Bound of the difference between the outputs of the runtime and ours, relative to the largest output."""

PRECISIONS = ("float32", "int8")


@dataclass(frozen=True)
class Exported:
    """An export, as described in its ``export.json``."""

    format: str
    file: str  # name of the file with the graph
    precision: str
    architecture: str
    task: str  # name of a task or of a head; "embed": vectors of texts
    inputs: dict[str, list[int | str]]  # name -> shape; int64
    outputs: dict[str, list[int | str]]  # name -> shape; float32
    label_names: list[str] | None  # of the logits, in order
    task_settings: dict[str, Any]
    max_length: int  # tokens of the longest sequence, special tokens included
    pad_token_id: int
    prompts: dict[str, str]  # prefixes of texts by name
    default_prompt_name: str | None
    similarity: str | None  # of vectors
    score_activation: str | None  # from logits to the scores of a cross-encoder
    opset: int
    made_by: str
    checked_with: str  # the runtime
    largest_difference: float  # between its outputs and those of bertkit, relative to the largest


def export_model(model: Model, directory: str | Path, format: str = "onnx", *, precision: str = "float32") -> Exported:
    """Write a folder with the graph of a model, ``tokenizer.json`` and ``export.json``, atomically.

    The graph is that of the head of the model's task, else of its sentence vectors, with any numbers of texts and
    tokens. It is run in its runtime and compared with the model.

    Args:
        format: "onnx" or "openvino".

    Raises:
        UsageError: an unknown format, a directory that is not empty, a model that cannot be exported, or outputs that
            differ by more than LARGEST_DIFFERENCE.
        MissingHeadError: a head that was never trained.
        DependencyError: a package that is not installed.
    """
    check_format(format)
    if precision not in PRECISIONS:
        raise UsageError(f"precision={precision!r}: expected one of {', '.join(PRECISIONS)}")
    with whole_folder(directory) as folder:
        head = output_of(model)
        graph = graph_of(model.network, head, model.sentence_settings.layers)
        path = folder / FORMATS[format].file
        graph.save(folder / "model.onnx")
        if format != "onnx":
            convert(folder / "model.onnx", path)
            for file in folder.glob("model.onnx*"):
                file.unlink()
        runtime = FORMATS[format].load(path)
        exported = _described(model, head, graph, format, precision, runtime)
        model.tokenizer.save(folder)
        write_json(folder / "export.json", asdict(exported))
    return exported


def output_of(model: Model) -> str:
    """The head whose logits a graph computes; "": sentence vectors.

    Raises:
        MissingHeadError: the head of the model's task was never trained.
        UsageError: a late interaction model.
    """
    checkpoint, usable = model.checkpoint, model.checkpoint.trained_heads()
    if checkpoint.late is not None:
        raise UsageError("late interaction models cannot be exported: supported are encoders of a vector for each text")
    head = None if checkpoint.trained is None else checkpoint.trained.task.head
    if head:
        checkpoint.require_trained(head)
        if head not in usable:
            checkpoint.require_trained("pooler")
        return head
    if head is None and checkpoint.sentence is None:
        return next((name for name in HEADS if name in usable), "")
    if not model.sentence_settings.include_prompt and any(model.sentence_settings.prompts.values()):
        raise UsageError("this model does not pool the tokens of its prompts, which an exported graph cannot express")
    return ""


def _described(model: Model, head: str, graph: Graph, format: str, precision: str, runtime: Runtime) -> Exported:
    """Compare the outputs, and describe the export.

    Raises:
        UsageError: outputs that differ by more than LARGEST_DIFFERENCE.
    """
    checkpoint, settings = model.checkpoint, model.sentence_settings
    layout = checkpoint.trained.layout if head and checkpoint.trained else Layout(None)
    runner = Runner(model.network, model.tokenizer, model.encoder)
    longest = layout.max_length or max_sequence_length(runner, settings, None)
    largest = difference(runtime, model, head, list(graph.inputs), longest)
    if largest > LARGEST_DIFFERENCE:
        raise UsageError(
            f"the outputs of {runtime.name} differ from the model's by {largest:.1e} of the largest, expected at most "
            f"{LARGEST_DIFFERENCE:g}: nothing was written; please report this model"
        )
    return Exported(
        format=format,
        file=FORMATS[format].file,
        precision=precision,
        architecture=model.network.architecture.model_type,
        task=checkpoint.trained.task.name if checkpoint.trained else head or "embed",
        inputs=graph.inputs,
        outputs=graph.outputs,
        label_names=list(checkpoint.label_names) if head in HEADS_WITH_LABELS and checkpoint.label_names else None,
        task_settings=task_settings(checkpoint.trained.task) if head and checkpoint.trained else {},
        max_length=longest,
        pad_token_id=pad_token_id(model),
        prompts={} if head else settings.prompts,
        default_prompt_name=None if head else settings.default_prompt_name,
        similarity=None if head else settings.similarity,
        score_activation=checkpoint.score_activation,
        opset=OPSET,
        made_by=f"bertkit {__version__}",
        checked_with=runtime.name,
        largest_difference=largest,
    )
