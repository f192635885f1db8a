"""Word vectors compared with gensim and model2vec: speed and quality on the same texts.

    python benchmarks/words.py training [--method cbow] [--novels 44] [--epochs 4] [--seeds 3]
    python benchmarks/words.py embedding                  texts per second of static encoders, and of MiniLM
    python benchmarks/words.py opening [--gigabytes 2]    seconds and memory to open a file, text and binary

Results are written to a folder, --out. Training: the same sentences, settings and number of threads for both; words
per second of training alone, and the scores of the vectors. Needs gensim, model2vec, and ../shared/data for the texts
and word benchmarks.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import report
import torch
from static_pairs import train
from turns import say

from bertkit.corpus.documents import read_sentences
from bertkit.inference import InferenceReport
from bertkit.words import StaticEncoder
from bertkit.words.benchmarks import score_benchmark
from bertkit.words.settings import WordTraining
from bertkit.words.training import WordVectorTraining, read_corpus

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
NOVELS = sorted((DATA / "english_novels").glob("*.txt"))
PAIRS = DATA / "word_benchmarks" / "word-similarity" / "monolingual" / "en"
SCORED = [*(PAIRS / f"{name}.csv" for name in ("wordsim353-sim", "wordsim353-rel", "men")),
          DATA / "word_benchmarks" / "word-analogy" / "monolingual" / "en" / "google-analogies.csv"]  # fmt: skip
NUM_TEXTS, NUM_TEXTS_OF_MODEL = 17_000, 2_000
OPEN = """
import resource, sys, time
from bertkit.words import StaticEncoder
for name in sys.argv[1:]:  # a small file of the same format first, for compiling
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    encoder = StaticEncoder.open(name)
    seconds = time.perf_counter() - start
more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(seconds, more / 1024, len(encoder.words))
"""


def scores(encoder: StaticEncoder) -> dict[str, float]:
    """Spearman's correlation, or the accuracy of analogies, by benchmark."""
    return {one.benchmark: one.value for file in SCORED for one in score_benchmark(encoder, file)
            if one.section == "all"}  # fmt: skip


def training(options: argparse.Namespace) -> dict:
    """For each seed, bertkit and then gensim."""
    from gensim.models import Word2Vec

    corpus = read_corpus((one.text for one in read_sentences(NOVELS[: options.novels])), 5)
    words = np.array(corpus.words, object)
    sentences = [words[corpus.ids[a:b]].tolist() for a, b in pairwise(corpus.starts)]
    first = WordTraining(num_epochs=1, dimensions=4, method=options.method)
    train(WordVectorTraining(Path("out"), first), corpus)
    total, rows = options.epochs * len(corpus.ids), []
    for seed in range(options.seeds):
        settings = WordTraining(num_epochs=options.epochs, seed=seed, method=options.method)
        encoder, outcome = train(WordVectorTraining(Path("out"), settings), corpus)
        speed = outcome.metrics["words_per_second"]
        rows.append({"system": "bertkit", "seed": seed, "words_per_second": speed, **scores(encoder)})
        say(str(rows[-1]))
        peer = Word2Vec(
            vector_size=settings.dimensions, min_count=1, workers=options.threads, seed=seed + 1,
            sg=int(options.method == "skip-gram"), window=settings.window, negative=settings.negatives,
            sample=settings.subsample, epochs=options.epochs, alpha=settings.learning_rate,
        )  # fmt: skip
        peer.build_vocab(sentences)
        start = time.perf_counter()
        peer.train(sentences, total_examples=peer.corpus_count, epochs=options.epochs)
        speed = total / (time.perf_counter() - start)
        encoder = StaticEncoder.of_words(peer.wv.index_to_key, peer.wv.vectors)
        rows.append({"system": "gensim", "seed": seed, "words_per_second": speed, **scores(encoder)})
        say(str(rows[-1]))
    about = {"num_novels": options.novels, "num_tokens": len(corpus.ids), "num_words": len(corpus.words)}
    return about | {"epochs": options.epochs, "method": options.method, "rows": rows}


def describe_training(results: dict) -> str:
    names = [path.stem for path in SCORED]
    table = []
    for system in ("bertkit", "gensim"):
        rows = [row for row in results["rows"] if row["system"] == system]
        cells = [f"{np.mean(values):.3f} ± {np.std(values, ddof=1) if len(values) > 1 else 0:.3f}"
                 for values in ([row[name] for row in rows] for name in names)]  # fmt: skip
        table.append([system, f"{np.median([row['words_per_second'] for row in rows]):,.0f}", *cells])
    text = (
        f"{results['num_novels']} novels, {results['num_tokens']:,} words, {results['num_words']:,} of them different, "
        f"{results['epochs']} epochs, 100 dimensions, window 5, 5 negative samples; the median words per second, and "
        "mean and standard deviation of the scores over "
        f"{len(results['rows']) // 2} seeds (Spearman's correlation, accuracy of analogies)."
    )
    return "\n".join(
        [
            *report.heading(f"Training of word vectors, {results['method']}", results),
            text,
            "",
            report.markdown_table(["system", "words per second", *names], *table),
        ]
    )


