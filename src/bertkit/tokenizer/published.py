"""Read and write published tokenizer directories.

``tokenizer.json`` is preferred, as the fast published tokenizer uses it: BERT's WordPiece runs in bertkit's engine,
other kinds in the ``tokenizers`` library. Otherwise ``vocab.txt`` with ``tokenizer_config.json``; or ``vocab.txt``
alone; or the older files of other kinds.
"""

import json
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from bertkit.errors import CheckpointError, warn
from bertkit.files.json_files import check_required_values, member, read_json, write_json
from bertkit.files.whole_files import whole_file
from bertkit.tokenizer.added_tokens import AddedToken
from bertkit.tokenizer.layout import BERT_PAIRS, TWO_SEPARATORS, PairTemplate, Side
from bertkit.tokenizer.library import Engine, read_library_tokenizer
from bertkit.tokenizer.older_files import ANGLED, SOURCE, ids_of, older_tokenizer, with_added_tokens
from bertkit.tokenizer.published_settings import (
    GENERAL,
    TYPES,
    added_token,
    as_configured,
    check_class,
    class_of,
    makes_types,
    named_by,
    special_tokens,
    stored_added_tokens,
    tokens_with_flags,
)
from bertkit.tokenizer.vocabulary import CONTINUATION, SpecialTokens, Vocabulary, from_ids
from bertkit.tokenizer.wordpiece import MAX_CHARACTERS_PER_WORD, Normalization, WordPiece

_NO_LIMIT = 1_000_000
"""A ``model_max_length`` above this means unknown."""

_LONGEST_WORD = 1_000_000
"""In characters; the engine allocates a word of the maximum length for each thread."""


def read_engine(directory: Path, language: str = SOURCE) -> tuple[Engine, int | None, Side]:
    """The engine, the published maximum sequence length, or None, and the side where longer texts are cut.

    Args:
        language: SOURCE or TARGET, for a Marian folder.

    Raises:
        CheckpointError: no tokenizer, or one that is not supported.
    """
    path = directory / "tokenizer_config.json"
    config = read_json(path) or {}
    check_required_values(config, {"split_special_tokens": (False, None)}, path)
    map_of_roles = read_json(directory / "special_tokens_map.json") or {}
    # As in transformers: the map is for older files, which list no added tokens in the config, and it counts there.
    roles = map_of_roles | config if "added_tokens_decoder" in config else config | map_of_roles
    file = directory / "tokenizer.json"
    published = read_json(file)
    special = special_tokens(roles, path, named_by(published, file))
    named = tokens_with_flags(roles, path)
    if published is not None:
        content = as_configured(directory, config, published, named)
        if _is_ours(content, file) and _is_known_template(content, config, file):
            engine = _from_tokenizer_json(content, special, file)
        else:
            definition = file.read_text(encoding="utf-8") if content == published else _dumped(content)
            engine = read_library_tokenizer(definition, special, config, file)
        stored = sorted({token.content for token, _ in stored_added_tokens(directory, config, special, named, {})})
        if lacking := [token for token in stored if token not in engine.vocabulary]:
            warn(
                f"{file} lacks the tokens {', '.join(lacking[:5])} ({len(lacking)} in all) that other files of its "
                "folder name: they are read as text, where transformers gives them ids; open and save the tokenizer "
                "with transformers, if the model was trained with them"
            )
    elif (directory / "vocab.txt").is_file():
        file = directory / "vocab.txt"
        check_class(directory, config, file)
        vocabulary = Vocabulary.load(file, special)
        lowercase = member(config, "do_lower_case", bool, path)
        if lowercase is None:
            lowercase = vocabulary.guess_lowercase(file, f'write "do_lower_case": true or false into {path}')
        normalization = Normalization(
            lowercase=lowercase,
            strip_accents=member(config, "strip_accents", bool, path),
            split_cjk=member(config, "tokenize_chinese_chars", bool, path, True),
        )
        template = BERT_PAIRS
        if _is_mpnet(directory, config) and ANGLED.cls in vocabulary:
            special, template = special_tokens(roles, path, replace(ANGLED, unk="[UNK]")), TWO_SEPARATORS
        vocabulary = Vocabulary(vocabulary.tokens, special)
        added = stored_added_tokens(directory, config, special, named, {t: i for i, t in enumerate(vocabulary.tokens)})
        ids = _with_added(vocabulary, added, file)
        engine = WordPiece(
            from_ids(ids.items(), special),
            normalization,
            added_tokens=tuple(token for token, _ in added if not _is_plain(token, special)),
            template=template,
            num_added=len(ids) - len(vocabulary),
        )
    elif (older := older_tokenizer(directory, config, language)) is not None:
        content, names, file = older
        check_class(directory, config, file)
        special = special_tokens(roles, path, names)
        # With separate vocabularies the ids of added tokens are those of one of them; a Marian vocabulary has them all.
        added = []
        if not config.get("separate_vocabs"):
            added = stored_added_tokens(directory, config, special, named, ids_of(content))
        settings = {"eos_token": special.sep} | config
        engine = read_library_tokenizer(_dumped(with_added_tokens(content, added)), special, settings, file)
        _with_added(engine.vocabulary, added, file)
    else:
        raise CheckpointError(
            f"{directory} holds no tokenizer: expected tokenizer.json, vocab.txt, vocab.json with merges.txt, or a "
            "SentencePiece model in it"
        )
    limit = member({"model_max_length": config.get("max_len")} | config, "model_max_length", float, path, _NO_LIMIT)
    if not limit >= 3:  # also true for NaN
        raise CheckpointError(
            f"{path}: model_max_length is {limit!r:.60}, expected a number of tokens, at least 3, for [CLS], [SEP] and "
            "one token"
        )
    cut = member(published or {}, "truncation", dict, file, {})
    side: Any = member(config, "truncation_side", str, path, str(cut.get("direction", "right")).lower())
    if side not in ("right", "left"):
        raise CheckpointError(f"{path}: truncation_side is {side!r:.60}, expected 'right' or 'left'")
    if not makes_types(config, path):
        engine = replace(engine, template=replace(engine.template, second_type=0))
    return engine, int(limit) if limit < _NO_LIMIT else None, side


