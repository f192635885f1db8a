"""Outputs of an exported graph compared with those of the model it was made from."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bertkit.architectures import prepare
from bertkit.batch import Batch, collate
from bertkit.export.runtimes import Runtime
from bertkit.heads import HEADS
from bertkit.inference.runner import inferred
from bertkit.model import Model
from bertkit.tokenizer import Encoding

_TEXT = "A sample of plain words, the 12 numbers, names like Ada Lovelace, and some signs: (x + y) * 3 = 9?"
_LENGTHS = (3, 7, 17, 32)
"""Tokens of sample sequences, special tokens included."""

_LONGEST_PADDED = 1_024
"""Longest sample with another one: attention to 8,192 tokens has scores of 3 GB for each sequence, so it is alone."""


def difference(runtime: Runtime, model: Model, head: str, input_names: Sequence[str], max_length: int) -> float:
    """Largest difference between the outputs of a graph and ours for sample texts, relative to the largest output;
    of logits that are all below 1, which may cancel out, the difference itself.

    Texts of different lengths are padded together, on the right and on the left; one has the greatest length, and one
    is a pair.
    """
    pad, prepared, gap, largest = pad_token_id(model), prepare(model.encoder), 0.0, 1.0 if head else 1e-30
    device = model.encoder.embeddings.word.weight.device
    for encodings, side in _samples(model, max_length):
        batch = collate(encodings)
        inputs = padded(batch, input_names, pad, side)
        ours = inferred(lambda batch=batch: _outputs(model, prepared, head, batch.to(device)))
        results = runtime(inputs)
        is_real = inputs["attention_mask"].astype(bool)
        for name, expected in ours.items():
            given = results[name] if not head or HEADS[head] else results[name][is_real]
            gap = max(gap, float(np.nan_to_num(np.abs(given - expected), nan=np.inf).max()))
            largest = max(largest, float(np.abs(expected).max()))
    return gap / largest if np.isfinite(gap) else gap


def padded(batch: Batch, names: Sequence[str], pad_id: int, side: str = "right") -> dict[str, np.ndarray]:
    """Inputs of a graph: (B, L) int64 by name, padded to the longest sequence."""
    lengths = np.array(batch.seqlens)[:, None]
    columns = np.arange(lengths.max())
    is_real = columns < lengths if side == "right" else columns >= lengths.max() - lengths
    fills = {"input_ids": pad_id, "attention_mask": 0, "token_type_ids": 0}
    values = {"input_ids": batch.input_ids, "attention_mask": 1, "token_type_ids": batch.token_type_ids}
    arrays = {name: np.full(is_real.shape, fills[name], np.int64) for name in names}
    for name in names:
        arrays[name][is_real] = values[name]
    return arrays


def pad_token_id(model: Model) -> int:
    """Id of the token in padded positions; 0 for a vocabulary without one, since any token does."""
    vocabulary = model.tokenizer.vocabulary
    return vocabulary.id(vocabulary.special.pad) if vocabulary.special.pad in vocabulary else 0


def _samples(model: Model, max_length: int) -> Iterator[tuple[list[Encoding], str]]:
    """Encodings to pad together, and the side of the padding."""
    lengths = [min(length, max_length) for length in _LENGTHS]
    short = [model.tokenizer.encode(_TEXT, max_length=length, on_long="truncate") for length in lengths]
    pair = model.tokenizer.encode(_TEXT, _TEXT[::-1], max_length=min(41, max_length), on_long="truncate")
    long, longest = (
        model.tokenizer.encode(_TEXT * length, max_length=length, on_long="truncate")
        for length in (min(max_length, _LONGEST_PADDED), max_length)
    )
    for side in ("right", "left"):
        yield [*short, pair], side
        yield [short[1], long], side
    if max_length > _LONGEST_PADDED:
        yield [longest], "right"


def _outputs(model: Model, prepared: Any, head: str, batch: Batch) -> dict[str, np.ndarray]:
    """Our outputs by name: a row for each sequence, or for each token of the packed batch."""
    network, encoded = model.network, prepared(batch)
    if not head:
        return {"sentence_embedding": network.sentence_vectors(encoded, batch).float().cpu().numpy()}
    logits = network.head_logits(head, encoded, batch).float().cpu().numpy()
    if head == "question_answering":
        return {"start_logits": logits[:, 0], "end_logits": logits[:, 1]}
    return {"logits": logits}
