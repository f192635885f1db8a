"""The modern encoder: pre-norm, rotary positions, gated feed-forward, no biases, local and global attention.

As published by ModernBERT (Warner et al. 2024, arXiv 2412.13663), beside the encoder of 2018 in the folder above.
"""