def wordpiece_of(published: dict[str, Any], path: Path) -> WordPiece | None:
    """BERT's WordPiece from a ``tokenizer.json`` with any template; None for another kind of tokenizer.

    Special tokens that the engine needs and the vocabulary lacks are appended, with spellings that cannot occur in
    text. Added tokens of the file are matched in every text, as in the tokenizers library.

    Raises:
        CheckpointError: a vocabulary or a setting that cannot be honored.
    """
    if not _is_ours(published, path):
        return None
    names = named_by(published, path)
    engine = _from_tokenizer_json(published | {"post_processor": None}, names, path)
    declared = [added_token(token, path)[0] for token in member(published, "added_tokens", list, path, [])]
    present = set(engine.vocabulary.tokens)
    spelled = {
        role: name if (name := getattr(names, role)) in present else f"\uffff{name}" for role in ("unk", "cls", "sep")
    }
    added = tuple(name for name in spelled.values() if name not in present)
    return replace(
        engine,
        vocabulary=Vocabulary(engine.vocabulary.tokens + added, replace(names, **spelled)),
        added_tokens=tuple(replace(token, special=False) for token in declared),
        num_added=engine.num_added + len(added),
    )


def _with_added(vocabulary: Vocabulary, added: list[tuple[AddedToken, int]], path: Path) -> dict[str, int]:
    """The ids of a vocabulary and of added tokens.

    Raises:
        CheckpointError: an added token has another id in the vocabulary.
    """
    ids = {token: token_id for token_id, token in enumerate(vocabulary.tokens)}
    for token, token_id in added:
        if ids.setdefault(token.content, token_id) != token_id:
            raise CheckpointError(
                f"{path} and the added tokens next to it disagree on the id of {token.content!r:.60}: "
                f"{ids[token.content]} and {token_id}"
            )
    return ids


def _dumped(content: dict[str, Any]) -> str:
    return json.dumps(content, ensure_ascii=False)


def _is_mpnet(directory: Path, config: dict[str, Any]) -> bool:
    model_type = (read_json(directory / "config.json") or {}).get("model_type")
    return model_type == "mpnet" or str(config.get("tokenizer_class")).startswith("MPNet")


