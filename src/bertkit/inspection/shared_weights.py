"""Copies of encoders for changes that other users of a model must not see."""

from copy import deepcopy

from bertkit.transformer import Encoder


def sharing_weights(encoder: Encoder) -> Encoder:
    """A copy of an encoder with its own modules and the same weights, which stay unchanged: the copy's modules may be
    replaced or hooked while others use the original."""
    weights = [*encoder.parameters(), *encoder.buffers()]
    return deepcopy(encoder, {id(weight): weight for weight in weights})
