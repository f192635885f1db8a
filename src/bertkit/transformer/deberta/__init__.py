"""The encoder of DeBERTa, versions 2 and 3: BERT's layers with disentangled attention (He et al. 2021)."""