def _is_ours(published: dict[str, Any], path: Path) -> bool:
    """Whether it is BERT's WordPiece, which bertkit's engine supports."""
    model, normalizer, pre_tokenizer = (
        member(published, key, dict, path, {}) for key in ("model", "normalizer", "pre_tokenizer")
    )
    return (
        (model.get("type"), normalizer.get("type"), pre_tokenizer.get("type"))
        == ("WordPiece", "BertNormalizer", "BertPreTokenizer")
        and model.get("continuing_subword_prefix", CONTINUATION) == CONTINUATION
        and normalizer.get("clean_text", True) is True
    )


def _is_known_template(published: dict[str, Any], config: dict[str, Any], path: Path) -> bool:
    """Whether `_template` reads it. Without a template BERT's classes add BERT's special tokens, others none."""
    kind = member(published, "post_processor", dict, path, {}).get("type")
    if kind is None:
        return class_of(path.parent, config) not in GENERAL
    return kind in ("TemplateProcessing", "RobertaProcessing", "BertProcessing")


def _from_tokenizer_json(published: dict[str, Any], special: SpecialTokens, path: Path) -> WordPiece:
    model, normalizer = (member(published, key, dict, path, {}) for key in ("model", "normalizer"))
    if special.unk != model.get("unk_token", special.unk):
        raise CheckpointError(f"{path} calls the unknown token {model['unk_token']!r}, its config {special.unk!r}")
    longest_word = member(model, "max_input_chars_per_word", int, path, MAX_CHARACTERS_PER_WORD)
    if not 1 <= longest_word <= _LONGEST_WORD:
        raise CheckpointError(f"{path}: max_input_chars_per_word is {longest_word}, expected 1 to {_LONGEST_WORD}")
    post_processor = member(published, "post_processor", dict, path, {})
    template = _template(post_processor, special, path)
    vocab = member(model, "vocab", dict, path, {})
    for token, token_id in vocab.items():
        if type(token_id) is not int:
            raise CheckpointError(f"{path}: the id of {token!r:.60} is {token_id!r:.60}, expected an integer")
    added = [added_token(token, path) for token in member(published, "added_tokens", list, path, [])]
    if post_processor.get("type") == "RobertaProcessing" and post_processor.get("trim_offsets", True):
        # White space next to a token is then not part of its offsets, and WordPiece drops it anyway.
        added = [(replace(token, lstrip=False, rstrip=False), token_id) for token, token_id in added]
    ids = vocab | {token.content: token_id for token, token_id in added}
    return WordPiece(
        from_ids(ids.items(), special),
        Normalization(
            lowercase=member(normalizer, "lowercase", bool, path, True),
            strip_accents=member(normalizer, "strip_accents", bool, path),
            split_cjk=member(normalizer, "handle_chinese_chars", bool, path, True),
        ),
        added_tokens=tuple(token for token, _ in added if not _is_plain(token, special)),
        max_characters_per_word=longest_word,
        template=template,
        num_added=len(ids) - 1 - max((ids[token] for token in vocab), default=-1),
    )


def _is_plain(token: AddedToken, special: SpecialTokens) -> bool:
    """True for a special token of the vocabulary without matching flags, as in the engine."""
    return token.content in special.spellings() and token == AddedToken(token.content, normalized=False, special=True)


def _template(post_processor: dict[str, Any], special: SpecialTokens, path: Path) -> PairTemplate:
    """The pair template: [CLS] A [SEP] B [SEP], which is the default, or two separators between, as in MPNet."""
    if (kind := post_processor.get("type")) in ("RobertaProcessing", "BertProcessing"):
        named = [member(post_processor, key, list, path, [])[:1] for key in ("cls", "sep")]
        if named != [[special.cls], [special.sep]]:
            raise CheckpointError(f"{path}: its template has other tokens than {special.cls} and {special.sep}")
        return TWO_SEPARATORS if kind == "RobertaProcessing" else BERT_PAIRS
    if kind != "TemplateProcessing":
        return BERT_PAIRS
    cls, sep = {"SpecialToken": special.cls}, {"SpecialToken": special.sep}
    a, b = {"Sequence": "A"}, {"Sequence": "B"}
    single, pair = (post_processor.get(key) for key in ("single", "pair"))
    pair = pair if isinstance(pair, list) else []
    for number in (1, 2):
        if (
            isinstance(pair, list)
            and _parts(single) == [cls, a, sep]
            and _parts(pair) == [cls, a, *[sep] * number, b, sep]
        ):
            types = [next(iter(part.values())).get("type_id") for part in pair]
            if types[: number + 2] == [0] * (number + 2) and types[-1] == types[-2] in (0, 1):
                return PairTemplate(number, types[-1])
    raise CheckpointError(
        f"{path}: its template is not that of BERT, {special.cls} A {special.sep} and {special.cls} A {special.sep} B "
        f"{special.sep} with type 0 or 1 from B on, or that with two {special.sep} after A"
    )


