"""The position-wise feed-forward network (Vaswani et al. 2017, section 3.3)."""

from torch import Tensor, nn

from bertkit.transformer.config import BertConfig
from bertkit.transformer.kernels import activate, apply_linear


class FeedForward(nn.Module):
    """``project(activation(expand(x)))``, with the same weights for every token: from hidden_size to intermediate_size
    and back."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.expand = nn.Linear(config.hidden_size, config.intermediate_size)
        self.activation = config.hidden_act
        self.project = nn.Linear(config.intermediate_size, config.hidden_size)

    def forward(self, hidden_states: Tensor) -> Tensor:
        """(total_tokens, hidden_size) to the same."""
        expanded = activate(apply_linear(hidden_states, self.expand), self.activation)
        return apply_linear(expanded, self.project)
