"""Extraction: spans of texts with labels that are given at run time, by models in GLiNER's or GLiNER2's published form.

Takes: a folder with gliner_config.json, or of GLiNER2; texts of any length, and labels or a schema.
Gives: entities with their labels, scores, characters and the window in which they were decided; records, relations and
classes.
May import: later, errors, files, locate, device, compiled, randomness, tokenizer, batch, transformer, heads,
architectures, vocabulary_extension, tasks, checkpoint, training, inference.
"""

from typing import TYPE_CHECKING

from bertkit.later import on_demand

if TYPE_CHECKING:
    from bertkit.extraction.decoding import Entity as Entity
    from bertkit.extraction.extractor import Extractor as Extractor
    from bertkit.extraction.opening import open_extractor as open_extractor
    from bertkit.extraction.schema import Schema as Schema
    from bertkit.extraction.schema_extractor import SchemaExtractor as SchemaExtractor
    from bertkit.extraction.schema_reading import Reading as Reading
    from bertkit.extraction.training import ExtractionTraining as ExtractionTraining
    from bertkit.extraction.training_settings import ExtractionTrainingSettings as ExtractionTrainingSettings
    from bertkit.extraction.windowed import ExtractionReport as ExtractionReport

__getattr__, __dir__ = on_demand(__name__)
