"""Tasks: encoding, loss, predictions and metrics, one file for each task.

Takes: examples; a network's output for a batch, and the batch's labels.
Gives: encodings with labels; the loss, and sums from which the metrics come; typed predictions and their metrics.
May import: later, errors, files, compiled, randomness, tokenizer, batch, transformer, heads, architectures.
"""

from typing import TYPE_CHECKING

from bertkit.later import on_demand

if TYPE_CHECKING:
    from bertkit.tasks.alignment import Alignment as Alignment
    from bertkit.tasks.cross_encoder import CrossEncoding as CrossEncoding
    from bertkit.tasks.cross_encoder import TextScores as TextScores
    from bertkit.tasks.example_file import ExampleFile as ExampleFile
    from bertkit.tasks.example_file import GuessRank as GuessRank
    from bertkit.tasks.examples import ChoiceQuestion as ChoiceQuestion
    from bertkit.tasks.examples import Question as Question
    from bertkit.tasks.examples import SequenceExample as SequenceExample
    from bertkit.tasks.examples import TaggedText as TaggedText
    from bertkit.tasks.examples import TaughtText as TaughtText
    from bertkit.tasks.examples import TextExample as TextExample
    from bertkit.tasks.examples import TextSet as TextSet
    from bertkit.tasks.few_shot import FewShotClassification as FewShotClassification
    from bertkit.tasks.field_types import NotNegative as NotNegative
    from bertkit.tasks.field_types import Range as Range
    from bertkit.tasks.generative import GenerativeTask as GenerativeTask
    from bertkit.tasks.judged import JudgedTask as JudgedTask
    from bertkit.tasks.loss import Loss as Loss
    from bertkit.tasks.loss import LossFunction as LossFunction
    from bertkit.tasks.loss import Task as Task
    from bertkit.tasks.losses import OBJECTIVES as OBJECTIVES
    from bertkit.tasks.losses import BatchLoss as BatchLoss
    from bertkit.tasks.losses import ScoreLoss as ScoreLoss
    from bertkit.tasks.losses import SentenceLoss as SentenceLoss
    from bertkit.tasks.losses import loss_parameter as loss_parameter
    from bertkit.tasks.metrics import METRICS as METRICS
    from bertkit.tasks.metrics import Metric as Metric
    from bertkit.tasks.metrics import metric_of as metric_of
    from bertkit.tasks.multiple_choice import ChoicePrediction as ChoicePrediction
    from bertkit.tasks.multiple_choice import MultipleChoice as MultipleChoice
    from bertkit.tasks.question_answering import Answer as Answer
    from bertkit.tasks.question_answering import AnswerPrediction as AnswerPrediction
    from bertkit.tasks.question_answering import QuestionAnswering as QuestionAnswering
    from bertkit.tasks.registry import TASKS as TASKS
    from bertkit.tasks.registry import published_task as published_task
    from bertkit.tasks.registry import read_examples as read_examples
    from bertkit.tasks.registry import stored_task as stored_task
    from bertkit.tasks.registry import task_kind as task_kind
    from bertkit.tasks.registry import task_settings as task_settings
    from bertkit.tasks.registry import tasks_of as tasks_of
    from bertkit.tasks.regression import LevelPrediction as LevelPrediction
    from bertkit.tasks.regression import OrdinalRegression as OrdinalRegression
    from bertkit.tasks.regression import Regression as Regression
    from bertkit.tasks.regression import ScorePrediction as ScorePrediction
    from bertkit.tasks.scorer import Scorer as Scorer
    from bertkit.tasks.sequence_classification import LabelPrediction as LabelPrediction
    from bertkit.tasks.sequence_classification import LabelsPrediction as LabelsPrediction
    from bertkit.tasks.sequence_classification import MultiLabelClassification as MultiLabelClassification
    from bertkit.tasks.sequence_classification import SequenceClassification as SequenceClassification
    from bertkit.tasks.siamese import SiameseClassification as SiameseClassification
    from bertkit.tasks.similarity import Similarity as Similarity
    from bertkit.tasks.similarity import SimilarityPrediction as SimilarityPrediction
    from bertkit.tasks.task import RowTask as RowTask
    from bertkit.tasks.task import TextTask as TextTask
    from bertkit.tasks.token_classification import EntityFound as EntityFound
    from bertkit.tasks.token_classification import TagsPrediction as TagsPrediction
    from bertkit.tasks.token_classification import TokenClassification as TokenClassification

__getattr__, __dir__ = on_demand(__name__)
