"""The fastest precision that stays close to float32, measured on this machine."""

from __future__ import annotations

import hashlib
import json
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from bertkit.architectures import prepare
from bertkit.batch import Batch, collate
from bertkit.device import device_name
from bertkit.errors import BertkitError
from bertkit.executor import on_one_core
from bertkit.files.json_files import read_json, write_json
from bertkit.files.user_cache import user_cache
from bertkit.later import F, Tensor, torch
from bertkit.tokenizer import Tokenizer
from bertkit.transformer import Encoder
from bertkit.transformer.kernels.choices import capability_of
from bertkit.version import __version__

CLOSEST_COSINE = 0.9999
"""Minimum cosine with float32's vectors, over all texts of the sample."""

_SAMPLE = (
    "No.",
    "Where is the nearest station?",
    "The parcel arrived two days late and the box was torn.",
    "She has taught mathematics at the village school since 1998, and never missed a day.",
    "def area(radius): return 3.14159 * radius ** 2",
    "Prices rose by 4.2 % in March, after 3.9 % in February; rents and energy were the main causes.",
    "A glacier is a slow river of ice. Snow that does not melt in summer is pressed together year after year until it "
    "flows downhill under its own weight, grinding the rock below it to dust.",
    "http://example.com/a?b=c#d is a link, @someone is a name and :-) is a face",
)
_NUM_TRIALS = 7


@dataclass(frozen=True)
class PrecisionChoice:
    """The precision chosen by "auto", and the reason in one line."""

    precision: str
    reason: str


def choose_precision(encoder: Encoder, tokenizer: Tokenizer) -> PrecisionChoice:
    """Try each precision on a fixed sample of texts, or recall the choice for these weights on this machine.

    The choice is cached in the folder ``bertkit`` of the user's cache ($XDG_CACHE_HOME, else ~/.cache), if writable.
    """
    folder = precision_cache()
    file = None if folder is None else folder / f"{_fingerprint(encoder)}.json"
    try:
        if file is not None and (kept := read_json(file)):
            return PrecisionChoice(**kept)
    except (BertkitError, TypeError):  # edited, or written by another version: measure again
        pass
    with on_one_core():  # as batches run; timings of several threads depend more on other load
        choice = _try_each(encoder, tokenizer)
    if file is not None:
        with suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            write_json(file, asdict(choice))
    return choice


def _try_each(encoder: Encoder, tokenizer: Tokenizer) -> PrecisionChoice:
    batch = collate(
        tokenizer.encode_batch(_SAMPLE, max_length=encoder.config.max_position_embeddings, on_long="truncate")
    )
    device = encoder.embeddings.word.weight.device
    batch = batch.to(device)
    reference, slowest = _measure(encoder, "float32", batch)
    choice, fastest, findings = "float32", slowest, []
    for precision in _faster_precisions(device):
        vectors, seconds = _measure(encoder, precision, batch)
        cosine = float(F.cosine_similarity(vectors, reference).min())
        findings.append(f"{precision} {slowest / seconds:.1f}x at cosine {cosine:.5f}")
        if cosine >= CLOSEST_COSINE and seconds < fastest:
            choice, fastest = precision, seconds
    tried, where = ", ".join(findings), device_name(device)
    return PrecisionChoice(
        choice, f"precision: {choice}, the fastest within cosine {CLOSEST_COSINE} of float32 on {where} ({tried})"
    )


def _faster_precisions(device: torch.device) -> tuple[str, ...]:
    """Precisions that may be faster than float32 on a device."""
    if device.type == "cpu":
        return "bfloat16", "int8"
    has_bfloat16 = device.type != "cuda" or torch.version.hip is not None or capability_of(device) >= (8, 0)
    return ("bfloat16",) if has_bfloat16 else ("float16",)


def _measure(encoder: Encoder, precision: str, batch: Batch) -> tuple[Tensor, float]:
    """(B, D) means of the hidden states, and the minimum time to compute them."""
    prepared = prepare(encoder, precision)
    hidden = prepared(batch, with_pooled=False).last_hidden_state  # the first run compiles
    seconds = []
    for _ in range(_NUM_TRIALS):
        start = time.perf_counter()
        hidden = prepared(batch, with_pooled=False).last_hidden_state
        sums = torch.segment_reduce(hidden.cpu(), "mean", lengths=batch.cu_seqlens.diff().cpu())
        seconds.append(time.perf_counter() - start)
    return sums, min(seconds)  # other load only adds time


def precision_cache() -> Path | None:
    """The cache folder of `choose_precision`; None for a user without a home folder."""
    of_user = user_cache()
    return None if of_user is None else of_user / "precision"


def _fingerprint(encoder: Encoder) -> str:
    """Fingerprint of the machine, the versions, and the first values of every weight."""
    weights = hashlib.sha256()
    for parameter in encoder.parameters():
        weights.update(parameter.detach().flatten()[:64].float().cpu().numpy().tobytes())
    device = encoder.embeddings.word.weight.device
    known = (
        device_name(device),
        torch.get_num_threads(),
        torch.__version__,
        __version__,
        asdict(encoder.config),
        weights.hexdigest(),
    )
    return hashlib.sha256(json.dumps(known).encode()).hexdigest()[:32]
