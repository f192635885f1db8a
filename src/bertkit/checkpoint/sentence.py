"""The settings of a sentence encoder: the sentence-transformers layout, old and new spelling."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bertkit.errors import CheckpointError
from bertkit.files.json_files import member, read_json, write_json
from bertkit.locate import sentence_modules

_POOLINGS = {  # published spelling -> ours; flags of the old layout are "pooling_mode_" + the first spelling
    "mean_tokens": "mean",
    "cls_token": "cls",
    "max_tokens": "max",
    "mean_sqrt_len_tokens": "mean-sqrt-len",
    "weightedmean_tokens": "weighted-mean",
    "mean": "mean",
    "cls": "cls",
    "max": "max",
    "weightedmean": "weighted-mean",
}


@dataclass(frozen=True)
class SentenceSettings:
    """How a published sentence encoder turns hidden states into a vector."""

    pooling: str = "mean"  # a name from POOLINGS
    normalize: bool = False  # scale vectors to length 1
    max_seq_length: int | None = None  # tokens, special tokens included; longer texts are cut there
    prompts: dict[str, str] = field(default_factory=dict)  # name -> text put before the input
    default_prompt_name: str | None = None  # the prompt used when none is asked for
    include_prompt: bool = True  # whether the prompt's own tokens are pooled


def read_sentence_settings(directory: Path) -> SentenceSettings | None:
    """The settings that ``modules.json`` and its neighbors state; None where there is no modules.json.

    Raises:
        CheckpointError: a module or a pooling that is not supported.
    """
    modules = sentence_modules(directory)
    if not modules:
        return None
    kinds = [module["kind"] for module in modules]
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise CheckpointError(
            f"{directory / 'modules.json'} lists the modules {', '.join(kinds)}; supported: Transformer, Pooling and "
            "optionally Normalize"
        )
    transformer = directory / modules[0]["path"]
    pooling = read_json(directory / modules[1]["path"] / "config.json")
    if pooling is None:
        raise CheckpointError(f"{directory} lacks {modules[1]['path']}/config.json, which modules.json names")
    limits = read_json(transformer / "sentence_bert_config.json") or {}
    if limits.get("do_lower_case"):
        raise CheckpointError(f"{transformer / 'sentence_bert_config.json'} has do_lower_case=true: not supported")
    prompts = read_json(directory / "config_sentence_transformers.json") or {}
    return SentenceSettings(
        pooling=_pooling(pooling, directory),
        normalize="Normalize" in kinds,
        max_seq_length=_max_seq_length(limits, transformer),
        prompts=_prompts(prompts, directory),
        default_prompt_name=member(prompts, "default_prompt_name", str, directory),
        include_prompt=member(pooling, "include_prompt", bool, directory, True),
    )


def write_sentence_settings(directory: Path, settings: SentenceSettings, hidden_size: int) -> None:
    """Write ``modules.json``, ``1_Pooling``, ``sentence_bert_config.json`` and the prompts as their readers expect."""
    if settings.pooling == "pooler":
        raise CheckpointError(
            "the sentence-transformers layout has no word for pooling='pooler': choose another to save"
        )
    kinds = ["Transformer", "Pooling"] + ["Normalize"] * settings.normalize
    paths = ["", "1_Pooling", "2_Normalize"]
    modules = [
        {"idx": index, "name": str(index), "path": paths[index], "type": f"sentence_transformers.models.{kind}"}
        for index, kind in enumerate(kinds)
    ]
    write_json(directory / "modules.json", modules)
    for path in paths[1 : len(kinds)]:
        (directory / path).mkdir()
    flags = {published: ours for published, ours in _POOLINGS.items() if "token" in published}
    write_json(
        directory / "1_Pooling" / "config.json",
        {
            "word_embedding_dimension": hidden_size,
            **{f"pooling_mode_{published}": ours == settings.pooling for published, ours in flags.items()},
            "include_prompt": settings.include_prompt,
        },
    )
    write_json(
        directory / "sentence_bert_config.json", {"max_seq_length": settings.max_seq_length, "do_lower_case": False}
    )
    write_json(
        directory / "config_sentence_transformers.json",
        {"prompts": settings.prompts, "default_prompt_name": settings.default_prompt_name},
    )


def _max_seq_length(limits: dict[str, Any], directory: Path) -> int | None:
    limit = member(limits, "max_seq_length", int, directory)
    if limit is not None and limit < 3:
        raise CheckpointError(f"{directory}: max_seq_length is {limit}, [CLS], [SEP] and one token need 3")
    return limit


def _prompts(content: dict[str, Any], directory: Path) -> dict[str, str]:
    prompts = member(content, "prompts", dict, directory, {})
    return {str(name): member(prompts, name, str, directory, "") for name in prompts}


def _pooling(config: dict[str, Any], directory: Path) -> str:
    chosen = config.get("pooling_mode") or [
        key.removeprefix("pooling_mode_") for key, value in config.items() if key.startswith("pooling_mode_") and value
    ]
    chosen = chosen if isinstance(chosen, list) else [chosen]
    if len(chosen) != 1 or not isinstance(chosen[0], str) or chosen[0] not in _POOLINGS:
        poolings = ", ".join(map(str, chosen)) or "nothing"
        raise CheckpointError(f"{directory} pools by {poolings}: supported is one of {', '.join(_POOLINGS)}")
    return _POOLINGS[chosen[0]]
