"""Build a ``tokenizer.json`` for folders without one: from vocab.json and merges.txt, or SentencePiece models.

The files are read as data, and the results of transformers' converters are written in the form that the
``tokenizers`` library runs (transformers ``convert_slow_tokenizer.py``: RobertaConverter, XLMRobertaConverter,
CamembertConverter, AlbertConverter, DebertaV2Converter).
"""

import base64
import struct
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bertkit.errors import CheckpointError
from bertkit.files.formats import refuse_pointer
from bertkit.files.json_files import member, read_json
from bertkit.tokenizer.added_tokens import AddedToken
from bertkit.tokenizer.vocabulary import SpecialTokens

ANGLED = SpecialTokens("<pad>", "<unk>", "<s>", "</s>", "<mask>")
"""The special tokens of RoBERTa and related models."""

MARIAN = SpecialTokens("<pad>", "<unk>", "</s>", "</s>")
SOURCE, TARGET = "source.spm", "target.spm"
"""The two SentencePiece models of a Marian folder; both have the ids of its vocab.json, unless TARGET_VOCAB is used."""

TARGET_VOCAB = "target_vocab.json"
"""The ids of targets in a Marian folder whose tokenizer_config.json has ``separate_vocabs``."""

ELSEWHERE = "\uffff"
"""Begins a piece that the model of a language does not have, so that no text contains it."""

_CONTROL, _USER_DEFINED = 3, 4  # types of a piece (sentencepiece_model.proto)
_UNIGRAM = 1
_UNKNOWN_PENALTY = 10.0  # of SentencePiece, for a character that is not a piece


@dataclass(frozen=True)
class _SentencePiece:
    """The content of a SentencePiece model file."""

    pieces: list[tuple[str, float, int]]  # spelling, score, type
    charsmap: bytes  # normalization table


def older_tokenizer(
    directory: Path, settings: dict[str, Any], language: str = SOURCE
) -> tuple[dict[str, Any], SpecialTokens, Path] | None:
    """The content of a ``tokenizer.json``, its special tokens, and its source file; None without such a file.

    Args:
        settings: the content of ``tokenizer_config.json``.
        language: SOURCE or TARGET, for a Marian folder.

    Raises:
        CheckpointError: a file that cannot be read, or is incomplete.
    """
    vocabulary, merges = directory / "vocab.json", directory / "merges.txt"
    if vocabulary.is_file() and merges.is_file():
        return _byte_level(vocabulary, merges, settings), ANGLED, vocabulary
    if vocabulary.is_file() and (directory / language).is_file():
        if language == TARGET and member(settings, "separate_vocabs", bool, directory, False):
            vocabulary = directory / TARGET_VOCAB
        return _marian(vocabulary, _read(directory / language)), MARIAN, directory / language
    for name, (build, special) in _BUILDERS.items():
        path = directory / name
        if path.is_file():
            build = _camembert if build is _xlm_roberta and _is_camembert(directory, settings) else build
            return build(_read(path), settings), special, path
    return None


def ids_of(content: dict[str, Any]) -> dict[str, int]:
    """The ids of the tokens of a ``tokenizer.json``."""
    entries = content["model"]["vocab"]
    ids = entries if isinstance(entries, dict) else {piece: token_id for token_id, (piece, _) in enumerate(entries)}
    return ids | {token["content"]: token["id"] for token in content["added_tokens"]}


def with_added_tokens(content: dict[str, Any], added: list[tuple[AddedToken, int]]) -> dict[str, Any]:
    """The content of a ``tokenizer.json`` with added tokens and their ids, which replace those of the same spelling."""
    ids = ids_of(content)
    entries = {token["content"]: token for token in content["added_tokens"]}
    entries |= {token.content: asdict(token) | {"id": ids.get(token.content, token_id)} for token, token_id in added}
    return content | {"added_tokens": sorted(entries.values(), key=lambda entry: entry["id"])}


