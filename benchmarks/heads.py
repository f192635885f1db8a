"""Time of four heads from one pass of the encoder, compared with one head, and with four calls.

    python benchmarks/heads.py [--num-texts 256] [--rounds 5] [--threads 2] [--out benchmarks/results]

A tagger and a classifier with random heads over all-MiniLM-L6-v2, over paragraphs of Wikipedia. One head: entities of
the tagger; four: entities, the class, a vector and a redaction, of `Model.run` or of a call for each. All in one
process, in turns; wall time, and processor time of all threads.
"""

import argparse
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import report
import texts
from turns import say


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--num-texts", type=int, default=256)
    results, options = report.begin("heads", parser)
    chosen = texts.shuffled(texts.wikitext())[: options.num_texts]
    ways = _ways(chosen)
    turns: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for number in range(options.rounds + 1):
        for name, way in ways.items():
            began, used = time.perf_counter(), time.process_time()
            way()
            turns[name].append((time.perf_counter() - began, time.process_time() - used))
            say(f"{f'round {number}' if number else 'warm-up'}: {name}, {turns[name][-1][0]:.2f} s")
            time.sleep(0.25)
    results |= {"num_texts": len(chosen), "num_words": sum(len(each.split()) for each in chosen)}
    results |= {"num_rounds": options.rounds, "rows": []}
    for name, taken in turns.items():
        wall, used = (median(each[kind] for each in taken[1:]) for kind in (0, 1))
        results["rows"].append({"way": name, "seconds": wall, "processor_seconds": used})
    report.finish(results, describe(results), options.out)


def _ways(chosen: list[str]) -> dict[str, Callable[[], object]]:
    from bertkit.tasks import SequenceClassification, TokenClassification

    names = ("O", *(f"{letter}-{label}" for label in ("PER", "LOC", "ORG", "MISC") for letter in "BI"))
    tagger = _model(TokenClassification(names))
    topics = _model(SequenceClassification(("arts", "science", "sports")))
    heads: Any = ["entities", topics, "vector", "redaction"]

    def calls() -> None:
        tagger.extract(chosen)
        topics.predict(chosen)
        tagger.embed(chosen, on_long="window")
        tagger.redact(chosen)

    return {
        "one head": lambda: tagger.extract(chosen),
        "four heads, one pass": lambda: tagger.run(chosen, heads),
        "four calls": calls,
    }


def _model(task: Any) -> Any:
    """all-MiniLM-L6-v2 with a random head that counts as trained."""
    import bertkit
    from bertkit.checkpoint.checkpoint import TrainedTask
    from bertkit.tokenizer.layout import Layout

    parts = {"new": [task.head], "heads": [task.head], "label_names": task.label_names}
    model = bertkit.load("all-MiniLM-L6-v2", **parts)
    model.mark_trained()
    model.checkpoint.trained = TrainedTask(task, Layout(256, "window"))  # as its vectors
    return model


def describe(results: dict) -> str:
    first = results["rows"][0]
    rows = [
        [
            row["way"], f"{row['seconds']:.2f}", f"{row['seconds'] / first['seconds']:.3f}",
            f"{row['processor_seconds']:.2f}", f"{row['processor_seconds'] / first['processor_seconds']:.3f}",
        ]
        for row in results["rows"]
    ]  # fmt: skip
    header = ["", "wall time (s)", "of one head", "processor time (s)", "of one head"]
    return "\n".join([
        *report.heading("Several heads, one pass", results),
        f"{results['num_texts']} paragraphs, {results['num_words']:,} words, {results['num_rounds']} rounds.",
        "",
        report.markdown_table(header, *rows),
    ])  # fmt: skip


if __name__ == "__main__":
    main()
