"""Encoder of Nomic BERT and GTE: post-norm as BERT, with rotary positions and gated feed-forward networks."""
