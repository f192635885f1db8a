"""bertkit: BERT from raw text to a running service.

Names are loaded when they are first used: importing bertkit imports neither torch nor numpy.
"""

from typing import TYPE_CHECKING

from bertkit.later import on_demand
from bertkit.version import __version__ as __version__

if TYPE_CHECKING:
    from bertkit.batch import Batch as Batch
    from bertkit.batch import collate as collate
    from bertkit.clusters import ClusterOptions as ClusterOptions
    from bertkit.clusters import find_clusters as find_clusters
    from bertkit.documents.document import Document as Document
    from bertkit.errors import BertkitError as BertkitError
    from bertkit.estimators import Features as Features
    from bertkit.estimators import FewShotClassifier as FewShotClassifier
    from bertkit.estimators import MultipleChoiceClassifier as MultipleChoiceClassifier
    from bertkit.estimators import QuestionAnswerer as QuestionAnswerer
    from bertkit.estimators import SentenceEncoder as SentenceEncoder
    from bertkit.estimators import SequenceClassifier as SequenceClassifier
    from bertkit.estimators import SequenceRegressor as SequenceRegressor
    from bertkit.estimators import TokenClassifier as TokenClassifier
    from bertkit.evidence import Evidence as Evidence
    from bertkit.evidence import gather_evidence as gather_evidence
    from bertkit.export import export_model as export_model
    from bertkit.heads import HEADS as HEADS
    from bertkit.inference import EmbedOptions as EmbedOptions
    from bertkit.inference import InferenceReport as InferenceReport
    from bertkit.model import Model as Model
    from bertkit.model import load as load
    from bertkit.neighbors import top_pairs as top_pairs
    from bertkit.reports.evidence import write_evidence_report as write_evidence_report
    from bertkit.search.index import Index as Index
    from bertkit.tasks import ChoiceQuestion as ChoiceQuestion
    from bertkit.tasks import Question as Question
    from bertkit.tasks import TaggedText as TaggedText
    from bertkit.tasks import TextExample as TextExample
    from bertkit.tasks import TextSet as TextSet
    from bertkit.tokenizer import Encoding as Encoding
    from bertkit.tokenizer import Tokenizer as Tokenizer
    from bertkit.tokenizer import Vocabulary as Vocabulary
    from bertkit.tokenizer import train_vocabulary as train_vocabulary
    from bertkit.transformer import BertConfig as BertConfig
    from bertkit.transformer import ModernBertConfig as ModernBertConfig
    from bertkit.transformer import Recorder as Recorder
    from bertkit.words import StaticEncoder as StaticEncoder

__getattr__, __dir__ = on_demand(__name__)
