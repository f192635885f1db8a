"""Training speed of a causal and an encoder-decoder model compared with masked language modeling, per operation.

    python benchmarks/objective_speed.py [--rounds 3] [--width 256]

One optimizer step's gradients on 2,048 tokens in sequences of 64: BERT with 15 % of the tokens masked, a left-to-right
model with every token predicted, and an encoder-decoder with half of the tokens in sources and half in targets; four
layers in all, a vocabulary of 8,000. Speed is operations of matrix products per second, counted once for the forward
and twice for the backward pass, so that predicting more tokens does not count as slower. The models take turns, and the
best turn counts.
"""

import argparse
import time
from typing import Any

import numpy as np
import report
import torch

from bertkit.architectures import Network, initialize
from bertkit.architectures.encoder_decoder import EncoderDecoder, EncoderDecoderConfig, initialize_encoder_decoder
from bertkit.batch import batch_of_ids
from bertkit.comparison import Predictor
from bertkit.transformer import BertConfig, TransformerConfig
from bertkit.transformer.directional import DirectionalEncoder

LAYERS, LENGTH, TOKENS, VOCAB_SIZE = 4, 64, 2_048, 8_000


def linear_products(layers: torch.nn.Module) -> int:
    """Multiplications for a token in the linear layers of a module."""
    return sum(one.weight.numel() for one in layers.modules() if isinstance(one, torch.nn.Linear))


def cases(width: int) -> dict[str, tuple[Any, float]]:
    """A function that computes a loss, and the multiplications of its forward pass, by name."""
    sizes = (VOCAB_SIZE, width, LAYERS, width // 64, 4 * width)
    config = BertConfig(*sizes, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    draw = np.random.default_rng(0)
    rows = [draw.integers(5, VOCAB_SIZE, LENGTH) for _ in range(TOKENS // LENGTH)]
    batch = batch_of_ids(rows)
    bert, causal = Network(config, ["masked_lm"]), Predictor(DirectionalEncoder(config, "left"), config)
    stacks = [
        TransformerConfig(
            VOCAB_SIZE, width, LAYERS // 2, width // 64, 4 * width, hidden_dropout_prob=0.0, is_decoder=later
        )
        for later in (False, True)
    ]
    pair = EncoderDecoder(EncoderDecoderConfig(*stacks, 1, 2, 0, True))
    for network in (bert, causal):
        initialize(network, config, 0)
    initialize_encoder_decoder(pair, 0)
    for network in (bert, causal, pair):
        network.train()
    masked = torch.from_numpy(np.sort(draw.choice(TOKENS, TOKENS * 15 // 100, replace=False)))
    inside = torch.from_numpy(np.concatenate([np.arange(1, LENGTH) + first for first in range(0, TOKENS, LENGTH)]))
    sources, targets = batch_of_ids(rows[::2]), batch_of_ids(rows[1::2])

    def predicted(network: Any, positions: torch.Tensor) -> torch.Tensor:
        logits = network(batch, masked_positions=positions).logits["masked_lm"]
        return torch.nn.functional.cross_entropy(logits, batch.input_ids[positions])

    def written() -> torch.Tensor:
        return torch.nn.functional.cross_entropy(pair(sources, target=targets), targets.input_ids)

    attended = 2 * LENGTH * width  # of a token in a layer; later tokens of a causal one are not computed
    output = VOCAB_SIZE * width + width * width
    stack = linear_products(bert.encoder.layers)
    halves = (linear_products(pair.encoder.layers) + linear_products(pair.decoder.layers)) / 2
    return {
        "masked": (lambda: predicted(bert, masked), TOKENS * (stack + LAYERS * attended) + len(masked) * output),
        "left-to-right": (
            lambda: predicted(causal, inside),
            TOKENS * (stack + LAYERS * attended / 2) + len(inside) * output,
        ),
        "encoder-decoder": (
            written,
            TOKENS * halves
            + TOKENS / 2 * (LAYERS / 2) * attended * 2.5  # encoder, half of the decoder, cross-attention
            + TOKENS / 2 * VOCAB_SIZE * width,
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--width", type=int, default=256)
    results, options = report.begin("objective-speed", parser)
    torch.set_num_threads(options.threads)
    made, seconds = cases(options.width), {}
    for turn in range(options.rounds + 1):  # the first one warms up
        for name, (loss, _) in made.items():
            began = time.perf_counter()
            loss().backward()
            took = time.perf_counter() - began
            if turn:
                seconds[name] = min(took, seconds.get(name, took))
    rates = {name: 6 * products / seconds[name] / 1e9 for name, (_, products) in made.items()}
    results["rows"] = [
        {"model": name, "seconds": seconds[name], "gigaflops": rates[name], "ratio": rates[name] / rates["masked"]}
        for name in made
    ]
    report.finish(results, describe(results), options.out)


def describe(results: dict) -> str:
    """The results as Markdown."""
    cells = [
        [row["model"], f"{row['seconds']:.3f}", f"{row['gigaflops']:.1f}", f"{row['ratio']:.2f}"]
        for row in results["rows"]
    ]
    header = ["objective", "seconds of a step's gradients", "GFLOP/s", "of masked"]
    return "\n".join(
        [
            *report.heading("Training speed per product computed", results),
            report.markdown_table(header, *cells),
        ]
    )


if __name__ == "__main__":
    main()
