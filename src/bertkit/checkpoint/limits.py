"""Settings of the Transformer module of sentence-transformers, in the file next to it."""

from pathlib import Path
from typing import Any

from bertkit.errors import CheckpointError
from bertkit.files.json_files import member, read_json, write_json
from bertkit.tokenizer import Tokenizer

_KINDS = ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
_FILES = tuple(f"sentence_{kind}_config.json" for kind in _KINDS)
_TO_TOKENIZER = "processing_kwargs"  # arguments of each call of the tokenizer, since version 6
_OUTPUTS = ("last_hidden_state", "logits")  # what a Transformer module gives for a text
_PARTS = ("model", "processor", "tokenizer", "config")  # each with "_kwargs", or "_args" before version 6
_WITHOUT_EFFECT = frozenset(  # arguments for opening these parts that change no vector, apart from rounding
    "torch_dtype dtype attn_implementation device_map low_cpu_mem_usage use_safetensors trust_remote_code use_fast "
    "use_cache add_pooling_layer padding_side revision token cache_dir local_files_only unpad_inputs "
    "use_memory_efficient_attention".split()
)


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
            f"{path} has do_lower_case=true, but the tokenizer keeps capital letters: set do_lower_case in "
            "tokenizer_config.json, and lowercase in the normalizer of tokenizer.json"
        )
    limit = _limit_at_opening(limits, path) or member(limits, "max_seq_length", int, path)
    limit = _limit_of_calls(member(limits, _TO_TOKENIZER, dict, path, {}), path) or limit
    output = member(member(limits, "modality_config", dict, path, {}), "text", dict, path, {})
    if output.get("method", "forward") != "forward" or output.get("method_output_name", _OUTPUTS[0]) not in _OUTPUTS:
        raise CheckpointError(
            f"{path} has modality_config.text={output!r:.200}; supported: method 'forward' with the method_output_name "
            "last_hidden_state, or logits of a head"
        )
    if limit is not None and limit < 3:
        raise CheckpointError(f"{path}: max_seq_length is {limit}: expected at least 3, for [CLS], [SEP] and one token")
    return limits | {"max_seq_length": limit}, path


def write_limits(directory: Path, max_seq_length: int | None) -> None:
    """Write the file that `limits_of` reads."""
    write_json(directory / _FILES[0], {"max_seq_length": max_seq_length, "do_lower_case": False})


def _limit_at_opening(limits: dict[str, Any], path: Path) -> int | None:
    """``model_max_length`` of the arguments for opening the tokenizer.

    Raises:
        CheckpointError: another argument, for any part of the model, that may change vectors.
    """
    limit = None
    for name in (f"{part}_{ending}" for part in _PARTS for ending in ("args", "kwargs")):
        arguments = member(limits, name, dict, path, {})
        limit = member(arguments, "model_max_length", int, path, limit)
        if others := arguments.keys() - _WITHOUT_EFFECT - {"model_max_length"}:
            raise CheckpointError(
                f"{path} has {name} with {', '.join(sorted(others))}, which is not supported: put these settings into "
                "the files of the model or tokenizer, and remove them there"
            )
    return limit


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
