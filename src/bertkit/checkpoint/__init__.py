"""Open and save model folders in the published format, with the provenance of every tensor.

Takes: a folder, a hub name or an installed model package.
Gives: Checkpoint: network, tokenizer, sentence settings, task, the origin of each tensor; and the folder written from
it.
May import: later, errors, files, locate, tokenizer, batch, transformer, heads, architectures, tasks.
"""

from typing import TYPE_CHECKING

from bertkit.later import on_demand

if TYPE_CHECKING:
    from bertkit.checkpoint.checkpoint import Checkpoint as Checkpoint
    from bertkit.checkpoint.checkpoint import new_checkpoint as new_checkpoint
    from bertkit.checkpoint.late_interaction import LateInteraction as LateInteraction
    from bertkit.checkpoint.opening import open_checkpoint as open_checkpoint
    from bertkit.checkpoint.saving import check_savable as check_savable
    from bertkit.checkpoint.saving import save_checkpoint as save_checkpoint
    from bertkit.checkpoint.sentence import SentenceSettings as SentenceSettings
    from bertkit.checkpoint.sparse import SparseSettings as SparseSettings

__getattr__, __dir__ = on_demand(__name__)
