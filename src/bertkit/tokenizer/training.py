"""Learn a WordPiece vocabulary from text."""

import re
import sys
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, wait
from threading import Event, Thread
from typing import Any, TextIO

import numpy as np
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers, trainers

from bertkit.errors import DataError, UsageError
from bertkit.tokenizer.tokenizer import refuse_one_text
from bertkit.tokenizer.vocabulary import CONTINUATION, SpecialTokens, Vocabulary
from bertkit.tokenizer.wordpiece import MAX_CHARACTERS_PER_WORD, explain_bad_text


def train_vocabulary(
    texts: Iterable[str],
    *,
    vocab_size: int = 30_522,
    lowercase: bool = True,
    min_frequency: int = 2,
    max_alphabet: int | None = None,
) -> Vocabulary:
    """Learn a vocabulary by merging frequent pairs of pieces (Schuster & Nakajima 2012).

    The same texts in the same order give the same vocabulary. Special tokens take ids 0 to 4. Words longer than
    MAX_CHARACTERS_PER_WORD are skipped: they become [UNK] when text is encoded, and learning their pieces would take
    time that grows with the square of their length.

    Args:
        texts: read once, and stored in a temporary file for a second pass.
        vocab_size: number of entries; fewer if the text has no more pairs to merge.
        lowercase: learn an uncased vocabulary (lowercase, without accents).
        min_frequency: a pair of pieces seen less often is not merged.
        max_alphabet: maximum number of single characters; rarer ones become [UNK]. None: 1,000, or if that is more, as
            in Chinese, the number that makes up 99.95 % of the text (the character coverage of SentencePiece).

    Raises:
        DataError: no text, or only white space and words that are too long; a text that is not valid Unicode.
        UsageError: ``vocab_size`` below 7, which is the special tokens and one character, alone and after "##"; another
            argument below 1, a text that is not a str, or a str or a table instead of texts.
    """
    refuse_one_text(texts)
    special = SpecialTokens()
    if vocab_size < (least := len(special.spellings()) + 2):
        raise UsageError(
            f"vocab_size={vocab_size}: expected at least {least}, for {least - 2} special tokens and a character at "
            "the start of a word and inside one"
        )
    if min_frequency < 1 or (max_alphabet is not None and max_alphabet < 1):
        raise UsageError(f"min_frequency={min_frequency}, max_alphabet={max_alphabet}: expected at least 1 of each")
    engine = tokenizers.Tokenizer(models.WordPiece(unk_token=special.unk, continuing_subword_prefix=CONTINUATION))
    engine.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    with tempfile.TemporaryFile("w+", encoding="utf-8", newline="\n") as file:
        with _bar(texts, "reading texts") as read:
            room = vocab_size - len(special.spellings())
            letters, inner = _letters(
                _written(read, file, normalizer, engine.pre_tokenizer), engine, room, max_alphabet
            )
        if not letters:
            raise DataError(
                f"no words to learn from: expected words of at most {MAX_CHARACTERS_PER_WORD} characters, separated by "
                "white space or punctuation; the texts are empty, or hold only white space and longer words"
            )
        # Letters are added first, in order: the library would add them in an order that differs between runs, and
        # breaks ties between merges by it.
        first = [*special.spellings(), *letters, *(CONTINUATION + letter for letter in inner)]
        trainer = trainers.WordPieceTrainer(
            vocab_size=vocab_size,
            min_frequency=min_frequency,
            limit_alphabet=len(letters),
            initial_alphabet=letters,
            special_tokens=first,
            continuing_subword_prefix=CONTINUATION,
            show_progress=False,
        )
        file.seek(0)
        with _bar(file, "learning words", total=read.n) as lines:
            _learn(engine, trainer, lines)
    ids = engine.get_vocab()
    return Vocabulary(tuple(sorted(ids, key=ids.__getitem__)), special)


