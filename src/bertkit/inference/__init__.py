"""Text to predictions and vectors: the only inference loop.

Takes: a network, its tokenizer, and texts.
Gives: vectors, filled masks, next sentence probabilities, likelihoods, in the order of the texts.
May import: errors, whole_files, json_files, device, tokenizer, batch, transformer, heads, checkpoint.
"""

from bertkit.inference.embed import EmbedOptions, EmbedReport, embed
from bertkit.inference.fill_mask import Candidate, FilledMask, fill_mask
from bertkit.inference.next_sentence import next_sentence_probability
from bertkit.inference.pseudo_likelihood import token_log_probs
from bertkit.inference.runner import Runner

__all__ = [
    "Candidate",
    "EmbedOptions",
    "EmbedReport",
    "FilledMask",
    "Runner",
    "embed",
    "fill_mask",
    "next_sentence_probability",
    "token_log_probs",
]
