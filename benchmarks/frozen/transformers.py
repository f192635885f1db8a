"""transformers as tutorials use it: every epoch runs every batch through the frozen encoder again."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from trainers import ByName
from transformers import AutoModel, AutoTokenizer

from frozen import BATCH_SIZE, MAX_LENGTH, NUM_EPOCHS, Head, batches


class Job(ByName):
    """Each `run` is one epoch.

    Args:
        padded_to: "batch", the longest text of each; "all", the longest text of all, which are tokenized beforehand.
    """

    def __init__(self, folder: Path, padded_to: str, texts: list[str], label_ids: list[int], threads: int) -> None:
        torch.set_num_threads(threads)
        self.tokenizer, self.model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder)
        self.model.eval()
        for parameter in self.model.parameters():
            parameter.requires_grad = False
        self.texts, self.label_ids = texts, torch.tensor(label_ids)
        self.head, self.epoch = Head(self.model.config.hidden_size), 0
        self.tokenized = self._tokenize(texts) if padded_to == "all" else None
        self.seen = torch.empty(len(texts), self.model.config.hidden_size)  # features of the last epoch

    def run(self) -> dict:
        losses = []
        for batch in batches(len(self.texts), self.epoch):
            if self.tokenized is None:
                encoded = self._tokenize([self.texts[place] for place in batch])
            else:
                encoded = {name: values[batch] for name, values in self.tokenized.items()}
            features = self._features(encoded)
            losses.append(self.head.step(features, self.label_ids[batch]))
            self.seen[batch] = features
        self.epoch += 1
        return {"loss": float(np.mean(losses))}

    def accuracy(self, texts: list[str], label_ids: list[int]) -> dict:
        """Accuracy after the remaining epochs, which use the features of the last `run`: the encoder is frozen."""
        losses = []
        for epoch in range(self.epoch, NUM_EPOCHS):
            steps = batches(len(self.texts), epoch)
            losses.append(np.mean([self.head.step(self.seen[batch], self.label_ids[batch]) for batch in steps]))
        chunks = [texts[start : start + BATCH_SIZE] for start in range(0, len(texts), BATCH_SIZE)]
        features = torch.cat([self._features(self._tokenize(chunk)) for chunk in chunks])
        return {"losses": list(map(float, losses)), "accuracy": self.head.accuracy(features, torch.tensor(label_ids))}

    def _tokenize(self, texts: list[str]) -> Mapping[str, Tensor]:
        return self.tokenizer(texts, padding=True, truncation=True, max_length=MAX_LENGTH, return_tensors="pt")

    @torch.no_grad()
    def _features(self, encoded: Mapping[str, Tensor]) -> Tensor:
        """(B, D) means over the tokens."""
        hidden, mask = self.model(**encoded).last_hidden_state, encoded["attention_mask"][..., None]
        return (hidden * mask).sum(1) / mask.sum(1)
