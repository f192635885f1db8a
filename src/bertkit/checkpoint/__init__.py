"""Open and save model folders in the published format, with the provenance of every tensor.

Takes: a folder, a hub name or an installed model package.
Gives: Checkpoint: network, tokenizer, sentence settings, task, the origin of each tensor; and the folder written from
it.
May import: later, errors, files, locate, tokenizer, batch, transformer, heads, architectures, tasks.
"""

from typing import TYPE_CHECKING

from bertkit.later import on_demand

if TYPE_CHECKING:
    from bertkit.checkpoint.checkpoint import Checkpoint, new_checkpoint
    from bertkit.checkpoint.late_interaction import LateInteraction
    from bertkit.checkpoint.opening import open_checkpoint
    from bertkit.checkpoint.saving import check_savable, save_checkpoint
    from bertkit.checkpoint.sentence import SentenceSettings
    from bertkit.checkpoint.sparse import SparseSettings

__getattr__, __dir__ = on_demand(__name__)

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
