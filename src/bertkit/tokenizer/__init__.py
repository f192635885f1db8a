"""Text to tokens: WordPiece as BERT published it, and other published tokenizers.

Takes: str, or pairs of str.
Gives: Encodings: ids, types, character offsets, word ids, and what was cut.
May import: errors, files, compiled.
"""

from bertkit.tokenizer.encoding import Encoding, Encodings
from bertkit.tokenizer.layout import Layout
from bertkit.tokenizer.tokenizer import Tokenizer
from bertkit.tokenizer.training import train_vocabulary
from bertkit.tokenizer.vocabulary import Vocabulary

__all__ = [
    "Encoding",
    "Encodings",
    "Layout",
    "Tokenizer",
    "Vocabulary",
    "train_vocabulary",
]
