"""The model that fine-tuning starts from: a published encoder with a new head, and which weights learn how fast."""

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from torch import Tensor

from bertkit.batch import Batch, LabeledEncodings
from bertkit.checkpoint.checkpoint import TrainedTask
from bertkit.errors import MissingHeadError, UsageError
from bertkit.finetuning.settings import FinetuningSettings
from bertkit.inference import Runner
from bertkit.model import Model, load
from bertkit.tasks import TextTask
from bertkit.tokenizer.layout import Layout
from bertkit.training import without_dropout


def model_to_train(name: str, task: TextTask, settings: FinetuningSettings, log_line: Callable[[str], None]) -> Model:
    """The encoder of a published model with a new head for the task, on the CPU.

    Raises:
        CheckpointError: no such model.
        UsageError: a length that the model does not take.
    """
    new = [task.head] if task.head else []
    try:
        model = load(name, heads=new, new=new, label_names=task.label_names, device="cpu", seed=settings.seed)
    except MissingHeadError:  # without a pooler
        new.append("pooler")
        model = load(name, heads=new[:1], new=new, label_names=task.label_names, device="cpu", seed=settings.seed)
        log_line(f"{name} has no pooler: a new one is trained")
    vectors = model.sentence_settings if task.of_vectors else None
    if vectors is not None:
        normalize = vectors.normalize or task.unit_vectors
        max_seq_length = settings.max_length or vectors.max_seq_length
        vectors = replace(
            vectors, normalize=normalize, max_seq_length=max_seq_length, prompts=vectors.prompts | task.prompts
        )
    model.checkpoint.sentence, model.checkpoint.problem_type = vectors, task.problem_type
    longest = model.config.max_position_embeddings
    if settings.max_length is not None and settings.max_length > longest:
        raise UsageError(f"max_length={settings.max_length}: this model has {longest} positions")
    usual = vectors.max_seq_length if vectors is not None and not task.head else None
    layout = Layout(
        settings.max_length or min(usual or longest, longest), settings.on_long or task.on_long, settings.stride
    )
    model.checkpoint.trained = TrainedTask(task, layout)
    return model


def freeze(model: Model, num_layers: int | None) -> None:
    """Freeze the embeddings and the lowest ``num_layers`` layers; None freezes nothing.

    Raises:
        UsageError: more layers than there are.
    """
    if num_layers is None:
        return
    if num_layers > model.config.num_hidden_layers:
        raise UsageError(f"frozen_layers={num_layers}: this model has {model.config.num_hidden_layers} layers")
    for name, parameter in model.network.encoder.named_parameters():
        if name.startswith("embeddings.") or _layer_of(name, num_layers) < num_layers:
            parameter.requires_grad = False


def rate_factor(num_layers: int, layer_decay: float) -> Callable[[str], float]:
    """The share of the learning rate that a parameter has by its name: 1 above the layers, ``layer_decay`` to the
    power of its depth below."""

    def factor(name: str) -> float:
        if name.startswith("encoder.embeddings."):
            return layer_decay ** (num_layers + 1)
        return layer_decay ** (num_layers - _layer_of(name, num_layers))

    return factor


def _layer_of(name: str, default: int) -> int:
    match = re.search(r"\blayers\.(\d+)\.", name)
    return default if match is None else int(match.group(1))


def fit_head(model: Model, data: LabeledEncodings) -> None:
    """Fit the weights of the head that are not trained by gradients to the encoder as it is now."""

    def encode(read: Callable[..., Tensor]) -> Tensor:
        runner = Runner(model.network, model.tokenizer, model.encoder)

        def forward(batch: Batch, indices: np.ndarray) -> Tensor:
            return read(runner.encoder(batch, with_pooled=False), batch).float().cpu()

        return runner.run(data.encodings, forward)

    with without_dropout(model.network):
        model.trained.task.fit_head(model.network, encode, data.labels)
