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
    "FewShotClassifier": "bertkit.estimators",
    "HEADS": "bertkit.heads",
    "Model": "bertkit.model",
    "ModernConfig": "bertkit.transformer",
    "SequenceClassifier": "bertkit.estimators",
    "SequenceRegressor": "bertkit.estimators",
    "Tokenizer": "bertkit.tokenizer",
    "TransformerConfig": "bertkit.transformer",
    "Vocabulary": "bertkit.tokenizer",
    "collate": "bertkit.batch",
    "load": "bertkit.model",
    "train_vocabulary": "bertkit.tokenizer",
}

__all__ = [
    "HEADS",
    "Batch",
    "BertkitError",
    "EmbedOptions",
    "EmbedReport",
    "Encoding",
    "FewShotClassifier",
    "Model",
    "ModernConfig",
    "SequenceClassifier",
    "SequenceRegressor",
    "Tokenizer",
    "TransformerConfig",
    "Vocabulary",
    "__version__",
    "collate",
    "load",
    "train_vocabulary",
]

if TYPE_CHECKING:
    from bertkit.batch import Batch, collate
    from bertkit.errors import BertkitError
    from bertkit.estimators import FewShotClassifier, SequenceClassifier, SequenceRegressor
    from bertkit.heads import HEADS
    from bertkit.inference import EmbedOptions, EmbedReport
    from bertkit.model import Model, load
    from bertkit.tokenizer import Encoding, Tokenizer, Vocabulary, train_vocabulary
    from bertkit.transformer import ModernConfig, TransformerConfig


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'bertkit' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
