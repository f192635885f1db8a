"""Which model a command takes when none is named."""

EMBEDDING_MODEL = "all-MiniLM-L6-v2"
"""Where vectors or tokens are wanted."""

PRETRAINED_MODEL = "bert-base-uncased"
"""Where the heads of pre-training are wanted, which sentence encoders do not have."""
