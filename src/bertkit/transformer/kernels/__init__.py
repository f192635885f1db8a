"""Kernels and their dispatch: one signature each, tested for equality with a plain reference."""

from bertkit.transformer.kernels.attention import norm_heads, recorded_cross_attention, repeated_heads
from bertkit.transformer.kernels.inference import inference_kernels
from bertkit.transformer.kernels.steps import (
    activate,
    add_norm,
    add_then_norm,
    apply_linear,
    cross_attention,
    dropout,
    gate,
    in_training_row_counts,
    joined,
    like,
    linear,
    look_up,
    normalize,
    project,
    recomputed,
    self_attention,
    training_kernels,
)

__all__ = [
    "activate",
    "add_norm",
    "add_then_norm",
    "apply_linear",
    "cross_attention",
    "dropout",
    "gate",
    "in_training_row_counts",
    "inference_kernels",
    "joined",
    "like",
    "linear",
    "look_up",
    "norm_heads",
    "normalize",
    "project",
    "recomputed",
    "recorded_cross_attention",
    "repeated_heads",
    "self_attention",
    "training_kernels",
]
