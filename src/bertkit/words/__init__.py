"""Static word vectors: reading, averaging, comparing, training, extracting.

Takes: files and folders of word vectors; texts; a model.
Gives: a StaticEncoder, with the embedding interface of Model; scores of word benchmarks; trained word vectors.
May import: later, errors, files, locate, device, executor, compiled, randomness, tokenizer, batch, transformer, tasks,
checkpoint, training, inference, neighbors, model.
"""

from typing import TYPE_CHECKING

from bertkit.later import on_demand

if TYPE_CHECKING:
    from bertkit.words.encoder import StaticEncoder as StaticEncoder

__getattr__, __dir__ = on_demand(__name__)
