"""Inference: texts to predictions and vectors.

Takes: a network, its tokenizer, and texts.
Gives: vectors, filled masks, next sentence probabilities, likelihoods, predictions of a task or of given labels, in
the order of the texts; the metrics of predictions; the trace of a text.
May import: later, version, errors, files, device, executor, compiled, tokenizer, batch, transformer, heads,
architectures, tasks, checkpoint.
"""

from bertkit.inference.embed import EmbedOptions, embed, embed_stream
from bertkit.inference.embed_sparse import SparseVectors, embed_sparse
from bertkit.inference.fill_mask import Candidate, FilledMask, fill_mask
from bertkit.inference.late_interaction import TokenVectors, embed_tokens, max_sim, score_tokens
from bertkit.inference.next_sentence import next_sentence_probability
from bertkit.inference.predict import evaluate, predict, predict_stream
from bertkit.inference.pseudo_likelihood import pseudo_log_likelihood, token_log_probs
from bertkit.inference.report import InferenceReport
from bertkit.inference.runner import Runner
from bertkit.inference.score_pairs import RankedText, rank, score_pairs
from bertkit.inference.trace import LayerTrace, Trace, trace
from bertkit.inference.zero_shot import classify

__all__ = [
    "Candidate",
    "EmbedOptions",
    "FilledMask",
    "InferenceReport",
    "LayerTrace",
    "RankedText",
    "Runner",
    "SparseVectors",
    "TokenVectors",
    "Trace",
    "classify",
    "embed",
    "embed_sparse",
    "embed_stream",
    "embed_tokens",
    "evaluate",
    "fill_mask",
    "max_sim",
    "next_sentence_probability",
    "predict",
    "predict_stream",
    "pseudo_log_likelihood",
    "rank",
    "score_pairs",
    "score_tokens",
    "token_log_probs",
    "trace",
]
