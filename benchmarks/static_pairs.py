"""A static encoder trained on pairs of texts, compared with BM25, a distilled static encoder and its teacher.

    python benchmarks/static_pairs.py [--epochs 12] [--cpu-minutes 20] [--threads 2] [--out benchmarks/results]

Pairs are titles and texts of Python's documentation, and neighboring passages of the novels; the tests are Cranfield
and the English XQuAD, which are not in the training pairs. A short run estimates the processor time of an epoch.
Training then takes ``--epochs``, or fewer if those would exceed ``--cpu-minutes``; 20 minutes are 10 minutes on two
cores. Needs ../shared/data.
"""

import argparse
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import report
import torch
from search_quality import COLLECTIONS as DOCUMENTS
from search_quality import measure
from turns import say

import bertkit
from bertkit.corpus.documents import read_sentences
from bertkit.corpus.python_docs import python_docs
from bertkit.evidence.collections import Collection, read_collection
from bertkit.evidence.intervals import bootstrap_interval
from bertkit.evidence.retrieval import retrieval_scores, retrieve
from bertkit.tasks import TextSet
from bertkit.training import Outcome
from bertkit.words import StaticEncoder
from bertkit.words.contrastive import StaticTraining
from bertkit.words.extraction import extract
from bertkit.words.job import VectorJob
from bertkit.words.opening import input_embeddings, open_words
from bertkit.words.settings import PairTraining

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
MODEL = "all-MiniLM-L6-v2"
SENTENCES = 3  # of a passage


def pairs() -> list[TextSet]:
    """Titles with texts of the documentation, passages of the novels with the next one."""
    documents = [TextSet(f"{one.source} {one.title}", (one.text,)) for one in python_docs() if one.title != one.text]
    neighbors = []
    for novel in sorted((DATA / "english_novels").glob("*.txt")):
        sentences = [one.text for one in read_sentences([novel])]
        passages = [" ".join(sentences[at : at + SENTENCES]) for at in range(0, len(sentences), SENTENCES)]
        neighbors += [TextSet(first, (second,)) for first, second in zip(passages[::2], passages[1::2], strict=False)]
    return documents + neighbors


def collections() -> dict[str, Collection]:
    files = {"cranfield": "cranfield/beir_like", "xquad": "xquad/xquad.en.json"}
    return {name: read_collection(DATA / file) for name, file in files.items()}


def train(run: VectorJob, data: Any) -> tuple[StaticEncoder, Outcome]:
    """The encoder that a run writes, in a temporary folder instead of its own."""
    with tempfile.TemporaryDirectory() as folder:
        run = replace(run, out=Path(folder) / "out", log_line=say)
        outcome = run.start(data)
        return open_words(run.out), outcome


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--epochs", type=int, default=12, help="if they fit into the processor time")
    parser.add_argument("--cpu-minutes", type=float, default=20.0)
    results, options = report.begin("static-pairs", parser)
    torch.set_num_threads(options.threads)
    model, rows = bertkit.load(MODEL, device="cpu"), pairs()
    say(f"{len(rows)} pairs")
    before = time.process_time()
    run = StaticTraining(Path("out"), model.tokenizer)
    train(run, rows[::10])  # a tenth of an epoch, to know how many fit
    epoch_seconds = 10 * (time.process_time() - before)
    epochs = max(1, min(options.epochs, int(60 * options.cpu_minutes / epoch_seconds)))
    say(f"{epochs} epochs of {epoch_seconds:.0f} s of processor time")
    before = time.process_time()
    trained, outcome = train(replace(run, settings=PairTraining(num_epochs=epochs)), rows)
    results |= {"num_pairs": len(rows), "epochs": epochs, "num_steps": outcome.step,
                "last_loss": outcome.metrics["last_loss"],
                "cpu_minutes": (time.process_time() - before) / 60}  # fmt: skip
    encoders = {
        "trained on pairs, 512 dimensions": trained, "distilled, 256 dimensions": extract(model),
        "input embeddings, mean": input_embeddings(model),
        "input embeddings, SIF": input_embeddings(model).weighted("sif"), MODEL: model,
    }  # fmt: skip
    results["scores"] = {"BM25": {}} | {name: {} for name in encoders}
    for collection_name, collection in collections().items():
        results["scores"]["BM25"][collection_name] = measure(DOCUMENTS[collection_name]())["scores"]["lexical"]
        for name, encoder in encoders.items():
            values = retrieval_scores(collection.judgments, retrieve(encoder, collection))["ndcg_at_10"]
            results["scores"][name][collection_name] = [float(np.mean(values)), *bootstrap_interval(values)]
            say(f"{collection_name}, {name}: {np.mean(values):.4f}")
    report.finish(results, describe(results), options.out)


def describe(results: dict) -> str:
    """The results as Markdown."""
    table = [[name, *("{:.3f} ({:.3f} to {:.3f})".format(*values) for values in row.values())]
             for name, row in results["scores"].items()]  # fmt: skip
    return "\n".join(
        [
            *report.heading("Static encoders trained on pairs", results),
            f"nDCG@10 with 95 % bootstrap intervals over queries. Trained on {results['num_pairs']:,} pairs of "
            f"Python's documentation and novels, {results['epochs']} epochs, {results['num_steps']:,} steps, "
            f"{results['cpu_minutes']:.1f} minutes of processor time.",
            "",
            report.markdown_table(["encoder", *next(iter(results["scores"].values()))], *table),
        ]
    )


if __name__ == "__main__":
    main()
