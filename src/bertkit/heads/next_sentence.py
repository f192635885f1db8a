"""Next sentence prediction: does text B follow text A?"""

from bertkit.later import Tensor
from bertkit.transformer import BertConfig
from bertkit.transformer.kernels import project
from bertkit.transformer.modules import nn


class NextSentenceHead(nn.Module):
    """Two logits for each sequence: 0 = B follows A, 1 = B is random (Devlin et al. 2018, section 3.1)."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, 2)

    def forward(self, pooled: Tensor) -> Tensor:
        """(B, D) to (B, 2) logits."""
        return project(pooled, self.dense)
