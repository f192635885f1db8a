"""Logits to probabilities, in float64."""

import numpy as np


def softmax(logits: np.ndarray) -> np.ndarray:
    """Probabilities over the last axis."""
    return np.exp(log_softmax(logits))


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Natural logarithms of `softmax`."""
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """A probability for each logit."""
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-logits.astype(np.float64)))
