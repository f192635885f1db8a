"""Byte-level BPE trained on texts; decoding restores every text exactly."""

from collections.abc import Iterable
from pathlib import Path

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

from bertkit.errors import UsageError
from bertkit.tokenizer.library import read_library_tokenizer
from bertkit.tokenizer.older_files import ANGLED
from bertkit.tokenizer.tokenizer import Tokenizer, refuse_one_text

_BYTES = 256


def train_byte_level(texts: Iterable[str], vocab_size: int) -> Tokenizer:
    """Train byte-level BPE (Radford et al. 2019, section 2.2), with each digit a separate token.

    Args:
        vocab_size: maximum number of entries, including 256 bytes and RoBERTa's five special tokens.

    Raises:
        UsageError: fewer entries than that, or a str or a table instead of texts.
    """
    refuse_one_text(texts)
    if vocab_size < _BYTES + len(ANGLED.spellings()):
        raise UsageError(f"vocab_size={vocab_size}: expected at least {_BYTES + len(ANGLED.spellings())}")
    library = tokenizers.Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    library.decoder = decoders.ByteLevel()
    special = list(ANGLED.spellings())
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )  # fmt: skip
    library.train_from_iterator(texts, trainer)
    ids = [(token, library.token_to_id(token)) for token in (ANGLED.cls, ANGLED.sep)]
    library.post_processor = processors.TemplateProcessing(
        single=f"{ANGLED.cls} $A {ANGLED.sep}",
        pair=f"{ANGLED.cls} $A {ANGLED.sep} $B:1 {ANGLED.sep}:1",
        special_tokens=ids,
    )
    return Tokenizer(read_library_tokenizer(library.to_str(), ANGLED, {}, Path("tokenizer.json")))
