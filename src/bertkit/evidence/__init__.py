"""What a model knows, measured: scores with the range that chance alone would give them.

Takes: a model, and texts whose right answers are known.
Gives: scores with 95 % intervals, and an account of what could not be judged.
May import: errors, tokenizer, corpus, model, inference.
"""

from bertkit.evidence.intervals import bootstrap_interval, wilson_interval
from bertkit.evidence.minimal_pairs import PairScore, SuiteScore, score_minimal_pairs
from bertkit.evidence.next_sentence import NextSentenceScore, score_next_sentence
from bertkit.evidence.suites import MinimalPair, Paradigm, read_suite

__all__ = [
    "MinimalPair",
    "NextSentenceScore",
    "PairScore",
    "Paradigm",
    "SuiteScore",
    "bootstrap_interval",
    "read_suite",
    "score_minimal_pairs",
    "score_next_sentence",
    "wilson_interval",
]
