"""bertkit: `FewShotClassifier` through its public interface."""

from collections.abc import Sequence
from typing import Any

import torch
from models import MINILM
from trainers import ByName

from bertkit import FewShotClassifier


class Classifier(ByName):
    def __init__(self, threads: int) -> None:
        torch.set_num_threads(threads)

    def learn(self, texts: Sequence[str], labels: Sequence[str], seed: int, settings: dict[str, Any]) -> None:
        self._classifier = FewShotClassifier(MINILM, device="cpu", seed=seed, **settings).fit(texts, labels)

    def warm_up(self, texts: Sequence[str], labels: Sequence[str], settings: dict[str, Any]) -> None:
        self.learn(texts, labels, 0, settings | {"num_epochs": 1})

    def predict(self, texts: Sequence[str]) -> list[str]:
        return self._classifier.predict(list(texts)).tolist()
