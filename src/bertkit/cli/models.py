"""Which model a command takes when none is named, and the tokenizer of a model or of a vocab.txt."""

from pathlib import Path

from bertkit.errors import UsageError
from bertkit.locate import locate, transformer_folder
from bertkit.tokenizer import Tokenizer

EMBEDDING_MODEL = "all-MiniLM-L6-v2"
"""Where vectors or tokens are wanted."""

PRETRAINED_MODEL = "bert-base-uncased"
"""Where the heads of pre-training are wanted, which sentence encoders do not have."""


def open_tokenizer(model: str, lowercase: bool | None) -> Tokenizer:
    """The tokenizer of a model, or of a vocab.txt, which does not say itself whether it is cased.

    Raises:
        UsageError: ``lowercase`` for a model, whose own files say it.
    """
    path = Path(model).expanduser()
    if path.is_file():
        return Tokenizer.from_vocab(path, lowercase=lowercase is not False)
    if lowercase is not None:
        raise UsageError("--lowercase goes with a vocab.txt: a model's own files say whether it is cased")
    return Tokenizer.load(transformer_folder(locate(model)))