def _learn(engine: tokenizers.Tokenizer, trainer: trainers.WordPieceTrainer, lines: Iterable[str]) -> None:
    """Run in a separate thread, because the library blocks signals until it returns; an interrupt ends the lines.

    The thread is a daemon, because the library cannot be stopped while it merges: the program exits without it.
    """
    stopped, learning = Event(), Future[None]()

    def until_stopped() -> Iterator[str]:
        for line in lines:
            if stopped.is_set():
                return
            yield line

    def learn() -> None:
        try:
            learning.set_result(engine.train_from_iterator(until_stopped(), trainer))
        except BaseException as error:  # raised again by the waiting thread
            learning.set_exception(error)

    Thread(target=learn, daemon=True).start()
    try:
        while wait([learning], timeout=1).not_done:  # again, as a signal just before a wait does not end it
            pass
        learning.result()
    finally:
        stopped.set()


def _bar(texts: Iterable[str], what: str, total: int | None = None) -> Any:
    from tqdm import tqdm

    return tqdm(texts, desc=what, total=total, unit=" texts", unit_scale=True, delay=2, disable=None)


def _written(
    texts: Iterable[str], file: TextIO, normalizer: normalizers.Normalizer, splitter: pre_tokenizers.PreTokenizer
) -> Iterator[str]:
    """The normalized texts without words that are too long, each also written to a file, one per line."""
    for index, text in enumerate(texts):
        try:
            normal = normalizer.normalize_str(" ".join(text.splitlines()))
        except (AttributeError, TypeError, UnicodeEncodeError):
            explain_bad_text([text], index)
            raise
        if _LONG_RUN.search(normal):
            words = (word for word, _ in splitter.pre_tokenize_str(normal))
            normal = " ".join(word for word in words if len(word) <= MAX_CHARACTERS_PER_WORD)
        file.write(normal + "\n")
        yield normal


def _letters(
    texts: Iterable[str], engine: tokenizers.Tokenizer, room: int, max_alphabet: int | None
) -> tuple[list[str], list[str]]:
    """The most frequent characters of words, at most ``max_alphabet`` (of `train_vocabulary`), and those of them that
    continue words; each in order, together at most ``room``."""
    counts, pairs = np.zeros(sys.maxunicode + 1, np.int64), set()
    for chunk in _joined(texts):
        codes = np.frombuffer(chunk.encode("utf-32-le"), np.uint32)
        counts += np.bincount(codes, minlength=len(counts))
        pairs.update(np.unique(codes[:-1].astype(np.uint64) << np.uint64(32) | codes[1:]).tolist())

    def split(text: str) -> list[str]:
        return [word for word, _ in engine.pre_tokenizer.pre_tokenize_str(text)]

    seen = sorted(np.flatnonzero(counts).tolist(), key=lambda code: (-counts[code], code))
    codes_of_words = [code for code in seen if split(chr(code))]
    if max_alphabet is None:
        covered = np.cumsum(counts[codes_of_words])
        max_alphabet = max(_USUAL_ALPHABET, int((covered < _COVERAGE * covered[-1:]).sum()) + 1)
    neighbors = [chr(pair >> 32) + chr(pair & 0xFFFFFFFF) for pair in pairs]
    inner = {both[1] for both in neighbors if split(both) == [both]}  # none is white space or a separate word
    letters = [chr(code) for code in codes_of_words[:max_alphabet]]
    num_entries = np.cumsum([1 + (letter in inner) for letter in letters])  # of the letters up to each
    letters = letters[: int((num_entries <= room).sum())]
    return sorted(letters), sorted(inner & set(letters))


def _joined(texts: Iterable[str]) -> Iterator[str]:
    """Groups of texts, joined by spaces."""
    waiting, size = [], 0
    for text in texts:
        waiting.append(text)
        size += len(text)
        if size >= _CHARACTERS_AT_A_TIME:
            yield " ".join(waiting)
            waiting, size = [], 0
    if waiting:
        yield " ".join(waiting)


_CHARACTERS_AT_A_TIME = 1 << 20
_LONG_RUN = re.compile(rf"\S{{{MAX_CHARACTERS_PER_WORD + 1}}}")  # it may hold punctuation, which separates words
_USUAL_ALPHABET, _COVERAGE = 1_000, 0.9995
