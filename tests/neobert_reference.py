"""NeoBERT in plain operations, as Le Breton et al. 2025 (section 3) describe it and its published code computes it.

The published code needs xformers and is not in transformers: the layout of its tensors, keys and classes is kept here.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput, MaskedLMOutput, SequenceClassifierOutput


class NeoBERTConfig(PreTrainedConfig):
    model_type = "neobert"

    vocab_size: int = 30_522
    hidden_size: int = 768
    num_hidden_layers: int = 28
    num_attention_heads: int = 12
    intermediate_size: int = 3_072
    embedding_init_range: float = 0.02
    decoder_init_range: float = 0.02
    norm_eps: float = 1e-5
    max_length: int = 4_096
    pad_token_id: int = 0


class SwiGLU(nn.Module):
    """Shazeer 2020; the gate is the first half of ``w12``."""

    def __init__(self, width: int, inside: int) -> None:
        super().__init__()
        self.w12, self.w3 = nn.Linear(width, 2 * inside, bias=False), nn.Linear(inside, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, value = self.w12(x).chunk(2, dim=-1)
        return self.w3(F.silu(gate) * value)


class Block(nn.Module):
    def __init__(self, config: NeoBERTConfig) -> None:
        super().__init__()
        width, self.num_heads = config.hidden_size, config.num_attention_heads
        inside = int(2 * config.intermediate_size / 3)
        self.qkv, self.wo = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.ffn = SwiGLU(width, 8 * ((inside + 7) // 8))
        self.attention_norm, self.ffn_norm = (nn.RMSNorm(width, config.norm_eps) for _ in range(2))

    def forward(self, x: Tensor, is_text: Tensor, turns: Tensor) -> tuple[Tensor, Tensor]:
        """(B, L, D) to the same, with probabilities (B, H, L, L).

        Args:
            is_text: (B, L) bool.
            turns: (B, L, K / 2) complex: every two neighboring columns are one number, which is multiplied by its turn.
        """
        joint = self.qkv(self.attention_norm(x)).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)  # (B, H, L, 3 K)
        query, key, value = joint.chunk(3, dim=-1)
        query, key = (
            torch.view_as_real(torch.view_as_complex(part.unflatten(-1, (-1, 2)).contiguous()) * turns[:, None])
            for part in (query, key)
        )
        scores = query.flatten(-2) @ key.flatten(-2).transpose(-1, -2) * value.shape[-1] ** -0.5
        probs = scores.masked_fill(~is_text[:, None, None], -torch.inf).softmax(-1)
        x = x + self.wo((probs @ value).transpose(1, 2).flatten(-2))
        return x + self.ffn(self.ffn_norm(x)), probs


class _NeoBERTModel(PreTrainedModel):
    config_class = NeoBERTConfig
    base_model_prefix = "model"


class NeoBERT(_NeoBERTModel):
    def __init__(self, config: NeoBERTConfig) -> None:
        super().__init__(config)
        self.encoder = nn.Embedding(config.vocab_size, config.hidden_size)
        self.transformer_encoder = nn.ModuleList(Block(config) for _ in range(config.num_hidden_layers))
        self.layer_norm = nn.RMSNorm(config.hidden_size, config.norm_eps)
        self.post_init()

    def get_input_embeddings(self) -> nn.Embedding:
        return self.encoder

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        **_: Any,
    ) -> BaseModelOutput:
        is_text = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        columns = torch.arange(input_ids.shape[1]).expand(input_ids.shape) if position_ids is None else position_ids
        head_dim = self.config.hidden_size // self.config.num_attention_heads
        frequencies = 1 / 10_000.0 ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
        angles = columns[:, :, None].float() * frequencies
        turns = torch.complex(angles.cos(), angles.sin())
        x = self.encoder(input_ids)
        states, attentions = [x], []
        for block in self.transformer_encoder:
            x, probs = block(x, is_text.bool(), turns)
            states.append(x)
            attentions.append(probs)
        states[-1] = self.layer_norm(x)
        return BaseModelOutput(states[-1], hidden_states=tuple(states), attentions=tuple(attentions))


class NeoBERTLMHead(_NeoBERTModel):
    def __init__(self, config: NeoBERTConfig) -> None:
        super().__init__(config)
        self.model, self.decoder = NeoBERT(config), nn.Linear(config.hidden_size, config.vocab_size)
        self.post_init()

    def forward(self, input_ids: Tensor, **inputs: Any) -> MaskedLMOutput:
        encoded = self.model(input_ids, **inputs)
        logits = self.decoder(encoded.last_hidden_state)
        return MaskedLMOutput(logits=logits, hidden_states=encoded.hidden_states, attentions=encoded.attentions)


class NeoBERTForSequenceClassification(_NeoBERTModel):
    def __init__(self, config: NeoBERTConfig) -> None:
        super().__init__(config)
        self.model, self.dense = NeoBERT(config), nn.Linear(config.hidden_size, config.hidden_size)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    def forward(self, input_ids: Tensor, **inputs: Any) -> SequenceClassifierOutput:
        encoded = self.model(input_ids, **inputs)
        logits = self.classifier(torch.tanh(self.dense(encoded.last_hidden_state[:, 0])))
        return SequenceClassifierOutput(
            logits=logits, hidden_states=encoded.hidden_states, attentions=encoded.attentions
        )


AutoConfig.register("neobert", NeoBERTConfig)
AutoModel.register(NeoBERTConfig, NeoBERT)
AutoModelForSequenceClassification.register(NeoBERTConfig, NeoBERTForSequenceClassification)
