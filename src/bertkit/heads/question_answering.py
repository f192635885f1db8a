"""Extractive question answering: where in the context does the answer start and end?"""

from torch import Tensor, nn

from bertkit.transformer import BertConfig
from bertkit.transformer.kernels import project


class QuestionAnsweringHead(nn.Module):
    """A start and an end logit for every token (Devlin et al. 2018, section 4.2)."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.classifier = nn.Linear(config.hidden_size, 2)

    def forward(self, hidden_states: Tensor) -> Tensor:
        """(T, D) to (T, 2) logits: column 0 start, column 1 end."""
        return project(hidden_states, self.classifier)
