"""Open a folder, a hub name or an installed package as a Model."""

from collections.abc import Collection, Sequence
from pathlib import Path

from bertkit.checkpoint import Checkpoint, open_checkpoint
from bertkit.device import is_cpu, resolve_device, weights_dtype_name
from bertkit.errors import UsageError
from bertkit.extraction.settings import is_extraction
from bertkit.inference.auto_precision import choose_precision
from bertkit.locate import locate
from bertkit.model.model import Model


def load(
    name: str | Path,
    *,
    precision: str = "float32",
    device: str = "auto",
    heads: Sequence[str] | None = None,
    new: Collection[str] = (),
    label_names: Sequence[str] | None = None,
    ignore_tensors: Collection[str] = (),
    ignore_config_keys: Collection[str] = (),
    seed: int = 0,
) -> Model:
    """Open a published BERT, or an extraction model, in the form of GLiNER or GLiNER2.

    Args:
        name: a folder, a hub name, a short name ("all-MiniLM-L6-v2"), or the import name of a model package.
        precision: of the encoder in inference: "float32", exact; "bfloat16", "int8" (only on the CPU) and "float16"
            (only on GPUs), faster and slightly different; "auto", the fastest within cosine 0.9999 of float32 on this
            machine, see `Model.precision` and `Model.precision_reason`; or "float64", for reference.
        device: "auto", "cpu", "cuda", "cuda:1", ...
        heads: heads to load, names from ``bertkit.HEADS``; None: all stored heads. Other stored heads are ignored.
        new: heads, or "pooler", to start from initial weights. They refuse to predict until trained.
        label_names: the labels of a new classification head; None: LABEL_0 and LABEL_1.
        ignore_tensors: unexpected stored tensors to skip: names, or patterns such as ``cls.extra.*``.
        ignore_config_keys: unknown keys of config.json to ignore.
        seed: seed of initial weights.

    Raises:
        CheckpointError: no such model, or one that is incomplete, inconsistent or unsafe to open.
        UsageError: an unknown precision, device or head, heads of an extraction model, or a name that is neither a str
            nor a path.
    """
    folder = locate(name)
    if is_extraction(folder):
        if heads or new or label_names is not None or ignore_tensors or ignore_config_keys:
            raise UsageError(f"{name} is an extraction model: it opens with precision and device only")
        return _extraction_model(folder, precision, device)
    checkpoint = open_checkpoint(
        folder,
        heads=heads,
        new=new,
        label_names=label_names,
        ignore_tensors=ignore_tensors,
        ignore_config_keys=ignore_config_keys,
        dtype=weights_dtype_name("float32" if precision == "auto" else precision),
        seed=seed,
    )
    return model_of(checkpoint, precision, device)


def model_of(checkpoint: Checkpoint, precision: str, device: str) -> Model:
    """The Model of an open checkpoint; arguments as in `load`."""
    if not is_cpu(device):
        checkpoint.network.to(resolve_device(device))
    if precision != "auto":
        return Model(checkpoint, precision)
    choice = choose_precision(checkpoint.network.encoder, checkpoint.tokenizer)
    return Model(checkpoint, choice.precision, choice.reason)


def _extraction_model(folder: Path, precision: str, device: str) -> Model:
    from bertkit.extraction.opening import open_extractor

    extractor = open_extractor(folder, precision=precision, device=device)
    runner, choice = extractor.runner, extractor.precision
    return Model(Checkpoint(runner.network, runner.tokenizer), choice.precision, choice.reason, extractor)
