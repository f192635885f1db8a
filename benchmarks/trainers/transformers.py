"""transformers: padded batches of 32, its standard masked language modeling head over all positions."""

from collections.abc import Sequence
from pathlib import Path

import torch
from masked_text import NOT_PREDICTED, Example, num_masked
from torch import Tensor
from transformers import BertForMaskedLM

from trainers import LEARNING_RATE, ByName

BATCH_SIZE = 32


class Trainer(ByName):
    def __init__(self, precision: str, threads: int) -> None:
        torch.set_num_threads(threads)
        self.dtype = getattr(torch, precision)

    def prepare(self, folder: Path, dropout: float) -> None:
        self.model = BertForMaskedLM.from_pretrained(
            folder, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout
        )
        self.optimizer = torch.optim.AdamW(self.model.parameters(), LEARNING_RATE, fused=True)

    def step(self, examples: Sequence[Example], seed: int, pad_to: int | None = None) -> float:
        """Gradients summed over batches of BATCH_SIZE, each padded to its longest sequence, or to ``pad_to``."""
        torch.manual_seed(seed)
        self.model.train()
        total = 0.0
        for start in range(0, len(examples), BATCH_SIZE):
            batch = examples[start : start + BATCH_SIZE]
            with torch.autocast("cpu", torch.bfloat16, enabled=self.dtype == torch.bfloat16):
                loss = self.model(**_pad(batch, pad_to)).loss * (num_masked(batch) / num_masked(examples))
            loss.backward()
            total += float(loss.detach())
        self.optimizer.step()
        self.optimizer.zero_grad()
        return total

    @torch.no_grad()
    def evaluate(self, examples: Sequence[Example]) -> float:
        self.model.eval()
        return float(self.model(**_pad(examples, None)).loss)


def _pad(examples: Sequence[Example], pad_to: int | None) -> dict[str, Tensor]:
    """(B, L) input_ids, attention_mask and labels."""
    longest = pad_to or max(len(example.input_ids) for example in examples)
    mask = torch.arange(longest) < torch.tensor([len(example.input_ids) for example in examples])[:, None]
    input_ids = torch.zeros(mask.shape, dtype=torch.int64)
    labels = torch.full(mask.shape, NOT_PREDICTED)
    for row, example in enumerate(examples):
        input_ids[row, : len(example.input_ids)] = torch.from_numpy(example.input_ids)
        labels[row, : len(example.labels)] = torch.from_numpy(example.labels)
    return {"input_ids": input_ids, "attention_mask": mask.long(), "labels": labels}
