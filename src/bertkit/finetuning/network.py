"""Initial model of fine-tuning: a published encoder with a new head, or the stored one; learning rates by layer."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from bertkit.architectures import Network, initialize
from bertkit.checkpoint import SentenceSettings, open_checkpoint
from bertkit.checkpoint.checkpoint import Checkpoint, TrainedTask
from bertkit.errors import MissingHeadError, UsageError
from bertkit.finetuning.settings import FinetuningSettings
from bertkit.heads import DenseLayer, Projection, poolings_of
from bertkit.locate import locate
from bertkit.model import Model
from bertkit.tasks import TextTask
from bertkit.tasks.sentence_vectors import VECTOR_HEAD
from bertkit.tokenizer.layout import Layout
from bertkit.transformer import Encoder

_MOST_NAMED = 8  # labels in a line of the log


def model_to_train(
    name: str, task: TextTask, settings: FinetuningSettings, log_line: Callable[[str], None], example: Any = None
) -> Model:
    """The encoder of a published model with a head for the task, on the CPU.

    The head is the stored one if it was trained for the same task and labels, in any order, unless ``settings`` ask for
    a new one; else it is new and randomly initialized. With ``settings.head`` "fitted" a new head uses what the encoder
    was trained with: the pooling of a sentence encoder; the pooler and the published class if the pooler was trained;
    else the mean of the tokens. Which of both it is, is logged where a head is stored.

    Args:
        example: a training example, which shows whether texts come in pairs.

    Raises:
        CheckpointError: no such model.
        UsageError: a length beyond the model's limit.
    """
    checkpoint, task = _with_stored_head(name, task, settings, log_line, example) or _with_new_head(
        name, task, settings, log_line, example
    )
    if task.vector_width is not None:
        _add_dense(checkpoint, task.vector_width, settings.training.seed)
    model = Model(checkpoint)
    checkpoint.label_names, checkpoint.score_activation = task.label_names, task.score_activation
    vectors = model.sentence_settings if task.head in ("", VECTOR_HEAD) else None
    if vectors is not None:
        normalize = vectors.normalize if task.unit_vectors is None else task.unit_vectors
        max_seq_length = settings.max_length or vectors.max_seq_length
        vectors = replace(
            vectors, normalize=normalize, max_seq_length=max_seq_length, prompts=vectors.prompts | task.prompts
        )
        if not task.head:
            model.network.normalize = normalize
    model.checkpoint.sentence, model.checkpoint.problem_type = vectors, task.problem_type
    longest = model.config.max_position_embeddings
    if settings.max_length is not None and settings.max_length > longest:
        raise UsageError(f"max_length={settings.max_length}: expected at most {longest}, this model's positions")
    usual = vectors.max_seq_length if vectors is not None and not task.head else None
    layout = Layout(
        settings.max_length or min(usual or longest, longest), settings.on_long or task.on_long, settings.stride
    )
    model.checkpoint.trained = TrainedTask(task, layout)
    return model


def _add_dense(checkpoint: Checkpoint, width: int, seed: int) -> None:
    """Add a linear layer with initial weights that changes sentence vectors to this width, unless they have it."""
    network, sentence = checkpoint.network, checkpoint.sentence or SentenceSettings()
    if network.projection.width == width:
        return
    layers = (*sentence.layers, DenseLayer(network.projection.width, width, activation="Identity"))
    stored = network.projection.state_dict()
    network.projection = Projection(layers, network.config.hidden_size * len(poolings_of(sentence.pooling)))
    initialize(network.projection[-1], network.config, seed)
    network.projection.load_state_dict(stored, strict=False)
    checkpoint.sentence = replace(sentence, layers=layers)


def _with_stored_head(
    name: str, task: TextTask, settings: FinetuningSettings, log_line: Callable[[str], None], example: Any
) -> tuple[Checkpoint, TextTask] | None:
    """The model with its stored head, and the task with a head of this form; None: a new head is needed."""
    if settings.new_head or settings.head == "drawn" or not task.head:
        return None
    over_vectors = _over_vectors(task, settings, example) if settings.head == "fitted" else None
    for form in filter(None, (task, over_vectors)):
        try:
            checkpoint = open_checkpoint(locate(name), heads=[form.head])
        except MissingHeadError:
            continue
        if form.head not in checkpoint.trained_heads():
            return None
        stored = None if checkpoint.trained is None else checkpoint.trained.task
        has_form = stored is None or _num_vectors(stored) == _num_vectors(form)
        if has_form and form.adopt_head(checkpoint.network.heads[form.head], stored):
            log_line(f"the head of {name} was trained for {_purpose(form)}, too: it is kept (--new-head replaces it)")
            return checkpoint, form
        purpose = ", ".join(checkpoint.label_names or ()) if stored is None else _purpose(stored)
        log_line(f"a new head for {_purpose(form)} replaces that of {name} for {purpose}: none of its rows is reused")
    return None


def _purpose(task: TextTask) -> str:
    """A task and its labels, in a line of the log."""
    names, purpose = task.known_labels or (), task.name + " of pairs" * (_num_vectors(task) == 2)
    return f"{purpose} ({', '.join(names[:_MOST_NAMED])}{', ...' * (len(names) > _MOST_NAMED)})" if names else purpose


def _num_vectors(task: TextTask) -> int:
    return getattr(task, "num_vectors", 0)


def _with_new_head(
    name: str, task: TextTask, settings: FinetuningSettings, log_line: Callable[[str], None], example: Any
) -> tuple[Checkpoint, TextTask]:
    """The model with a randomly initialized head, and the task with a head of this form."""
    if settings.head == "fitted" and task.head:
        task = _with_trained_pooling(name, task, settings, example)
    options: dict[str, Any] = {"label_names": task.label_names, "seed": settings.training.seed}
    options["num_vectors"] = 2 if _num_vectors(task) == 2 else 1
    options["siamese"] = getattr(task, "is_siamese", False)
    directory, new = locate(name), [task.head] if task.head else []
    try:
        return open_checkpoint(directory, heads=new[:1], new=new, **options), task
    except MissingHeadError:  # without a pooler
        new.append("pooler")
        checkpoint = open_checkpoint(directory, heads=new[:1], new=new, **options)
        log_line(f"{name} has no pooler: a new one is trained")
        return checkpoint, task


def what_head_reads(model: Model) -> str:
    """Description of the input of a model's head."""
    task, network = model.trained.task, model.network
    if task.head in ("", VECTOR_HEAD):
        pooling = model.sentence_settings.pooling
        return _POOLING_NAMES.get(pooling, pooling)
    taken = network.architecture.heads[task.head].input(network.config)
    return _POOLING_NAMES.get(taken, taken)


