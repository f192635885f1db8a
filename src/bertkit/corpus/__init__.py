"""Files to texts.

Takes: txt, jsonl, csv, tsv and parquet files; the documentation of the running Python.
Gives: one text at a time, with where it stands.
May import: errors, compiled, randomness, tokenizer.
"""

from bertkit.corpus.python_docs import Passage, python_docs
from bertkit.corpus.shards import TokenShard
from bertkit.corpus.texts import read_texts

__all__ = ["Passage", "TokenShard", "python_docs", "read_texts"]
