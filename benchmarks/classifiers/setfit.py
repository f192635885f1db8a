"""SetFit's method (Tunstall et al. 2022) on sentence-transformers, as in `SetFitTrainer` of its package.

In each of ``iterations`` rounds, every text is paired with a text of its class, itself included, and with a text of
another class. The target of their cosine is 1 or 0 (`CosineSimilarityLoss`); training takes one epoch in batches of 16
pairs, with AdamW at 2e-5 and a tenth of the steps as warm-up. Then scikit-learn's LogisticRegression is fitted to the
vectors. With 0 iterations the encoder is not trained.
"""

import math
import random
from collections.abc import Sequence
from typing import Any

import torch
from models import MINILM, published_folder
from sentence_transformers import InputExample, SentenceTransformer
from sentence_transformers.sentence_transformer.losses import CosineSimilarityLoss
from sklearn.linear_model import LogisticRegression
from torch.utils.data import DataLoader
from trainers import ByName

BATCH_SIZE = 16


class Classifier(ByName):
    def __init__(self, threads: int) -> None:
        torch.set_num_threads(threads)

    def learn(self, texts: Sequence[str], labels: Sequence[str], seed: int, settings: dict[str, Any]) -> None:
        torch.manual_seed(seed)
        self._model = SentenceTransformer(str(published_folder(MINILM)), device="cpu")
        if settings["iterations"]:
            pairs = _pairs(texts, labels, settings["iterations"], random.Random(seed))
            loader = DataLoader(pairs, shuffle=True, batch_size=BATCH_SIZE)
            self._model.old_fit(
                [(loader, CosineSimilarityLoss(self._model))],
                epochs=1,
                warmup_steps=math.ceil(0.1 * len(loader)),
                optimizer_params={"lr": 2e-5},
                show_progress_bar=False,
            )
        self._head = LogisticRegression().fit(self._model.encode(list(texts)), labels)

    def warm_up(self, texts: Sequence[str], labels: Sequence[str], settings: dict[str, Any]) -> None:
        self.learn(texts, labels, 0, {"iterations": min(1, settings["iterations"])})

    def predict(self, texts: Sequence[str]) -> list[str]:
        return self._head.predict(self._model.encode(list(texts))).tolist()


def _pairs(texts: Sequence[str], labels: Sequence[str], iterations: int, draw: random.Random) -> list[InputExample]:
    same = {name: [text for text, label in zip(texts, labels, strict=True) if label == name] for name in set(labels)}
    other = {name: [text for text, label in zip(texts, labels, strict=True) if label != name] for name in same}
    return [
        InputExample(texts=[text, draw.choice(partners[label])], label=float(partners is same))
        for _ in range(iterations)
        for text, label in zip(texts, labels, strict=True)
        for partners in (same, other)
    ]
