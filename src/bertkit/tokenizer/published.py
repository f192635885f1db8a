"""A published BERT tokenizer directory to a WordPiece engine, read as data.

``tokenizer.json`` is preferred, being what the fast published tokenizer runs; else ``vocab.txt`` with
``tokenizer_config.json``; else ``vocab.txt`` alone, taken as uncased.
"""

from pathlib import Path
from typing import Any

from tokenizers import AddedToken

from bertkit.errors import CheckpointError
from bertkit.json_files import read_json
from bertkit.tokenizer.vocabulary import CONTINUATION, SpecialTokens, Vocabulary, from_ids
from bertkit.tokenizer.wordpiece import MAX_CHARACTERS_PER_WORD, Normalization, WordPiece

_NO_LIMIT = 1_000_000
"""A ``model_max_length`` above this is the publishers' way of saying that none is known."""


def read_wordpiece(directory: Path) -> tuple[WordPiece, int | None]:
    """The engine, and the longest sequence its publisher names (None where none is named).

    Raises:
        CheckpointError: no tokenizer there, or one that is not BERT's WordPiece.
    """
    config = read_json(directory / "tokenizer_config.json") or {}
    special = _special_tokens(config, read_json(directory / "special_tokens_map.json") or {})
    published = read_json(directory / "tokenizer.json")
    if published is not None:
        engine = _from_tokenizer_json(published, special, directory / "tokenizer.json")
    elif (directory / "vocab.txt").is_file():
        normalization = Normalization(
            lowercase=config.get("do_lower_case", True),
            strip_accents=config.get("strip_accents"),
            split_cjk=config.get("tokenize_chinese_chars", True),
        )
        engine = WordPiece(Vocabulary.load(directory / "vocab.txt", special), normalization)
    else:
        raise CheckpointError(f"{directory} holds no tokenizer: expected tokenizer.json or vocab.txt in it")
    limit = config.get("model_max_length")
    return engine, int(limit) if isinstance(limit, int | float) and limit < _NO_LIMIT else None


def _special_tokens(config: dict[str, Any], special_tokens_map: dict[str, Any]) -> SpecialTokens:
    def spelling(role: str, default: str) -> str:
        value = config.get(f"{role}_token") or special_tokens_map.get(f"{role}_token") or default
        return value["content"] if isinstance(value, dict) else value

    defaults = SpecialTokens()
    return SpecialTokens(
        **{role: spelling(role, getattr(defaults, role)) for role in ("pad", "unk", "cls", "sep", "mask")}
    )


def _from_tokenizer_json(published: dict[str, Any], special: SpecialTokens, path: Path) -> WordPiece:
    model = published.get("model") or {}
    normalizer = published.get("normalizer") or {}
    found = (model.get("type"), normalizer.get("type"), (published.get("pre_tokenizer") or {}).get("type"))
    if found != ("WordPiece", "BertNormalizer", "BertPreTokenizer"):
        raise CheckpointError(
            f"{path} is not a BERT WordPiece tokenizer: model, normalizer and pre-tokenizer are {found}, expected "
            "('WordPiece', 'BertNormalizer', 'BertPreTokenizer')"
        )
    if model.get("continuing_subword_prefix", CONTINUATION) != CONTINUATION or not normalizer.get("clean_text", True):
        raise CheckpointError(f"{path}: only the '##' prefix and clean_text=true are supported")
    added = published.get("added_tokens") or []
    ids = dict(model.get("vocab") or {})
    ids.update((token["content"], token["id"]) for token in added)
    if special.unk != model.get("unk_token", special.unk):
        raise CheckpointError(f"{path} calls the unknown token {model['unk_token']!r}, its config {special.unk!r}")
    return WordPiece(
        from_ids(ids.items(), special),
        Normalization(normalizer["lowercase"], normalizer["strip_accents"], normalizer["handle_chinese_chars"]),
        added_tokens=tuple(_added_token(token) for token in added if token["content"] not in special.spellings()),
        max_characters_per_word=model.get("max_input_chars_per_word", MAX_CHARACTERS_PER_WORD),
    )


def _added_token(token: dict[str, Any]) -> AddedToken:
    keys = ("single_word", "lstrip", "rstrip", "normalized", "special")
    return AddedToken(token["content"], **{key: bool(token.get(key, False)) for key in keys})
