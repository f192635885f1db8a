"""Settings of a published tokenizer outside its vocabulary: class, special and added tokens, token types."""

from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from bertkit.errors import CheckpointError, warn
from bertkit.files.json_files import member, read_json
from bertkit.tokenizer.added_tokens import AddedToken
from bertkit.tokenizer.older_files import ANGLED
from bertkit.tokenizer.vocabulary import SpecialTokens

_WORDPIECE = (
    "Bert DistilBert Electra MobileBert MPNet ConvBert SqueezeBert RetriBert LayoutLM Lxmert Realm DPRContextEncoder "
    "DPRQuestionEncoder DPRReader"
).split()
_BYTE_LEVEL = "Roberta GPT2 Longformer Bart LED".split()
GENERAL = ("PreTrained", "TokenizersBackend")
"""The general class of transformers, before and since version 5, without "Tokenizer"."""
_CLASSES = {  # file of the vocabulary -> classes of transformers that make the same tokens of it, without "Tokenizer"
    "vocab.txt": [*_WORDPIECE, *GENERAL],
    "vocab.json": [*_BYTE_LEVEL, *GENERAL],
    "source.spm": ["Marian"],
    "target.spm": ["Marian"],
    "sentencepiece.bpe.model": ["XLMRoberta", "Camembert", *GENERAL],
    "spm.model": ["DebertaV2", "DebertaV3", *GENERAL],
    "spiece.model": ["Albert", *GENERAL],
}
_OF_NORMALIZER: dict[str, tuple[str, bool | None]] = {  # key of tokenizer_config.json -> key of BertNormalizer in
    # tokenizer.json, and the value that BERT's classes take without the first
    "do_lower_case": ("lowercase", True),
    "strip_accents": ("strip_accents", None),
    "tokenize_chinese_chars": ("handle_chinese_chars", True),
}

TYPES = "token_type_ids"

_WITHOUT_TYPES = "DistilBert MPNet Roberta XLMRoberta Camembert GPT2 TokenizersBackend".split()
"""Classes of transformers that make no token types, in all versions, without "Tokenizer"."""
_WITHOUT_TYPES_SINCE_5 = ("Albert", *GENERAL)
"""The same of version 5, which writes ``backend`` into the files of a tokenizer."""


def check_class(directory: Path, config: dict[str, Any], file: Path) -> None:
    """Check that the tokens of a vocabulary file without ``tokenizer.json`` are those of the published class.

    Args:
        config: the content of ``tokenizer_config.json``.

    Raises:
        CheckpointError: another class, whose tokens would differ.
    """
    name = class_of(directory, config)
    splits = [config.get(key) for key in ("word_tokenizer_type", "subword_tokenizer_type")]  # of BertJapaneseTokenizer
    is_known = name is None or name in _CLASSES[file.name]
    if not is_known or splits[0] not in (None, "basic") or splits[1] not in (None, "wordpiece"):
        raise CheckpointError(
            f"{directory} has {file.name} and the tokenizer_class {name or 'BertJapanese'}Tokenizer, which makes other "
            f"tokens of it than {_CLASSES[file.name][0]}Tokenizer and is not supported: save its tokenizer.json with "
            "transformers, if it can write one"
        )


def tokens_with_flags(roles: dict[str, Any], path: Path) -> list[AddedToken]:
    """Special tokens that the settings of a tokenizer name with their flags: those of roles, where they are objects,
    and those without a role, such as markers of entities.

    Raises:
        CheckpointError: an object that cannot be read.
    """
    names = ("bos", "eos", *(role.name for role in fields(SpecialTokens)))  # the first of a spelling counts
    tokens: list[Any] = [token for name in names if isinstance(token := roles.get(f"{name}_token"), dict)]
    for key in ("additional_special_tokens", "extra_special_tokens"):
        named = roles.get(key) or []
        tokens += named.values() if isinstance(named, dict) else named
    entries = [token if isinstance(token, dict) else {"content": token} for token in tokens]
    read = [added_token(entry | {"id": 0, "special": True}, path)[0] for entry in entries]
    return list({token.content: token for token in reversed(read)}.values())[::-1]


def as_configured(
    directory: Path, config: dict[str, Any], published: dict[str, Any], named: list[AddedToken]
) -> dict[str, Any]:
    """The content of a ``tokenizer.json`` with the settings of ``tokenizer_config.json`` that the published class
    prefers: letter case and accents of BERT's classes, the space before a text of RoBERTa's, which the post-processor
    must know to leave it out of offsets; and with the named entries of its vocabulary as special tokens."""
    vocabulary = (published.get("model") or {}).get("vocab")
    if named and isinstance(vocabulary, dict):
        added = published.get("added_tokens") or []
        known = {token.get("content") for token in added if isinstance(token, dict)}
        added = added + [
            asdict(token) | {"id": vocabulary[token.content]}
            for token in named
            if token.content in vocabulary and token.content not in known
        ]
        published = published | {"added_tokens": added}
    name = class_of(directory, config)
    match published.get("normalizer"):
        case {"type": "BertNormalizer"} as normalizer if name in _WORDPIECE:
            stated = {}
            for key, (ours, default) in _OF_NORMALIZER.items():
                if key in config:
                    stated[ours] = config[key]
                elif normalizer.get(ours, default) != default:
                    warn(
                        f"{directory}: tokenizer.json has {ours}={normalizer[ours]}, tokenizer_config.json does not "
                        f"state {key}, and then {name}Tokenizer of transformers takes {default}: tokens are those "
                        f"of tokenizer.json; write {key} into tokenizer_config.json as the model was trained"
                    )
            published = published | {"normalizer": normalizer | stated}
    match published.get("pre_tokenizer"), config.get("add_prefix_space"):
        case {"type": "ByteLevel"} as splitter, bool(space) if name in _BYTE_LEVEL:
            published = published | {"pre_tokenizer": splitter | {"add_prefix_space": space}}
            match published.get("post_processor"):
                case {"type": "ByteLevel" | "RobertaProcessing"} as processor:
                    published = published | {"post_processor": processor | {"add_prefix_space": space}}
    return published


