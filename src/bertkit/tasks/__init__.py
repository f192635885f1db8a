"""Tasks: encoding, loss, predictions and metrics, one file for each task.

Takes: examples; a network's output for a batch, and the batch's labels.
Gives: encodings with labels; the loss, and sums from which the metrics come; typed predictions and their metrics.
May import: later, errors, files, compiled, randomness, tokenizer, batch, transformer, heads, architectures.
"""

from bertkit.tasks.alignment import Alignment, TaughtText
from bertkit.tasks.cross_encoder import CrossEncoding, TextScores
from bertkit.tasks.example_file import ExampleFile
from bertkit.tasks.examples import ChoiceQuestion, Question, TaggedText, TextExample, TextSet
from bertkit.tasks.few_shot import FewShotClassification
from bertkit.tasks.judged import JudgedTask
from bertkit.tasks.losses import OBJECTIVES, BatchLoss, ScoreLoss, SentenceLoss, loss_parameter
from bertkit.tasks.metrics import METRICS, Metric, metric_of
from bertkit.tasks.multiple_choice import ChoicePrediction, MultipleChoice
from bertkit.tasks.question_answering import Answer, AnswerPrediction, QuestionAnswering
from bertkit.tasks.registry import (
    TASKS,
    judged_tasks,
    published_task,
    read_examples,
    stored_task,
    task_kind,
    task_settings,
)
from bertkit.tasks.regression import LevelPrediction, OrdinalRegression, Regression, ScorePrediction
from bertkit.tasks.scorer import Scorer
from bertkit.tasks.sequence_classification import (
    LabelPrediction,
    LabelsPrediction,
    MultiLabelClassification,
    SequenceClassification,
)
from bertkit.tasks.siamese import SiameseClassification
from bertkit.tasks.similarity import Similarity, SimilarityPrediction
from bertkit.tasks.task import Loss, Task, TextTask
from bertkit.tasks.token_classification import EntityFound, TagsPrediction, TokenClassification

__all__ = [
    "METRICS",
    "OBJECTIVES",
    "TASKS",
    "Alignment",
    "Answer",
    "AnswerPrediction",
    "BatchLoss",
    "ChoicePrediction",
    "ChoiceQuestion",
    "CrossEncoding",
    "EntityFound",
    "ExampleFile",
    "FewShotClassification",
    "JudgedTask",
    "LabelPrediction",
    "LabelsPrediction",
    "LevelPrediction",
    "Loss",
    "Metric",
    "MultiLabelClassification",
    "MultipleChoice",
    "OrdinalRegression",
    "Question",
    "QuestionAnswering",
    "Regression",
    "ScoreLoss",
    "ScorePrediction",
    "Scorer",
    "SentenceLoss",
    "SequenceClassification",
    "SiameseClassification",
    "Similarity",
    "SimilarityPrediction",
    "TaggedText",
    "TagsPrediction",
    "Task",
    "TaughtText",
    "TextExample",
    "TextScores",
    "TextSet",
    "TextTask",
    "TokenClassification",
    "judged_tasks",
    "loss_parameter",
    "metric_of",
    "published_task",
    "read_examples",
    "stored_task",
    "task_kind",
    "task_settings",
]
