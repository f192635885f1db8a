"""The most similar pairs among 10,000 sentences: bertkit and sentence-transformers' paraphrase_mining.

    python benchmarks/pairs.py [--systems "bertkit int8" ...] [--rounds 1] [--threads 2] [--out benchmarks/results]
    python benchmarks/pairs.py --large  # the search among 100,000 sentences, and its memory

This is the example of the Sentence-BERT paper (Reimers & Gurevych 2019). Sentences of Python's documentation, among
them 300 near copies of one sentence, are embedded with all-MiniLM-L6-v2 and compared with each other, one system after
the other. The search on the vectors is also timed alone. Systems measured by an earlier run on the same day stay in
the results.
"""

import argparse
import resource
import time
from collections.abc import Callable

import numpy as np
import report
import texts
from models import MINILM, published_folder
from sentence_vectors import SOURCE, sentence_vectors
from turns import say

import bertkit
from bertkit.corpus.sentences import split_sentences

NUM_COPIES = 300
NUM_PAIRS = 50_000
NUM_BEST = 1000
SYSTEMS = {"sentence-transformers": None} | {f"bertkit {name}": name for name in ("float32", "bfloat16", "int8")}
"""Precisions by name; None: the peer."""
SEARCHES = 7


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--num-texts", type=int, default=10_000)
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--large", action="store_true", help="search among the vectors of 100,000 sentences")
    if parser.parse_known_args()[0].large:
        results, options = report.begin("pairs-large", parser)
        results |= large()
        report.finish(results, describe_large(results), options.out)
        return
    results, options = report.begin("pairs", parser)
    sentences, copies = collection(options.num_texts)
    results |= {"model": MINILM, "num_texts": len(sentences), "num_copies": NUM_COPIES, "num_pairs": NUM_PAIRS}
    results["systems"] = report.earlier_systems(results, options.out, "num_texts", "num_pairs")
    for name in options.systems:
        precision, job = SYSTEMS[name], (sentences, copies, options.rounds)
        results["systems"][name] = ours(*job, precision) if precision else peer(*job)
    results["systems"] = {name: results["systems"][name] for name in SYSTEMS if name in results["systems"]}
    results["skipped"] = {}
    report.finish(results, describe(results), options.out)


def collection(number: int) -> tuple[list[str], set[int]]:
    """Texts in random order, and the rows of near copies among them."""
    sentences = [one for passage in texts.documentation() for one in split_sentences(passage) if len(one.split()) > 3]
    passages = texts.shuffled(list(dict.fromkeys(sentences)))
    copied = "Return the number of bytes that were written to the file"
    copies = [f"{copied}, case {number}." for number in range(NUM_COPIES)]
    chosen = [*passages[: number - NUM_COPIES], *copies]
    order = np.random.default_rng(0).permutation(len(chosen))
    rows = {new for new, old in enumerate(order.tolist()) if old >= len(chosen) - NUM_COPIES}
    return [chosen[old] for old in order], rows


def ours(sentences: list[str], copies: set[int], rounds: int, precision: str) -> dict:
    model = bertkit.load(published_folder(MINILM), precision=precision)
    model.embed(sentences[:64], normalize=True)
    vectors = np.empty((0, 0))

    def job() -> set[tuple[int, int]]:
        nonlocal vectors
        vectors = model.embed(sentences, normalize=True)
        pairs = bertkit.top_pairs(vectors, NUM_PAIRS)
        return set(zip(pairs.first.tolist(), pairs.second.tolist(), strict=True))

    bertkit.top_pairs(model.embed(sentences[:2000], normalize=True), 100)
    seconds, found = timed(job, rounds)
    search = min(timed(lambda: bertkit.top_pairs(vectors, 1), 1)[0] for _ in range(SEARCHES))
    return {
        "seconds": seconds,
        "search_seconds": search,
        "share_of_copies": share_of_copies(found, copies),
    }


def peer(sentences: list[str], copies: set[int], rounds: int) -> dict:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.util import paraphrase_mining

    model = SentenceTransformer(str(published_folder(MINILM)), device="cpu")
    model.encode(sentences[:64])

    def job() -> set[tuple[int, int]]:
        pairs = paraphrase_mining(model, sentences, max_pairs=NUM_PAIRS)
        return {(min(pair[1:]), max(pair[1:])) for pair in pairs}  # pyrefly: ignore

    seconds, found = timed(job, rounds)
    return {"seconds": seconds, "search_seconds": None, "share_of_copies": share_of_copies(found, copies)}


def large() -> dict:
    """Seconds of the search among 100,000 vectors, and the memory that it uses in addition to the vectors."""
    vectors = sentence_vectors(100_200)[:100_000]
    bertkit.top_pairs(vectors[:3000], NUM_BEST)
    before = peak_megabytes()
    seconds, _ = timed(lambda: set(bertkit.top_pairs(vectors, NUM_BEST).first.tolist()), 1)
    return {
        "rows": SOURCE,
        "num_vectors": len(vectors),
        "num_pairs": NUM_BEST,
        "search_seconds": seconds,
        "vectors_megabytes": vectors.nbytes / 2**20,
        "more_megabytes": peak_megabytes() - before,
    }


def describe_large(results: dict) -> str:
    return "\n".join(
        [
            *report.heading("The most similar pairs among 100,000 sentences", results),
            f"{results['num_pairs']:,} pairs among {results['num_vectors']:,} {results['rows']}: the search takes "
            f"{results['search_seconds']:.1f} s, and {results['more_megabytes']:.0f} MiB in addition to the vectors' "
            f"{results['vectors_megabytes']:.0f}.",
        ]
    )


def peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def timed(job: Callable, rounds: int) -> tuple[float, set]:
    """Seconds of the fastest round, and the result."""
    best, result = float("inf"), set()
    for _ in range(rounds):
        started = time.perf_counter()
        result = job()
        best = min(best, time.perf_counter() - started)
    say(f"{best:.2f} s")
    return best, result


def share_of_copies(found: set[tuple[int, int]], copies: set[int]) -> float:
    """Returned pairs of near copies, as a share of all pairs of near copies."""
    return sum(first in copies and second in copies for first, second in found) / (len(copies) * (len(copies) - 1) / 2)


def describe(results: dict) -> str:
    """The results as Markdown."""
    reference = results["systems"].get("sentence-transformers", {"seconds": float("nan")})["seconds"]
    lines = [
        "# The most similar pairs among 10,000 sentences",
        "",
        f"{results['model']}, {results['num_texts']:,} sentences of Python's documentation, {results['num_copies']} of "
        f"them near copies of one; {results['num_pairs']:,} pairs. {results['date']}.",
        "",
        "| system | whole job, s | vs sentence-transformers | search alone, s | near-copy pairs returned |",
        "|---|---|---|---|---|",
    ]
    for name, row in results["systems"].items():
        search = "" if row["search_seconds"] is None else f"{row['search_seconds']:.3f}"
        lines.append(
            f"| {name} | {row['seconds']:.1f} | {reference / row['seconds']:.1f}x | {search} | "
            f"{row['share_of_copies']:.1%} |"
        )
    return "\n".join([*lines, "", "The search alone is for the one best pair, the quickest of seven."])


if __name__ == "__main__":
    main()
