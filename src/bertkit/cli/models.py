"""Default models of commands, and how commands open a model or a tokenizer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os.path import expanduser
from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import Parameter

from bertkit.cli.output import Device, note
from bertkit.errors import UsageError
from bertkit.locate import is_adapter, locate, transformer_folder
from bertkit.tokenizer import Tokenizer

if TYPE_CHECKING:
    import numpy as np

    from bertkit.inference import InferenceReport
    from bertkit.inference.text_encoder import TextEncoder
    from bertkit.model import Model

EMBEDDING_MODEL = "all-MiniLM-L6-v2"
"""The default model for vectors and tokens."""

PRETRAINED_MODEL = "bert-base-uncased"
"""The default model for pre-training heads, which sentence encoders lack."""

OWN_MODEL = ".demo/bert/model"
"""The model with both pre-training heads that ``make demo-bert`` trains, in the working directory."""


@Parameter(name="*")
@dataclass(frozen=True)
class Compute:
    """Device and precision.

    Parameters
    ----------
    precision
        float32, exact; bfloat16, int8 (only on the CPU) or float16 (only on GPUs), faster and slightly different; auto,
        the fastest one here within cosine 0.9999 of float32; float64, for reference.
    """

    precision: str = "float32"
    device: Device = "auto"


EXACT = Compute()
"""The default device and precision of commands."""


@Parameter(name="*")
@dataclass(frozen=True)
class Pooled:
    """How the hidden states of a text become its vector.

    Parameters
    ----------
    pooling
        mean, cls, max, mean-sqrt-len, weighted-mean, last or pooler, or several side by side, as in cls+mean; by
        default the model's.
    layers
        last, second-to-last, embedding, sum-last-4, concat-last-4 or sum-all; or sum:, mean: or concat: with layer
        numbers, as in concat:0,-1, where 0 is the embedding and -1 the last layer, or with all.
    """

    pooling: str | None = None
    layers: str = "last"


AS_PUBLISHED = Pooled()
"""The model's pooling of the last layer."""


def pretrained_name(model: str | None) -> str:
    """The model of ``--model``, else the one that was trained here.

    Raises:
        UsageError: neither exists.
    """
    if model is None and not Path(OWN_MODEL).is_dir():
        raise UsageError(
            f"no --model is given, and there is no {OWN_MODEL} here: make it in ten minutes with make demo-bert, or "
            "bertkit pretrain --corpus python-docs --recipe bert-minutes --minutes 10 --out .demo/bert; or download a "
            f"published model: --model {PRETRAINED_MODEL}"
        )
    return model or OWN_MODEL


def open_model(model: str, compute: Compute, log: Callable[[str], object] = note) -> "Model":
    """Load a model, or an adapter with its base model, with the command line's options.

    Args:
        log: called with the reason for the choice of "auto".
    """
    if is_adapter(model):
        from bertkit.finetuning.adapted_model import load_adapter as load
    else:
        from bertkit.model import load

        refuse_encoder_decoder(model)
    opened = load(model, precision=compute.precision, device=compute.device)
    if opened.precision_reason:
        log(opened.precision_reason)
    return opened


def refuse_encoder_decoder(model: str) -> None:
    """Raise a UsageError if a model is an encoder-decoder, which only ``bertkit generate`` opens."""
    from bertkit.checkpoint.config_file import is_encoder_decoder

    if is_encoder_decoder(transformer_folder(locate(model))):
        raise UsageError(f"{model} is an encoder-decoder: this command expects an encoder; use bertkit generate")


def open_encoder(model: str, compute: Compute) -> "TextEncoder":
    """`open_model` for any text encoder, including files and folders of word vectors."""
    from bertkit.words import opening

    opened = opening.open_encoder(model, precision=compute.precision, device=compute.device)
    if opened.precision_reason:
        note(opened.precision_reason)
    return opened


def note_unknown(report: "InferenceReport") -> None:
    """Print to stderr the numbers of texts without a known token, and of tokens that the model does not know, if
    any."""
    if report.num_empty:
        note(f"{report.num_empty} texts were empty, or have no known token")
    if report.num_unknown:
        note(
            f"{report.num_unknown} of {report.num_tokens} tokens are unknown to the model ([UNK] or without a vector): "
            "texts that differ only in them have equal vectors"
        )


def embed_texts(source: str, column: str | None, model: str, compute: Compute) -> "tuple[list[str], np.ndarray]":
    """The texts of a file or folder, and their (num_texts, embedding_dim) float32 vectors of length 1.

    Texts that were cut to the model's length are reported on stderr.
    """
    from bertkit.corpus.texts import read_texts
    from bertkit.inference import InferenceReport

    opened, texts, report = open_encoder(model, compute), list(read_texts(source, column)), InferenceReport()
    vectors = opened.embed(texts, normalize=True, report=report)
    if report.num_texts_cut:
        note(f"{report.num_texts_cut} texts were cut to the model's length and lost {report.num_tokens_cut} tokens")
    note_unknown(report)
    return texts, vectors


def change_trained(
    opened: "Model",
    no_answer_threshold: float | None = None,
    words: str | None = None,
    label_names: Sequence[str] | None = None,
    *,
    are_of_data: bool = False,
) -> None:
    """Set the no-answer threshold, rule of words or label names of a fine-tuned model, if they are given.

    Args:
        are_of_data: label names are those of integers in data, and of a model without names.

    Raises:
        MissingHeadError: the model was not fine-tuned for a task.
        UsageError: a setting that the task of the model does not have, or names for a model that has other names.
    """
    if no_answer_threshold is not None:
        opened.change_task(no_answer_threshold=no_answer_threshold, no_answer=True)
    if label_names is not None and not (are_of_data and opened.trained.has_names):
        opened.change_task(label_names=label_names)
    if words is not None:
        opened.change_task(words=words)


def labels_given(labels: str | None) -> list[str] | None:
    """The labels of ``--labels``, which are separated by commas; None if there is no such option."""
    if labels is None:
        return None
    return [label.strip() for label in labels.split(",")] if labels.strip() else []


def open_tokenizer(model: str, lowercase: bool | None) -> Tokenizer:
    """The tokenizer of a model, or of a vocab.txt, which does not record whether it is cased.

    Raises:
        UsageError: ``lowercase`` for a model, whose files record it.
    """
    path = Path(expanduser(model))
    if path.is_file():
        return Tokenizer.from_vocab(path, lowercase=lowercase)
    if lowercase is not None:
        raise UsageError("--lowercase requires a vocab.txt: the files of a model record whether it is cased")
    return Tokenizer.load(transformer_folder(locate(model)))