def embedding(options: argparse.Namespace) -> dict:
    """Texts per second with equal vectors: model2vec and its tokenizer on one thread, MiniLM on every thread."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    import model2vec
    from tokenizers import Tokenizer

    import bertkit

    texts = [one.text for one in read_sentences(NOVELS[:2])][:NUM_TEXTS]
    model = bertkit.load("all-MiniLM-L6-v2")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model.tokenizer.save(folder)
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        vectors = np.random.default_rng(0).normal(size=(tokenizer.get_vocab_size(), 256)).astype(np.float32)
        theirs = model2vec.StaticModel(vectors, tokenizer, normalize=True)
        theirs.save_pretrained(folder / "model")
        ours = StaticEncoder.open(folder / "model")

    def speed(embed: Callable[[list[str]], np.ndarray], some: list[str], threads: int) -> float:
        torch.set_num_threads(threads)
        embed(some[:200])
        embed(some)
        seconds = []
        for _ in range(options.rounds):
            start = time.perf_counter()
            embed(some)
            seconds.append(time.perf_counter() - start)
        return len(some) / float(np.median(seconds))

    def static(some: list[str]) -> np.ndarray:
        return ours.embed(some, report=InferenceReport())

    def peer(some: list[str]) -> np.ndarray:
        return theirs.encode(some, use_multiprocessing=False)

    rows = [
        ["bertkit, static", 1, speed(static, texts, 1)],
        ["model2vec", 1, speed(peer, texts, 1)],
        ["bertkit, static", options.threads, speed(static, texts, options.threads)],
        ["bertkit, all-MiniLM-L6-v2", options.threads, speed(model.embed, texts[:NUM_TEXTS_OF_MODEL], options.threads)],
    ]
    difference = float(np.abs(static(texts) - peer(texts)).max())
    return {"num_texts": len(texts), "mean_characters": float(np.mean([len(text) for text in texts])), "rows": rows,
            "largest_difference": difference}  # fmt: skip


def describe_embedding(results: dict) -> str:
    table = [[name, str(threads), f"{speed:,.0f}"] for name, threads, speed in results["rows"]]
    (static, peer, all_threads, model) = (speed for _, _, speed in results["rows"])
    return "\n".join(
        [
            *report.heading("Texts embedded per second", results),
            f"{results['num_texts']:,} sentences of novels, {results['mean_characters']:.0f} characters on average, "
            "vectors of 256 dimensions for MiniLM's tokens; medians.",
            "",
            report.markdown_table(["system", "threads", "texts per second"], *table),
            "",
            f"One thread: {static / peer:.1f} times model2vec, vectors equal to {results['largest_difference']:.0e}. "
            f"{results['num_threads']} threads: {all_threads / model:,.0f} times MiniLM.",
        ]
    )


def opening(options: argparse.Namespace) -> dict:
    """Files of random words and numbers, in a temporary folder, opened in a fresh process."""
    rows = []
    for kind in ("text", "binary"):
        with tempfile.TemporaryDirectory() as name:
            small, large = Path(name, "small"), Path(name, "large")
            write_vectors(small, 1e-3, kind)
            write_vectors(large, options.gigabytes, kind)
            os.sync()
            result = subprocess.run([sys.executable, "-c", OPEN, small, large], check=True, capture_output=True)
            seconds, megabytes, number = map(float, result.stdout.split())
            rows.append({"kind": kind, "bytes": large.stat().st_size, "seconds": seconds, "more_megabytes": megabytes,
                         "num_words": int(number)})  # fmt: skip
            say(str(rows[-1]))
    return {"rows": rows}


def write_vectors(path: Path, gigabytes: float, kind: str, dim: int = 300) -> None:
    """Write a file of about this size, with distinct words and 500 distinct vectors."""
    vectors = np.random.default_rng(0).normal(size=(500, dim)).astype("<f4")
    lines = [(" ".join(f"{x:.4f}" for x in row.tolist()) if kind == "text" else row.tobytes()) for row in vectors]
    tails = [line.encode() if isinstance(line, str) else line for line in lines]
    num_words = int(gigabytes * 1e9 / (len(tails[0]) + 9))
    with path.open("wb") as file:
        file.write(b"%d %d\n" % (num_words, dim))
        for number in range(num_words):
            file.write(b"w%d %b\n" % (number, tails[number % 500]))


def describe_opening(results: dict) -> str:
    table = [[row["kind"], f"{row['bytes'] / 1e9:.2f}", f"{row['num_words']:,}", f"{row['seconds']:.1f}",
              f"{row['more_megabytes']:.0f}"] for row in results["rows"]]  # fmt: skip
    header = ["word2vec file", "GB", "words of 300 numbers", "seconds", "more memory, MiB"]
    return "\n".join(
        [
            *report.heading("Opening files of word vectors", results),
            "The file was written just before, so the system may have it in memory. Nothing is kept from an "
            "earlier opening; memory is the growth of the resident peak.",
            "",
            report.markdown_table(header, *table),
        ]
    )


PARTS = {"training": (training, describe_training), "embedding": (embedding, describe_embedding),
         "opening": (opening, describe_opening)}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=PARTS)
    parser.add_argument("--novels", type=int, default=44)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--method", choices=["skip-gram", "cbow"], default="skip-gram")
    parser.add_argument("--gigabytes", type=float, default=2.0)
    given = parser.parse_known_args()[0]
    method = f"-{given.method}" if given.what == "training" else ""
    results, options = report.begin(f"words-{given.what}{method}", parser)
    torch.set_num_threads(options.threads)
    measure, describe = PARTS[given.what]
    results |= measure(options)
    report.finish(results, describe(results), options.out)


if __name__ == "__main__":
    main()
