"""The novels for all pre-training runs: vocabulary, token shards, padded sequences and initial weights, created once.

A folder for each shape of model:

    train, choose, decide   token shards of different authors: for training, learning rate selection and comparison
    blocks.npz              the tokens of ``train`` for transformers, in sequences of 126 tokens of one novel
    paragraphs.npz          some paragraphs of the same novels, cut at 128 tokens
    initial                 a BERT of 2018 with initial weights, in the published format
"""

import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import texts
from models import MINILM
from peers import batching
from turns import say

from bertkit import BertConfig, Model, Tokenizer
from bertkit.corpus.shard_writing import ShardSettings, write_shard
from bertkit.corpus.shards import TokenShard
from bertkit.files.whole_files import whole_file
from bertkit.locate import locate
from bertkit.pretraining.recipe import VocabularySettings
from bertkit.pretraining.text import learn_vocabulary

MAX_LENGTH = 128
NUM_PARAGRAPHS = 4_096
SHAPES = {  # name -> its size, and how many entries to learn; None: the vocabulary of bert-base-uncased
    "4 layers x 256": ("mini", 8_192),
    "BERT-base": ("base", None),
}
AUTHORS = {"choose": ("Gissing",), "decide": ("Forster", "Hardy", "Stevenson")}  # all others are learned from


def prepare(work: Path, shape: str) -> Path:
    """The folder of a shape; missing files are created.

    Raises:
        RuntimeError: the novels are not on this machine.
    """
    novels = _novels()
    size, num_entries = SHAPES[shape]
    folder = work / f"novels-{size}"
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = _tokenizer(folder, num_entries, novels["train"])
    shards = {name: write_shard(files, folder / name, tokenizer, ShardSettings()) for name, files in novels.items()}
    initial = folder / "initial"
    if not initial.is_dir():
        config = BertConfig.of_size(size, vocab_size=len(tokenizer.vocabulary))
        Model.create(config, tokenizer, ("masked_lm",)).save(initial)
    if not (folder / "blocks.npz").is_file():
        say(f"{shape}: sequences for transformers")
        chosen = texts.shuffled([text for file in novels["train"] for text in _paragraphs(file)])[:NUM_PARAGRAPHS]
        reader = batching.open_tokenizer(initial, MAX_LENGTH)
        _write(folder / "paragraphs.npz", [ids for ids in batching.token_ids(reader, chosen) if len(ids) > 2])
        vocabulary = tokenizer.vocabulary
        ends = vocabulary.id(vocabulary.special.cls), vocabulary.id(vocabulary.special.sep)
        _write(folder / "blocks.npz", _blocks(shards["train"], *ends))
    return folder


def _novels() -> dict[str, list[Path]]:
    """The files of each shard; each author is in one shard."""
    folder = texts.DATA / "english_novels"
    if not folder.is_dir():
        raise RuntimeError("../shared/data/english_novels is not there")
    shard_of = {author: name for name, authors in AUTHORS.items() for author in authors}
    novels: dict[str, list[Path]] = {"train": [], **{name: [] for name in AUTHORS}}
    for file in sorted(folder.glob("*_*.txt")):
        novels[shard_of.get(file.name.partition("_")[0], "train")].append(file)
    return novels


def _tokenizer(folder: Path, num_entries: int | None, files: Sequence[Path]) -> Tokenizer:
    if num_entries is None:
        return Tokenizer.load(locate(MINILM))
    path = folder / "vocab.txt"
    if not path.is_file():
        say(f"learning a vocabulary of {num_entries:,} entries")
        learn_vocabulary(files, VocabularySettings(num_entries), path, "auto", None, lambda line: None)
    return Tokenizer.from_vocab(path, lowercase=True)


def _paragraphs(file: Path) -> list[str]:
    """Paragraphs of a novel, each as one line; if its lines are wrapped, empty lines separate paragraphs."""
    text = file.read_text(encoding="utf-8-sig").replace("\r\n", "\n")
    lines = [line for line in text.split("\n") if line.strip()]
    is_wrapped = np.mean([len(line.split()) for line in lines]) < 20
    found = re.split(r"\n\s*\n", text) if is_wrapped else lines
    return [" ".join(paragraph.split()) for paragraph in found if paragraph.strip()]


def _blocks(shard: TokenShard, cls: int, sep: int) -> list[np.ndarray]:
    """Whole blocks of each novel; the rest at its end is dropped, as in group_texts of run_mlm.py."""
    room, blocks = MAX_LENGTH - 2, []
    for start, end in pairwise(shard.sentences[shard.documents].tolist()):
        rows = shard.tokens[start : end - (end - start) % room].reshape(-1, room)
        blocks.extend(np.pad(rows, ((0, 0), (1, 1)), constant_values=((0, 0), (cls, sep))))
    return blocks


def _write(path: Path, sequences: Sequence[Sequence[int] | np.ndarray]) -> None:
    """input_ids (T,) end to end, and their bounds cu_seqlens (B + 1,)."""
    cu_seqlens = np.cumsum([0, *map(len, sequences)])
    with whole_file(path) as temporary, open(temporary, "wb") as file:
        np.savez(file, input_ids=np.concatenate(sequences).astype(np.uint16), cu_seqlens=cu_seqlens)