def _parts(template: Any) -> list[Any] | None:
    return list(map(_without_type, template)) if isinstance(template, list) else None


def _without_type(part: Any) -> Any:
    """A part of a template as its kind and name: {"Sequence": {"id": "A", "type_id": 0}} to {"Sequence": "A"}."""
    match part:
        case {"SpecialToken": {"id": name}}:
            return {"SpecialToken": name}
        case {"Sequence": {"id": name}}:
            return {"Sequence": name}
    return part


def write_engine(
    engine: Engine, model_max_length: int | None, truncation_side: Side, directory: Path, *, with_types: bool
) -> None:
    """Write the files for `read_engine` and transformers into an existing folder.

    Args:
        with_types: the model reads token types.
    """
    names = engine.vocabulary.special
    roles = {f"{role.name}_token": getattr(names, role.name) for role in fields(SpecialTokens)}
    # The defaults of model_input_names differ between classes, and between versions of transformers.
    types = [TYPES] if with_types and engine.template.second_type else []
    fixed = {"model_input_names": ["input_ids", *types, "attention_mask"], "truncation_side": truncation_side}
    limit = {} if model_max_length is None else {"model_max_length": model_max_length}
    if isinstance(engine, WordPiece):
        engine.vocabulary.save(directory / "vocab.txt")
        write_json(directory / "tokenizer.json", tokenizer_json(engine))
        plain = engine.template == BERT_PAIRS and not any(
            token.content in names.spellings() for token in engine.added_tokens
        )
        settings = {
            "tokenizer_class": "BertTokenizer" if plain else "PreTrainedTokenizerFast",
            "do_lower_case": engine.normalization.lowercase,
            "strip_accents": engine.normalization.strip_accents,
            "tokenize_chinese_chars": engine.normalization.split_cjk,
        }
    else:
        with whole_file(directory / "tokenizer.json") as temporary:
            temporary.write_text(engine.definition, encoding="utf-8", newline="\n")
        # A custom class of the publisher would be code (auto_map): write the general class.
        settings = {key: value for key, value in engine.settings.items() if key != "auto_map"}
        settings["tokenizer_class"] = "PreTrainedTokenizerFast"
        roles = {role: spelling for role, spelling in roles.items() if spelling in engine.vocabulary}
    write_json(directory / "tokenizer_config.json", settings | roles | limit | fixed)


def tokenizer_json(engine: WordPiece) -> dict[str, Any]:
    """The content of a published ``tokenizer.json`` for an engine, in the format of ``tokenizers``."""
    vocabulary, names, normalization = engine.vocabulary, engine.vocabulary.special, engine.normalization
    stated = {token.content for token in engine.added_tokens}
    present = [token for token in names.spellings() if token in vocabulary and token not in stated]
    added = [AddedToken(token, normalized=False, special=True) for token in present] + list(engine.added_tokens)
    by_id = sorted(((vocabulary.id(token.content), token) for token in added), key=lambda pair: pair[0])
    cls, sep, a, b = (
        {"SpecialToken": {"id": names.cls, "type_id": 0}},
        {"SpecialToken": {"id": names.sep, "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
        {"Sequence": {"id": "B", "type_id": engine.template.second_type}},
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
            "pair": [
                *(cls, a, *[sep] * engine.template.num_separators, b),
                {"SpecialToken": {"id": names.sep, "type_id": engine.template.second_type}},
            ],
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
            "vocab": {token: token_id for token_id, token in enumerate(engine.pieces)},
        },
    }
