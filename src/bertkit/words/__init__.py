"""Static word vectors: reading, averaging, comparing, training, distilling.

Takes: files and folders of word vectors; texts; a model.
Gives: a StaticEncoder, with the embedding interface of Model; scores of word benchmarks; trained word vectors.
May import: errors, files, locate, executor, compiled, randomness, tokenizer, batch, transformer, tasks, checkpoint,
inference, neighbors, model.
"""

from bertkit.words.encoder import StaticEncoder

__all__ = ["StaticEncoder"]
