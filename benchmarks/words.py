"""Word vectors beside gensim and model2vec: speed and quality on the same texts.

    python benchmarks/words.py training --novels 8     words per second, and WordSim-353 for three seeds each
    python benchmarks/words.py embedding               texts per second: model2vec, bertkit's static encoder, MiniLM
    python benchmarks/words.py opening --gigabytes 2   seconds and memory to open a word2vec text file

    python benchmarks/words.py pairs --epochs 3        static encoders trained on pairs and distilled, beside MiniLM and
                                                       the input embeddings: Cranfield and XQuAD, nDCG@10

Needs gensim and model2vec, and ../shared/data for the texts and WordSim-353. Prints a JSON line for each measurement.
"""

import argparse
import json
import resource
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch

from bertkit.corpus.documents import read_sentences
from bertkit.words import StaticEncoder
from bertkit.words.benchmarks import score_benchmark
from bertkit.words.settings import WordTraining
from bertkit.words.training import WordCorpus, read_corpus, train_words

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
PAIRS = DATA / "word_benchmarks" / "word-similarity" / "monolingual" / "en"


def corpus_of(num_novels: int) -> WordCorpus:
    """The words of some novels."""
    files = sorted((DATA / "english_novels").glob("*.txt"))[:num_novels]
    return read_corpus((one.text for one in read_sentences(files)), 5)


def scores(encoder: StaticEncoder) -> dict[str, float]:
    """Spearman's correlation by benchmark."""
    files = [PAIRS / f"{name}.csv" for name in ("wordsim353-sim", "wordsim353-rel", "men")]
    return {one.benchmark: round(one.value, 4) for file in files for one in score_benchmark(encoder, file)}


def show(**values: object) -> None:
    print(json.dumps(values), flush=True)


def training(num_novels: int, epochs: int, seeds: int, method: str) -> None:
    """The same sentences, settings and number of threads for both."""
    from gensim.models import Word2Vec

    corpus, threads = corpus_of(num_novels), torch.get_num_threads()
    words = np.array(corpus.words, object)
    sentences = [words[corpus.ids[a:b]].tolist() for a, b in pairwise(corpus.starts)]
    show(num_tokens=len(corpus.ids), num_words=len(corpus.words), threads=threads, epochs=epochs, method=method)
    train_words(corpus, WordTraining(epochs=1, dimensions=4, method=method))  # type: ignore
    for seed in range(seeds):
        encoder, report = train_words(corpus, WordTraining(epochs=epochs, seed=seed, method=method))  # type: ignore
        show(peer="bertkit", seed=seed, words_per_second=round(report.words_per_second), **scores(encoder))
        model = Word2Vec(
            vector_size=100, min_count=5, workers=threads, sg=int(method == "skip-gram"), seed=seed, epochs=epochs
        )
        model.build_vocab(sentences)
        start = time.perf_counter()
        model.train(sentences, total_examples=model.corpus_count, epochs=epochs)
        seconds = time.perf_counter() - start
        encoder = StaticEncoder.of_words(model.wv.index_to_key, model.wv.vectors)
        show(peer="gensim", seed=seed, words_per_second=round(epochs * len(corpus.ids) / seconds), **scores(encoder))


def embedding() -> None:
    """One thread each, equal vectors; MiniLM on every core."""
    import model2vec
    from tokenizers import Tokenizer

    import bertkit
    from bertkit.inference import EmbedReport

    texts = [one.text for one in read_sentences(sorted((DATA / "english_novels").glob("*.txt"))[:2])][:20_000]
    folder = Path(tempfile.mkdtemp())
    bertkit.load("all-MiniLM-L6-v2").tokenizer.save(folder)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    vectors = np.random.default_rng(0).normal(size=(tokenizer.get_vocab_size(), 256)).astype(np.float32)
    theirs = model2vec.StaticModel(vectors, tokenizer, normalize=True)
    theirs.save_pretrained(folder / "model")
    ours, report, all_threads = StaticEncoder.open(folder / "model"), EmbedReport(), torch.get_num_threads()
    for threads in (1, all_threads):
        torch.set_num_threads(threads)
        ours.embed(texts, report=report)
        start = time.perf_counter()
        embedded = ours.embed(texts, report=report)
        show(peer="bertkit static", threads=threads, texts_per_second=round(len(texts) / (time.perf_counter() - start)))
    start = time.perf_counter()
    expected = theirs.encode(texts, use_multiprocessing=False)
    show(peer="model2vec", texts_per_second=round(len(texts) / (time.perf_counter() - start)),
         largest_difference=float(np.abs(embedded - expected).max()))  # fmt: skip
    model = bertkit.load("all-MiniLM-L6-v2")
    model.embed(texts[:200])
    start = time.perf_counter()
    model.embed(texts[:2_000])
    show(peer="bertkit MiniLM", threads=all_threads, texts_per_second=round(2_000 / (time.perf_counter() - start)))


