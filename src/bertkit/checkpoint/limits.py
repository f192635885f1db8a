"""Settings of the Transformer module of sentence-transformers, in the file next to it."""

from pathlib import Path
from typing import Any

from bertkit.errors import CheckpointError
from bertkit.files.json_files import member, read_json, write_json
from bertkit.tokenizer import Tokenizer

_KINDS = ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
_FILES = tuple(f"sentence_{kind}_config.json" for kind in _KINDS)
_TO_TOKENIZER = "processing_kwargs"  # arguments of each call of the tokenizer, since version 6


def limits_of(transformer: Path) -> tuple[dict[str, Any], Path]:
    """The settings next to a Transformer module, and their path; ({}, the folder) without any.

    ``max_seq_length`` is None, or the maximum number of tokens, special tokens included.

    Raises:
        CheckpointError: settings that would change the tokens otherwise.
    """
    for name in _FILES:
        if (limits := read_json(transformer / name)) is not None:
            break
    else:
        return {}, transformer
    path = transformer / name
    if limits.get("do_lower_case") and Tokenizer.load(transformer).normalize("A") != "a":
        raise CheckpointError(
            f"{path} has do_lower_case=true, but the tokenizer keeps capital letters: set lowercase in the normalizer "
            "of tokenizer.json"
        )
    limit = member(limits, "max_seq_length", int, path)
    limit = _limit_of_calls(member(limits, _TO_TOKENIZER, dict, path, {}), path) or limit
    if limit is not None and limit < 3:
        raise CheckpointError(f"{path}: max_seq_length is {limit}: expected at least 3, for [CLS], [SEP] and one token")
    return limits | {"max_seq_length": limit}, path


def write_limits(directory: Path, max_seq_length: int | None) -> None:
    """Write the file that `limits_of` reads."""
    write_json(directory / _FILES[0], {"max_seq_length": max_seq_length, "do_lower_case": False})


def _limit_of_calls(arguments: dict[str, Any], path: Path) -> int | None:
    """``max_length`` of the arguments of the tokenizer's calls; padding and the form of results have no effect here."""
    of_texts = {**member(arguments, "common", dict, path, {}), **member(arguments, "text", dict, path, {})}
    for inert in ("padding", "return_tensors", "pad_to_multiple_of"):
        of_texts.pop(inert, None)
    limit = member(of_texts, "max_length", int, path)
    of_texts.pop("max_length", None)
    if of_texts.pop("truncation", True) not in (True, "longest_first") or of_texts:
        raise CheckpointError(
            f"{path} has {_TO_TOKENIZER}={arguments!r:.200}; supported for texts: max_length, with truncation=true"
        )
    return limit
