"""Text to tokens: WordPiece as BERT published it.

Takes: str, or pairs of str.
Gives: Encoding: ids, types, character offsets, word ids, and what was cut.
May import: errors, whole_files, json_files.
"""

from bertkit.tokenizer.encoding import Encoding
from bertkit.tokenizer.tokenizer import Tokenizer
from bertkit.tokenizer.training import train_vocabulary
from bertkit.tokenizer.vocabulary import Vocabulary

__all__ = ["Encoding", "Tokenizer", "Vocabulary", "train_vocabulary"]