def opening(gigabytes: float) -> None:
    """A text file of random words and numbers in a temporary folder."""
    random = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "words.vec"
        num_words, dim = int(gigabytes * 1e9 / 2_260), 300
        with path.open("w") as file:
            file.write(f"{num_words} {dim}\n")
            lines = [" ".join(f"{x:.4f}" for x in random.normal(size=dim).tolist()) for _ in range(500)]
            for number in range(num_words):
                file.write(f"w{number} {lines[number % 500]}\n")
        StaticEncoder.of_words(["a"], np.zeros((1, 3)))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        start = time.perf_counter()
        encoder = StaticEncoder.open(path)
        seconds = time.perf_counter() - start
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        show(bytes=path.stat().st_size, num_words=len(encoder.rows), seconds=round(seconds, 2),
             more_memory_mb=round((after - before) / 1024))  # fmt: skip


def pairs(epochs: int) -> None:
    """Trained on Python's documentation (title and text) and neighboring sentences of the novels."""
    import bertkit
    from bertkit.corpus.python_docs import python_docs
    from bertkit.evidence.collections import Collection, read_collection
    from bertkit.evidence.retrieval import retrieval_scores, retrieve
    from bertkit.tasks import TextSet
    from bertkit.words.contrastive import train_static
    from bertkit.words.distilling import distill
    from bertkit.words.opening import input_embeddings
    from bertkit.words.settings import PairTraining

    documents = [TextSet(f"{one.source} {one.title}", (one.text,)) for one in python_docs() if one.title != one.text]
    novels = [one.text for one in read_sentences(sorted((DATA / "english_novels").glob("*.txt"))[::4])]
    neighbors = [
        TextSet(" ".join(novels[at : at + 3]), (" ".join(novels[at + 3 : at + 6]),))
        for at in range(0, len(novels) - 6, 6)
    ]
    model = bertkit.load("all-MiniLM-L6-v2")
    start = time.perf_counter()
    trained, report = train_static(documents + neighbors, model.tokenizer, PairTraining(epochs=epochs))
    show(what="trained", seconds=round(time.perf_counter() - start), **report._asdict())
    passages, questions, judgments = {}, {}, {}
    for article in json.loads((DATA / "xquad" / "xquad.en.json").read_text())["data"]:
        for paragraph in article["paragraphs"]:
            name = f"p{len(passages)}"
            passages[name] = paragraph["context"]
            for question in paragraph["qas"]:
                questions[question["id"]], judgments[question["id"]] = question["question"], {name: 1}
    xquad = Collection(questions, passages, judgments)
    collections = {"cranfield": read_collection(DATA / "cranfield" / "beir_like"), "xquad": xquad}
    encoders = {
        "trained on pairs": trained, "distilled": distill(model), "input embeddings": input_embeddings(model),
        "input embeddings, SIF": input_embeddings(model).weighted("sif"), "all-MiniLM-L6-v2": model,
    }  # fmt: skip
    for name, collection in collections.items():
        for encoder_name, encoder in encoders.items():
            scores = retrieval_scores(collection.judgments, retrieve(encoder, collection))
            show(collection=name, encoder=encoder_name, ndcg_at_10=round(float(np.mean(scores["ndcg_at_10"])), 4))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["training", "embedding", "opening", "pairs"])
    parser.add_argument("--novels", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--method", default="skip-gram")
    parser.add_argument("--gigabytes", type=float, default=2.0)
    given = parser.parse_args()
    if given.what == "training":
        training(given.novels, given.epochs, given.seeds, given.method)
    elif given.what == "embedding":
        embedding()
    elif given.what == "pairs":
        pairs(given.epochs)
    else:
        opening(given.gigabytes)
