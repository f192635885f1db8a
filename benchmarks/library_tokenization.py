"""Tokenizers other than WordPiece: bertkit compared with the ``tokenizers`` library, which it runs for them.

    python benchmarks/library_tokenization.py [--texts 20000] [--rounds 5] [--threads 2] [--out benchmarks/results]

A byte-level BPE of 30,000 entries and a Unigram model of 8,000, both trained on Python's documentation, in the forms of
RoBERTa's and XLM-R's published tokenizer.json, encode passages of the documentation. bertkit's ``encode_batch`` is
compared with that of ``tokenizers`` followed by gathering the ids into one array, without and with offsets and word
ids. bertkit keeps the tokens of words: it is made anew in each round, encodes one half of the passages, and is timed on
the other half, and on this half again. Both use the same files, texts and threads, and take turns in one process.
"""

import argparse
import gc
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import report
import texts
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers
from turns import say

from bertkit import Tokenizer

_OUTPUTS, _TIMES = ("ids", "ids, offsets, word ids"), ("", ", again")
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
        results["tokenizers"][name] = _speeds(library, chosen, options.rounds)
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


def _speeds(trained: tokenizers.Tokenizer, chosen: list[str], rounds: int) -> dict[str, float]:
    """Megabytes a second, by system and output."""
    names = {f"{role}_token": name for role, name in zip(["cls", "pad", "sep", "unk", "mask"], _NAMES, strict=True)}
    first, second = chosen[::2], chosen[1::2]
    seconds: dict[str, list[float]] = {}

    def timed(system: str, run: Callable[[], np.ndarray]) -> np.ndarray:
        gc.collect()
        start = time.perf_counter()
        ids = run()
        seconds.setdefault(system, []).append(time.perf_counter() - start)
        return ids

    def ids_of(encodings: Sequence[Any]) -> np.ndarray:
        return np.concatenate([encoding.ids for encoding in encodings])

    def with_offsets() -> np.ndarray:
        encodings = library.encode_batch(second)
        np.concatenate([encoding.offsets for encoding in encodings])
        np.concatenate([[-1 if word is None else word for word in encoding.word_ids] for encoding in encodings])
        return ids_of(encodings)

    with tempfile.TemporaryDirectory() as folder:
        trained.save(str(Path(folder) / "tokenizer.json"))
        (Path(folder) / "tokenizer_config.json").write_text(json.dumps(names))
        library = tokenizers.Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))
        library.encode_special_tokens = True  # a literal <mask> is text
        without = lambda: ids_of(library.encode_batch_fast(second))  # noqa: E731
        for output, theirs in zip(_OUTPUTS, (without, with_offsets), strict=True):
            expected = theirs()
            for _ in range(rounds):
                encode = partial(Tokenizer.load(folder).encode_batch, with_offsets=output != "ids")
                encode(first)
                found = [timed(f"bertkit, {output}{when}", partial(_ids, encode, second)) for when in _TIMES]
                timed(f"tokenizers, {output}", theirs)
                if any(not np.array_equal(ids, expected) for ids in found):
                    raise RuntimeError("ids differ between systems")
    megabytes = sum(len(text.encode()) for text in second) / 1e6
    return {system: round(megabytes / statistics.median(taken), 2) for system, taken in seconds.items()}


def _ids(encode: Callable[[list[str]], Any], chosen: list[str]) -> np.ndarray:
    return encode(chosen).input_ids


def describe(results: dict) -> str:
    lines = [
        *report.heading("Tokenizers other than WordPiece", results),
        f"{results['num_texts']:,} passages, {results['megabytes']} MB; medians in megabytes a second, of one half",
        "after the other. Again: of the same half once more.",
        "",
        "| | bertkit | bertkit, again | `tokenizers` | ratio | ratio, again |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, speeds in results["tokenizers"].items():
        for output in _OUTPUTS:
            ours = [speeds[f"bertkit, {output}{when}"] for when in _TIMES]
            theirs = speeds[f"tokenizers, {output}"]
            cells = [*ours, theirs, *(one / theirs for one in ours)]
            lines.append(f"| {name}: {output} | {' | '.join(f'{cell:.2f}' for cell in cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