def stored_added_tokens(
    directory: Path, config: dict[str, Any], special: SpecialTokens, named: list[AddedToken], ids: dict[str, int]
) -> list[tuple[AddedToken, int]]:
    """Added tokens of a folder without ``tokenizer.json``, with their ids: ``added_tokens_decoder`` of
    ``tokenizer_config.json`` or, without that, ``added_tokens.json``; then the named tokens.

    Named tokens without a role that the vocabulary lacks get the next ids, as in transformers.

    Args:
        named: as of `tokens_with_flags`.
        ids: those of the vocabulary.

    Raises:
        CheckpointError: an entry that cannot be read.
    """
    path = directory / "tokenizer_config.json"
    if (stated := member(config, "added_tokens_decoder", dict, path)) is not None:
        added = [_numbered(number, entry, special, path) for number, entry in stated.items()]
    else:
        path = directory / "added_tokens.json"
        entries = read_json(path) or {}
        names = {*special.spellings(), *(token.content for token in named)}
        added = [
            added_token({"content": token, "id": number, "special": token in names}, path)
            for token, number in entries.items()
        ]
    ids = ids | {token.content: token_id for token, token_id in reversed(added)}
    contents = {token.content for token, _ in added}
    for token in named:
        if token.content not in ids and token.content not in special.spellings():
            ids[token.content] = max(ids.values(), default=-1) + 1
        if token.content in ids.keys() - contents:
            added.append((token, ids[token.content]))
    return added


def added_token(entry: Any, path: Path) -> tuple[AddedToken, int]:
    """An entry of the added tokens of a ``tokenizer.json``.

    Raises:
        CheckpointError: it has no content or no id.
    """
    match entry:
        case {"content": str(content), "id": int(token_id)}:
            flags = {flag: bool(entry.get(flag, False)) for flag in ("single_word", "lstrip", "rstrip", "special")}
            return AddedToken(
                content, normalized=bool(entry.get("normalized", not flags["special"])), **flags
            ), token_id
    raise CheckpointError(f"{path} has the added token {entry!r:.60}: expected an object with content and id")


def _numbered(number: str, entry: Any, special: SpecialTokens, path: Path) -> tuple[AddedToken, int]:
    """An entry of ``added_tokens_decoder``; a token with a role is special, also where it is not stated."""
    if isinstance(entry, dict) and number.isdecimal():
        flag = {"special": True} if entry.get("content") in special.spellings() else {}
        entry = entry | {"id": int(number)} | flag
    return added_token(entry, path)


def class_of(directory: Path, config: dict[str, Any]) -> str | None:
    """The published class of the tokenizer, in ``tokenizer_config.json`` or in ``config.json``, without "Tokenizer" or
    "TokenizerFast"; None if there is none."""
    name = config.get("tokenizer_class") or (read_json(directory / "config.json") or {}).get("tokenizer_class")
    return name.removesuffix("Fast").removesuffix("Tokenizer") if isinstance(name, str) else None


def makes_types(config: dict[str, Any], path: Path) -> bool:
    """Whether transformers gives the model the token types of a pair; it takes all as 0 without."""
    names = member(config, "model_input_names", list, path)
    without = (*_WITHOUT_TYPES, *(_WITHOUT_TYPES_SINCE_5 if "backend" in config else ()))
    return class_of(path.parent, config) not in without if names is None else TYPES in names


def special_tokens(config: dict[str, Any], path: Path, defaults: SpecialTokens) -> SpecialTokens:
    """Special tokens by role; each is a string, or an object with its ``content``."""
    spellings = {}
    for role in fields(SpecialTokens):
        value = config.get(f"{role.name}_token") or getattr(defaults, role.name)
        spelling = value.get("content") if isinstance(value, dict) else value
        if not isinstance(spelling, str):
            raise CheckpointError(f"{path}: {role.name}_token is {value!r:.60}, expected a string")
        spellings[role.name] = spelling
    return SpecialTokens(**spellings)


def named_by(published: dict[str, Any] | None, path: Path) -> SpecialTokens:
    """Special tokens of a ``tokenizer.json`` whose config names none: BERT's, or RoBERTa's if those are special."""
    if published is None:
        return SpecialTokens()
    added = member(published, "added_tokens", list, path, [])
    special = {str(token.get("content")) for token in added if isinstance(token, dict) and token.get("special")}
    names = {}
    for role in fields(SpecialTokens):
        ours, angled = (getattr(tokens, role.name) for tokens in (SpecialTokens(), ANGLED))
        names[role.name] = angled if angled in special and ours not in special else ours
    model = member(published, "model", dict, path, {})
    return SpecialTokens(**names | {"unk": member(model, "unk_token", str, path, names["unk"])})
