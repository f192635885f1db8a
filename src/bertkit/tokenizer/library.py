"""Published tokenizers that are not BERT's WordPiece, such as ModernBERT's BPE: through the ``tokenizers`` library.

Their ``tokenizer.json`` contains everything: normalization, splitting, model, and the template of special tokens.
Of other files of a checkpoint, only the names of its special tokens are used.
"""

import json
import secrets
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers

from bertkit.errors import CheckpointError, DataError
from bertkit.tokenizer.chunks import CachingLibrary, Tokens
from bertkit.tokenizer.encoding import Pieces, joined
from bertkit.tokenizer.layout import BARE_TEXT, PairTemplate
from bertkit.tokenizer.vocabulary import SpecialTokens, Vocabulary, from_ids
from bertkit.tokenizer.wordpiece import WordPiece, explain_bad_text

_CHARACTERS_AT_A_TIME = 4_000_000  # the library needs some hundred bytes for each token


@dataclass(frozen=True)
class LibraryTokenizer:
    """Tokenizing engine for a ``tokenizer.json``, with the interface of `WordPiece`; threads may share it."""

    vocabulary: Vocabulary
    definition: str = field(repr=False)  # the content of tokenizer.json
    template: PairTemplate
    settings: dict[str, Any] = field(default_factory=dict, repr=False)  # the content of tokenizer_config.json

    def tokenize(
        self,
        texts: Sequence[str],
        *,
        special_tokens_in_text: bool = False,
        first_index: int = 0,
        with_spans: bool = True,
        num_threads: int | None = None,
    ) -> Pieces:
        """As `WordPiece.tokenize`; ``num_threads`` is ignored: the library uses threads
        by its own settings, TOKENIZERS_PARALLELISM and RAYON_NUM_THREADS."""
        library = self._with_special_tokens if special_tokens_in_text else self._library
        parts = encode_in_parts(library, texts, first_index, with_spans)
        return joined([self._pieces(tokens) for tokens in parts])

    def normalize(self, text: str) -> str:
        """The text after normalization, before splitting."""
        normalizer = self._library.library.normalizer
        return text if normalizer is None else normalizer.normalize_str(text)

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        """Text from ids, by the decoder in tokenizer.json."""
        return self._with_special_tokens.library.decode(list(ids), skip_special_tokens=skip_special_tokens)

    def __getstate__(self) -> dict[str, Any]:
        """The state without lazily built members."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def _pieces(self, tokens: Tokens) -> Pieces:
        cu_seqlens = np.zeros(len(tokens.lengths) + 1, np.int64)
        np.cumsum(tokens.lengths + 2, out=cu_seqlens[1:])
        inside = np.ones(cu_seqlens[-1], np.bool_)
        inside[cu_seqlens[:-1]] = inside[cu_seqlens[1:] - 1] = False
        input_ids = np.empty(len(inside), np.int32)
        input_ids[cu_seqlens[:-1]] = self.vocabulary.id(self.vocabulary.special.cls)
        input_ids[cu_seqlens[1:] - 1] = self.vocabulary.id(self.vocabulary.special.sep)
        input_ids[inside] = tokens.ids
        spans = None
        if tokens.spans is not None:
            spans = np.empty((len(inside), 3), np.int32)
            spans[~inside] = (0, 0, -1)
            spans[inside] = tokens.spans
        return Pieces(input_ids, cu_seqlens, spans)

    @cached_property
    def _library(self) -> CachingLibrary:
        """The library's tokenizer that reads the special tokens with a role, such as [MASK], in a text as text."""
        end = (self.settings.get(f"{role}_token") for role in ("bos", "eos"))  # of models that generate text
        named = (token.get("content") if isinstance(token, dict) else token for token in end)
        roles = {*self.vocabulary.special.spellings(), *named}
        return CachingLibrary(_open(_without_special_tokens(self.definition, roles)))

    @cached_property
    def _with_special_tokens(self) -> CachingLibrary:
        return CachingLibrary(_open(self.definition))


Engine = WordPiece | LibraryTokenizer
"""Tokenizing engines, with the same methods."""


def encode_in_parts(
    library: CachingLibrary, texts: Sequence[str], first_index: int, with_spans: bool
) -> Iterator[Tokens]:
    """Tokens of consecutive texts, without special tokens, a few million characters at a time.

    Args:
        first_index: the index of the first text in errors.
        with_spans: whether offsets and numbers of words are needed.

    Raises:
        DataError: a text that is not a str, is not valid Unicode, or that the library refuses.
    """
    texts = list(texts)
    for start, stop in _parts(texts, first_index):
        try:
            yield library.encode(texts[start:stop], with_spans)
        except Exception as error:
            explain_bad_text(texts[start:stop], first_index + start)
            raise DataError(f"the tokenizers library cannot tokenize the texts: {error}") from None


def _parts(texts: list[str], first_index: int) -> Iterator[tuple[int, int]]:
    """Start and end of parts of the texts that are tokenized in one call; at least one, which may be empty."""
    if not all(isinstance(text, str) for text in texts):  # the library would take a tuple for a pair
        explain_bad_text(texts, first_index)
    start, characters = 0, 0
    for index, text in enumerate(texts):
        if characters >= _CHARACTERS_AT_A_TIME:
            yield start, index
            start, characters = index, 0
        characters += len(text)
    yield start, len(texts)


