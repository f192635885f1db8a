"""Generation with a key-value cache on a GPU, a part of `gpu.py`: checks against float32 on the CPU, and speeds.

The models are those of `generate.py` with random weights: an encoder-decoder and a decoder.
"""

import tempfile
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from generate import best_speed, models, write_tokenizer

from bertkit.generation import GenerationSettings, Generator, load_generator

BOUNDS = {"float32": 1e-4, "bfloat16": 5e-2, "float16": 1e-2}
"""Maximum allowed differences of logits from those of the CPU in float32, relative to the largest logit."""
LENGTHS, NUM_STEPS, NEW_TOKENS = (1, 90, 7, 33, 2), 40, 64


def checks(device: str, quick: bool, precisions: Sequence[str]) -> dict[str, Any]:
    """Largest differences of logits after prompts and after steps that reorder rows; rows with the same tokens in
    float32, greedy and with beams; how often greedy search waits other than for its tokens; tokens per second."""
    found: dict[str, Any] = {}
    for name, theirs in models(quick).items():
        with tempfile.TemporaryDirectory() as folder:
            theirs.eval().save_pretrained(folder)
            write_tokenizer(Path(folder), theirs.config.vocab_size)
            cpu, ours = (load_generator(folder, device=where) for where in ("cpu", device))
        draw = np.random.default_rng(1)
        inputs = [draw.integers(5, theirs.config.vocab_size - 1, length) for length in LENGTHS]
        expected = _logits(cpu, inputs, "float32")
        for precision in precisions:
            given = _logits(ours, inputs, precision)
            found[f"{name}, {precision}"] = float((given - expected).abs().max() / expected.abs().max())
            found[f"{name}, {precision} holds"] = found[f"{name}, {precision}"] <= BOUNDS[precision]
        for num_beams in (1, 4):
            settings = GenerationSettings(NEW_TOKENS, num_beams=num_beams)
            made = [[one.ids for one in each.generate_ids(inputs, settings)] for each in (ours, cpu)]
            equal = sum(one == other for one, other in zip(*made, strict=True))
            found[f"{name}, equal rows of {len(inputs)}, {num_beams} beams"] = equal
        greedy = partial(ours.generate_ids, inputs, GenerationSettings(NEW_TOKENS, precision=precisions[-1]))
        reported = waits(device, greedy)
        found |= {f"{name}, waits": len(reported), f"{name}, waits holds": not reported}
        if reported:
            found[f"{name}, first wait"] = reported[0][:200]
        for precision in precisions:
            for number in (1, 16):
                rows = [inputs[3]] * number
                work = partial(ours.generate_ids, rows, GenerationSettings(NEW_TOKENS, precision=precision))
                num_tokens = sum(len(one.ids) for one in work())
                found[f"{name}, {precision}, batch {number}, tokens a second"], _ = best_speed(work, num_tokens, 2)
        torch.backends.cuda.enable_cudnn_sdp(False)  # which plans anew for each shape of keys and values
        speed, _ = best_speed(work, num_tokens, 2)
        torch.backends.cuda.enable_cudnn_sdp(True)
        found[f"{name}, {precisions[-1]}, batch 16, tokens a second without cuDNN's attention"] = speed
    return found


def _logits(generator: Generator, inputs: Sequence[np.ndarray], precision: str) -> torch.Tensor:
    """Logits of all steps, (steps x rows, V), with the same tokens on every device."""
    prompts, _ = generator.prompts_and_limits(inputs, GenerationSettings())
    decoding, draw = generator.decoding(inputs, precision), np.random.default_rng(2)
    logits = [decoding.start(prompts)]
    for _ in range(NUM_STEPS):
        logits.append(decoding.step(draw.integers(5, 999, len(inputs)), draw.permutation(len(inputs))))
    return torch.cat(logits).cpu()


def waits(device: str, work: Callable[[], Any]) -> list[str]:
    """The warnings of torch about waiting for the GPU during a second run of the work."""
    work()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        if device.startswith("cuda"):
            torch.cuda.set_sync_debug_mode("warn")
        try:
            work()
        finally:
            if device.startswith("cuda"):
                torch.cuda.set_sync_debug_mode("default")
    return [str(one.message) for one in seen if "called a synchroniz" in str(one.message)]