_POOLING_NAMES = {
    "mean": "mean of the tokens", "cls": "[CLS]", "pooler": "[CLS] and pooler", "tokens": "each token",
    "max": "maximum of the tokens",
}  # fmt: skip


def _over_vectors(task: TextTask, settings: FinetuningSettings, example: Any) -> TextTask | None:
    """The task with a head over sentence vectors; None: not supported for such examples and settings."""
    over_vectors: Any = task.over_vectors(example)
    if over_vectors is not None and over_vectors.num_vectors == 2 and (settings.on_long or task.on_long) == "window":
        return None  # a window contains parts of both texts
    return over_vectors


def _with_trained_pooling(name: str, task: TextTask, settings: FinetuningSettings, example: Any) -> TextTask:
    """The task with a head over sentence vectors, unless the published head uses a trained pooler."""
    over_vectors = _over_vectors(task, settings, example)
    if over_vectors is None:
        return task
    encoder = open_checkpoint(locate(name), heads=())
    is_trained = encoder.network.encoder.pooler is not None
    if is_trained:
        try:
            encoder.require_trained("pooler")
        except MissingHeadError:
            is_trained = False
    if encoder.sentence is not None:
        return over_vectors if not encoder.sentence.layers else task  # layers that the head over vectors does not apply
    return task if is_trained else over_vectors


def check_frozen_layers(model: Model, num_layers: int | None) -> None:
    """Raise a UsageError if more layers are to be frozen than the model has, or only some that share weights."""
    if num_layers is None:
        return
    layers = [id(layer) for layer in model.network.encoder.in_order()]
    if num_layers > len(layers):
        raise UsageError(f"frozen_layers={num_layers}: this model has {len(layers)} layers")
    possible = [number for number in range(len(layers) + 1) if set(layers[:number]).isdisjoint(layers[number:])]
    if num_layers not in possible:
        raise UsageError(
            f"frozen_layers={num_layers}: this model's layers share weights; expected {', '.join(map(str, possible))}"
        )


def freeze(model: Model, num_layers: int | None) -> None:
    """Freeze the embeddings, with those of relative positions, and the lowest ``num_layers`` layers; None freezes
    nothing."""
    if num_layers is None:
        return
    encoder, embeddings = model.network.encoder, model.network.architecture.embedding_parts
    for name, parameter in encoder.named_parameters():
        if name.startswith(embeddings) or _depth_of(name, encoder, num_layers) < num_layers:
            parameter.requires_grad = False


def rate_factor(network: Network, layer_decay: float, of_head: float = 1.0) -> Callable[[str], float]:
    """Factor of the learning rate for each parameter name of a network: ``of_head`` in the head, 1 above the layers,
    and in each layer, and in the embeddings, ``layer_decay`` times that above it.

    Layers that share weights have the factor of the highest of them.
    """
    encoder, embeddings = network.encoder, network.architecture.embedding_parts
    num_layers = len(encoder.in_order())

    def factor(name: str) -> float:
        if name.startswith("heads."):
            return of_head
        if name.removeprefix("encoder.").startswith(embeddings):
            return layer_decay ** (num_layers + 1)
        return layer_decay ** (num_layers - _depth_of(name, encoder, num_layers))

    return factor


def _depth_of(name: str, encoder: Encoder, default: int) -> int:
    """Number of layers below that of a parameter, or below the highest of those that share it; the default for one that
    is in no layer."""
    match = re.search(r"\blayers\.(\d+)\.", name)
    if match is None:
        return default
    own = encoder.layers[int(match.group(1))]
    return max(number for number, layer in enumerate(encoder.in_order()) if layer is own)