def read_library_tokenizer(
    definition: str, names: SpecialTokens, settings: dict[str, Any], path: Path
) -> LibraryTokenizer:
    """The engine of a ``tokenizer.json``.

    Args:
        names: names of [PAD], [UNK] and [MASK]; those of [CLS] and [SEP] are its template's.
        settings: the content of its ``tokenizer_config.json``.

    Raises:
        CheckpointError: the library cannot read the file, or its template is not [CLS] A [SEP] and [CLS] A [SEP] B
            [SEP] with one or two separators between the texts, or the same without [CLS], in any spelling.
    """
    try:
        definition = _with_one_unknown(definition)
        library = _open(definition)
        cls, sep, template = _template(library, path, settings)
    except (CheckpointError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the library raises plain Exceptions, and panics, which are BaseExceptions
        raise CheckpointError(
            f"{path} cannot be read by the tokenizers library, version {tokenizers.__version__} ({error!s:.200}): "
            "fetch or save it again"
        ) from None
    special = SpecialTokens(names.pad, names.unk, cls, sep, names.mask)
    vocabulary = from_ids(library.get_vocab(with_added_tokens=True).items(), special)
    return LibraryTokenizer(vocabulary, definition, template, settings)


def _with_one_unknown(definition: str) -> str:
    """The published form of a CamemBERT tokenizer that transformers 5 saved with ``<unk>`` as entry 3 and again as
    entry 4, and ``<unk>NOTUSED``, which is entry 4, behind the last row of the word embedding."""
    names = ["<unk>", "<unk>NOTUSED"]
    if names[1] not in definition:
        return definition
    content = json.loads(definition)
    entries = content["model"]["vocab"]
    if not isinstance(entries, list) or [token for token, _ in entries[3:5]] != [names[0], names[0]]:
        return definition
    entries[4][0] = names[1]
    for token in content["added_tokens"]:
        if token["content"] in names:
            token["id"] = 3 + names.index(token["content"])
    return json.dumps(content, ensure_ascii=False)


def _open(definition: str) -> tokenizers.Tokenizer:
    library = tokenizers.Tokenizer.from_str(definition)
    library.no_truncation()
    library.no_padding()
    if getattr(library.model, "dropout", None):  # of merges, at random, in training: disabled here
        library.model.dropout = None
    return library


def _without_special_tokens(definition: str, roles: Collection[str | None]) -> str:
    """The same ids for all other tokens, but no text matches a special token that has a role: they get names that
    nobody can write. (The library's own ``encode_special_tokens`` keeps the entry "<mask>" of a Unigram model.)"""
    content, secret = json.loads(definition), secrets.token_hex()
    added = content.get("added_tokens", [])
    special = {token["content"] for token in added if token["special"] and token["content"] in roles}

    def hidden(token: str) -> str:
        return f"\uffff{secret}{token}" if token in special else token

    for token in added:
        token["content"] = hidden(token["content"])
    model = content["model"]
    if isinstance(model["vocab"], dict):
        model["vocab"] = {hidden(token): token_id for token, token_id in model["vocab"].items()}
    else:  # Unigram
        model["vocab"] = [[hidden(token), score] for token, score in model["vocab"]]
    if "merges" in model:  # BPE: without those that would make a special token, or use one
        prefix = model.get("continuing_subword_prefix") or ""
        model["merges"] = [merge for merge in model["merges"] if special.isdisjoint(_parts_and_result(merge, prefix))]
    if model.get("unk_token"):
        model["unk_token"] = hidden(model["unk_token"])
    return json.dumps(content)


def _parts_and_result(merge: str | list[str], prefix: str) -> tuple[str, str, str]:
    """Of a merge of BPE, which older files write as "a b"; ``prefix`` begins the parts that continue a word."""
    first, second = merge.split(" ") if isinstance(merge, str) else merge
    return first, second, first + second.removeprefix(prefix)


def _template(library: tokenizers.Tokenizer, path: Path, settings: dict[str, Any]) -> tuple[str, str, PairTemplate]:
    """Names of [CLS] and [SEP] and the pair template, from the post-processor's output for two texts."""
    a, b = (library.encode(text, add_special_tokens=False).ids for text in ("a", "b"))
    one, two = library.encode("a"), library.encode("a", "b")
    end = settings.get("eos_token")
    end = end.get("content") if isinstance(end, dict) else end
    if one.ids == a and two.ids == [*a, *b] and isinstance(end, str) and library.token_to_id(end) is not None:
        return end, end, BARE_TEXT
    first, sep_id = one.ids[: max(0, len(one) - len(a) - 1)], [None, *one.ids][-1]
    template = PairTemplate(len(two) - len(one) - len(b), [0, *two.type_ids][-1], has_first=bool(first))
    if (
        len(first) <= 1
        and one.ids == [*first, *a, sep_id]
        and template.num_separators in (1, 2)
        and two.ids == [*first, *a, *[sep_id] * template.num_separators, *b, sep_id]
        and [library.token_to_id(token) for token in (*one.tokens[: len(first)], one.tokens[-1])] == [*first, sep_id]
        and one.special_tokens_mask == [*(1 for _ in first), *(0 for _ in a), 1]
        and not any(one.type_ids)
        and two.type_ids == [0] * (len(two) - len(b) - 1) + [template.second_type] * (len(b) + 1)
    ):
        return one.tokens[0 if first else -1], one.tokens[-1], template
    raise CheckpointError(
        f"{path}: its template makes {' '.join(one.tokens)!r} of 'a' and {' '.join(two.tokens)!r} of the pair 'a', "
        "'b', which is not supported: expected [CLS] a [SEP] and [CLS] a [SEP] b [SEP], with one or two [SEP] after a, "
        "or the same without [CLS]"
    )
