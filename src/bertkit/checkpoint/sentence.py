"""Settings of sentence encoders in the sentence-transformers layout of versions 2 to 6."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from bertkit.checkpoint.limits import limits_of, write_limits
from bertkit.checkpoint.weights import StoredTensor, stored_tensors
from bertkit.errors import CheckpointError, UsageError
from bertkit.files.json_files import member, read_json, write_json
from bertkit.heads import DenseLayer, NormLayer, ProjectionLayer, UnitLength
from bertkit.later import Tensor, later_module
from bertkit.locate import sentence_modules

_POOLINGS = {  # name in version 6 -> bertkit's name, in the order of concatenation
    "cls": "cls",
    "max": "max",
    "mean": "mean",
    "mean_sqrt_len_tokens": "mean-sqrt-len",
    "weightedmean": "weighted-mean",
    "lasttoken": "last",
}
_FLAGS = {  # in versions 2 to 5, "pooling_mode_" + this -> name in version 6
    "cls_token": "cls",
    "max_tokens": "max",
    "mean_tokens": "mean",
    "mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "weightedmean_tokens": "weightedmean",
    "lasttoken": "lasttoken",
}
_SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")
_OTHER_SIMILARITIES = {"dot": "dot product", "euclidean": "Euclidean distance", "manhattan": "Manhattan distance"}
_MODULE_NAMES = {DenseLayer: "Dense", NormLayer: "LayerNorm", UnitLength: "Normalize"}
_VECTOR = "sentence_embedding"  # input and output of every module after Pooling
_TOKENS = "token_embeddings"  # the same in late interaction models
COLBERT_LAYER = "linear.weight"
"""The layer over tokens in folders of the original ColBERT code, which list no modules."""
_NO_LAYERS = ("Transformer", "Pooling", "MultiVectorMask")  # modules without a layer in `Projection`

Similarity = Literal["cosine", "dot", "euclidean", "manhattan"]

QUERY_PROMPTS = ("query", "search_query", "s2p_query")
"""Names that publishers give to the prompt of queries; the first that a model stores counts."""
DOCUMENT_PROMPTS = ("document", "passage", "corpus", "search_document")
"""The same of documents."""


@dataclass(frozen=True)
class SentenceSettings:
    """Settings of a published sentence encoder: pooling, layers, normalization, prompts."""

    pooling: str = "mean"  # names from POOLINGS, several with "+" between them
    normalize: bool = False  # scale vectors to length 1
    max_seq_length: int | None = None  # tokens, special tokens included; longer texts are cut there
    prompts: dict[str, str] = field(default_factory=dict)  # name -> prefix of the input
    default_prompt_name: str | None = None  # the prompt used by default
    include_prompt: bool = True  # the prompt's tokens are pooled, too
    layers: tuple[ProjectionLayer, ...] = ()  # between pooling and normalization
    similarity: Similarity = "cosine"  # of vectors, as published
    truncate_dim: int | None = None  # keep the first N components, after normalizing

    @property
    def other_than_cosine(self) -> str:
        """The similarity or distance that the vectors are published with, if it can rank them otherwise than the cosine
        does, else "": of vectors of length 1, dot products and Euclidean distances rank as cosines do."""
        if self.normalize and self.truncate_dim is None and self.similarity != "manhattan":
            return ""
        return _OTHER_SIMILARITIES.get(self.similarity, "")

    @property
    def retrieval_prompts(self) -> tuple[str, str]:
        """The prompts of queries and of documents, "" for one that is not stored; for both the default prompt if
        neither is stored."""
        by_role = [
            next((self.prompts[name] for name in names if name in self.prompts), None)
            for names in (QUERY_PROMPTS, DOCUMENT_PROMPTS)
        ]
        default = self.prompts.get(self.default_prompt_name or "", "") if by_role == [None, None] else ""
        query, document = (default if prompt is None else prompt for prompt in by_role)
        return query, document


def is_sentence_encoder(directory: Path) -> bool:
    """Whether the folder holds a sentence encoder. A cross-encoder of version 6 has a modules.json, too, with one
    module."""
    kinds = [module["kind"] for module in sentence_modules(directory)]
    is_other = kinds == ["Transformer"] or "SpladePooling" in kinds or kinds[:2] == ["Transformer", "Dense"]
    return bool(kinds) and not is_other


def refuse_prompts(directory: Path, *names: str) -> None:
    """Check that ``config_sentence_transformers.json`` has no default prompt and none of these names.

    Raises:
        CheckpointError: one that is not empty.
    """
    path = directory / "config_sentence_transformers.json"
    content = read_json(path) or {}
    prompts = _prompts(content, directory)
    for name in (member(content, "default_prompt_name", str, path), *names):
        if name and prompts.get(name):
            raise CheckpointError(
                f"{path} puts the prompt {prompts[name]!r:.60} ({name}) before texts, which is not supported for this "
                "kind of model: remove it there, and put it before the texts"
            )


def read_static_settings(directory: Path) -> SentenceSettings | None:
    """Settings of a folder whose first module is a StaticEmbedding; None for others.

    Raises:
        CheckpointError: a module after it that is not supported.
    """
    kinds = [module["kind"] for module in sentence_modules(directory)]
    if kinds[:1] != ["StaticEmbedding"]:
        return None
    if kinds[1:] not in ([], ["Normalize"]):
        raise CheckpointError(
            f"{directory / 'modules.json'} lists the modules {', '.join(kinds)}; supported: StaticEmbedding, Normalize"
        )
    content = read_json(directory / "config_sentence_transformers.json") or {}
    return SentenceSettings(
        normalize=len(kinds) == 2,
        prompts=_prompts(content, directory),
        default_prompt_name=member(content, "default_prompt_name", str, directory),
        similarity=_similarity(content, directory),
        truncate_dim=positive(content, "truncate_dim", directory),
    )


def read_sentence_settings(directory: Path) -> SentenceSettings | None:
    """Read ``modules.json`` and the files next to it; None if the folder holds no sentence encoder.

    Raises:
        CheckpointError: a module or a pooling that is not supported.
    """
    if not is_sentence_encoder(directory):
        return None
    modules = sentence_modules(directory)
    kinds = [module["kind"] for module in modules]
    after = {"Dense", "LayerNorm", "Normalize"}
    if kinds[:2] != ["Transformer", "Pooling"] or not set(kinds[2:]) <= after:
        raise CheckpointError(
            f"{directory / 'modules.json'} lists the modules {', '.join(kinds)}; supported: Transformer, Pooling and "
            f"any of {', '.join(sorted(after))}"
        )
    content = read_json(directory / "config_sentence_transformers.json") or {}
    kind = member(content, "model_type", str, directory, "SentenceTransformer")
    if kind != "SentenceTransformer":
        raise CheckpointError(f"{directory} is a {kind} of sentence-transformers with a Pooling module: not supported")
    transformer, pooling_path = directory / modules[0]["path"], directory / modules[1]["path"]
    pooling = read_json(pooling_path / "config.json")
    if pooling is None:
        raise CheckpointError(f"{directory} lacks {modules[1]['path']}/config.json, which modules.json names")
    limits, _ = limits_of(transformer)
    normalize = kinds[-1] == "Normalize"
    layers = [_layer(module["kind"], directory / module["path"]) for module in modules[2 : len(modules) - normalize]]
    return SentenceSettings(
        pooling=_pooling(pooling, directory),
        normalize=normalize,
        max_seq_length=limits.get("max_seq_length"),
        prompts=_prompts(content, directory),
        default_prompt_name=member(content, "default_prompt_name", str, directory),
        include_prompt=member(pooling, "include_prompt", bool, directory, True),
        layers=tuple(layers),
        similarity=_similarity(content, directory),
        truncate_dim=positive(content, "truncate_dim", directory),
    )


def projection_layers(directory: Path, modules: Sequence[Mapping[str, str]]) -> tuple[ProjectionLayer, ...]:
    """The layers over token vectors of the given modules.

    Raises:
        CheckpointError: a module that is not supported.
    """
    return tuple(_layer(module["kind"], directory / module["path"], _TOKENS) for module in modules)


def projection_tensors(directory: Path) -> dict[str, StoredTensor]:
    """Stored weights of the layers after Pooling, by parameter names of `Projection`.

    Raises:
        CheckpointError: a layer without safetensors weights.
    """
    modules = sentence_modules(directory)
    if not modules:
        return {f"0.{COLBERT_LAYER}": stored_tensors(directory)[COLBERT_LAYER]}
    tensors = {}
    modules = [each for each in modules if each["kind"] not in _NO_LAYERS]
    for number, module in enumerate(modules):
        if module["kind"] in ("Dense", "LayerNorm"):
            for name, tensor in stored_tensors(directory / module["path"]).items():
                tensors[f"{number}.{name}"] = tensor
    return tensors


def write_sentence_settings(
    directory: Path, settings: SentenceSettings, hidden_size: int, projection: Mapping[str, Tensor]
) -> None:
    """Write ``modules.json``, the folders of the modules, ``sentence_bert_config.json`` and the prompts in the
    sentence-transformers layout.

    Args:
        projection: weights of ``settings.layers``, by parameter names of `Projection`.
    """
    if "pooler" in settings.pooling:
        raise CheckpointError(
            "the sentence-transformers layout has no name for pooling='pooler': choose another pooling to save"
        )
    after = [_MODULE_NAMES[type(layer)] for layer in settings.layers] + ["Normalize"] * settings.normalize
    paths = write_modules(directory, ["Transformer", "Pooling", *after], "models")
    content = _pooling_json(settings.pooling, hidden_size) | {"include_prompt": settings.include_prompt}
    write_json(directory / "1_Pooling" / "config.json", content)
    for number, (layer, path) in enumerate(zip(settings.layers, paths[2:], strict=False)):
        _write_layer(layer, directory / path, _under(projection, f"{number}."))
    write_limits(directory, settings.max_seq_length)
    write_json(directory / "config_sentence_transformers.json", settings_json(settings))


def settings_json(settings: SentenceSettings) -> dict[str, Any]:
    """The content of ``config_sentence_transformers.json``."""
    content = {
        "prompts": settings.prompts,
        "default_prompt_name": settings.default_prompt_name,
        "similarity_fn_name": settings.similarity,
    }
    return content if settings.truncate_dim is None else content | {"truncate_dim": settings.truncate_dim}


def write_modules(directory: Path, kinds: Sequence[str], package: str) -> list[str]:
    """Write ``modules.json`` and the folders of the modules; the path of each.

    Args:
        package: subpackage of sentence-transformers with the classes.
    """
    paths = ["", *(f"{number}_{kind}" for number, kind in enumerate(kinds[1:], start=1))]
    modules = [
        {"idx": index, "name": str(index), "path": paths[index], "type": f"sentence_transformers.{package}.{kind}"}
        for index, kind in enumerate(kinds)
    ]
    write_json(directory / "modules.json", modules)
    for path in paths[1:]:
        (directory / path).mkdir()
    return paths


def positive(content: dict[str, Any], key: str, directory: Path) -> int | None:
    """The integer of a key; None without it.

    Raises:
        CheckpointError: a value below 1, or of another type.
    """
    value = member(content, key, int, directory)
    if value is not None and value < 1:
        raise CheckpointError(f"{directory} has {key}={value}: expected at least 1")
    return value


def read_activation(content: Mapping[str, Any], path: Path) -> str | None:
    """The name of an activation stored as the import path of a torch class, which is not imported.

    Raises:
        CheckpointError: another path.
    """
    name = content.get("activation_fn")
    if name is None:
        return None
    if not isinstance(name, str) or not name.startswith("torch.nn."):
        raise CheckpointError(f"{path} has the activation {name!r:.80}: expected a class of torch.nn")
    return name.rpartition(".")[2]


def activation_path(name: str) -> str:
    """Import path of the torch class with this name; the inverse of `read_activation`."""
    return f"torch.nn.modules.{'linear' if name == 'Identity' else 'activation'}.{name}"


def _layer(kind: str, path: Path, taken: str = _VECTOR) -> ProjectionLayer:
    content, file = read_json(path / "config.json"), path / "config.json"
    if kind == "Normalize":
        _check_names(content or {}, file, taken)
        return UnitLength()
    if content is None:
        raise CheckpointError(f"{file} is missing, the config of a {kind} module")
    try:
        if kind == "LayerNorm":
            return NormLayer(_integer(content, "dimension", file))
        _check_names(content, file, taken)
        activation = read_activation({"activation_fn": content.get("activation_function")}, file)
        return DenseLayer(
            _integer(content, "in_features", file),
            _integer(content, "out_features", file),
            member(content, "bias", bool, file, True),
            activation or "Tanh",
            member(content, "use_residual", bool, file, False),
        )
    except UsageError as error:
        raise CheckpointError(f"{file}: {error}") from None


def _pooling_json(pooling: str, hidden_size: int) -> dict[str, Any]:
    """The config of a Pooling module, in the form of versions 2 to 5, which all versions read, unless it would change
    the order."""
    chosen = pooling.split("+")
    if chosen != [name for name in _POOLINGS.values() if name in chosen]:
        spelling = {ours: published for published, ours in _POOLINGS.items()}
        return {"embedding_dimension": hidden_size, "pooling_mode": [spelling[name] for name in chosen]}
    flags = {f"pooling_mode_{flag}": _POOLINGS[name] in chosen for flag, name in _FLAGS.items()}
    if "last" not in chosen:  # unknown to versions before 2.3
        del flags["pooling_mode_lasttoken"]
    return {"word_embedding_dimension": hidden_size, **flags}


def _write_layer(layer: ProjectionLayer, path: Path, tensors: dict[str, Tensor]) -> None:
    match layer:
        case DenseLayer():
            content: dict[str, Any] = {
                "in_features": layer.in_features,
                "out_features": layer.out_features,
                "bias": layer.bias,
                "activation_function": activation_path(layer.activation),
            } | ({"use_residual": True} if layer.residual else {})
        case NormLayer():
            content = {"dimension": layer.width}
        case _:
            return
    write_json(path / "config.json", content)
    later_module("safetensors.torch").save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})


def _under(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _check_names(content: Mapping[str, Any], file: Path, taken: str) -> None:
    """Check that a module maps text vectors, or token vectors, to the same."""
    for key in ("module_input_name", "module_output_name"):
        if content.get(key) not in (None, taken):
            raise CheckpointError(f"{file} has {key}={content[key]!r:.60}; supported: {taken!r}")


def _integer(content: dict[str, Any], key: str, file: Path) -> int:
    value = member(content, key, int, file)
    if value is None:
        raise CheckpointError(f"{file} lacks {key}")
    return value


def _prompts(content: dict[str, Any], directory: Path) -> dict[str, str]:
    prompts = member(content, "prompts", dict, directory, {})
    return {str(name): member(prompts, name, str, directory, "") for name in prompts}


def _similarity(content: dict[str, Any], directory: Path) -> Similarity:
    name: Any = member(content, "similarity_fn_name", str, directory, "cosine")
    if name not in _SIMILARITIES:
        raise CheckpointError(f"{directory}: similarity_fn_name is {name!r}; supported: {', '.join(_SIMILARITIES)}")
    return name


def _pooling(config: dict[str, Any], directory: Path) -> str:
    chosen = config.get("pooling_mode")
    if chosen is None:
        flags = [name for flag, name in _FLAGS.items() if config.get(f"pooling_mode_{flag}")]
        unknown = [
            key
            for key, value in config.items()
            if value and key.startswith("pooling_mode_") and key.removeprefix("pooling_mode_") not in _FLAGS
        ]
        chosen = [*flags, *unknown] or ([] if "pooling_mode_mean_tokens" in config else ["mean"])
    chosen = chosen if isinstance(chosen, list) else [chosen]
    if not chosen or not all(isinstance(name, str) and name in _POOLINGS for name in chosen):
        poolings = ", ".join(map(str, chosen)) or "nothing"
        raise CheckpointError(f"{directory} pools by {poolings}; supported: {', '.join(_POOLINGS)}")
    return "+".join(_POOLINGS[name] for name in chosen)
