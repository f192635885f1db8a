"""Text to predictions and vectors: the only inference loop.

Takes: a network, its tokenizer, and texts.
Gives: vectors, filled masks, next sentence probabilities, likelihoods, predictions of a task, in the order of the
texts; the metrics of predictions.
May import: errors, files, device, executor, tokenizer, batch, transformer, heads, architectures, tasks,
checkpoint.
"""

from bertkit.inference.embed import EmbedOptions, EmbedReport, embed
from bertkit.inference.fill_mask import Candidate, FilledMask, fill_mask
from bertkit.inference.next_sentence import next_sentence_probability
from bertkit.inference.predict import PredictReport, predict, score
from bertkit.inference.pseudo_likelihood import token_log_probs
from bertkit.inference.runner import Runner

__all__ = [
    "Candidate",
    "EmbedOptions",
    "EmbedReport",
    "FilledMask",
    "PredictReport",
    "Runner",
    "embed",
    "fill_mask",
    "next_sentence_probability",
    "predict",
    "score",
    "token_log_probs",
]
