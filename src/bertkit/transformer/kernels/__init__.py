"""Kernels and their dispatch: one signature each, tested for equality with a plain reference."""

from bertkit.transformer.kernels.attention import attention_with_probs
from bertkit.transformer.kernels.inference import inference_kernels
from bertkit.transformer.kernels.training import (
    activate,
    add_norm,
    add_then_norm,
    dropout,
    gate,
    linear,
    look_up,
    project,
    recomputed,
    self_attention,
    training_kernels,
)

__all__ = [
    "activate",
    "add_norm",
    "add_then_norm",
    "attention_with_probs",
    "dropout",
    "gate",
    "inference_kernels",
    "linear",
    "look_up",
    "project",
    "recomputed",
    "self_attention",
    "training_kernels",
]
