"""HTML page of generated texts: the likeliest tokens of each step, and their cross-attention."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from bertkit.errors import UsageError
from bertkit.generation.causal import Causal
from bertkit.generation.engine import Generated
from bertkit.generation.sequence_to_sequence import SequenceToSequence
from bertkit.generation.settings import GenerationSettings
from bertkit.pages import Markup, details, heat_map, paragraph, section, table, write_page

_MOST_TEXTS, _CANDIDATES = 20, 5


def write_generation_page(
    path: str | Path, generator: Causal | SequenceToSequence, texts: Sequence[str], settings: GenerationSettings
) -> None:
    """Generate for up to twenty texts and write a self-contained HTML page.

    Raises:
        UsageError: more texts.
    """
    if len(texts) > _MOST_TEXTS:
        raise UsageError(f"{len(texts)} texts: a page shows up to {_MOST_TEXTS}; choose some of them")
    if settings.num_beams == 1:
        settings = replace(settings, num_candidates=max(_CANDIDATES, settings.num_candidates))
    inputs = generator.encode(texts)
    made = generator.generate_ids(inputs, settings)
    parts = []
    for text, own, one in zip(texts, inputs, made, strict=True):
        tokens = [_spelled(generator, token) for token in one.ids]
        content = [paragraph(generator.decode(one.ids) or "nothing"), *_steps(generator, tokens, one)]
        if isinstance(generator, SequenceToSequence):
            content += _attention(generator, own.tolist(), one, tokens)
        parts.append(section(text, content))
    write_page(path, "Generation", parts)


def _spelled(generator: Causal | SequenceToSequence, token: int) -> str:
    """The spelling of a token, with a space instead of its marker."""
    return generator.spelled(token).replace("\u0120", "\u00b7")


def _steps(generator: Causal | SequenceToSequence, tokens: Sequence[str], made: Generated) -> list[Markup]:
    """A table of the likeliest tokens of each step."""
    if not made.candidates:
        return []
    names = ["step", "token", *(f"likeliest {number}" for number in range(1, len(made.candidates[0]) + 1))]
    rows = [
        [str(step), token, *(f"{_spelled(generator, one)} {100 * prob:.1f}\xa0%" for one, prob in candidates)]
        for step, (token, candidates) in enumerate(zip(tokens, made.candidates, strict=True), 1)
    ]
    return [table(names, rows)]


def _attention(
    generator: SequenceToSequence, source: Sequence[int], made: Generated, tokens: Sequence[str]
) -> list[Markup]:
    """Cross-attention of the last layer, averaged over heads; other layers are collapsed."""
    layers = generator.cross_attention(np.array(source, np.int64), made.ids)
    sources = [_spelled(generator, token) for token in source]
    maps = [
        heat_map(
            f"Cross-attention of layer {number}, mean over {len(probs)} heads", probs.mean(dim=0).numpy(), tokens,
            sources, row_name="written", column_name="source",
        )
        for number, probs in enumerate(layers, 1)
    ]  # fmt: skip
    return [maps[-1], *([details("Other layers", maps[:-1])] if len(maps) > 1 else [])]
