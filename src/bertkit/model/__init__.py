"""A model: encoder, heads and tokenizer of one directory, with methods for inference.

Takes: a path, a hub name or an installed model package.
Gives: Model: the network and its tokenizer, loaded, saved and checked; each verb is a file of `inference`.
May import: later, errors, device, locate, tokenizer, batch, transformer, heads, architectures, vocabulary_extension,
tasks, checkpoint, inference.
"""

from typing import TYPE_CHECKING

from bertkit.later import on_demand
from bertkit.model.loading import load
from bertkit.model.model import Model

if TYPE_CHECKING:
    from bertkit.model.shared_pass import one_pass as one_pass

__all__ = ["Model", "load", "one_pass"]

__getattr__, __dir__ = on_demand(__name__)
