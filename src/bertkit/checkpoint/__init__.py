"""Open and save model folders in the published format, with the provenance of every tensor.

Takes: a folder, a hub name or an installed model package.
Gives: Checkpoint: network, tokenizer, sentence settings, task, the origin of each tensor; and the folder written from
it.
May import: errors, files, locate, tokenizer, batch, transformer, heads, architectures, tasks.
"""

from bertkit.checkpoint.checkpoint import Checkpoint, new_checkpoint
from bertkit.checkpoint.late_interaction import LateInteraction
from bertkit.checkpoint.opening import open_checkpoint
from bertkit.checkpoint.saving import check_savable, save_checkpoint
from bertkit.checkpoint.sentence import SentenceSettings
from bertkit.checkpoint.sparse import SparseSettings

__all__ = [
    "Checkpoint",
    "LateInteraction",
    "SentenceSettings",
    "SparseSettings",
    "check_savable",
    "new_checkpoint",
    "open_checkpoint",
    "save_checkpoint",
]