def _byte_level(vocabulary: Path, merges: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """RoBERTa's byte-level BPE (Radford et al. 2019, section 2.2)."""
    ids = read_json(vocabulary) or {}
    if lacking := [token for token in ANGLED.spellings() if type(ids.get(token)) is not int]:
        raise CheckpointError(
            f"{vocabulary} lacks {', '.join(lacking)}: expected RoBERTa's vocabulary; for another model, save its "
            "tokenizer.json with transformers"
        )
    refuse_pointer(merges)
    try:
        lines = merges.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{merges} is not UTF-8 (byte {error.start}): fetch it again") from None
    prefix_space = member(settings, "add_prefix_space", bool, vocabulary, False)
    return _content(
        model={
            "type": "BPE",
            "vocab": ids,
            "merges": [line for line in lines if line and not line.startswith("#version")],
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
        },
        normalizers=[],
        pre_tokenizer={"type": "ByteLevel", "add_prefix_space": prefix_space, "trim_offsets": True, "use_regex": True},
        decoder={"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        post_processor={
            "type": "RobertaProcessing",
            "sep": ["</s>", ids["</s>"]],
            "cls": ["<s>", ids["<s>"]],
            "trim_offsets": True,
            "add_prefix_space": prefix_space,
        },
        added={ids[token]: _added(token) for token in ANGLED.spellings()},
    )


def _xlm_roberta(read: _SentencePiece, settings: dict[str, Any]) -> dict[str, Any]:
    """XLM-R's ids are those of SentencePiece plus one, except for the first ones."""
    vocabulary = [(token, 0.0) for token in ("<s>", "<pad>", "</s>", "<unk>")]
    vocabulary += [*((piece, score) for piece, score, _ in read.pieces[3:]), ("<mask>", 0.0)]
    return _unigram(vocabulary, 3, [_charsmap(read), *_ONE_SIGN], ANGLED.spellings(), second_type=None)


def _camembert(read: _SentencePiece, settings: dict[str, Any]) -> dict[str, Any]:
    unused = ("<s>NOTUSED", "</s>NOTUSED", "<unk>NOTUSED")
    vocabulary = [("<s>NOTUSED", 0.0), ("<pad>", 0.0), ("</s>NOTUSED", 0.0), ("<unk>", 0.0), ("<unk>NOTUSED", -100.0)]
    vocabulary += [*((piece, score) for piece, score, _ in read.pieces[1:]), ("<mask>", 0.0)]
    special = (*ANGLED.spellings(), *unused)
    return _unigram(vocabulary, 3, [_charsmap(read), *_ONE_SIGN], special, second_type=None)


def _marian(vocabulary: Path, read: _SentencePiece) -> dict[str, Any]:
    """Marian's ids are those of vocab.json, which has the pieces of both languages; no special tokens are added.

    A piece that vocab.json lacks is read as smaller pieces, and several characters in a row that the model does not
    know one by one: transformers makes an unknown token of them. A language code such as >>fr<< is one token.
    """
    ids = read_json(vocabulary) or {}
    if lacking := [token for token in ("</s>", "<unk>", "<pad>") if type(ids.get(token)) is not int]:
        raise CheckpointError(f"{vocabulary} lacks {', '.join(lacking)}: expected the vocabulary of a Marian model")
    if not all(type(one) is int for one in ids.values()) or sorted(ids.values()) != list(range(len(ids))):
        raise CheckpointError(f"{vocabulary}: expected each id from 0 to {len(ids) - 1} once")
    tokens = sorted(ids, key=ids.__getitem__)
    scores = {piece: score for piece, score, _ in read.pieces}
    special = {"</s>", "<unk>", "<pad>"}
    codes = {token for token in tokens if token.startswith(">>") and token.endswith("<<")}
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    # Pieces of the other language alone are spelled so that no text contains them; single characters are looked up.
    unknown = min(scores.values()) - _UNKNOWN_PENALTY
    pieces = [
        (token, scores.get(token, unknown if len(token) == 1 else 0.0))
        if token in scores or token in special | codes or len(token) == 1
        else (f"{ELSEWHERE}{token}", 0.0)
        for token in tokens
    ]
    return _content(
        model={"type": "Unigram", "unk_id": ids["<unk>"], "vocab": pieces},
        normalizers=[_charsmap(read), *_ONE_SIGN],
        pre_tokenizer=metaspace,
        decoder={"type": "Sequence", "decoders": [_replace(ELSEWHERE, ""), metaspace]},
        post_processor=None,
        added={ids[token]: _added(token, special=token in special) for token in special | codes},
    )


def _albert(read: _SentencePiece, settings: dict[str, Any]) -> dict[str, Any]:
    """ALBERT's tokenizer; pieces such as "1," get scores too low to be chosen."""
    normalizers: list[dict[str, Any] | None] = [_replace("``", '"'), _replace("''", '"')]
    if not settings.get("keep_accents"):
        normalizers += [{"type": "NFKD"}, {"type": "StripAccents"}]
    if settings.get("do_lower_case", True):
        normalizers.append({"type": "Lowercase"})
    pieces = [
        (piece, score - 100 * (len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit()))
        for piece, score, _ in read.pieces
    ]
    return _with_own_special_tokens(read, pieces, [*normalizers, _charsmap(read), _ONE_SPACE], "<unk>", [])


def _deberta(read: _SentencePiece, settings: dict[str, Any]) -> dict[str, Any]:
    lowercase = [{"type": "Lowercase"}] if settings.get("do_lower_case") else []
    strip = {"type": "Strip", "strip_left": True, "strip_right": True}
    pieces = [(piece, score) for piece, score, _ in read.pieces]
    punctuation = [{"type": "Punctuation", "behavior": "Isolated"}] if settings.get("split_by_punct") else []
    normalizers = [*lowercase, strip, _charsmap(read), _ONE_SPACE]
    return _with_own_special_tokens(read, pieces, normalizers, "[UNK]", punctuation)


_BUILDERS: dict[str, tuple[Callable[[_SentencePiece, dict[str, Any]], dict[str, Any]], SpecialTokens]] = {
    "sentencepiece.bpe.model": (_xlm_roberta, ANGLED),
    "spm.model": (_deberta, SpecialTokens()),
    "spiece.model": (_albert, SpecialTokens(pad="<pad>", unk="<unk>")),
}


def _is_camembert(directory: Path, settings: dict[str, Any]) -> bool:
    model_type = (read_json(directory / "config.json") or {}).get("model_type")
    return model_type == "camembert" or str(settings.get("tokenizer_class")).startswith("Camembert")


def _with_own_special_tokens(
    read: _SentencePiece,
    vocabulary: list[tuple[str, float]],
    normalizers: list[dict[str, Any] | None],
    unknown: str,
    splitters: list[dict[str, Any]],
) -> dict[str, Any]:
    """A model whose pieces include the special tokens, except possibly [MASK], which is appended."""
    ids = {piece: token_id for token_id, (piece, _) in enumerate(vocabulary)}
    ids.setdefault("[MASK]", len(vocabulary))
    if lacking := [token for token in (unknown, "[CLS]", "[SEP]") if token not in ids]:
        raise CheckpointError(f"the SentencePiece model lacks {', '.join(lacking)}: expected another kind of model")
    special = {piece for piece, _, kind in read.pieces if kind == _CONTROL} | {"[MASK]", unknown, "[CLS]", "[SEP]"}
    added = {ids[token]: _added(token, lstrip=token == "[MASK]" and unknown == "<unk>") for token in special}
    defined = [piece for piece, _, kind in read.pieces if kind == _USER_DEFINED]
    added |= {ids[piece]: _added(piece, special=False) for piece in defined if piece not in special}
    return _unigram(vocabulary, ids[unknown], normalizers, added, second_type=1, splitters=splitters)


def _unigram(
    vocabulary: list[tuple[str, float]],
    unknown_id: int,
    normalizers: list[dict[str, Any] | None],
    special: Any,
    *,
    second_type: int | None,
    splitters: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """A Unigram model.

    Args:
        special: spellings of special tokens, or id -> added token.
        second_type: token type of text B in BERT's template; None: XLM-R's template, with two separators.
    """
    ids = {piece: token_id for token_id, (piece, _) in enumerate(vocabulary)}
    added = special if isinstance(special, dict) else {ids[token]: _added(token) for token in special}
    cls, sep = ("<s>", "</s>") if second_type is None else ("[CLS]", "[SEP]")
    if lacking := [token for token in (cls, sep) if token not in ids]:
        raise CheckpointError(f"the SentencePiece model lacks {', '.join(lacking)}: expected another kind of model")
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    first, last = _token(cls, 0), _token(sep, 0)
    a, b = ({"Sequence": {"id": name, "type_id": kind}} for name, kind in (("A", 0), ("B", second_type or 0)))
    between = [last, last] if second_type is None else [last]
    return _content(
        model={"type": "Unigram", "unk_id": unknown_id, "vocab": vocabulary},
        normalizers=normalizers,
        pre_tokenizer={"type": "Sequence", "pretokenizers": [*(splitters or []), metaspace]},
        decoder=metaspace,
        post_processor={
            "type": "TemplateProcessing",
            "single": [first, a, last],
            "pair": [first, a, *between, b, _token(sep, second_type or 0)],
            "special_tokens": {token: {"id": token, "ids": [ids[token]], "tokens": [token]} for token in (cls, sep)},
        },
        added=added,
    )


def _content(
    *,
    model: dict[str, Any],
    normalizers: list[dict[str, Any] | None],
    pre_tokenizer: dict[str, Any],
    decoder: dict[str, Any],
    post_processor: dict[str, Any] | None,
    added: dict[int, dict[str, Any]],
) -> dict[str, Any]:
    steps = [step for step in normalizers if step is not None]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": token_id} | added[token_id] for token_id in sorted(added)],
        "normalizer": {"type": "Sequence", "normalizers": steps} if steps else None,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": post_processor,
        "decoder": decoder,
        "model": model,
    }


def _added(token: str, *, lstrip: bool | None = None, special: bool = True) -> dict[str, Any]:
    lstrip = token == "<mask>" if lstrip is None else lstrip
    flags = {"single_word": False, "lstrip": lstrip, "rstrip": False, "normalized": False, "special": special}
    return {"content": token} | flags


def _token(name: str, type_id: int) -> dict[str, Any]:
    return {"SpecialToken": {"id": name, "type_id": type_id}}


def _replace(what: str, by: str, *, is_pattern: bool = False) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"Regex" if is_pattern else "String": what}, "content": by}


