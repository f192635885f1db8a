"""Learn a WordPiece vocabulary from text."""

from collections.abc import Iterable

import tokenizers
from tokenizers import models, normalizers, pre_tokenizers, trainers

from bertkit.errors import DataError, UsageError
from bertkit.tokenizer.vocabulary import CONTINUATION, SpecialTokens, Vocabulary


def train_vocabulary(
    texts: Iterable[str],
    *,
    vocab_size: int = 30_522,
    lowercase: bool = True,
    min_frequency: int = 2,
    max_alphabet: int = 1_000,
) -> Vocabulary:
    """Learn a vocabulary whose pieces make frequent words short (Schuster & Nakajima 2012; pair merging by count).

    The same texts in the same order give the same vocabulary. Special tokens take ids 0 to 4.

    Args:
        texts: read once, kept only as word counts.
        vocab_size: entries wanted; fewer where the text has no more to merge.
        lowercase: learn an uncased vocabulary (lower case, accents dropped).
        min_frequency: a pair of pieces seen less often is not merged.
        max_alphabet: most single characters kept; rarer ones become [UNK].

    Raises:
        DataError: no text, or only white space.
        UsageError: ``vocab_size`` smaller than the special tokens and one character, or another number below 1.
    """
    special = SpecialTokens()
    if vocab_size <= len(special.spellings()):
        raise UsageError(f"vocab_size={vocab_size}: the special tokens alone are {len(special.spellings())}")
    if min_frequency < 1 or max_alphabet < 1:
        raise UsageError(f"min_frequency={min_frequency}, max_alphabet={max_alphabet}: expected at least 1 of each")
    engine = tokenizers.Tokenizer(models.WordPiece(unk_token=special.unk, continuing_subword_prefix=CONTINUATION))
    engine.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    engine.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        limit_alphabet=min(max_alphabet, vocab_size - len(special.spellings())),
        special_tokens=list(special.spellings()),
        continuing_subword_prefix=CONTINUATION,
        show_progress=False,
    )
    engine.train_from_iterator(texts, trainer)
    ids = engine.get_vocab()
    if len(ids) == len(special.spellings()):
        raise DataError("no words to learn from: the texts are empty or hold only white space")
    return Vocabulary(tuple(sorted(ids, key=ids.__getitem__)), special)
