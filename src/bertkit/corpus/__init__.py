"""Files to texts, documents and token shards.

Takes: txt, jsonl, csv, tsv and parquet files, folders of them; the documentation of the running Python.
Gives: one text at a time; documents and their sentences; their tokens in a shard, mapped into memory.
May import: errors, files, compiled, randomness, tokenizer.
"""

from bertkit.corpus.python_docs import Passage, python_docs
from bertkit.corpus.shards import TokenShard
from bertkit.corpus.texts import read_texts

__all__ = ["Passage", "TokenShard", "python_docs", "read_texts"]
