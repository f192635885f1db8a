"""Inference: texts to predictions and vectors.

Takes: a network, its tokenizer, and texts.
Gives: vectors, filled masks, next sentence probabilities, likelihoods, predictions of a task, in the order of the
texts; the metrics of predictions; the trace of a text.
May import: version, errors, files, device, executor, tokenizer, batch, transformer, heads, architectures, tasks,
checkpoint.
"""

from bertkit.inference.embed import EmbedOptions, EmbedReport, embed, embed_stream
from bertkit.inference.fill_mask import Candidate, FilledMask, fill_mask
from bertkit.inference.next_sentence import next_sentence_probability
from bertkit.inference.predict import PredictReport, evaluate, predict, predict_stream
from bertkit.inference.pseudo_likelihood import pseudo_log_likelihood, token_log_probs
from bertkit.inference.runner import Runner
from bertkit.inference.score_pairs import RankedText, rank, score_pairs
from bertkit.inference.trace import LayerTrace, Trace, trace

__all__ = [
    "Candidate",
    "EmbedOptions",
    "EmbedReport",
    "FilledMask",
    "LayerTrace",
    "PredictReport",
    "RankedText",
    "Runner",
    "Trace",
    "embed",
    "embed_stream",
    "evaluate",
    "fill_mask",
    "next_sentence_probability",
    "predict",
    "predict_stream",
    "pseudo_log_likelihood",
    "rank",
    "score_pairs",
    "token_log_probs",
    "trace",
]
