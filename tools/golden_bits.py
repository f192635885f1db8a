"""Hashes of the output bits of every architecture at every precision, before and after a change that must move none.

    python tools/golden_bits.py record FILE     # before the change
    python tools/golden_bits.py compare FILE    # after it: prints the names that differ, and fails if there are any

The bits depend on the processor and on the build of torch: record and compare on one machine.
"""

import argparse
import hashlib
import json
import sys
import zlib
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bertkit.architectures import ARCHITECTURES, Network, prepare
from bertkit.batch import Batch, batch_of_ids
from bertkit.transformer import (
    BertConfig,
    Decoder,
    DirectionalEncoder,
    Encoder,
    PreparedDecoder,
    Recorder,
    TransformerConfig,
)
from bertkit.transformer.kernels import training_kernels

SIZES = {  # of odd numbers, and of whole vectors, which layers for a few rows need
    "odd": {"vocab_size": 97, "hidden_size": 60, "num_attention_heads": 5, "intermediate_size": 43},
    "whole": {"vocab_size": 128, "hidden_size": 128, "num_attention_heads": 4, "intermediate_size": 256},
}
VARIANTS = {  # further configs of an architecture
    "bert": {"relu": {"hidden_act": "relu"}, "causal": {"is_decoder": True}, "no layers": {"num_hidden_layers": 0}},
    "albert": {"groups": {"num_hidden_groups": 2}},
    "electra": {"projected": {"embedding_size": 24}},
    "gte": {"scaled": {"rope_factor": 1.25, "type_vocab_size": 0}},
    "nomic_bert": {"gelu": {"hidden_act": "gelu"}, "tanh": {"hidden_act": "tanh"}},
    "deberta-v2": {"buckets": {"position_buckets": 8, "max_relative_positions": 20}},
    "eurobert": {"grouped": {"num_key_value_heads": 1}},
    "qwen3": {"grouped": {"num_key_value_heads": 1}, "narrow": {"head_dim": 20}},
    "modernbert": {"silu": {"hidden_activation": "silu", "global_attn_every_n_layers": 2}},
}
BATCHES = {"one text": [7], "few rows": [11, 3, 9], "a batch": [30, 12, 5, 61], "equal lengths": [16, 16, 16, 5, 5]}
PRECISIONS = ("float32", "bfloat16", "int8")


