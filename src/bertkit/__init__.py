"""bertkit: BERT from raw text to a running service.

Names are loaded when they are first used: importing bertkit imports neither torch nor numpy.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

_HOMES = {
    "Batch": "bertkit.batch",
    "BertkitError": "bertkit.errors",
    "EmbedOptions": "bertkit.inference",
    "EmbedReport": "bertkit.inference",
    "Encoding": "bertkit.tokenizer",
    "Evidence": "bertkit.evidence",
    "Features": "bertkit.estimators",
    "FewShotClassifier": "bertkit.estimators",
    "HEADS": "bertkit.heads",
    "ScalarMixClassifier": "bertkit.estimators",
    "Model": "bertkit.model",
    "ModernBertConfig": "bertkit.transformer",
    "MultipleChoiceClassifier": "bertkit.estimators",
    "QuestionAnswerer": "bertkit.estimators",
    "SequenceClassifier": "bertkit.estimators",
    "SequenceRegressor": "bertkit.estimators",
    "TokenClassifier": "bertkit.estimators",
    "Tokenizer": "bertkit.tokenizer",
    "BertConfig": "bertkit.transformer",
    "Vocabulary": "bertkit.tokenizer",
    "collate": "bertkit.batch",
    "gather_evidence": "bertkit.evidence",
    "load": "bertkit.model",
    "train_vocabulary": "bertkit.tokenizer",
    "write_evidence_report": "bertkit.reports.evidence",
}

__all__ = [
    "HEADS",
    "Batch",
    "BertConfig",
    "BertkitError",
    "EmbedOptions",
    "EmbedReport",
    "Encoding",
    "Evidence",
    "Features",
    "FewShotClassifier",
    "Model",
    "ModernBertConfig",
    "MultipleChoiceClassifier",
    "QuestionAnswerer",
    "ScalarMixClassifier",
    "SequenceClassifier",
    "SequenceRegressor",
    "TokenClassifier",
    "Tokenizer",
    "Vocabulary",
    "__version__",
    "collate",
    "gather_evidence",
    "load",
    "train_vocabulary",
    "write_evidence_report",
]

if TYPE_CHECKING:
    from bertkit.batch import Batch, collate
    from bertkit.errors import BertkitError
    from bertkit.estimators import (
        Features,
        FewShotClassifier,
        MultipleChoiceClassifier,
        QuestionAnswerer,
        ScalarMixClassifier,
        SequenceClassifier,
        SequenceRegressor,
        TokenClassifier,
    )
    from bertkit.evidence import Evidence, gather_evidence
    from bertkit.heads import HEADS
    from bertkit.inference import EmbedOptions, EmbedReport
    from bertkit.model import Model, load
    from bertkit.reports.evidence import write_evidence_report
    from bertkit.tokenizer import Encoding, Tokenizer, Vocabulary, train_vocabulary
    from bertkit.transformer import BertConfig, ModernBertConfig


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'bertkit' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
