"""Export a model: write its graph, run it in its runtime, and compare the outputs with the model's own."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bertkit.errors import UsageError
from bertkit.export.accuracy import Accuracy, accuracy_of, kind_of_examples
from bertkit.export.comparison import difference, pad_token_id
from bertkit.export.graph import OPSET, Graph
from bertkit.export.network import graph_of
from bertkit.export.runtimes import FORMATS, Runtime, check_format, convert, quantize
from bertkit.files import BadRows
from bertkit.files.json_files import write_json
from bertkit.files.whole_files import whole_folder
from bertkit.heads import HEADS, HEADS_WITH_LABELS
from bertkit.inference import Runner
from bertkit.inference.embed import max_sequence_length
from bertkit.inference.score_pairs import HEAD as PAIRS_HEAD
from bertkit.model import Model, check_model
from bertkit.tasks import ExampleFile, task_settings
from bertkit.tasks.example_file import labeled_file
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
    accuracy: Accuracy | None  # int8: on labeled examples


def export_model(
    model: Model,
    directory: str | Path,
    format: str = "onnx",
    *,
    precision: str = "float32",
    examples: Sequence[Any] = (),
    max_loss: float | None = None,
) -> Exported:
    """Write a folder with the graph of a model, ``tokenizer.json`` and ``export.json``, atomically.

    The graph is that of the head of the model's task, else of its sentence vectors, with any numbers of texts and
    tokens. It is run in its runtime and compared with the model.

    Args:
        format: "onnx" or "openvino".
        precision: "float32" or "int8". In int8, the weights of the graph are rounded once, and activations as it runs,
            by onnxruntime; its outputs for a text depend on the texts in the same call.
        examples: for int8: labeled examples of the model's task; for sentence encoders and cross-encoders scored pairs.
        max_loss: for int8: the largest loss of the metric on the examples that is accepted, such as 0.01.

    Raises:
        UsageError: an unknown format, a directory that is not empty, a model that cannot be exported, outputs in
            float32 that differ by more than LARGEST_DIFFERENCE, or an int8 graph that loses more than ``max_loss``.
        MissingHeadError: a head that was never trained.
        DependencyError: a package that is not installed.
    """
    check_model(model)
    check_format(format)
    head = output_of(model)
    _check_precision(model, head, precision, examples, max_loss)
    with whole_folder(directory) as folder:
        graph = graph_of(model.network, head, model.sentence_settings.layers)
        path, onnx = folder / FORMATS[format].file, folder / "model.onnx"
        graph.save(onnx)
        if precision == "int8":
            _checked(model, head, graph, FORMATS["onnx"].load(onnx))
            quantize(onnx)
        if format != "onnx":
            convert(onnx, path)
            for file in folder.glob("model.onnx*"):
                file.unlink()
        runtime = FORMATS[format].load(path)
        if precision == "int8":
            names, longest = list(graph.inputs), _longest(model, head)
            largest = difference(runtime, model, head, names, longest)
            accuracy = accuracy_of(runtime, model, head, names, longest, examples)
            _require_accurate(accuracy, max_loss)
        else:
            largest, accuracy = _checked(model, head, graph, runtime), None
        exported = _described(model, head, graph, format, precision, runtime.name, largest, accuracy)
        model.tokenizer.save(folder, with_types="token_type_ids" in graph.inputs)
        write_json(folder / "export.json", asdict(exported))
    return exported


def examples_for(
    model: Model,
    path: str | Path,
    columns: Mapping[str, str] | None = None,
    *,
    bad_rows: BadRows | None = None,
    **reading: Any,
) -> list[Any]:
    """Read the examples on which the int8 export of a model is measured: labeled examples of its task, or scored pairs.

    Args:
        path: csv, tsv, jsonl or parquet; for taggers also CoNLL.
        columns: columns by role, where their names are not recognized.
        bad_rows: receives unusable rows, and notes; None: such a row is an error.
        reading: for examples of the model's task, further arguments of `labeled_file`.

    Raises:
        UsageError: a model whose accuracy is not measured, or arguments that its examples do not have.
        DataError: a row that cannot be used.
    """
    kind, trained = kind_of_examples(model, output_of(model)), model.checkpoint.trained
    if trained is not None and kind is type(trained.task):
        return list(kind.read(labeled_file(trained.task, path, columns=columns or {}, bad_rows=bad_rows, **reading)))
    if reading:
        raise UsageError(f"{' and '.join(reading)}: the examples of this model are scored pairs, without labels")
    return list(kind.read(ExampleFile(path, True, columns or {}, bad_rows=bad_rows)))


def _check_precision(model: Model, head: str, precision: str, examples: Sequence[Any], max_loss: float | None) -> None:
    """Check the options of a precision.

    Raises:
        UsageError: an unknown precision, or int8 without examples, without a bound, or for a model without a metric.
    """
    if precision not in PRECISIONS:
        raise UsageError(f"precision={precision!r}: expected one of {', '.join(PRECISIONS)}")
    if precision == "int8":
        kind_of_examples(model, head)
        if not examples or max_loss is None or not 0 <= max_loss < float("inf"):
            raise UsageError(
                f"precision='int8' with {len(examples)} examples and max_loss={max_loss}: expected examples, and the "
                "loss of their metric to accept, such as 0.01"
            )
    elif examples or max_loss is not None:
        raise UsageError("examples and max_loss are for precision='int8': float32 outputs equal the model's")


def _require_accurate(accuracy: Accuracy, max_loss: float | None) -> None:
    """Raise a UsageError if more than ``max_loss`` is lost."""
    if max_loss is None or not accuracy.loss <= max_loss:
        raise UsageError(
            f"in int8 the model loses {accuracy.loss:.4f} {accuracy.metric} on {accuracy.num_examples} examples (95 % "
            f"interval {accuracy.low:.4f} to {accuracy.high:.4f}; {accuracy.model:.4f} to {accuracy.exported:.4f}), "
            f"expected at most {max_loss:g}: nothing was written; accept more, or export in float32"
        )


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
    if model.sentence_settings.truncate_dim:
        raise UsageError(
            f"this model keeps {model.sentence_settings.truncate_dim} components of its vectors (truncate_dim in "
            "config_sentence_transformers.json), which a graph cannot express: remove truncate_dim, and shorten the "
            "vectors of the graph"
        )
    if not model.sentence_settings.include_prompt and any(model.sentence_settings.prompts.values()):
        raise UsageError("this model does not pool the tokens of its prompts, which an exported graph cannot express")
    return ""


def _longest(model: Model, head: str) -> int:
    """Tokens of the longest sequence."""
    layout = model.checkpoint.trained.layout if head and model.checkpoint.trained else Layout(None)
    runner = Runner(model.network, model.tokenizer, model.encoder)
    return layout.max_length or max_sequence_length(runner, model.sentence_settings, None)


def _score_activation(model: Model, head: str) -> str | None:
    """The activation that `Model.rank` applies to the logits; None: none is stored, and none is applied."""
    stored = model.checkpoint.score_activation
    if stored is not None or head != PAIRS_HEAD or model.checkpoint.trained:
        return stored
    layer: Any = model.network.heads[head]
    return "Sigmoid" if layer.classifier.out_features == 1 else None


def _checked(model: Model, head: str, graph: Graph, runtime: Runtime) -> float:
    """The largest difference between the outputs of a float32 graph and the model's.

    Raises:
        UsageError: it is more than LARGEST_DIFFERENCE.
    """
    largest = difference(runtime, model, head, list(graph.inputs), _longest(model, head))
    if largest > LARGEST_DIFFERENCE:
        raise UsageError(
            f"the outputs of {runtime.name} differ from the model's by {largest:.1e} of the largest, expected at most "
            f"{LARGEST_DIFFERENCE:g}: nothing was written; please report this model"
        )
    return largest


def _described(
    model: Model, head: str, graph: Graph, format: str, precision: str, runtime: str, largest: float,
    accuracy: Accuracy | None,
) -> Exported:  # fmt: skip
    checkpoint, settings = model.checkpoint, model.sentence_settings
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
        max_length=_longest(model, head),
        pad_token_id=pad_token_id(model),
        prompts={} if head else settings.prompts,
        default_prompt_name=None if head else settings.default_prompt_name,
        similarity=None if head else settings.similarity,
        score_activation=_score_activation(model, head),
        opset=OPSET,
        made_by=f"bertkit {__version__}",
        checked_with=runtime,
        largest_difference=largest,
        accuracy=accuracy,
    )