def configs() -> Iterator[tuple[str, Any]]:
    """Names and small configs of all architectures, at all sizes."""
    for model_type, record in ARCHITECTURES.items():
        known = {field.name for field in fields(record.config) if field.init}
        for size, numbers in SIZES.items():
            for variant, changes in {"": {}, **VARIANTS.get(model_type, {})}.items():
                options = {**numbers, "num_hidden_layers": 3, "max_position_embeddings": 90, "embedding_size": 36}
                options |= {"local_attention": 8, "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
                options |= {"mlp_dropout": 0.1, "attention_dropout": 0.1, "embedding_dropout": 0.1, **changes}
                config = record.config(**{name: value for name, value in options.items() if name in known})
                yield " ".join(filter(None, (model_type, variant, size))), config


@torch.no_grad()
def draw(module: nn.Module) -> None:
    """Draw every parameter from its name, in whatever order modules are created."""
    for name, parameter in module.named_parameters():
        generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
        spread = 0.3 if parameter.dim() == 1 else 1.5 / parameter.shape[1] ** 0.5
        centre = 1.0 if "norm" in name and name.endswith("weight") else 0.0
        parameter.copy_(centre + spread * torch.randn(parameter.shape, generator=generator))


def hashed(tensors: Any) -> str:
    """A hash of the shapes, dtypes and bits of tensors."""
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(f"{tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.detach().contiguous().view(torch.uint8).numpy().tobytes() if tensor.numel() else b"")
    return digest.hexdigest()[:16]


def batches(vocab_size: int) -> Iterator[tuple[str, Batch]]:
    """Batches of random ids with two token types."""
    for name, lengths in BATCHES.items():
        generator = np.random.default_rng(sum(lengths))
        batch = batch_of_ids([generator.integers(0, vocab_size, length) for length in lengths])
        yield name, batch


def prepared_bits(encoder: Any, vocab_size: int) -> Iterator[tuple[str, str]]:
    """Hashes of the encoder prepared at every precision."""
    for precision in PRECISIONS:
        prepared = prepare(encoder, precision)
        for name, batch in batches(vocab_size):
            for asked in ("", "hidden states", "first only"):
                options = {"with_hidden_states": asked == "hidden states", "first_only": asked == "first only"}
                output = prepared(batch, **options)
                last = output.last_hidden_state
                tensors = [last[batch.first_tokens] if options["first_only"] else last, *(output.hidden_states or [])]
                pooled = [] if output.pooled is None else [output.pooled]
                yield f"{precision} / {name} / {asked}", hashed([*tensors, *pooled])


def step_bits(stack: Any, vocab_size: int, source: Tensor | None) -> Iterator[tuple[str, str]]:
    """Hashes of the hidden states of a first step of several tokens in each row, and of two of one token."""
    for precision in PRECISIONS:
        decoder = PreparedDecoder(stack, precision)
        for num_rows in (1, 3):
            given = (source, (4, 5), (0, 1, 1)[:num_rows]) if source is not None else ()
            cache, generator = decoder.start(num_rows, *given), np.random.default_rng(num_rows)
            for step, num_new in enumerate(([6, 1, 4], [1, 1, 1], [1, 1, 1])):
                lengths = np.array(num_new[:num_rows], np.int64)
                hidden = decoder(generator.integers(0, vocab_size, lengths.sum()), lengths, cache)
                yield f"{precision} / {num_rows} rows / step {step}", hashed([hidden])


def training_bits(module: nn.Module, call: Any, vocab_size: int) -> Iterator[tuple[str, str]]:
    """Hashes of the outputs and gradients of a step, with torch's operations and with kernels, and as recorded."""
    kernels = {
        "torch": nullcontext,
        "float32": lambda: training_kernels(torch.float32, 3),
        "bfloat16": lambda: training_kernels(torch.bfloat16, 3),
    }
    module.train()
    for name, batch in batches(vocab_size):
        for kernel, context in kernels.items():
            for recomputed in (False, True):
                module.gradient_checkpointing = recomputed
                module.zero_grad(set_to_none=True)
                torch.manual_seed(5)
                with context():
                    output = call(batch)
                    generator = torch.Generator().manual_seed(7)
                    (output * torch.randn(output.shape, generator=generator)).sum().backward()
                gradients = [
                    (parameter.grad.to_dense() if parameter.grad.is_sparse else parameter.grad)
                    for _, parameter in sorted(module.named_parameters()) if parameter.grad is not None
                ]  # fmt: skip
                yield f"training / {kernel} / {name} / {recomputed}", hashed([output, *gradients])
    module.eval()


@torch.no_grad()
def plain_bits(encoder: Any, vocab_size: int) -> Iterator[tuple[str, str]]:
    """Hashes of the encoder that is trained, in evaluation."""
    for name, batch in batches(vocab_size):
        recorder = Recorder()
        output, recorded = encoder(batch, with_hidden_states=True), encoder(batch, recorder=recorder)
        tensors = [output.last_hidden_state, *output.hidden_states, recorded.last_hidden_state]
        for layer in recorder.layers:
            tensors += [layer.query, layer.key, layer.value, *layer.attention_scores, *layer.attention_probs]
            tensors += [layer.attention_output, layer.feed_forward_output]
        yield f"plain / {name}", hashed(tensors if output.pooled is None else [*tensors, output.pooled])


def all_bits() -> dict[str, str]:
    """Hashes of everything, by name."""
    torch.set_num_threads(1)
    results: dict[str, str] = {}

    def add(name: str, parts: Iterator[tuple[str, str]]) -> None:
        results.update((f"{name} / {part}", bits) for part, bits in parts)
        print(len(results), name, file=sys.stderr, flush=True)

    for name, config in configs():
        encoder: Any = Network(config, []).encoder.eval()
        draw(encoder)
        add(name, prepared_bits(encoder, config.vocab_size))
        add(name, plain_bits(encoder, config.vocab_size))
        if config.num_hidden_layers:
            add(name, training_bits(encoder, partial(last_states, encoder), config.vocab_size))
        if config.is_decoder and config.layer(0).positions is None:  # others do not generate
            add(name, step_bits(encoder, config.vocab_size, None))
    for size, numbers in SIZES.items():
        for kind in (BertConfig, TransformerConfig):
            options = {**numbers, "num_hidden_layers": 3, "max_position_embeddings": 90}
            sources = Encoder(kind(**options), with_pooler=False).eval()
            decoder = Decoder(kind(**options, is_decoder=True)).eval()
            name = f"{kind.__name__} {size}"
            draw(sources), draw(decoder)
            source = torch.randn(9, numbers["hidden_size"], generator=torch.Generator().manual_seed(1))
            add(f"encoder of {name}", plain_bits(sources, numbers["vocab_size"]))
            add(f"decoder of {name}", step_bits(decoder, numbers["vocab_size"], source))

            def decode(batch: Batch, decoder: Decoder = decoder, source: Tensor = source) -> Tensor:
                lengths = [2, 1, 3, 2, 1][: len(batch)]
                return decoder(batch, source[: sum(lengths)], lengths)

            add(f"decoder of {name}", training_bits(decoder, decode, numbers["vocab_size"]))
        directional = DirectionalEncoder(BertConfig(**numbers, num_hidden_layers=2), "both")
        draw(directional)
        add(f"directional {size}", training_bits(directional, directional.states, numbers["vocab_size"]))
    return results


def last_states(encoder: Any, batch: Batch) -> Tensor:
    """(T, D) of the last layer."""
    return encoder(batch, with_pooled=False).last_hidden_state


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("record", "compare"))
    parser.add_argument("file", type=Path)
    options = parser.parse_args()
    results = all_bits()
    if options.action == "record":
        options.file.write_text(json.dumps(results, indent=0))
        print(f"{len(results)} hashes")
        return 0
    expected = json.loads(options.file.read_text())
    different = [name for name in expected if results.get(name) != expected[name]]
    print("\n".join(different))
    print(f"{len(expected)} compared, {len(different)} different, {len(results.keys() - expected.keys())} new")
    return bool(different)


if __name__ == "__main__":
    sys.exit(main())
