"""bertkit: BERT from raw text to a running service.

Names are loaded when they are first used: importing bertkit imports neither torch nor numpy.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from bertkit.version import __version__

_HOMES = {
    "Batch": "bertkit.batch",
    "BertConfig": "bertkit.transformer",
    "BertkitError": "bertkit.errors",
    "ChoiceQuestion": "bertkit.tasks",
    "ClusterOptions": "bertkit.clusters",
    "Document": "bertkit.search.documents",
    "EmbedOptions": "bertkit.inference",
    "EmbedReport": "bertkit.inference",
    "Encoding": "bertkit.tokenizer",
    "Evidence": "bertkit.evidence",
    "Features": "bertkit.estimators",
    "FewShotClassifier": "bertkit.estimators",
    "HEADS": "bertkit.heads",
    "Index": "bertkit.search.index",
    "Model": "bertkit.model",
    "ModernBertConfig": "bertkit.transformer",
    "MultipleChoiceClassifier": "bertkit.estimators",
    "PredictReport": "bertkit.inference",
    "Question": "bertkit.tasks",
    "QuestionAnswerer": "bertkit.estimators",
    "Recorder": "bertkit.transformer",
    "ScalarMixClassifier": "bertkit.estimators",
    "SentenceEncoder": "bertkit.estimators",
    "SequenceClassifier": "bertkit.estimators",
    "SequenceRegressor": "bertkit.estimators",
    "StaticEncoder": "bertkit.words",
    "TaggedText": "bertkit.tasks",
    "TextExample": "bertkit.tasks",
    "TextSet": "bertkit.tasks",
    "TokenClassifier": "bertkit.estimators",
    "Tokenizer": "bertkit.tokenizer",
    "Vocabulary": "bertkit.tokenizer",
    "collate": "bertkit.batch",
    "export_model": "bertkit.export",
    "find_clusters": "bertkit.clusters",
    "gather_evidence": "bertkit.evidence",
    "load": "bertkit.model",
    "top_pairs": "bertkit.neighbors",
    "train_vocabulary": "bertkit.tokenizer",
    "write_evidence_report": "bertkit.reports.evidence",
}

__all__ = [
    "HEADS",
    "Batch",
    "BertConfig",
    "BertkitError",
    "ChoiceQuestion",
    "ClusterOptions",
    "Document",
    "EmbedOptions",
    "EmbedReport",
    "Encoding",
    "Evidence",
    "Features",
    "FewShotClassifier",
    "Index",
    "Model",
    "ModernBertConfig",
    "MultipleChoiceClassifier",
    "PredictReport",
    "Question",
    "QuestionAnswerer",
    "Recorder",
    "ScalarMixClassifier",
    "SentenceEncoder",
    "SequenceClassifier",
    "SequenceRegressor",
    "StaticEncoder",
    "TaggedText",
    "TextExample",
    "TextSet",
    "TokenClassifier",
    "Tokenizer",
    "Vocabulary",
    "__version__",
    "collate",
    "export_model",
    "find_clusters",
    "gather_evidence",
    "load",
    "top_pairs",
    "train_vocabulary",
    "write_evidence_report",
]

if TYPE_CHECKING:
    from bertkit.batch import Batch, collate
    from bertkit.clusters import ClusterOptions, find_clusters
    from bertkit.errors import BertkitError
    from bertkit.estimators import (
        Features,
        FewShotClassifier,
        MultipleChoiceClassifier,
        QuestionAnswerer,
        ScalarMixClassifier,
        SentenceEncoder,
        SequenceClassifier,
        SequenceRegressor,
        TokenClassifier,
    )
    from bertkit.evidence import Evidence, gather_evidence
    from bertkit.export import export_model
    from bertkit.heads import HEADS
    from bertkit.inference import EmbedOptions, EmbedReport, PredictReport
    from bertkit.model import Model, load
    from bertkit.neighbors import top_pairs
    from bertkit.reports.evidence import write_evidence_report
    from bertkit.search.documents import Document
    from bertkit.search.index import Index
    from bertkit.tasks import ChoiceQuestion, Question, TaggedText, TextExample, TextSet
    from bertkit.tokenizer import Encoding, Tokenizer, Vocabulary, train_vocabulary
    from bertkit.transformer import BertConfig, ModernBertConfig, Recorder
    from bertkit.words import StaticEncoder


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'bertkit' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
