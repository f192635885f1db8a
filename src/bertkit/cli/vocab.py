"""bertkit vocab train | extend | show"""

from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any

from cyclopts import App

from bertkit.cli.models import EMBEDDING_MODEL, PRETRAINED_MODEL, open_tokenizer
from bertkit.cli.output import Column, OutPath, emit, note
from bertkit.corpus.texts import read_texts
from bertkit.errors import DataError, UsageError
from bertkit.files.whole_files import check_empty, check_folder_writable, check_not_input, check_writable
from bertkit.tokenizer import Tokenizer, train_vocabulary
from bertkit.tokenizer.statistics import text_statistics
from bertkit.tokenizer.wordpiece import WordPiece

command = App(name="vocab")


@command.command
def train(
    *files: str,
    out: OutPath,
    vocab_size: int = 30_522,
    lowercase: bool = True,
    min_frequency: int = 2,
    max_alphabet: int | None = None,
    column: Column = None,
) -> None:
    """Learn a WordPiece vocabulary from files and write it as a vocab.txt.

    Parameters
    ----------
    files
        txt, jsonl, csv, tsv or parquet files, folders of them, or "python-docs": the documentation of this Python.
    out
        The vocab.txt to write.
    vocab_size
        Number of entries, special tokens included.
    lowercase
        Learn an uncased vocabulary; --no-lowercase for a cased one.
    min_frequency
        Minimum frequency of two adjacent pieces to be merged.
    max_alphabet
        Maximum number of single characters; rarer ones become [UNK]. By default 1,000, or if that is more, as in
        Chinese, the number that makes up 99.95 % of the text.
    """
    if not files:
        raise UsageError("train requires at least one file or folder of texts")
    check_writable(out, *files)
    vocabulary = train_vocabulary(
        chain.from_iterable(read_texts(file, column) for file in files),
        vocab_size=vocab_size,
        lowercase=lowercase,
        min_frequency=min_frequency,
        max_alphabet=max_alphabet,
    )
    vocabulary.save(out)
    if len(vocabulary) < vocab_size:
        note(f"the text yields only {len(vocabulary)} entries of {vocab_size}")
    emit([{"vocabulary": str(out), **asdict(vocabulary.statistics())}])


@command.command
def extend(
    *files: str,
    out: OutPath,
    model: str = PRETRAINED_MODEL,
    num_words: int = 500,
    min_frequency: int = 5,
    column: Column = None,
) -> None:
    """Add frequent words of a domain to a model's vocabulary, where it splits them into pieces, and save a new model.

    Parameters
    ----------
    files
        Texts of the domain: txt, jsonl, csv, tsv or parquet files, folders of them, or "python-docs".
    out
        The model folder to write.
    model
        A model with a WordPiece vocabulary: a folder, a hub name, or the import name of an installed model package.
    num_words
        Maximum number of words to add; words that shorten the texts most come first.
    min_frequency
        Minimum number of occurrences of a word to add.
    """
    from bertkit.checkpoint import check_savable
    from bertkit.model import load
    from bertkit.vocabulary_extension import find_domain_words

    if not files:
        raise UsageError("extend requires at least one file of the domain's texts")
    check_folder_writable(out)
    check_empty(out)
    opened = load(model, device="cpu")
    check_savable(opened.checkpoint)
    texts = chain.from_iterable(read_texts(file, column) for file in files)
    words = find_domain_words(opened.tokenizer, texts, num_words=num_words, min_frequency=min_frequency)
    if not words:
        raise DataError(
            f"nothing to add: no word that the vocabulary splits into pieces occurs {min_frequency} times; lower "
            "--min-frequency"
        )
    size = len(opened.tokenizer.vocabulary)
    opened.extend_vocabulary([word.word for word in words])
    opened.save(out)
    note(f"{out}: {len(words)} words added, {size + len(words)} entries; train it on the texts (masked LM) before use")
    emit({"token_id": token_id, **asdict(word)} for token_id, word in enumerate(words, start=size))


@command.command
def show(
    *look_up: str,
    model: str = EMBEDDING_MODEL,
    text: str | None = None,
    column: str | None = None,
    export: Path | None = None,
    lowercase: bool | None = None,
) -> None:
    """Show statistics of a vocabulary, or look up tokens and ids.

    Parameters
    ----------
    look_up
        Tokens or ids to look up; write a token of digits with a leading "=".
    model
        A vocab.txt, a model folder, a hub name, or the import name of an installed model package.
    text
        A file to measure the vocabulary on: pieces per word, share of [UNK].
    column
        The column or key of --text that holds the text.
    export
        Write the vocabulary as a vocab.txt.
    lowercase
        With a vocab.txt: whether it is uncased; by default it is, unless many entries have uppercase letters.
    """
    if look_up and text is not None:
        raise UsageError("--text measures the vocabulary and cannot be combined with words to look up")
    if column is not None and text is None:
        raise UsageError("--column requires --text")
    tokenizer = open_tokenizer(model, lowercase)
    vocabulary = tokenizer.vocabulary
    is_wordpiece = isinstance(tokenizer.engine, WordPiece)
    if export is not None:
        if not is_wordpiece:
            raise UsageError(f"{model} has no WordPiece vocabulary to export as a vocab.txt")
        check_not_input(export, text)
        vocabulary.save(export)
    if look_up:
        emit(_look_up(tokenizer, word) for word in look_up)
        return
    statistics: dict[str, Any] = {"num_entries": len(vocabulary), "num_special": len(vocabulary.special_ids())}
    if is_wordpiece:
        statistics = asdict(vocabulary.statistics())
    if text is not None:
        counts = text_statistics(tokenizer, read_texts(text, column))
        statistics |= asdict(counts)
        statistics |= {"pieces_per_word": counts.pieces_per_word, "unknown_share": counts.unknown_share}
    emit([statistics])


def _look_up(tokenizer: Tokenizer, word: str) -> dict[str, Any]:
    """Look up an id, a token, or the pieces of a word that is not an entry."""
    vocabulary = tokenizer.vocabulary
    if word.isdecimal():
        return {"token": vocabulary.token(int(word)), "token_id": int(word)}
    token = word.removeprefix("=") if word != "=" else word
    if token in vocabulary:
        return {"token": token, "token_id": vocabulary.id(token)}
    pieces = tokenizer.plain_ids([token])[0].tolist()
    return {
        "token": token,
        "token_id": None,
        "pieces": [vocabulary.tokens[piece] for piece in pieces],
        "input_ids": pieces,
    }
