"""bertkit: every text is encoded once, and heads are trained on the stored vectors."""

import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer
from trainers import ByName

from bertkit import Features
from frozen import MAX_LENGTH, NUM_EPOCHS, Head, batches


class Job(ByName):
    """Each `run` is the whole job, from texts to heads, with an empty cache folder at the start."""

    def __init__(self, folder: Path, precision: str, texts: list[str], label_ids: list[int], threads: int) -> None:
        torch.set_num_threads(threads)
        options = {"pooling": "mean", "max_length": MAX_LENGTH, "on_long": "truncate", "normalize": False}
        self.features = Features(folder, precision=precision, device="cpu", **options).fit(texts)
        self.texts, self.label_ids = texts, np.array(label_ids)

    def run(self) -> dict:
        with tempfile.TemporaryDirectory() as cache:
            self.features.set_params(cache=cache)
            start = time.perf_counter()
            vectors = torch.from_numpy(self.features.transform(self.texts))
            encoded = time.perf_counter()
            self.head, labels, losses = Head(vectors.shape[1]), torch.from_numpy(self.label_ids), []
            for epoch in range(NUM_EPOCHS):
                steps = [self.head.step(vectors[batch], labels[batch]) for batch in batches(len(vectors), epoch)]
                losses.append(float(np.mean(steps)))
            trained = time.perf_counter()
            self.logistic = make_pipeline(Normalizer(), LogisticRegression()).fit(vectors.numpy(), self.label_ids)
            fitted = time.perf_counter()
            self.features.transform(self.texts)
            read_again = time.perf_counter()
        return {
            "losses": losses,
            "seconds": {
                "encode": encoded - start,
                "ten epochs": trained - encoded,
                "logistic regression": fitted - trained,
                "encode again": read_again - fitted,
            },
        }

    def accuracy(self, texts: list[str], label_ids: list[int]) -> dict:
        self.features.set_params(cache=None)
        vectors = self.features.transform(texts)
        return {
            "losses": [],
            "accuracy": self.head.accuracy(torch.from_numpy(vectors), torch.tensor(label_ids)),
            "accuracy_logistic": float(self.logistic.score(vectors, label_ids)),
        }
