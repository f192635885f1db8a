"""Tokenization compared with other libraries: the same texts in one run; speed, and whether all ids are equal.

    python benchmarks/tokenization.py [--data ../shared/data] [--rounds 3] [--megabytes 8] [--out benchmarks/results]

Every system has a separate process for each number of threads. The processes take turns (A B C, A B C, ...), and only
one of them computes at a time. In each turn a new tokenizer encodes one half of the texts to warm up, and is timed on
the other half. Texts that are not on this machine are left out. (This file cannot be named tokenize.py, which would
hide the module of Python's standard library.)
"""

import argparse
import csv
import multiprocessing
import random
import statistics
import string
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import report
from first_call import first_call_seconds
from turns import say
from worker import limit_threads

from bertkit.corpus import python_docs
from bertkit.locate import locate


class System(NamedTuple):
    """A tokenizer as three functions: ``flatten(encode(prepare(texts)))``; only ``encode`` is timed."""

    encode: Callable[[Any], Any]
    flatten: Callable[[Any], np.ndarray]  # what encode gives to (num_tokens,) ids of all texts, special tokens included
    prepare: Callable[[Sequence[str]], Any] = list


def bertkit_bytes(vocabulary: str, threads: int) -> System:
    from bertkit import Tokenizer

    wordpiece = Tokenizer.from_vocab(vocabulary).engine

    def prepare(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        encoded = [text.encode() for text in texts]
        return np.frombuffer(b"".join(encoded), np.uint8), np.cumsum([0, *map(len, encoded)])

    def encode(prepared: tuple[np.ndarray, np.ndarray]) -> Any:
        return wordpiece.tokenize_bytes(*prepared, with_spans=False, num_threads=threads)

    return System(encode, lambda found: found[0].input_ids, prepare)


def bertkit_ids(vocabulary: str, threads: int) -> System:
    from bertkit import Tokenizer

    tokenizer = Tokenizer.from_vocab(vocabulary)
    encode = partial(tokenizer.encode_batch, with_offsets=False, num_threads=threads)
    return System(encode, lambda encodings: encodings.input_ids)


def bertkit_offsets(vocabulary: str, threads: int) -> System:
    from bertkit import Tokenizer

    encode = partial(Tokenizer.from_vocab(vocabulary).encode_batch, num_threads=threads)
    return System(encode, lambda encodings: encodings.input_ids)


def library(vocabulary: str) -> Any:
    from tokenizers import BertWordPieceTokenizer

    engine = BertWordPieceTokenizer(vocabulary)._tokenizer
    engine.encode_special_tokens = True  # a literal [MASK] is text
    return engine


def tokenizers_fast(vocabulary: str, threads: int) -> System:
    return System(library(vocabulary).encode_batch_fast, ids_of_encodings)


def tokenizers_offsets(vocabulary: str, threads: int) -> System:
    return System(library(vocabulary).encode_batch, ids_of_encodings)


def ids_of_encodings(encodings: Sequence[Any]) -> np.ndarray:
    return np.concatenate([encoding.ids for encoding in encodings])


def transformers_call(vocabulary: str, threads: int) -> System:
    from transformers import BertTokenizerFast

    tokenizer = BertTokenizerFast(vocabulary)
    tokenizer.backend_tokenizer.encode_special_tokens = True
    return System(tokenizer, lambda batch: np.concatenate(batch["input_ids"]))


SYSTEMS = {
    "bertkit, bytes to ids": bertkit_bytes,
    "bertkit, ids": bertkit_ids,
    "bertkit, ids, offsets, word ids": bertkit_offsets,
    "tokenizers encode_batch_fast": tokenizers_fast,
    "tokenizers encode_batch": tokenizers_offsets,
    "transformers tokenizer(texts)": transformers_call,
}
"""Systems take texts unless the name says otherwise. The number of threads of ``tokenizers`` is set for its process."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=Path(__file__).resolve().parents[2] / "shared" / "data")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megabytes", type=float, default=8.0, help="most text of each kind")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    if options.rounds < 1 or options.megabytes <= 0:
        parser.error("expected numbers above 0")
    threads = multiprocessing.cpu_count()
    results = {"benchmark": "tokenization"} | report.circumstances(threads)
    corpora = {name: shortened(texts, options.megabytes) for name, texts in read_corpora(options.data).items() if texts}
    vocabulary = options.data / "bert_reference" / "bert-base-uncased" / "vocab.txt"
    if not vocabulary.is_file():
        vocabulary = locate("all-MiniLM-L6-v2") / "vocab.txt"  # the same entries
    results["workload"] = {
        name: {"num_texts": len(texts), "megabytes": round(megabytes(texts), 2)} for name, texts in corpora.items()
    } | {"num_rounds": options.rounds}
    results["first_call_seconds"] = first_call_seconds(str(vocabulary), options.rounds)
    results["systems"] = measure(corpora, str(vocabulary), sorted({1, threads}), options.rounds)
    text = describe(results, list(corpora))
    print(text)
    say(f"written: {report.write(results, text, options.out)}")


def read_corpora(data: Path) -> dict[str, list[str]]:
    """Texts by kind; empty where the data are absent."""

    def lines(pattern: str) -> list[str]:
        return [line for path in sorted(data.glob(pattern)) for line in path.read_text(encoding="utf-8").split("\n")]

    def tweets() -> Iterator[str]:
        for path in sorted((data / "tweet_sentiment_extraction").glob("t*.csv")):  # train, test
            with open(path, encoding="utf-8", newline="") as file:
                yield from (row["text"] for row in csv.DictReader(file))

    letters, rng = string.ascii_lowercase, random.Random(0)
    distinct = [
        " ".join("".join(rng.choices(letters, k=rng.randrange(4, 12))) for _ in range(10)) for _ in range(60_000)
    ]
    return {
        "novels": lines("english_novels/*.txt"),
        "Python docs": [passage.text for passage in python_docs()],
        "tweets": list(tweets()),
        "380 languages": lines("udhr2/*.txt"),
        "random words": distinct,
    }


def shortened(texts: list[str], most_megabytes: float) -> list[str]:
    """Texts at equal distances, in random order, so that both halves are of the same kind."""
    share = min(1.0, most_megabytes / megabytes(texts))
    return random.Random(0).sample(texts, max(2, int(len(texts) * share)))


def megabytes(texts: Sequence[str]) -> float:
    return sum(len(text.encode()) for text in texts) / 1e6


def measure(corpora: dict[str, list[str]], vocabulary: str, threads: list[int], rounds: int) -> list[dict]:
    """One row for each system and number of threads."""
    workers = {
        (name, number): start_worker(name, vocabulary, number, corpora) for number in threads for name in SYSTEMS
    }
    speeds = {key: {corpus: [] for corpus in corpora} for key in workers}
    sums: dict[str, set[tuple[int, int]]] = {corpus: set() for corpus in corpora}
    for number in range(rounds):
        for (name, count), connection in workers.items():
            for corpus, texts in corpora.items():
                connection.send(corpus)
                seconds, checksum = connection.recv()
                sums[corpus].add(checksum)
                speeds[name, count][corpus].append(megabytes(texts[len(texts) // 2 :]) / seconds)
            say(f"round {number + 1}: {name}, {count} threads")
    for connection in workers.values():
        connection.close()
    for corpus, found in sums.items():
        if len(found) > 1:
            say(f"{corpus}: ids differ between systems")
    return [
        {
            "system": name,
            "num_threads": count,
            "megabytes_per_second": {corpus: round(statistics.median(found), 2) for corpus, found in by_corpus.items()},
        }
        for (name, count), by_corpus in speeds.items()
    ] + [{"system": "all", "ids_equal": {corpus: len(found) == 1 for corpus, found in sums.items()}}]


def start_worker(name: str, vocabulary: str, threads: int, corpora: dict[str, list[str]]) -> Connection:
    limit_threads(threads)
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    context.Process(target=serve, args=(theirs, name, vocabulary, threads, corpora), daemon=True).start()
    theirs.close()
    return ours


def serve(connection: Connection, name: str, vocabulary: str, threads: int, corpora: dict[str, list[str]]) -> None:
    system = SYSTEMS[name](vocabulary, threads)
    system.encode(system.prepare(["imported and compiled"]))
    while True:
        try:
            texts = corpora[connection.recv()]
        except EOFError:  # closed by the other side
            return
        system = SYSTEMS[name](vocabulary, threads)
        half = len(texts) // 2
        warm_up, timed = system.prepare(texts[:half]), system.prepare(texts[half:])
        system.encode(warm_up)
        start = time.perf_counter()
        encoded = system.encode(timed)
        seconds = time.perf_counter() - start
        ids = system.flatten(encoded)
        connection.send((seconds, (len(ids), int((ids * (np.arange(len(ids)) % 9973)).sum()))))


def describe(results: dict, corpora: list[str]) -> str:
    work = results["workload"]
    *rows, summary = results["systems"]
    table = report.markdown_table(
        ["MB/s", "threads", *corpora],
        *(
            [row["system"], str(row["num_threads"]), *(f"{row['megabytes_per_second'][c]:.1f}" for c in corpora)]
            for row in rows
        ),
    )
    unequal = [corpus for corpus, equal in summary["ids_equal"].items() if not equal]
    sizes = "; ".join(f"{c}: {work[c]['num_texts']} texts, {work[c]['megabytes']} MB" for c in corpora)
    first = results["first_call_seconds"]
    return (
        f"# Tokenizing with the vocabulary of bert-base-uncased, {results['date']}\n\n"
        f"{sizes}. Each tokenizer is new, warmed up on one half and timed on the other; medians of "
        f"{work['num_rounds']} rounds. [CLS] and [SEP] included; the ids of all systems are "
        f"{'equal' if not unequal else 'NOT EQUAL on ' + ', '.join(unequal)}.\n\n"
        f"{report.machine(results)}\n\n{table}\n\n"
        f"The first text of a new process takes {first['warm']:.2f} s, or where no machine code is kept yet "
        f"{first['cold']:.2f} s.\n"
    )


if __name__ == "__main__":
    main()
