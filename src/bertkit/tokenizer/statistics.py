"""Statistics of a vocabulary on texts: pieces per word, share of [UNK]."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from bertkit.tokenizer.tokenizer import Tokenizer, refuse_one_text

_TEXTS_AT_A_TIME = 1_024


@dataclass(frozen=True)
class TextStatistics:
    """Counts over texts, without special tokens."""

    num_texts: int
    num_words: int  # after splitting at white space and punctuation
    num_pieces: int
    num_unknown: int  # pieces that are [UNK]

    @property
    def pieces_per_word(self) -> float:
        return self.num_pieces / self.num_words if self.num_words else 0.0

    @property
    def unknown_share(self) -> float:
        """Share of pieces that are [UNK], 0 to 1."""
        return self.num_unknown / self.num_pieces if self.num_pieces else 0.0


def text_statistics(tokenizer: Tokenizer, texts: Iterable[str]) -> TextStatistics:
    """Tokenize texts in batches and count.

    Raises:
        UsageError: a text that is not a str, or a str or a table instead of texts.
    """
    refuse_one_text(texts)
    unk = tokenizer.vocabulary.special.unk
    unk_id = tokenizer.vocabulary.id(unk) if unk in tokenizer.vocabulary else -1  # byte-level vocabularies have no
    # [UNK]
    num_texts = num_words = num_pieces = num_unknown = 0
    texts = iter(texts)
    while chunk := list(islice(texts, _TEXTS_AT_A_TIME)):
        encodings = tokenizer.encode_batch(chunk, first_index=num_texts)
        num_texts += len(chunk)
        words = encodings.word_ids  # -1 at [CLS], before each text
        num_words += int(((words[1:] != words[:-1]) & (words[1:] >= 0)).sum())
        num_pieces += int((words >= 0).sum())
        num_unknown += int(((encodings.input_ids == unk_id) & (words >= 0)).sum())
    return TextStatistics(num_texts, num_words, num_pieces, num_unknown)
