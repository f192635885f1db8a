"""The position-wise feed-forward network (Vaswani et al. 2017, section 3.3)."""

from torch import Tensor, nn

from bertkit.transformer.config import BertConfig
from bertkit.transformer.kernels import activate, linear


class FeedForward(nn.Module):
    """Expand to ``intermediate_size``, activate, project back: the same for every token."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.expand = nn.Linear(config.hidden_size, config.intermediate_size)
        self.activation = config.hidden_act
        self.project = nn.Linear(config.intermediate_size, config.hidden_size)

    def forward(self, hidden_states: Tensor) -> Tensor:
        """(total_tokens, hidden_size) to the same."""
        expanded = activate(linear(hidden_states, self.expand.weight, self.expand.bias), self.activation)
        return linear(expanded, self.project.weight, self.project.bias)
