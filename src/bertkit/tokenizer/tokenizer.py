"""The tokenizer: encode texts and pairs, decode ids, load and save."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bertkit.errors import UsageError, check_collection, check_several, checked_path
from bertkit.tokenizer.encoding import Encoding, Encodings, joined
from bertkit.tokenizer.layout import Layout, OnLong, Side, assemble
from bertkit.tokenizer.library import Engine
from bertkit.tokenizer.older_files import SOURCE
from bertkit.tokenizer.published import read_engine, write_engine
from bertkit.tokenizer.vocabulary import Vocabulary
from bertkit.tokenizer.wordpiece import Normalization, WordPiece, explain_bad_text


def as_items(texts: Any) -> Any:
    """Texts as they are, or a list of one str; as `check_collection`."""
    check_collection("texts", texts)
    return [texts] if isinstance(texts, str) else texts


def refuse_one_text(texts: Any) -> None:
    """Refuse a str, which iterates over its characters, and what `check_collection` refuses.

    Raises:
        UsageError: a str, a table or no collection instead of several texts.
    """
    check_several("texts", texts)


def listed_texts(texts: Any) -> list[Any]:
    """Several texts as a list, also of a generator, an array or a pandas column, which is indexed by its labels; as
    `refuse_one_text`."""
    refuse_one_text(texts)
    return list(texts)


@dataclass(frozen=True)
class Tokenizer:
    """Tokenizer: texts to Encodings, with one vocabulary.

    >>> tokenizer = Tokenizer.from_vocab("[PAD] [UNK] [CLS] [SEP] [MASK] i was thirst ##y !".split())
    >>> tokenizer.tokens(tokenizer.encode("I was thirsty!"))
    ['[CLS]', 'i', 'was', 'thirst', '##y', '!', '[SEP]']
    """

    engine: Engine  # splits texts into pieces: BERT's WordPiece, or another published tokenizer
    model_max_length: int | None = None  # published maximum sequence length in tokens; `encode` does not apply it:
    # texts are cut only if ``max_length`` is passed
    truncation_side: Side = "right"  # where texts are cut

    @classmethod
    def from_vocab(
        cls,
        vocabulary: Vocabulary | Sequence[str] | str | Path,
        *,
        lowercase: bool | None = None,
        strip_accents: bool | None = None,
        split_cjk: bool = True,
    ) -> "Tokenizer":
        """A WordPiece tokenizer from a vocabulary: the object, its tokens in id order, or the path of a ``vocab.txt``.

        Args:
            lowercase: must match the vocabulary: True for uncased, False for cased ones; None: cased if 10 % of its
                entries have uppercase letters. If any has, a UserWarning says what was chosen.
            strip_accents: drop accents: é becomes e; None: as ``lowercase``.
            split_cjk: make each Chinese character a word.

        Raises:
            DataError: a vocabulary that cannot be read, has an entry twice, or is not valid Unicode.
            UsageError: tokens that are no str, or whose order is not that of their ids: a dict or a set.
        """
        path = Path(vocabulary) if isinstance(vocabulary, str | Path) else Path("the vocabulary")
        if isinstance(vocabulary, str | Path):
            vocabulary = Vocabulary.load(vocabulary)
        elif not isinstance(vocabulary, Vocabulary):
            if isinstance(vocabulary, Mapping | set | frozenset) or not isinstance(vocabulary, Iterable):
                raise UsageError(
                    f"the vocabulary is {type(vocabulary).__name__}: expected its tokens in the order of their ids, "
                    "such as sorted(ids, key=ids.get) of a dict ids"
                )
            vocabulary = Vocabulary(tuple(vocabulary))
        if lowercase is None:
            lowercase = vocabulary.guess_lowercase(path, "pass lowercase=True or lowercase=False")
        return cls(WordPiece(vocabulary, Normalization(lowercase, strip_accents, split_cjk)))

    @classmethod
    def load(cls, directory: str | Path, *, language: str = SOURCE) -> "Tokenizer":
        """Load the tokenizer of a published directory, or of a ``vocab.txt``.

        Args:
            language: SOURCE or TARGET (`bertkit.tokenizer.older_files`), for a Marian folder.

        Raises:
            CheckpointError: no tokenizer, or one that is not supported.
            DataError: a vocabulary that cannot be read.
        """
        directory = checked_path("the folder of a tokenizer", directory)
        if directory.is_file():
            return cls.from_vocab(directory)
        return cls(*read_engine(directory, language))

    def save(self, directory: str | Path, *, with_types: bool = True) -> None:
        """Write ``tokenizer.json``, ``tokenizer_config.json`` and, for WordPiece, ``vocab.txt`` into a folder.

        Args:
            with_types: the model reads token types; others must not get them from transformers.
        """
        write_engine(self.engine, self.model_max_length, self.truncation_side, Path(directory), with_types=with_types)

    @property
    def vocabulary(self) -> Vocabulary:
        return self.engine.vocabulary

    def encode(
        self,
        text: str,
        pair: str | None = None,
        *,
        max_length: int | None = None,
        on_long: OnLong = "error",
        special_tokens_in_text: bool = False,
    ) -> Encoding:
        """``[CLS] text [SEP]``, or ``[CLS] text [SEP] pair [SEP]``, of at most ``max_length`` tokens.

        Raises:
            OverLengthError: longer than ``max_length`` under ``on_long="error"``.
            UsageError: ``on_long="window"``, which gives several Encodings: see ``encode_batch``.
        """
        if on_long == "window":
            raise UsageError("on_long='window' gives several Encodings for a text: use encode_batch([text], ...)")
        (encoding,) = self.encode_batch(
            [text],
            None if pair is None else [pair],
            max_length=max_length,
            on_long=on_long,
            special_tokens_in_text=special_tokens_in_text,
        )
        return encoding

    def num_known(self, text: str) -> int:
        """Number of tokens of a text that the vocabulary has, without special tokens and [UNK]."""
        encoding = self.encode(text)
        return int(np.count_nonzero(~encoding.special_tokens_mask)) - encoding.num_unknown

    def encode_batch(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None = None,
        *,
        max_length: int | None = None,
        on_long: OnLong = "error",
        stride: int | None = None,
        special_tokens_in_text: bool = False,
        first_index: int = 0,
        with_offsets: bool = True,
        num_threads: int | None = None,
    ) -> Encodings:
        """Encode many texts, or pairs of texts at the same index.

        Args:
            max_length: maximum sequence length in tokens, special tokens included; None: no limit.
            on_long: what to do with longer texts: ``"error"``, ``"truncate"`` (the count and the characters cut are in
                the Encoding), or ``"window"`` (several Encodings with the same ``text_index``; over the pair's second
                text, with the first before each window).
            stride: tokens from the start of one window to the next; None: half a window.
            special_tokens_in_text: read a literal "[MASK]" in a text as that special token, as the published
                tokenizers always do; by default it is text.
            first_index: index of the first text in errors, for texts in parts.
            with_offsets: compute offsets and word ids; False is faster, but then only arrays are available,
                not single Encodings.
            num_threads: maximum number of threads; None: one for each processor.

        Returns:
            One Encoding for each text, in order; with ``"window"`` one or more.

        Raises:
            OverLengthError: a text is too long under ``"error"``.
            UsageError: a text that is not a str, or different numbers of texts and pairs.
        """
        for given in (texts, () if pairs is None else pairs):
            if isinstance(given, str):
                raise UsageError("encode_batch expected a list of texts, got a str: use encode(text) or [text]")
            check_collection("texts", given)
        texts = texts if hasattr(texts, "__len__") else list(texts)
        pairs = pairs if pairs is None or hasattr(pairs, "__len__") else list(pairs)
        if not self.engine.template.wraps:
            raise UsageError(
                "this tokenizer adds no special tokens such as [CLS], as its model generates text (bertkit generate): "
                "choose a BERT model to embed or classify texts"
            )
        if pairs is not None and len(pairs) != len(texts):
            raise UsageError(f"{len(texts)} texts and {len(pairs)} pairs: expected one pair for each text")
        layout = Layout(max_length, on_long, stride)
        cls_id, sep_id = self.cls_id, self.sep_id
        parts = [
            self.engine.tokenize(
                part,
                special_tokens_in_text=special_tokens_in_text,
                first_index=first_index,
                with_spans=with_offsets or on_long == "window",
                num_threads=num_threads,
            )
            for part in (texts, pairs)
            if part is not None
        ]
        return assemble(
            joined(parts),
            len(parts),
            cls_id,
            sep_id,
            self.engine.template,
            layout,
            first_index,
            self.truncation_side,
            self._unknown_id,
        )

    def plain_ids(self, texts: Sequence[str]) -> list[np.ndarray]:
        """The (n,) int64 ids of each text, without special tokens: prompts and targets of generation.

        Raises:
            UsageError: a text that is not a str; or a str or a table instead of texts.
        """
        refuse_one_text(texts)
        pieces = self.engine.tokenize(list(texts), with_spans=False)
        bounds = zip(pieces.cu_seqlens[:-1] + 1, pieces.cu_seqlens[1:] - 1, strict=True)  # without [CLS] and [SEP]
        return [pieces.input_ids[start:end].astype(np.int64) for start, end in bounds]

    def decode(self, ids: Encoding | Sequence[int] | np.ndarray, *, skip_special_tokens: bool = True) -> str:
        """Decode an Encoding, or ids: join pieces to words and remove spaces before punctuation. Case and accents
        dropped by an uncased vocabulary are not restored.

        Raises:
            DataError: an id outside the vocabulary; UsageError: no ids.
        """
        return self.engine.decode(self._ids(ids), skip_special_tokens=skip_special_tokens)

    def tokens(self, encoding: Encoding | Sequence[int] | np.ndarray) -> list[str]:
        """The tokens of an Encoding, or of ids, as strings; ``vocabulary.id`` is the id of one token.

        Raises:
            DataError: an id outside the vocabulary; UsageError: no ids.
        """
        return [self.vocabulary.tokens[token_id] for token_id in self._ids(encoding)]

    def _ids(self, ids: Any) -> list[int]:
        ids = ids.input_ids if isinstance(ids, Encoding) else ids
        if not isinstance(ids, Iterable):
            raise UsageError(f"ids are {ids!r:.40}: expected several, such as [{ids!r:.40}]")
        return [self.vocabulary.checked_id(one) for one in ids]

    def normalize(self, text: str) -> str:
        """The text before splitting: cleaned, and for an uncased vocabulary lowercased without accents.

        Raises:
            DataError: it is not valid Unicode; UsageError: it is not a str.
        """
        explain_bad_text([text], 0)
        return self.engine.normalize(text)

    @property
    def cls_id(self) -> int:
        return self.vocabulary.id(self.vocabulary.special.cls)

    @property
    def sep_id(self) -> int:
        return self.vocabulary.id(self.vocabulary.special.sep)

    @property
    def _unknown_id(self) -> int:
        """The id of [UNK]; -1 if the vocabulary has none."""
        unknown = self.vocabulary.special.unk
        return self.vocabulary.id(unknown) if unknown in self.vocabulary else -1

    @property
    def pad_id(self) -> int:
        return self.vocabulary.id(self.vocabulary.special.pad)

    @property
    def mask_id(self) -> int:
        return self.vocabulary.id(self.vocabulary.special.mask)
