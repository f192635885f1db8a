"""Evaluation of models: scores with 95 % confidence intervals.

Takes: a model, and labeled examples; optionally its training data.
Gives: scores with 95 % confidence intervals, and reasons for parts that are missing; for classifiers and taggers also
calibration, thresholds, likely label errors, leakage and a baseline; thresholds that keep a promise.
May import: advice, errors, files, tokenizer, corpus, tasks, checkpoint, inference, neighbors, model, extraction.
"""

from bertkit.evidence.gather import Evidence, gather_evidence
from bertkit.evidence.intervals import Measured, bootstrap_interval, wilson_interval
from bertkit.evidence.minimal_pairs import PairScore, SuiteScore, score_minimal_pairs
from bertkit.evidence.scores import measured_scores
from bertkit.evidence.suites import MinimalPair, Paradigm, read_suite

__all__ = [
    "Evidence",
    "Measured",
    "MinimalPair",
    "PairScore",
    "Paradigm",
    "SuiteScore",
    "bootstrap_interval",
    "gather_evidence",
    "measured_scores",
    "read_suite",
    "score_minimal_pairs",
    "wilson_interval",
]
