"""Replaced token detection: is a token the original one?"""

from bertkit.later import Tensor
from bertkit.transformer import BertConfig
from bertkit.transformer.kernels import activate, apply_linear, like, project
from bertkit.transformer.modules import nn


class ReplacedTokensHead(nn.Module):
    """One logit for each token, above 0 if the token was likely replaced (Clark et al. 2020, section 2)."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.activation = config.hidden_act
        self.classifier = nn.Linear(config.hidden_size, 1)

    def forward(self, hidden_states: Tensor) -> Tensor:
        """(T, D) to (T,) logits."""
        transformed = activate(apply_linear(hidden_states, self.dense), self.activation)
        return project(like(transformed, hidden_states), self.classifier).squeeze(-1)
