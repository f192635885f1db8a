"""Loss to better weights.

Takes: a network, batches, a loss.
Gives: gradients, computed on every core.
May import: errors, batch, transformer.
"""

from bertkit.training.gradients import compute_gradients

__all__ = ["compute_gradients"]
