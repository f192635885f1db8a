"""The gated feed-forward network, GeGLU (Shazeer 2020, "GLU Variants Improve Transformer", equation 6)."""

from torch import Tensor, nn

from bertkit.transformer.kernels import apply_linear, dropout, gate
from bertkit.transformer.modernbert.config import ModernBertConfig


class GatedFeedForward(nn.Module):
    """Expand twice, multiply one activated half by the other, project back; for each token."""

    def __init__(self, config: ModernBertConfig) -> None:
        super().__init__()
        self.expand = nn.Linear(config.hidden_size, 2 * config.intermediate_size, bias=False)
        self.activation = config.hidden_activation
        self.dropout = nn.Dropout(config.mlp_dropout)
        self.project = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, normed: Tensor) -> Tensor:
        """(total_tokens, hidden_size) to the same."""
        gated = gate(apply_linear(normed, self.expand), self.activation)
        return apply_linear(dropout(gated, self.dropout), self.project)
