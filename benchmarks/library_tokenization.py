"""Tokenizers other than WordPiece: bertkit compared with the ``tokenizers`` library, which it runs for them.

    python benchmarks/library_tokenization.py [--texts 20000] [--rounds 5] [--threads 2] [--out benchmarks/results]

A byte-level BPE of 30,000 entries and a Unigram model of 8,000, both trained on Python's documentation, in the forms of
RoBERTa's and XLM-R's published tokenizer.json, encode passages of the documentation. bertkit's ``encode_batch`` is
compared with that of ``tokenizers`` followed by gathering the ids into one array, without and with offsets and word
ids. Both use the same files, texts and threads, and take turns in one process.
"""

import argparse
import gc
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import report
import texts
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers
from turns import say

from bertkit import Tokenizer

_NAMES = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--texts", type=int, default=20_000, help="passages")
    results, options = report.begin("library-tokenization", parser)
    os.environ |= {"RAYON_NUM_THREADS": str(options.threads), "TOKENIZERS_PARALLELISM": "true"}
    chosen = texts.shuffled(texts.SOURCES["documentation passages"]())[: options.texts]
    megabytes = sum(len(text.encode()) for text in chosen) / 1e6
    results |= {"num_texts": len(chosen), "megabytes": round(megabytes, 2), "tokenizers": {}}
    for name, library in {"byte-level BPE": byte_level(chosen), "Unigram": unigram(chosen)}.items():
        say(name)
        runs = _runs(library, chosen)
        sums = {int(run().sum()) for run in runs.values()}  # warms up
        if len(sums) > 1:
            raise RuntimeError(f"{name}: ids differ between systems")
        seconds: dict[str, list[float]] = {system: [] for system in runs}
        for number in range(options.rounds):
            first = number % len(runs)  # each follows each: freed memory makes the next system slower
            for system, run in (list(runs.items()) * 2)[first : first + len(runs)]:
                gc.collect()
                start = time.perf_counter()
                run()
                seconds[system].append(time.perf_counter() - start)
        medians = {system: megabytes / statistics.median(taken) for system, taken in seconds.items()}
        results["tokenizers"][name] = {system: round(speed, 2) for system, speed in medians.items()}
    report.finish(results, describe(results), options.out)


def byte_level(corpus: Sequence[str]) -> tokenizers.Tokenizer:
    """A tokenizer in the form of RoBERTa's."""
    library = tokenizers.Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=30_000,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=_NAMES,
        show_progress=False,
    )
    library.train_from_iterator(corpus, trainer)
    library.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), trim_offsets=True)
    return library


def unigram(corpus: Sequence[str]) -> tokenizers.Tokenizer:
    """A tokenizer in the form of XLM-R's, with NFKC in place of its table of characters."""
    library = tokenizers.Tokenizer(models.Unigram())
    library.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(tokenizers.Regex(" {2,}"), " ")])
    library.pre_tokenizer = pre_tokenizers.Metaspace()
    library.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=8_000, special_tokens=_NAMES, unk_token="<unk>", show_progress=False)
    library.train_from_iterator(corpus, trainer)
    library.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return library


def _runs(library: tokenizers.Tokenizer, chosen: list[str]) -> dict[str, Callable[[], np.ndarray]]:
    """The functions to time, by system: each returns the ids of all texts."""
    names = {
        "pad_token": "<pad>",
        "unk_token": "<unk>",
        "cls_token": "<s>",
        "sep_token": "</s>",
        "mask_token": "<mask>",
    }
    with tempfile.TemporaryDirectory() as folder:
        library.save(str(Path(folder) / "tokenizer.json"))
        (Path(folder) / "tokenizer_config.json").write_text(json.dumps(names))
        ours = Tokenizer.load(folder)
    library.encode_special_tokens = True  # a literal <mask> is text

    def ids_of(encodings: Sequence[Any]) -> np.ndarray:
        return np.concatenate([encoding.ids for encoding in encodings])

    def with_offsets() -> np.ndarray:
        encodings = library.encode_batch(chosen)
        np.concatenate([encoding.offsets for encoding in encodings])
        np.concatenate([[-1 if word is None else word for word in encoding.word_ids] for encoding in encodings])
        return ids_of(encodings)

    return {
        "bertkit, ids": lambda: ours.encode_batch(chosen, with_offsets=False).input_ids,
        "tokenizers, ids": lambda: ids_of(library.encode_batch_fast(chosen)),
        "bertkit, ids, offsets, word ids": lambda: ours.encode_batch(chosen).input_ids,
        "tokenizers, ids, offsets, word ids": with_offsets,
    }


def describe(results: dict) -> str:
    lines = [
        *report.heading("Tokenizers other than WordPiece", results),
        f"{results['num_texts']:,} passages, {results['megabytes']} MB; megabytes a second, medians.",
        "",
        "| | bertkit | `tokenizers` | ratio |",
        "|---|---:|---:|---:|",
    ]
    for name, speeds in results["tokenizers"].items():
        for output in ("ids", "ids, offsets, word ids"):
            ours, theirs = (speeds[f"{system}, {output}"] for system in ("bertkit", "tokenizers"))
            lines.append(f"| {name}: {output} | {ours:.2f} | {theirs:.2f} | {ours / theirs:.2f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
