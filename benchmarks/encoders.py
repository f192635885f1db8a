"""The encoder of every architecture compared with transformers: the same weights and texts, in turns.

    python benchmarks/encoders.py [--rounds 3] [--threads 2] [--layers 4] [--scale 1.0] [--out benchmarks/results]

Layers of the published base sizes, with initial weights and BERT's vocabulary, encode token ids of passages of Python's
documentation and of Wikipedia paragraphs, sorted by length: transformers in padded batches of 16, in float32; bertkit
by its prepared encoder, in float32, bfloat16 and int8. The time excludes tokenization. Training is a forward and
backward pass of bertkit's encoder, dropout included, over a quarter of the batches. All systems run in one process.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable

import report
import texts
import torch
import transformers
from models import MINILM
from turns import say

from bertkit import Batch, Model, Tokenizer, collate
from bertkit.architectures import ARCHITECTURES, Architecture
from bertkit.locate import locate
from bertkit.transformer import PreparedTransformer
from bertkit.transformer.kernels import training_kernels

transformers.utils.logging.disable_progress_bar()

_PADDED = 16  # sequences in a padded batch
_LONGEST = 256  # tokens
_TRAINED = 4  # one in four batches is used for training
_PRECISIONS = ("float32", "bfloat16", "int8")
_TRAINING = ("training float32", "training bfloat16")
_WORKLOADS = {"documentation passages": 128, "wikitext paragraphs": 32}  # source of texts -> how many
_LEFT_OUT = ("xlm-roberta", "camembert", "gpt2")  # RoBERTa's encoder, and a decoder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--layers", type=int, default=4, help="of each encoder")
    known = [name for name in ARCHITECTURES if name not in _LEFT_OUT]
    parser.add_argument("--architectures", nargs="+", choices=known, default=known)
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of texts")
    results, options = report.begin("encoders", parser)
    torch.set_num_threads(options.threads)
    tokenizer = Tokenizer.load(locate(MINILM))
    results |= {"num_layers": options.layers, "workloads": {}, "skipped": {}}
    for source, number in _WORKLOADS.items():
        try:
            chosen = texts.shuffled(texts.SOURCES[source]())[: max(_PADDED, round(number * options.scale))]
        except RuntimeError as error:
            results["skipped"][source] = str(error)
            continue
        encodings = tokenizer.encode_batch(chosen, max_length=_LONGEST, on_long="truncate")
        encodings = encodings.take(encodings.seqlens.argsort())
        seconds = {}
        for name in options.architectures:
            say(f"{source}: {name}")
            seconds[name] = _medians(_runs(ARCHITECTURES[name], tokenizer, encodings, options.layers), options.rounds)
        results["workloads"][source] = {
            "num_texts": len(encodings), "num_tokens": len(encodings.input_ids), "seconds": seconds
        }  # fmt: skip
    report.finish(results, describe(results), options.out)


def _medians(runs: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    seconds: dict[str, list[float]] = {system: [] for system in runs}
    for turn in range(rounds + 1):  # the first warms up
        for system, run in runs.items():
            start = time.perf_counter()
            run()
            if turn:
                seconds[system].append(time.perf_counter() - start)
    return {system: statistics.median(taken) for system, taken in seconds.items()}


def _runs(record: Architecture, tokenizer: Tokenizer, encodings, num_layers: int) -> dict[str, Callable[[], object]]:
    """The functions to time, by system."""
    config = record.config.of_size("base", num_hidden_layers=num_layers, vocab_size=len(tokenizer.vocabulary))
    model = Model.create(config, tokenizer)
    with tempfile.TemporaryDirectory() as folder:
        model.save(folder)
        published = transformers.AutoModel.from_pretrained(folder).eval()
    starts = range(0, len(encodings), _PADDED)
    batches = [collate(encodings.between(start, min(start + _PADDED, len(encodings)))) for start in starts]
    padded = [(batch.pad(batch.input_ids), batch.attention_mask().long()) for batch in batches]

    @torch.inference_mode()
    def transformers_run() -> None:
        for ids, mask in padded:
            published(input_ids=ids, attention_mask=mask)

    def ours(precision: str) -> Callable[[], object]:
        prepared = PreparedTransformer(model.encoder, precision)
        return lambda: [_encode(prepared, batch) for batch in batches]

    def training(dtype: torch.dtype) -> Callable[[], object]:
        def step() -> None:
            with training_kernels(dtype, seed=1):
                for batch in batches[::_TRAINED]:
                    model.encoder(batch, with_pooled=False).last_hidden_state.square().mean().backward()
            model.encoder.zero_grad()

        model.encoder.train()
        return step

    return {
        "transformers float32": transformers_run,
        "float32": ours("float32"),
        "bfloat16": ours("bfloat16"),
        "int8": ours("int8"),
        "training float32": training(torch.float32),
        "training bfloat16": training(torch.bfloat16),
    }


def _encode(prepared: Callable[..., object], batch: Batch) -> object:
    return prepared(batch, with_pooled=False)


def describe(results: dict) -> str:
    """A table for each source of texts."""
    lines = report.heading("Encoders compared with transformers", results)
    lines.append(
        f"{results['num_layers']} layers of the base sizes, initial weights, texts of up to {_LONGEST} tokens. Tokens "
        "a second and ratios to transformers; training: speed relative to the first. Medians."
    )
    header = ["", "transformers float32", *(f"bertkit {each}" for each in _PRECISIONS)]
    header += [f"ratio {each}" for each in _PRECISIONS] + list(_TRAINING)
    for source, workload in results["workloads"].items():
        rows, first = [], next(iter(workload["seconds"].values()))
        for name, seconds in workload["seconds"].items():
            base = seconds["transformers float32"]
            cells = [f"{workload['num_tokens'] / seconds[key]:,.0f}" for key in ("transformers float32", *_PRECISIONS)]
            ratios = [f"{base / seconds[key]:.1f}x" for key in _PRECISIONS]
            trained = [f"{first[key] / seconds[key]:.2f}" for key in _TRAINING]
            rows.append([name, *cells, *ratios, *trained])
        lines += ["", f"## {source}: {workload['num_texts']} texts, {workload['num_tokens']:,} tokens", ""]
        lines.append(report.markdown_table(header, *rows))
    return "\n".join([*lines, "", *report.skipped_lines(results)])


if __name__ == "__main__":
    main()
