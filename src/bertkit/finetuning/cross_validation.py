"""Training data before training: every row predicted by a head that was fitted to other rows, on frozen features."""

from collections.abc import Sequence
from typing import Any

from bertkit.device import resolve_device
from bertkit.errors import DataError
from bertkit.evidence.outcomes import OutcomeArrays, Outcomes, judged_task
from bertkit.evidence.training_data import TrainingData, training_data_of
from bertkit.finetuning.fitted_head import FrozenFeatures, best_penalty, folds_of
from bertkit.finetuning.network import model_to_train
from bertkit.finetuning.settings import FinetuningSettings
from bertkit.tasks import task_kind

_FEWEST_ROWS = 10
_ITERATIONS = 100


def check_training_data(
    model: str, task: str, examples: Sequence[Any], *, precision: str = "float32", device: str = "auto"
) -> TrainingData:
    """Rare labels, repeated texts and likely label errors of the training data of a classifier or a tagger.

    Args:
        model: a published model, whose frozen features are used.
        task: a name of TASKS.
        precision: of the encoder, "float32" or "bfloat16".

    Raises:
        DataError: labels that cannot be learned, or fewer than ten rows.
        UsageError: a task that is neither a classifier's nor a tagger's.
    """
    if len(examples) < _FEWEST_ROWS:
        raise DataError(f"there are {len(examples)} rows: expected {_FEWEST_ROWS} or more to compare labels")
    shown = judged_task(task_kind(task).of_examples(examples, {}))
    network = model_to_train(model, shown, FinetuningSettings(), lambda line: None, examples[0])
    network.network.to(resolve_device(device))
    features = FrozenFeatures.of(network, examples, precision)
    penalty, _, _ = best_penalty(features)
    judged: Any = features.task
    arrays, order = OutcomeArrays(judged), []
    for kept, held_out in folds_of(features, all_rows=True):
        some, encodings, logits = features.logits(held_out, features.fit(kept, penalty, _ITERATIONS))
        arrays.decode(some, encodings, logits)
        order += some
    outcomes = Outcomes(judged, order, judged.truth(order), *arrays.arrays())
    return training_data_of(outcomes, examples)
