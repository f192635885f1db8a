"""A model: encoder, heads and tokenizer of one directory, with methods for inference.

Takes: a path, a hub name or an installed model package.
Gives: Model: the network and its tokenizer, loaded, saved and checked; each verb is a file of `inference`.
May import: later, errors, device, locate, tokenizer, batch, transformer, heads, architectures, vocabulary_extension,
tasks, checkpoint, inference, extraction, redaction.
"""

from bertkit.model.loading import load
from bertkit.model.model import Model, check_model

__all__ = ["Model", "check_model", "load"]
