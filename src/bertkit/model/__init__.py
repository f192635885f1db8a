"""A model: encoder, heads and tokenizer of one directory, with methods for inference.

Takes: a path, a hub name or an installed model package.
Gives: Model: the network and its tokenizer, loaded, saved and checked; each verb is a file of `inference`.
May import: later, errors, device, locate, tokenizer, batch, transformer, heads, architectures, vocabulary_extension,
tasks, checkpoint, inference.
"""

from bertkit.model.loading import load
from bertkit.model.model import Model
from bertkit.model.one_pass import one_pass

__all__ = ["Model", "load", "one_pass"]
