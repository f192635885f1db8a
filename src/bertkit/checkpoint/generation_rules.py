"""The rules of ``generation_config.json``: the ids that end a text, the ids that are never generated."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertkit.errors import CheckpointError
from bertkit.files.json_files import member, read_json

_END_IDS = "eos_token_id"
_APPLIED = (_END_IDS, "bad_words_ids", "forced_eos_token_id", "renormalize_logits")
_NOT_APPLIED: dict[str, Any] = {  # other rules that change the tokens of greedy and beam search -> without effect
    "repetition_penalty": 1.0,
    "encoder_repetition_penalty": 1.0,
    "no_repeat_ngram_size": 0,
    "encoder_no_repeat_ngram_size": 0,
    "min_length": 0,
    "min_new_tokens": 0,
    "early_stopping": False,
    "forced_bos_token_id": None,
    "suppress_tokens": [],
    "begin_suppress_tokens": [],
    "sequence_bias": {},
    "exponential_decay_length_penalty": None,
    "guidance_scale": 1.0,
    "penalty_alpha": 0.0,
    "dola_layers": None,
    "num_beam_groups": 1,
    "diversity_penalty": 0.0,
    "constraints": None,
    "force_words_ids": None,
    "watermarking_config": None,
    "stop_strings": None,
}


@dataclass(frozen=True)
class Ending:
    """The rules that generation applies."""

    end_ids: tuple[int, ...]  # a text ends with any of them
    forbidden_ids: tuple[int, ...] = ()  # never generated
    forced_end_id: int | None = None  # the last of ``max_new_tokens`` is always this id; None: any
    renormalizes: bool = False  # the probabilities of the other ids add up to 1 again


def read_generation_rules(folder: Path) -> dict[str, Any]:
    """The content of ``generation_config.json``; of ``config.json`` in older folders, which lack that file.

    Raises:
        CheckpointError: a file that is not a JSON object.
    """
    config, rules = read_json(folder / "config.json") or {}, read_json(folder / "generation_config.json")
    names = (*_APPLIED, *_NOT_APPLIED) if rules is None else (_END_IDS,)
    rules = {name: value for name, value in (rules or {}).items() if not name.startswith("_")}
    return {name: config[name] for name in names if name in config} | rules


def end_ids(rules: Mapping[str, Any]) -> tuple[int, ...]:
    """The ids that end a text; () if there are none."""
    named = rules.get(_END_IDS)
    return tuple(one for one in (named if isinstance(named, list) else [named]) if type(one) is int)


def ending_of(rules: Mapping[str, Any], ends: tuple[int, ...], vocab_size: int) -> Ending:
    """The rules that generation applies.

    Args:
        ends: ids that end a text.

    Raises:
        CheckpointError: a rule of the wrong type, or an id that the model lacks.
    """
    file, content = Path("generation_config.json"), dict(rules)
    words = [word for word in member(content, "bad_words_ids", list, file, []) if _is_one_id(word)]
    forbidden = tuple(word[0] for word in words if word[0] not in ends)  # as transformers, an end stays allowed
    forced = member(content, "forced_eos_token_id", int, file)
    for one in (*forbidden, *(() if forced is None else (forced,))):
        if not 0 <= one < vocab_size:
            raise CheckpointError(f"{file} names the id {one}: expected 0 to {vocab_size - 1}, the model's ids")
    return Ending(ends, forbidden, forced, member(content, "renormalize_logits", bool, file, False))


def rules_not_applied(rules: Mapping[str, Any]) -> list[str]:
    """Each rule that may change the generated tokens and is not applied, as "name=value"."""
    given = {name: rules.get(name) for name in _NOT_APPLIED}
    named = {name: value for name, value in given.items() if value not in (None, _NOT_APPLIED[name])}
    words = rules.get("bad_words_ids") or []
    if longer := [word for word in words if not _is_one_id(word)]:
        named["bad_words_ids"] = longer
    return [f"{name}={value!r:.60}" for name, value in named.items()]


def _is_one_id(word: Any) -> bool:
    return isinstance(word, list) and len(word) == 1 and type(word[0]) is int
