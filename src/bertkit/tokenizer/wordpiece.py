"""Basic tokenization and WordPiece over a vocabulary (Devlin et al. 2018, section 3; Wu et al. 2016, section 4.1).

Basic tokenization drops control characters, turns every kind of white space into a space, puts spaces around CJK
characters, for uncased vocabularies decomposes (NFD), drops accents and lower-cases, and splits at white space and
punctuation. WordPiece then takes the longest entry that starts the word, again and again; a word that cannot be
spelled, or is longer than 100 characters, becomes [UNK] as a whole. Both are done by the `tokenizers` library.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors

from bertkit.errors import DataError, UsageError
from bertkit.tokenizer.encoding import Pieces
from bertkit.tokenizer.vocabulary import CONTINUATION, Vocabulary

MAX_CHARACTERS_PER_WORD = 100


@dataclass(frozen=True)
class Normalization:
    """How text is changed before it is split. Field defaults are those of an uncased BERT."""

    lowercase: bool = True
    strip_accents: bool | None = None  # None: as lowercase
    split_cjk: bool = True  # each CJK character becomes a word


@dataclass(frozen=True)
class WordPiece:
    """The tokenizing engine of one vocabulary. ``added_tokens`` are whole words, found before anything else is done."""

    vocabulary: Vocabulary
    normalization: Normalization = Normalization()
    added_tokens: tuple[AddedToken, ...] = ()
    max_characters_per_word: int = MAX_CHARACTERS_PER_WORD

    def tokenize(
        self, texts: Sequence[str], *, special_tokens_in_text: bool = False, first_index: int = 0
    ) -> list[Pieces]:
        """Tokens of each text, without [CLS] and [SEP].

        A literal "[MASK]" in a text is that special token only if ``special_tokens_in_text``; otherwise it is text.

        Args:
            first_index: the number that errors give the first text.

        Raises:
            UsageError: something that is not a str.
            DataError: a str that is not valid Unicode (an unpaired surrogate).
        """
        engine = self._with_special_tokens if special_tokens_in_text else self._plain
        for index, text in enumerate(texts, start=first_index):
            if not isinstance(text, str):  # the engine would take a tuple for a pair
                raise UsageError(f"text {index} is {type(text).__name__} ({text!r:.40}): expected str")
        try:
            encodings = engine.encode_batch(texts, add_special_tokens=False)
        except (TypeError, UnicodeEncodeError):
            _explain_bad_text(texts, first_index)
            raise
        return [
            Pieces(
                np.array(encoding.ids, np.int32),
                np.array(encoding.offsets, np.int32).reshape(-1, 2),
                np.array(encoding.word_ids, np.int32),
            )
            for encoding in encodings
        ]

    def normalize(self, text: str) -> str:
        """The text as it is before splitting: cleaned, and lower-cased and without accents where the vocabulary is."""
        return self._plain.normalizer.normalize_str(text)

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        return self._with_special_tokens.decode(ids, skip_special_tokens=skip_special_tokens)

    def to_json(self) -> str:
        """The published ``tokenizer.json`` of this engine."""
        return self._with_special_tokens.to_str(pretty=True)

    @cached_property
    def _plain(self) -> tokenizers.Tokenizer:
        return self._build(special=False)

    @cached_property
    def _with_special_tokens(self) -> tokenizers.Tokenizer:
        return self._build(special=True)

    def _build(self, *, special: bool) -> tokenizers.Tokenizer:
        vocabulary, names = self.vocabulary, self.vocabulary.special
        vocabulary.id(names.unk)  # every word that cannot be spelled becomes it
        engine = tokenizers.Tokenizer(
            models.WordPiece(
                vocab={token: token_id for token_id, token in enumerate(vocabulary.tokens)},
                unk_token=names.unk,
                max_input_chars_per_word=self.max_characters_per_word,
                continuing_subword_prefix=CONTINUATION,
            )
        )
        engine.normalizer = normalizers.BertNormalizer(
            clean_text=True,
            handle_chinese_chars=self.normalization.split_cjk,
            strip_accents=self.normalization.strip_accents,
            lowercase=self.normalization.lowercase,
        )
        engine.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        engine.decoder = decoders.WordPiece(prefix=CONTINUATION, cleanup=True)
        engine.post_processor = processors.TemplateProcessing(
            single=f"{names.cls}:0 $A:0 {names.sep}:0",
            pair=f"{names.cls}:0 $A:0 {names.sep}:0 $B:1 {names.sep}:1",
            special_tokens=[(token, vocabulary.id(token)) for token in (names.cls, names.sep)],
        )
        engine.add_tokens([token for token in self.added_tokens if not token.special])
        if special:
            present = [AddedToken(token, special=True) for token in names.spellings() if token in vocabulary]
            engine.add_special_tokens(present + [token for token in self.added_tokens if token.special])
        return engine


def _explain_bad_text(texts: Sequence[str], first_index: int) -> None:
    for index, text in enumerate(texts, start=first_index):
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise DataError(
                f"text {index} is not valid Unicode: an unpaired surrogate stands at character {error.start}; decode "
                "the original bytes with errors='replace'"
            ) from None
