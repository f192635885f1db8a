"""Check training data before training, by cross-validation of a classifier on frozen features."""

from collections.abc import Mapping, Sequence
from typing import Any

from bertkit.device import resolve_device
from bertkit.errors import DataError
from bertkit.evidence.outcomes import OutcomeArrays
from bertkit.evidence.training_data import TrainingData, training_data_of
from bertkit.finetuning.fitted_head import FrozenFeatures, best_penalty, folds_of
from bertkit.finetuning.network import model_to_train
from bertkit.finetuning.settings import FinetuningSettings
from bertkit.tasks import JudgedTask, task_kind

_FEWEST_ROWS = 10
_ITERATIONS = 100


def check_training_data(
    model: str,
    task: str,
    examples: Sequence[Any],
    *,
    options: Mapping[str, Any] = {},
    precision: str = "float32",
    device: str = "auto",
) -> TrainingData:
    """Check the training data of a classifier or tagger for rare labels, repeated texts and likely label errors.

    Rows with a label that no other row has, which training refuses, are counted and not predicted.

    Args:
        model: a published model, as the source of frozen features.
        task: the name of a `JudgedTask`.
        options: task options, such as the "levels" of ordinal regression.
        precision: precision of the encoder, "float32" or "bfloat16".

    Raises:
        DataError: unusable labels, or fewer than ten rows.
        UsageError: another task.
    """
    kind = task_kind(task, JudgedTask)
    if len(examples) < _FEWEST_ROWS:
        raise DataError(f"there are {len(examples)} rows: expected at least {_FEWEST_ROWS} to compare labels")
    usable, alone = kind.usable(examples)
    shown = kind.of_examples(usable or examples, options)
    network = model_to_train(model, shown, FinetuningSettings.of(new_head=True), lambda line: None, usable[0])
    network.network.to(resolve_device(device))
    features = FrozenFeatures.of(network, usable, precision)
    penalty, _, _ = best_penalty(features)
    judged: Any = features.task
    arrays, order = OutcomeArrays(judged), []
    for kept, held_out in folds_of(features, all_rows=True):
        some, encodings, logits = features.logits(held_out, features.fit(kept, penalty, _ITERATIONS))
        arrays.decode(some, encodings, logits)
        order += some
    return training_data_of(arrays.outcomes(order, judged.truth(order)), examples, num_alone=len(alone))
