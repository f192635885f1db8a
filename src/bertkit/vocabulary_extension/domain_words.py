"""Find domain words that a vocabulary splits into pieces, and add them as entries."""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from bertkit.errors import UsageError
from bertkit.tokenizer.tokenizer import Tokenizer, refuse_one_text
from bertkit.tokenizer.vocabulary import CONTINUATION, Vocabulary
from bertkit.tokenizer.wordpiece import WordPiece

_TEXTS_AT_A_TIME = 8_192


@dataclass(frozen=True)
class DomainWord:
    """A word of the texts that the vocabulary splits into pieces."""

    word: str  # normalized by the tokenizer: lowercased for an uncased vocabulary
    num_occurrences: int
    num_pieces: int

    @property
    def num_pieces_saved(self) -> int:
        """Number of tokens saved in the texts if the word becomes an entry."""
        return self.num_occurrences * (self.num_pieces - 1)


def find_domain_words(
    tokenizer: Tokenizer, texts: Iterable[str], *, num_words: int = 500, min_frequency: int = 5
) -> list[DomainWord]:
    """Find the words whose addition saves the most tokens: occurrences times pieces saved, in descending order.

    Only words of letters and combining marks are considered: numbers and words with punctuation are better left in
    pieces. A word that the vocabulary cannot spell counts one piece per character.

    Args:
        texts: read once; only word counts are kept.
        num_words: maximum number of words.
        min_frequency: minimum number of occurrences.

    Raises:
        UsageError: the tokenizer is not WordPiece, a number below 1, or a str or a table instead of texts.
    """
    refuse_one_text(texts)
    if num_words < 1 or min_frequency < 1:
        raise UsageError(f"num_words={num_words}, min_frequency={min_frequency}: expected at least 1 of each")
    engine = _wordpiece(tokenizer)
    occurrences: Counter[str] = Counter()
    texts, num_texts = iter(texts), 0
    while chunk := list(islice(texts, _TEXTS_AT_A_TIME)):
        occurrences.update(_broken_words(tokenizer, chunk, num_texts))
        num_texts += len(chunk)
    unk_id = engine.vocabulary.id(engine.vocabulary.special.unk)
    words = []
    for word, num_occurrences in occurrences.items():
        if num_occurrences >= min_frequency and _is_written(word) and len(word) <= engine.max_characters_per_word:
            pieces = tokenizer.encode(word).input_ids[1:-1].tolist()
            words.append(DomainWord(word, num_occurrences, len(word) if unk_id in pieces else len(pieces)))
    words = [word for word in words if word.num_pieces > 1 and word.word not in engine.vocabulary]
    return sorted(words, key=lambda word: (-word.num_pieces_saved, word.word))[:num_words]


def extend_vocabulary(tokenizer: Tokenizer, words: Sequence[str]) -> Tokenizer:
    """The tokenizer with ``words`` as new entries at the end; other ids are unchanged.

    The longest entry is matched first, so a new word is matched everywhere, and also at the start of longer
    words that are not entries: with "cardio" added, "cardiology" may become "cardio ##logy". Added tokens that were not
    pieces of words become pieces, as a ``tokenizer.json`` has the pieces before all other entries.

    Raises:
        UsageError: the tokenizer is not WordPiece, or a word is not a single word for it, or already an entry; a str
            instead of several words.
    """
    refuse_one_text(words)
    engine = _wordpiece(tokenizer)
    size = len(engine.vocabulary)
    for word in words:
        if word in engine.vocabulary:
            raise UsageError(f"the vocabulary has {word!r} already, as id {engine.vocabulary.id(word)}")
    vocabulary = Vocabulary((*engine.vocabulary.tokens, *words), engine.vocabulary.special)
    extended = replace(tokenizer, engine=replace(engine, vocabulary=vocabulary, num_added=0))
    for token_id, (word, encoding) in enumerate(zip(words, extended.encode_batch(words), strict=True), start=size):
        if encoding.input_ids[1:-1].tolist() != [token_id]:
            raise UsageError(
                f"{word!r} would never be matched, because it is not one word to this tokenizer: give words without "
                "spaces and punctuation, lowercased and without accents for an uncased vocabulary"
            )
    return extended


def _broken_words(tokenizer: Tokenizer, texts: list[str], first_index: int) -> list[str]:
    """Every occurrence of a word that is not an entry of the vocabulary, as normalized by the tokenizer; errors count
    texts from ``first_index``."""
    vocabulary = tokenizer.vocabulary
    unk_id = vocabulary.id(vocabulary.special.unk)
    encodings = tokenizer.encode_batch(texts, first_index=first_index)
    word_ids, ids = encodings.word_ids, encodings.input_ids
    firsts = np.flatnonzero(np.diff(word_ids, prepend=-2))
    lasts = np.append(firsts[1:], len(ids))
    broken = (word_ids[firsts] >= 0) & ((lasts - firsts > 1) | (ids[firsts] == unk_id))
    text_of_token = np.repeat(np.arange(len(encodings)), encodings.seqlens)
    words = []
    for first, last in zip(firsts[broken].tolist(), lasts[broken].tolist(), strict=True):
        if ids[first] == unk_id:
            start, end = encodings.offsets[first].tolist()
            words.append(tokenizer.normalize(texts[text_of_token[first]][start:end]).strip())
        else:
            pieces = [vocabulary.tokens[piece] for piece in ids[first:last]]
            words.append(pieces[0] + "".join(piece.removeprefix(CONTINUATION) for piece in pieces[1:]))
    return words


def _is_written(word: str) -> bool:
    """True for letters and the marks that combine with them, as the vowels of Hindi, Tamil and Thai."""
    kinds = {unicodedata.category(character)[0] for character in word}
    return "L" in kinds and kinds <= {"L", "M"}


def _wordpiece(tokenizer: Tokenizer) -> WordPiece:
    if not isinstance(tokenizer.engine, WordPiece):
        raise UsageError("only a WordPiece vocabulary can be extended: this model has another kind of tokenizer")
    return tokenizer.engine
