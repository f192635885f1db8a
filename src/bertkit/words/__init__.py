"""Static word vectors: opened, averaged, compared, trained, distilled.

Takes: files and folders of word vectors; texts; a model.
Gives: a StaticEncoder, which embeds and is searched like a Model; scores of word benchmarks; trained word vectors.
May import: errors, files, locate, executor, compiled, randomness, tokenizer, batch, tasks, checkpoint,
inference, neighbors, model.
"""

from bertkit.words.encoder import StaticEncoder

__all__ = ["StaticEncoder"]
