"""Encoder-decoders that write novels backwards: recurrent ones, with and without attention, and a Transformer.

    python benchmarks/letters_backwards.py [--novels 10] [--minutes 2] [--seeds 0,1,2]

The budget is processor time for each model and seed, summed over cores. Needs ../shared/data. Without attention the
decoder starts from one vector for the whole source (Sutskever et al. 2014); attention reads all states of the encoder
(Bahdanau et al. 2015). Shape letters: B texts, L characters of each, D width, V characters known.
"""

import argparse
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import report
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertkit.architectures.encoder_decoder import EncoderDecoder, EncoderDecoderConfig, initialize_encoder_decoder
from bertkit.batch import batch_of_ids
from bertkit.transformer import TransformerConfig

WRITERS: Mapping[str, str] = {
    "gru": "one vector of the whole source",
    "gru-attention": "one vector, and attention to all states of the source",
    "transformer": "attention alone",
}
"""The models, and what the decoder reads of the source."""

LENGTHS = (4, 8, 12, 16, 20, 24)
"""Lengths tested, in characters; training has 2 to 20."""

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
_LONGEST_TRAINED, _WIDTH, _BATCH_SIZE, _RATE, _TESTED = 20, 128, 64, 2e-3, 200
_CHARACTERS = " abcdefghijklmnopqrstuvwxyz"
_START, _SIZE = len(_CHARACTERS), len(_CHARACTERS) + 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--novels", type=int, default=10)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--seeds", default="0,1,2")
    results, options = report.begin("letters-backwards", parser)
    novels = sorted((DATA / "english_novels").glob("*_*.txt"))
    novels = novels[:: max(1, len(novels) // options.novels)][: options.novels]
    letters = letters_of([novel.read_text(encoding="utf-8") for novel in novels])
    parts, seeds = np.split(letters, [-(len(letters) // 20)]), [int(seed) for seed in options.seeds.split(",")]
    table = []
    for name, source in WRITERS.items():
        runs = [measure_writer(name, (parts[0], parts[1]), seed, 60 * options.minutes) for seed in seeds]
        results[name] = runs
        shares = np.mean([run["exact"] for run in runs], axis=0)
        table.append([name, source, f"{np.mean([run['steps'] for run in runs]):.0f}", *(f"{s:.0%}" for s in shares)])
    text = [
        *report.heading("Pieces of novels written backwards", results),
        f"Share without a wrong letter, by length in letters (2 to {_LONGEST_TRAINED} were trained); "
        f"{options.minutes:g} minutes of processor time for each model and seed, mean over the seeds.",
        "",
        report.markdown_table(["model", "reads", "steps", *map(str, LENGTHS)], *table),
    ]
    report.finish(results, "\n".join(text), options.out)


class RecurrentWriter(nn.Module):
    """GRU encoder and decoder (Cho et al. 2014)."""

    def __init__(self, has_attention: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(_SIZE, _WIDTH)
        self.encoder, self.decoder = (nn.GRU(_WIDTH, _WIDTH, batch_first=True) for _ in range(2))
        self.join = nn.Linear(2 * _WIDTH, _WIDTH) if has_attention else None
        self.output = nn.Linear(_WIDTH, _SIZE)

    def forward(self, sources: Tensor, before: Tensor) -> Tensor:
        """(B, L, V) logits of each next character, given (B, L) sources and the characters written before."""
        states, last = self.encoder(self.embedding(sources))
        written, _ = self.decoder(self.embedding(before), last)
        if self.join is not None:
            shares = (written @ states.transpose(1, 2) / _WIDTH**0.5).softmax(dim=-1)
            written = self.join(torch.cat([written, shares @ states], dim=-1)).tanh()
        return self.output(written)


class TransformerWriter(nn.Module):
    """The original Transformer with one layer in each stack."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        encoder, decoder = (
            TransformerConfig(_SIZE, _WIDTH, 1, 4, 2 * _WIDTH, max_position_embeddings=32, hidden_dropout_prob=0.0,
                              is_decoder=is_decoder)
            for is_decoder in (False, True)
        )  # fmt: skip
        self.network = EncoderDecoder(EncoderDecoderConfig(encoder, decoder, _START, _START, _START, True))
        initialize_encoder_decoder(self.network, seed)

    def forward(self, sources: Tensor, before: Tensor) -> Tensor:
        """As `RecurrentWriter.forward`."""
        source, target = (batch_of_ids(list(rows.numpy())) for rows in (sources, before))
        return self.network(source, target=target).view(*before.shape, _SIZE)


def new_writer(name: str, seed: int) -> nn.Module:
    """A writer of WRITERS with random weights."""
    torch.manual_seed(seed)
    return TransformerWriter(seed) if name == "transformer" else RecurrentWriter(name == "gru-attention")


def letters_of(texts: Sequence[str]) -> np.ndarray:
    """(n,) int64 characters of texts in lowercase; everything but a to z is one space."""
    joined = re.sub("[^a-z]+", " ", " ".join(texts).lower())
    table = np.zeros(128, np.int64)
    table[[ord(one) for one in _CHARACTERS]] = np.arange(len(_CHARACTERS))
    return table[np.frombuffer(joined.encode(), np.uint8)]


def measure_writer(
    name: str, letters: tuple[np.ndarray, np.ndarray], seed: int, budget: float | None, num_steps: int | None = None
) -> dict[str, Any]:
    """Train a writer, and measure what it writes.

    Args:
        letters: characters for training and for testing.
        budget: seconds of processor time; None: ``num_steps``.

    Returns:
        Steps, parameters, and ``exact``: the share of texts of each of LENGTHS without a wrong character.
    """
    writer = new_writer(name, seed)
    optimizer = torch.optim.Adam(writer.parameters(), lr=_RATE)
    draw, began, step, progress = np.random.default_rng(seed), time.process_time(), 0, 0.0
    while progress < 1:
        optimizer.param_groups[0]["lr"] = _RATE * min(1.0, 20 * progress + 0.01, 2 * (1 - progress))
        logits, targets = _written(writer, letters[0], int(draw.integers(2, _LONGEST_TRAINED + 1)), _BATCH_SIZE, draw)
        optimizer.zero_grad()
        F.cross_entropy(logits.flatten(0, 1), targets.flatten()).backward()
        nn.utils.clip_grad_norm_(writer.parameters(), 1.0)
        optimizer.step()
        step += 1
        progress = step / num_steps if num_steps else (time.process_time() - began) / (budget or 1.0)
    writer.eval()
    exact, draw = [], np.random.default_rng(0)
    for length in LENGTHS:
        with torch.no_grad():
            logits, targets = _written(writer, letters[1], length, _TESTED, draw)
        exact.append(float((logits.argmax(dim=-1) == targets).all(dim=1).double().mean()))
    return {"steps": step, "parameters": sum(one.numel() for one in writer.parameters()), "exact": exact}


def _written(
    writer: nn.Module, letters: np.ndarray, length: int, number: int, draw: np.random.Generator
) -> tuple[Tensor, Tensor]:
    """Logits (B, L, V) and targets (B, L) of random pieces of a text.

    The right characters come before each. An argmax that is right at every position is also what greedy generation
    writes, so exact matches do not need it.
    """
    starts = draw.integers(0, len(letters) - length + 1, number)
    sources = torch.from_numpy(letters[starts[:, None] + np.arange(length)])
    targets = sources.flip(1)
    before = F.pad(targets[:, :-1], (1, 0), value=_START)
    return writer(sources, before), targets


if __name__ == "__main__":
    main()
