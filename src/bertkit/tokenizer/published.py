"""A published BERT tokenizer directory to a WordPiece engine, read as data; and its tokenizer.json from an engine.

``tokenizer.json`` is preferred, being what the fast published tokenizer runs; else ``vocab.txt`` with
``tokenizer_config.json``; else ``vocab.txt`` alone, taken as uncased.
"""

from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from bertkit.errors import CheckpointError
from bertkit.json_files import member, read_json
from bertkit.tokenizer.added_tokens import AddedToken
from bertkit.tokenizer.vocabulary import CONTINUATION, SpecialTokens, Vocabulary, from_ids
from bertkit.tokenizer.wordpiece import MAX_CHARACTERS_PER_WORD, Normalization, WordPiece

_NO_LIMIT = 1_000_000
"""A ``model_max_length`` above this is the publishers' way of saying that none is known."""

_LONGEST_WORD = 1_000_000
"""Characters; the engine holds a word of the longest length for each thread."""


def read_wordpiece(directory: Path) -> tuple[WordPiece, int | None]:
    """The engine, and the longest sequence its publisher names (None where none is named).

    Raises:
        CheckpointError: no tokenizer there, or one that is not BERT's WordPiece.
    """
    path = directory / "tokenizer_config.json"
    config = read_json(path) or {}
    special = _special_tokens((read_json(directory / "special_tokens_map.json") or {}) | config, path)
    published = read_json(directory / "tokenizer.json")
    if published is not None:
        engine = _from_tokenizer_json(published, special, directory / "tokenizer.json")
    elif (directory / "vocab.txt").is_file():
        normalization = Normalization(
            lowercase=member(config, "do_lower_case", bool, path, True),
            strip_accents=member(config, "strip_accents", bool, path),
            split_cjk=member(config, "tokenize_chinese_chars", bool, path, True),
        )
        engine = WordPiece(Vocabulary.load(directory / "vocab.txt", special), normalization)
    else:
        raise CheckpointError(f"{directory} holds no tokenizer: expected tokenizer.json or vocab.txt in it")
    limit = member(config, "model_max_length", float, path, _NO_LIMIT)
    return engine, int(limit) if limit < _NO_LIMIT else None


def _special_tokens(config: dict[str, Any], path: Path) -> SpecialTokens:
    """Spellings by role; a spelling is a string, or an object with its ``content``."""
    spellings = {}
    for role in fields(SpecialTokens):
        value = config.get(f"{role.name}_token") or role.default
        spelling = value.get("content") if isinstance(value, dict) else value
        if not isinstance(spelling, str):
            raise CheckpointError(f"{path}: {role.name}_token is {value!r:.60}, expected a string")
        spellings[role.name] = spelling
    return SpecialTokens(**spellings)


def _from_tokenizer_json(published: dict[str, Any], special: SpecialTokens, path: Path) -> WordPiece:
    model, normalizer, pre_tokenizer = (
        member(published, key, dict, path, {}) for key in ("model", "normalizer", "pre_tokenizer")
    )
    found = (model.get("type"), normalizer.get("type"), pre_tokenizer.get("type"))
    if found != ("WordPiece", "BertNormalizer", "BertPreTokenizer"):
        raise CheckpointError(
            f"{path} is not a BERT WordPiece tokenizer: model, normalizer and pre-tokenizer are {found}, expected "
            "('WordPiece', 'BertNormalizer', 'BertPreTokenizer')"
        )
    if model.get("continuing_subword_prefix", CONTINUATION) != CONTINUATION or not normalizer.get("clean_text", True):
        raise CheckpointError(f"{path}: only the '##' prefix and clean_text=true are supported")
    if special.unk != model.get("unk_token", special.unk):
        raise CheckpointError(f"{path} calls the unknown token {model['unk_token']!r}, its config {special.unk!r}")
    longest_word = member(model, "max_input_chars_per_word", int, path, MAX_CHARACTERS_PER_WORD)
    if not 1 <= longest_word <= _LONGEST_WORD:
        raise CheckpointError(f"{path}: max_input_chars_per_word is {longest_word}, expected 1 to {_LONGEST_WORD}")
    _check_template(member(published, "post_processor", dict, path, {}), special, path)
    vocab = member(model, "vocab", dict, path, {})
    ids = {token: member(vocab, token, int, path) for token in vocab}
    added = [_added_token(token, path) for token in member(published, "added_tokens", list, path, [])]
    ids |= {token.content: token_id for token, token_id in added}
    return WordPiece(
        from_ids(ids.items(), special),
        Normalization(
            lowercase=member(normalizer, "lowercase", bool, path, True),
            strip_accents=member(normalizer, "strip_accents", bool, path),
            split_cjk=member(normalizer, "handle_chinese_chars", bool, path, True),
        ),
        added_tokens=tuple(token for token, _ in added if token.content not in special.spellings()),
        max_characters_per_word=longest_word,
    )


def _check_template(post_processor: dict[str, Any], special: SpecialTokens, path: Path) -> None:
    """Whether a template puts [CLS] before and [SEP] after a text; without a template it does."""
    if post_processor.get("type") != "TemplateProcessing":
        return
    match post_processor.get("single"):
        case [{"SpecialToken": {"id": special.cls}}, {"Sequence": _}, {"SpecialToken": {"id": special.sep}}]:
            return
    raise CheckpointError(f"{path}: its template is not {special.cls} text {special.sep}, which BERT reads")


def _added_token(entry: Any, path: Path) -> tuple[AddedToken, int]:
    match entry:
        case {"content": str(content), "id": int(token_id)}:
            flags = ("single_word", "lstrip", "rstrip", "normalized", "special")
            return AddedToken(content, **{flag: bool(entry.get(flag, False)) for flag in flags}), token_id
    raise CheckpointError(f"{path} has the added token {entry!r:.60}: expected an object with content and id")


def tokenizer_json(engine: WordPiece) -> dict[str, Any]:
    """The content of a published ``tokenizer.json`` for an engine, as ``tokenizers`` writes and reads it."""
    vocabulary, names, normalization = engine.vocabulary, engine.vocabulary.special, engine.normalization
    present = [token for token in names.spellings() if token in vocabulary]
    added = [AddedToken(token, normalized=False, special=True) for token in present] + list(engine.added_tokens)
    by_id = sorted(((vocabulary.id(token.content), token) for token in added), key=lambda pair: pair[0])
    cls, sep, a, b = (
        {"SpecialToken": {"id": names.cls, "type_id": 0}},
        {"SpecialToken": {"id": names.sep, "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
        {"Sequence": {"id": "B", "type_id": 1}},
    )
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": token_id} | asdict(token) for token_id, token in by_id],
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": normalization.split_cjk,
            "strip_accents": normalization.strip_accents,
            "lowercase": normalization.lowercase,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [cls, a, sep],
            "pair": [cls, a, sep, b, {"SpecialToken": {"id": names.sep, "type_id": 1}}],
            "special_tokens": {
                token: {"id": token, "ids": [vocabulary.id(token)], "tokens": [token]}
                for token in (names.cls, names.sep)
            },
        },
        "decoder": {"type": "WordPiece", "prefix": CONTINUATION, "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": names.unk,
            "continuing_subword_prefix": CONTINUATION,
            "max_input_chars_per_word": engine.max_characters_per_word,
            "vocab": {token: token_id for token_id, token in enumerate(vocabulary.tokens)},
        },
    }
