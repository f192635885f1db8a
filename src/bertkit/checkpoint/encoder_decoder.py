"""Open and save encoder-decoder model folders: Marian, and pairs of BERTs.

As for other model folders, files are read as data, and every tensor is accounted for.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from bertkit.architectures.encoder_decoder import (
    EncoderDecoder,
    EncoderDecoderConfig,
    EncoderDecoderType,
    initialize_encoder_decoder,
    published_name,
)
from bertkit.checkpoint.config_file import (
    REQUIRED_VALUES,
    config_content,
    refuse_unknown_keys,
    transformer_config,
)
from bertkit.checkpoint.generation_rules import end_ids, read_generation_rules
from bertkit.checkpoint.opening import open_checkpoint
from bertkit.checkpoint.own_record import read_section, write_record
from bertkit.checkpoint.weights import read_tensors, stored_tensors
from bertkit.errors import CheckpointError, UsageError
from bertkit.files.json_files import check_required_values, member, write_json
from bertkit.files.whole_files import whole_folder
from bertkit.locate import transformer_folder
from bertkit.tokenizer import Tokenizer
from bertkit.tokenizer.older_files import SOURCE, TARGET, TARGET_VOCAB
from bertkit.transformer import BertConfig, TransformerConfig

_MARIAN_KEYS = {  # fields of a stack -> keys of Marian's config.json, "{}" for encoder or decoder
    "vocab_size": "vocab_size",
    "hidden_size": "d_model",
    "num_hidden_layers": "{}_layers",
    "num_attention_heads": "{}_attention_heads",
    "intermediate_size": "{}_ffn_dim",
    "hidden_act": "activation_function",
    "hidden_dropout_prob": "dropout",
    "attention_probs_dropout_prob": "attention_dropout",
    "max_position_embeddings": "max_position_embeddings",
    "initializer_range": "init_std",
    "scale_embedding": "scale_embedding",
}
_MARIAN_REQUIRED: dict[str, tuple[Any, ...]] = {  # keys that affect the outputs, with the supported values
    "is_encoder_decoder": (True,),
    "tie_word_embeddings": (True,),
    "normalize_embedding": (False,),
    "normalize_before": (False,),
    "add_final_layer_norm": (False,),
    "add_bias_logits": (False,),
    "static_position_embeddings": (True,),
    "extra_pos_embeddings": (0, 2),  # unused by transformers' Marian
}
_MARIAN_IGNORED = (
    "activation_dropout encoder_layerdrop decoder_layerdrop classif_dropout classifier_dropout num_hidden_layers "
    "forced_eos_token_id id2label label2id num_labels is_decoder decoder_vocab_size share_encoder_decoder_embeddings "
    "add_cross_attention"
).split()
_BERT_REQUIRED: dict[str, tuple[Any, ...]] = {
    "model_type": ("bert",),
    "position_embedding_type": ("absolute",),
    "tie_word_embeddings": (True,),
}
_OF_DECODERS = ("is_decoder", "add_cross_attention")  # keys of a pair of BERTs: true in the decoder alone
_BERT_IGNORED = "classifier_dropout id2label label2id problem_type".split()
_TOKENIZER_FILES = (SOURCE, TARGET, "vocab.json", TARGET_VOCAB, "tokenizer_config.json", "special_tokens_map.json")
_CONSTANTS = (
    *(f"model.{stack}.embed_positions.weight" for stack in ("encoder", "decoder")),
    *(
        f"{stack}.embeddings.{name}"
        for stack in ("encoder", "decoder.bert")
        for name in ("position_ids", "token_type_ids")
    ),
)


@dataclass
class EncoderDecoderCheckpoint:
    """A network with its tokenizer; ``settings`` are stored in ``bertkit.json``."""

    network: EncoderDecoder
    tokenizer: Tokenizer  # of sources and, without ``target_tokenizer``, of targets
    settings: dict[str, Any]
    generation: dict[str, Any] = field(default_factory=dict)  # generation_config.json
    target_tokenizer: Tokenizer | None = None
    tokenizer_files: dict[str, bytes] = field(default_factory=dict)  # written again; without them, the tokenizer is


def new_encoder_decoder(config: EncoderDecoderConfig, tokenizer: Tokenizer, seed: int) -> EncoderDecoderCheckpoint:
    """A checkpoint with initial weights.

    Raises:
        UsageError: the vocabulary does not fit the embeddings.
    """
    smallest = min(config.encoder.vocab_size, config.decoder.vocab_size)
    if len(tokenizer.vocabulary) > smallest:
        raise UsageError(f"vocab_size={smallest}: the vocabulary has {len(tokenizer.vocabulary)} entries")
    network = EncoderDecoder(config).eval()
    initialize_encoder_decoder(network, seed)
    return EncoderDecoderCheckpoint(network, tokenizer, {})


def warm_started(directory: Path, seed: int) -> EncoderDecoderCheckpoint:
    """An encoder-decoder whose stacks both start from a BERT (Rothe et al. 2020, "Leveraging pre-trained checkpoints").

    Cross-attention starts from initial weights, and so does the language model head if the folder lacks one.

    Raises:
        CheckpointError: the folder is not a BERT.
    """
    checkpoint = open_checkpoint(directory, heads=None)
    bert, tokenizer = checkpoint.network, checkpoint.tokenizer
    if type(bert.config) is not BertConfig:
        raise CheckpointError(f"{directory} is not a BERT: an encoder-decoder starts from model_type 'bert'")
    values = {field.name: getattr(bert.config, field.name) for field in fields(BertConfig)}
    config = EncoderDecoderConfig(
        BertConfig(**values | {"is_decoder": False}), BertConfig(**values | {"is_decoder": True}),
        tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id,
    )  # fmt: skip
    made = new_encoder_decoder(config, tokenizer, seed)
    stored = {name: value for name, value in bert.encoder.state_dict().items() if not name.startswith("pooler.")}
    made.network.encoder.load_state_dict(stored)
    made.network.decoder.load_state_dict(stored, strict=False)
    if "masked_lm" in bert.heads:
        made.network.head.load_state_dict(bert.heads["masked_lm"].state_dict())
    return made


def open_encoder_decoder(directory: Path) -> EncoderDecoderCheckpoint:
    """Open a published folder.

    Raises:
        CheckpointError: anything missing, unexpected, inconsistent or unsafe.
    """
    folder = transformer_folder(directory)
    path = folder / "config.json"
    content = config_content(path) or {}
    generation = read_generation_rules(folder)
    config = _LAYOUTS[content["model_type"]].read(content, generation, path)
    stored = stored_tensors(folder)
    with torch.device("meta"):
        network = EncoderDecoder(config)
    names = {published_name(name, config): (name, value) for name, value in network.named_parameters()}
    copies = _LAYOUTS[config.kind.model_type].copies(config)
    sources = {
        name: next((other for other in (name, *copies.get(name, ())) if other in stored), name) for name in names
    }
    missing = [name for name, source in sources.items() if source not in stored and name != "final_logits_bias"]
    if missing:
        raise CheckpointError(f"{folder} lacks {len(missing)} of {len(names)} tensors: {', '.join(missing[:5])}")
    known = {*names, *(copy for group in copies.values() for copy in group), *_CONSTANTS}
    unused = ("encoder.pooler.",)
    if unexpected := [name for name in stored if name not in known and not name.startswith(unused)]:
        raise CheckpointError(f"{folder} holds tensors that this model lacks: {', '.join(sorted(unexpected)[:5])}")
    values = read_tensors([tensor for name, tensor in stored.items() if name in known])
    state = {}
    for name, (ours, parameter) in names.items():
        value = values.get(sources[name])
        value = (
            torch.zeros(parameter.shape)
            if value is None
            else value.reshape(-1)
            if value.shape[:1] == (1,) and (name == "final_logits_bias")
            else value
        )
        if value.shape != parameter.shape or not value.dtype.is_floating_point:
            raise CheckpointError(
                f"{folder}: {name} is stored as {list(value.shape)}, the config asks for {list(parameter.shape)}"
            )
        for copy in copies.get(name, ()):
            if copy in values and not torch.equal(values[copy], values[sources[name]]):
                raise CheckpointError(f"{folder}: {copy} differs from {name}: untied embeddings are not supported")
        state[ours] = value.float()
    network.load_state_dict(state, strict=False, assign=True)
    tokenizer = Tokenizer.load(folder)
    settings = read_section(folder, "generation") or {}
    checkpoint = EncoderDecoderCheckpoint(network.eval(), tokenizer, settings, generation)
    if (folder / SOURCE).is_file() and not (folder / "tokenizer.json").is_file():
        if not (folder / TARGET).is_file():
            raise CheckpointError(f"{folder} has {SOURCE} and no {TARGET}: fetch it again")
        checkpoint.target_tokenizer = Tokenizer.load(folder, language=TARGET)
        paths = [folder / name for name in _TOKENIZER_FILES]
        checkpoint.tokenizer_files = {path.name: path.read_bytes() for path in paths if path.is_file()}
    for of_stack, stack in ((tokenizer, config.encoder), (checkpoint.target_tokenizer or tokenizer, config.decoder)):
        if len(of_stack.vocabulary) > stack.vocab_size:
            raise CheckpointError(
                f"{folder}: the vocabulary has {len(of_stack.vocabulary)} entries, the word embedding only "
                f"{stack.vocab_size} rows: tokenizer and weights belong to different models"
            )
    return checkpoint


def save_encoder_decoder(
    checkpoint: EncoderDecoderCheckpoint,
    directory: str | Path,
    *,
    overwrite: bool = False,
    parameters: Mapping[str, Tensor] | None = None,
) -> None:
    """Write a folder that transformers opens, atomically; arguments as in `save_checkpoint`."""
    network = checkpoint.network
    config, values = network.config, dict(network.named_parameters()) if parameters is None else parameters
    tensors = {published_name(name, config): value.detach().cpu().contiguous() for name, value in values.items()}
    if "final_logits_bias" in tensors:
        tensors["final_logits_bias"] = tensors["final_logits_bias"][None]
    ids = {"decoder_start_token_id": config.start_id, "eos_token_id": config.end_id, "pad_token_id": config.pad_id}
    with whole_folder(directory, overwrite=overwrite) as folder:
        fixed = {"model_type": config.kind.model_type, "is_encoder_decoder": True}
        write_json(folder / "config.json", fixed | _LAYOUTS[config.kind.model_type].write(config) | ids)
        ends = end_ids(checkpoint.generation)
        several = {"eos_token_id": list(ends)} if len(ends) > 1 else {}
        write_json(folder / "generation_config.json", checkpoint.generation | ids | several)
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        if not checkpoint.tokenizer_files:
            checkpoint.tokenizer.save(folder)
        for name, content in checkpoint.tokenizer_files.items():
            (folder / name).write_bytes(content)
        write_record(folder, {"generation": checkpoint.settings})


def _bert_pair_copies(config: EncoderDecoderConfig) -> dict[str, tuple[str, ...]]:
    return {
        "decoder.bert.embeddings.word_embeddings.weight": ("decoder.cls.predictions.decoder.weight",),
        "decoder.cls.predictions.bias": ("decoder.cls.predictions.decoder.bias",),
    }


def _marian_copies(config: EncoderDecoderConfig) -> dict[str, tuple[str, ...]]:
    if config.shares_embeddings:
        stacks = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight")
        return {"model.shared.weight": (*stacks, "lm_head.weight")}
    return {"model.decoder.embed_tokens.weight": ("lm_head.weight",)}


def _ids(content: dict[str, Any], generation: dict[str, Any], path: Path) -> dict[str, int]:
    ids = {}
    for name, key in (("start_id", "decoder_start_token_id"), ("end_id", "eos_token_id"), ("pad_id", "pad_token_id")):
        decoder = content.get("decoder") if isinstance(content.get("decoder"), dict) else {}
        values = [part.get(key) for part in (generation, content, decoder) if part.get(key) is not None]
        if key == "eos_token_id" and not values and isinstance(content.get("decoder"), dict):
            values = [generation.get("sep_token_id", content.get("sep_token_id"))]
        value = values[0] if values else None
        first = value[0] if isinstance(value, list) and value and key == "eos_token_id" else value
        if type(first) is not int:
            raise CheckpointError(f"{path} and generation_config.json have {key}={value!r:.60}: expected an integer")
        ids[name] = first
    return ids


def _marian_config(content: dict[str, Any], generation: dict[str, Any], path: Path) -> EncoderDecoderConfig:
    check_required_values(content, _MARIAN_REQUIRED, path)
    stacks = []
    for stack in ("encoder", "decoder"):
        keys = {name: key.format(stack) for name, key in _MARIAN_KEYS.items()}
        values = {"scale_embedding": False, "activation_function": "gelu", "max_position_embeddings": 1_024} | content
        if stack == "decoder":
            values["vocab_size"] = content.get("decoder_vocab_size") or content.get("vocab_size")
        values["is_decoder"] = stack == "decoder"
        stacks.append(transformer_config(TransformerConfig, values, keys | {"is_decoder": "is_decoder"}, path))
    known = {key.format(stack) for key in _MARIAN_KEYS.values() for stack in ("encoder", "decoder")}
    refuse_unknown_keys(content, known | _MARIAN_REQUIRED.keys() | set(_MARIAN_IGNORED), path)
    shares = member(content, "share_encoder_decoder_embeddings", bool, path, True)
    return _made(path, *stacks, **_ids(content, generation, path), shares_embeddings=shares)


def _bert_pair_config(content: dict[str, Any], generation: dict[str, Any], path: Path) -> EncoderDecoderConfig:
    stacks = []
    for stack in ("encoder", "decoder"):
        values = member(content, stack, dict, path, {})
        keys = {field.name: field.name for field in fields(BertConfig)}
        required = REQUIRED_VALUES | _BERT_REQUIRED | dict.fromkeys(_OF_DECODERS, (stack == "decoder",))
        check_required_values(values, required, path / stack)
        refuse_unknown_keys(values, {*keys, *required, *_BERT_IGNORED}, path)
        values = values | {"is_decoder": stack == "decoder"}
        stacks.append(transformer_config(BertConfig, values, keys, path))
    refuse_unknown_keys(content, {"encoder", "decoder", "is_encoder_decoder", "tie_word_embeddings"}, path)
    return _made(path, *stacks, **_ids(content, generation, path))


def _made(path: Path, encoder: Any, decoder: Any, **others: Any) -> EncoderDecoderConfig:
    try:
        return EncoderDecoderConfig(encoder, decoder, **others)
    except UsageError as error:
        raise CheckpointError(f"{path}: {error}") from None


def _bert_pair_json(config: EncoderDecoderConfig) -> dict[str, Any]:
    content: dict[str, Any] = {}
    for stack in ("encoder", "decoder"):
        part = getattr(config, stack)
        content[stack] = {field.name: getattr(part, field.name) for field in fields(BertConfig)}
        content[stack] |= {"model_type": "bert", "add_cross_attention": stack == "decoder"}
    return content | {"architectures": ["EncoderDecoderModel"]}


def _marian_json(config: EncoderDecoderConfig) -> dict[str, Any]:
    content: dict[str, Any] = {}
    for stack in ("decoder", "encoder"):  # for keys in both, the encoder's
        part = getattr(config, stack)
        content |= {key.format(stack): getattr(part, name) for name, key in _MARIAN_KEYS.items()}
    content |= {"decoder_vocab_size": config.decoder.vocab_size, "architectures": ["MarianMTModel"]}
    return content | {"share_encoder_decoder_embeddings": config.shares_embeddings, "static_position_embeddings": True}


@dataclass(frozen=True)
class _Layout:
    """A published folder layout of encoder-decoder models."""

    read: Callable[..., EncoderDecoderConfig]  # (config.json, generation_config.json, path for errors)
    write: Callable[[EncoderDecoderConfig], dict[str, Any]]  # content of config.json
    copies: Callable[[EncoderDecoderConfig], dict[str, tuple[str, ...]]]  # tied copies of tensors in older files


_LAYOUTS: dict[EncoderDecoderType, _Layout] = {
    "marian": _Layout(_marian_config, _marian_json, _marian_copies),
    "encoder-decoder": _Layout(_bert_pair_config, _bert_pair_json, _bert_pair_copies),
}
