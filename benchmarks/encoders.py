"""The encoder of every architecture compared with transformers: the same weights and texts, in turns.

    python benchmarks/encoders.py [--rounds 3] [--threads 2] [--layers 4] [--texts 64] [--out benchmarks/results]

Layers of the published base sizes, with initial weights and BERT's vocabulary, encode token ids of passages of Python's
documentation, sorted by length: transformers in padded batches of 16, in float32; bertkit by its prepared encoder, in
float32 and bfloat16. Tokenization is not part of the time. One process.
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

transformers.utils.logging.disable_progress_bar()

_PADDED = 16  # sequences in a padded batch
_LONGEST = 256  # tokens
_SAME_ENCODER = ("xlm-roberta", "camembert")  # as RoBERTa


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--layers", type=int, default=4, help="of each encoder")
    parser.add_argument("--texts", type=int, default=64, help="passages")
    results, options = report.begin("encoders", parser)
    torch.set_num_threads(options.threads)
    tokenizer = Tokenizer.load(locate(MINILM))
    chosen = texts.shuffled(texts.SOURCES["documentation passages"]())[: options.texts]
    encodings = tokenizer.encode_batch(chosen, max_length=_LONGEST, on_long="truncate")
    encodings = encodings.take(encodings.seqlens.argsort())
    results |= {"num_layers": options.layers, "num_texts": len(encodings), "num_tokens": len(encodings.input_ids)}
    results["architectures"] = {}
    for name, record in ARCHITECTURES.items():
        if name in _SAME_ENCODER:
            continue
        say(name)
        runs = _runs(record, tokenizer, encodings, options.layers)
        seconds: dict[str, list[float]] = {system: [] for system in runs}
        for turn in range(options.rounds + 1):  # the first warms up
            for system, run in runs.items():
                start = time.perf_counter()
                run()
                if turn:
                    seconds[system].append(time.perf_counter() - start)
        results["architectures"][name] = {system: statistics.median(taken) for system, taken in seconds.items()}
    report.finish(results, describe(results), options.out)


def _runs(record: Architecture, tokenizer: Tokenizer, encodings, num_layers: int) -> dict[str, Callable[[], object]]:
    """What is timed, by system."""
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
        prepared = record.prepare(model.encoder, precision)
        return lambda: [_encode(prepared, batch) for batch in batches]

    return {"transformers float32": transformers_run, "float32": ours("float32"), "bfloat16": ours("bfloat16")}


def _encode(prepared: Callable[..., object], batch: Batch) -> object:
    return prepared(batch, with_pooled=False)


def describe(results: dict) -> str:
    """The table."""
    rows = []
    for name, seconds in results["architectures"].items():
        base = seconds["transformers float32"]
        cells = [f"{results['num_tokens'] / taken:,.0f}" for taken in seconds.values()]
        rows.append([name, *cells, *(f"{base / seconds[key]:.1f}x" for key in ("float32", "bfloat16"))])
    header = [
        "tokens/s",
        "transformers float32",
        "bertkit float32",
        "bertkit bfloat16",
        "ratio float32",
        "ratio bfloat16",
    ]
    lines = report.heading("Encoders compared with transformers", results)
    lines += [
        f"{results['num_layers']} layers of the base sizes, initial weights; {results['num_texts']} passages, "
        f"{results['num_tokens']:,} tokens, of up to {_LONGEST}. Medians.",
        "",
        report.markdown_table(header, *rows),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
