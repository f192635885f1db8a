"""The encoder of Nomic BERT and GTE: BERT's order of steps, with rotary positions and a gated feed-forward network."""
