"""The ModernBERT encoder: pre-norm, rotary positions, gated feed-forward, no biases, local and global attention.

Warner et al. 2024, arXiv 2412.13663. BERT's encoder is in the folder above.
"""