_ONE_SPACE = _replace(" {2,}", " ", is_pattern=True)
_ONE_SIGN: list[dict[str, Any]] = [
    {"type": "Strip", "strip_left": False, "strip_right": True},
    _replace(" {2,}", "▁", is_pattern=True),
]


def _charsmap(read: _SentencePiece) -> dict[str, Any] | None:
    if not read.charsmap:
        return None
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(read.charsmap).decode()}


def _read(path: Path) -> _SentencePiece:
    """Read a SentencePiece model: a protocol buffer message (sentencepiece_model.proto).

    Raises:
        CheckpointError: not such a message, or not a Unigram model.
    """
    refuse_pointer(path)
    pieces, charsmap, model_type = [], b"", _UNIGRAM
    try:
        for number, value in _fields(path.read_bytes()):
            if number == 1:
                piece = dict(_fields(value))
                pieces.append((piece[1].decode(), struct.unpack("<f", piece.get(2, bytes(4)))[0], piece.get(3, 1)))
            elif number == 2:
                model_type = dict(_fields(value)).get(3, _UNIGRAM)
            elif number == 3:
                charsmap = dict(_fields(value)).get(2, b"")
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, struct.error):
        raise CheckpointError(f"{path} is not a SentencePiece model, or is cut off: fetch it again") from None
    if model_type != _UNIGRAM or len(pieces) < 4:
        raise CheckpointError(f"{path} is not a Unigram model with pieces: save its tokenizer.json with transformers")
    return _SentencePiece(pieces, charsmap)


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a protocol buffer message: number, and an integer or bytes."""
    position = 0

    def varint() -> int:
        nonlocal position
        value = shift = 0
        while True:
            byte = data[position]
            position += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
            if shift > 63:
                raise ValueError("an integer of more than 64 bits")

    while position < len(data):
        number, kind = divmod(varint(), 8)
        if kind == 0:
            yield number, varint()
            continue
        length = {1: 8, 5: 4}.get(kind) or (varint() if kind == 2 else 0)
        if not 0 <= length <= len(data) - position or kind not in (1, 2, 5):
            raise ValueError("a field beyond the end, or of an unknown kind")
        yield number, data[position : position + length]
        position += length
