"""Settings of late interaction models, from folders of ColBERT, PyLate and sentence-transformers.

Modules are Transformer and layers over token hidden states; ``MultiVectorMask`` selects tokens.
"""

import string
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertkit.checkpoint.limits import limits_of
from bertkit.checkpoint.sentence import COLBERT_LAYER, projection_layers
from bertkit.checkpoint.weights import stored_tensors
from bertkit.errors import CheckpointError
from bertkit.files.json_files import member, read_json
from bertkit.heads import DenseLayer, ProjectionLayer, UnitLength
from bertkit.locate import sentence_modules

_USUAL_EXPANSION = 32  # tokens of a query (Khattab & Zaharia 2020, section 3.2)


@dataclass(frozen=True)
class LateInteraction:
    """How a late interaction model computes token vectors of queries and documents."""

    layers: tuple[ProjectionLayer, ...] = ()  # over hidden states
    query_marker: str = ""  # prefix of queries
    document_marker: str = ""
    has_token_markers: bool = False  # a marker in the vocabulary is a token after [CLS], as in PyLate and ColBERT
    query_length: int | None = None  # maximum tokens of a query; None: the model's maximum
    document_length: int | None = None
    expansion: int | None = None  # number of tokens that queries are padded to; None: no padding
    expansion_token: str | None = None  # None: [MASK]
    attends: bool = False  # tokens attend to the padding
    cuts_at_expansion: bool = True  # longer queries are cut there
    skipped: tuple[str, ...] = ()  # tokens of documents without a vector
    is_mean: bool = False  # scores are divided by the number of vectors of the query


def read_late_interaction(directory: Path) -> LateInteraction | None:
    """Read the settings from ``modules.json`` and related files; None for other kinds of models.

    Raises:
        CheckpointError: a module that is not supported.
    """
    if "HF_ColBERT" in member(read_json(directory / "config.json") or {}, "architectures", list, directory, []):
        return _of_colbert(directory)
    modules = sentence_modules(directory)
    kinds = [module["kind"] for module in modules]
    if kinds[:2] != ["Transformer", "Dense"]:
        return None
    if not set(kinds[2:]) <= {"Dense", "MultiVectorMask", "Normalize"}:
        raise CheckpointError(
            f"{directory / 'modules.json'} lists the modules {', '.join(kinds)}; supported after Transformer: Dense, "
            "MultiVectorMask, Normalize"
        )
    path = directory / "config_sentence_transformers.json"
    content = read_json(path) or {}
    own, own_path = limits_of(directory / modules[0]["path"])
    limits = content | own
    is_pylate = member(content, "model_type", str, path) == "ColBERT"
    mask: dict[str, Any] = (
        {"skiplist_words": content.get("skiplist_words", list(string.punctuation))} if is_pylate else {}
    )
    for module in modules:
        if module["kind"] == "MultiVectorMask":
            mask = read_json(directory / module["path"] / "config.json") or {}
    if mask.get("keep_only_token_ids") or mask.get("skiplist_tasks", ["document"]) not in (["document"], "document"):
        raise CheckpointError(
            f"{directory}: its MultiVectorMask has keep_only_token_ids or skiplist_tasks: not supported"
        )
    prompts = member(content, "prompts", dict, path, {})
    markers = {}
    for role in ("query", "document"):
        prefix, prompt = member(content, f"{role}_prefix", str, path), member(prompts, role, str, path, "")
        if prefix and prompt not in ("", prefix):
            raise CheckpointError(
                f"{path} has {role}_prefix={prefix!r:.60} and the prompt {prompt!r:.60} ({role}): expected one of them"
            )
        markers[f"{role}_marker"] = prefix or prompt
    return LateInteraction(
        layers=projection_layers(directory, [one for one in modules if one["kind"] in ("Dense", "Normalize")])
        + (UnitLength(),) * is_pylate,
        **markers,
        has_token_markers=not content.keys().isdisjoint(("query_prefix", "document_prefix")),
        query_length=member(limits, "query_length", int, own_path) or own.get("max_seq_length"),
        document_length=member(limits, "document_length", int, own_path) or own.get("max_seq_length"),
        is_mean=str(content.get("similarity_fn_name")).lower() == "meanmaxsim",
        skipped=tuple(member(mask, "skiplist_words", list, path, [])),
        **_expansion(limits, path, is_pylate=is_pylate),
    )


def _of_colbert(directory: Path) -> LateInteraction:
    """Settings of the original ColBERT code, from ``artifact.metadata``; its layer is stored with the encoder's
    weights."""
    path = directory / "artifact.metadata"
    content, weight = read_json(path) or {}, stored_tensors(directory).get(COLBERT_LAYER)
    if weight is None or len(weight.shape) != 2:
        raise CheckpointError(f"{directory} is an HF_ColBERT: expected {COLBERT_LAYER}, the layer over its tokens")
    width, hidden_size = weight.shape
    skips = member(content, "mask_punctuation", bool, path, True)
    return LateInteraction(
        layers=(DenseLayer(hidden_size, width, bias=False, activation="Identity"), UnitLength()),
        query_marker=member(content, "query_token_id", str, path, "[unused0]"),
        document_marker=member(content, "doc_token_id", str, path, "[unused1]"),
        has_token_markers=True,
        document_length=member(content, "doc_maxlen", int, path),
        expansion=member(content, "query_maxlen", int, path, _USUAL_EXPANSION),
        attends=member(content, "attend_to_mask_tokens", bool, path, False),
        skipped=tuple(string.punctuation) if skips else (),
    )


def _expansion(limits: dict[str, Any], path: Path, *, is_pylate: bool) -> dict[str, Any]:
    """Padding of queries, in the format of sentence-transformers 6 or of PyLate."""
    expansion = member(limits, "query_expansion", dict, path)
    if expansion is None:
        if not is_pylate or limits.get("do_query_expansion") is False:
            return {}
        length = member(limits, "query_length", int, path) or _USUAL_EXPANSION
        return {"expansion": length, "attends": bool(limits.get("attend_to_expansion_tokens"))}
    strategy = member(expansion, "strategy", str, path, "fixed")
    if strategy not in ("fixed", "min"):
        raise CheckpointError(f"{path} has query_expansion with strategy={strategy!r:.40}; supported: fixed, min")
    return {
        "expansion": member(expansion, "length", int, path, _USUAL_EXPANSION),
        "expansion_token": member(expansion, "token", str, path),
        "attends": member(expansion, "attend", bool, path, False),
        "cuts_at_expansion": strategy == "fixed",
    }
