"""Files to texts, documents and token shards.

Takes: txt, jsonl, csv, tsv and parquet files, folders of them; the documentation of the running Python.
Gives: one text at a time; documents and their sentences; their tokens in a shard, mapped into memory.
May import: later, errors, files, compiled, randomness, tokenizer.
"""

from typing import TYPE_CHECKING

from bertkit.corpus.python_docs import Passage as Passage
from bertkit.corpus.python_docs import python_docs as python_docs  # not on demand: its module has the same name
from bertkit.corpus.texts import read_texts as read_texts
from bertkit.later import on_demand

if TYPE_CHECKING:
    from bertkit.corpus.shards import TokenShard as TokenShard

__getattr__, __dir__ = on_demand(__name__)
