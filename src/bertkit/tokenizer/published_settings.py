"""Settings of a published tokenizer outside its vocabulary: its class, and added tokens in separate files."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from bertkit.errors import CheckpointError, warn
from bertkit.files.json_files import member, read_json
from bertkit.tokenizer.added_tokens import AddedToken

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


def marker_tokens(roles: dict[str, Any]) -> list[str]:
    """Special tokens without a role, such as markers of entities, that the settings of a tokenizer name."""
    tokens: list[Any] = []
    for key in ("additional_special_tokens", "extra_special_tokens"):
        named = roles.get(key) or []
        tokens += named.values() if isinstance(named, dict) else named
    contents = (token.get("content") if isinstance(token, dict) else token for token in tokens)
    return list(dict.fromkeys(content for content in contents if isinstance(content, str)))


def as_configured(
    directory: Path, config: dict[str, Any], published: dict[str, Any], markers: list[str]
) -> dict[str, Any]:
    """The content of a ``tokenizer.json`` with the settings of ``tokenizer_config.json`` that the published class
    prefers: letter case and accents of BERT's classes, the space before a text of RoBERTa's, which the post-processor
    must know to leave it out of offsets; and with the markers that are entries of its vocabulary as special tokens."""
    vocabulary = (published.get("model") or {}).get("vocab")
    if markers and isinstance(vocabulary, dict):
        added = published.get("added_tokens") or []
        known = {token.get("content") for token in added if isinstance(token, dict)}
        flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
        named = [name for name in markers if name in vocabulary and name not in known]
        entries = [{"id": vocabulary[name], "content": name} | flags for name in named]
        published = published | {"added_tokens": [*added, *entries]} if entries else published
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
    directory: Path, config: dict[str, Any], special: Collection[str]
) -> list[tuple[AddedToken, int]]:
    """Added tokens of a folder without ``tokenizer.json``, with their ids: ``added_tokens_decoder`` of
    ``tokenizer_config.json`` or, without that, ``added_tokens.json``.

    Args:
        special: spellings of the special tokens.

    Raises:
        CheckpointError: an entry that cannot be read.
    """
    path = directory / "tokenizer_config.json"
    if (stated := member(config, "added_tokens_decoder", dict, path)) is not None:
        return [_numbered(number, entry, path) for number, entry in stated.items()]
    path = directory / "added_tokens.json"
    entries = read_json(path) or {}
    return [
        added_token({"content": token, "id": number, "normalized": token not in special, "special": token in special},
                    path)
        for token, number in entries.items()
    ]  # fmt: skip


def added_token(entry: Any, path: Path) -> tuple[AddedToken, int]:
    """An entry of the added tokens of a ``tokenizer.json``.

    Raises:
        CheckpointError: it has no content or no id.
    """
    match entry:
        case {"content": str(content), "id": int(token_id)}:
            flags = ("single_word", "lstrip", "rstrip", "normalized", "special")
            return AddedToken(content, **{flag: bool(entry.get(flag, False)) for flag in flags}), token_id
    raise CheckpointError(f"{path} has the added token {entry!r:.60}: expected an object with content and id")


def _numbered(number: str, entry: Any, path: Path) -> tuple[AddedToken, int]:
    return added_token(entry | {"id": int(number)} if isinstance(entry, dict) and number.isdecimal() else entry, path)


def class_of(directory: Path, config: dict[str, Any]) -> str | None:
    """The published class of the tokenizer, in ``tokenizer_config.json`` or in ``config.json``, without "Tokenizer" or
    "TokenizerFast"; None if there is none."""
    name = config.get("tokenizer_class") or (read_json(directory / "config.json") or {}).get("tokenizer_class")
    return name.removesuffix("Fast").removesuffix("Tokenizer") if isinstance(name, str) else None
