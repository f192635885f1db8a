"""transformers: the usual loop around BertForMaskedLM and DataCollatorForLanguageModeling.

The Trainer is not used, because its other work would only take time.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset
from trainers import ByName
from transformers import AutoTokenizer, BertConfig, BertForMaskedLM, DataCollatorForLanguageModeling

from pretrainers import PUBLISHED, Curve, Facts


class Pretrainer(ByName):
    def __init__(self, threads: int) -> None:
        torch.set_num_threads(threads)

    def start(self, folder: Path, precision: str) -> None:
        model = BertForMaskedLM.from_pretrained(folder / "initial")
        self._loop = _Loop(model, folder, PUBLISHED | {"precision": precision})

    def steps(self, number: int, sequences: str) -> int:
        return sum(self._loop.step(1.0, sequences) for _ in range(number))

    def train(self, folder: Path, settings: dict[str, Any], minutes: float, out: Path) -> Facts:
        warm_up = _Loop(_new_model(folder, settings), folder, settings)
        for _ in range(3):
            warm_up.step(1.0)
        model = _new_model(folder, settings)
        loop, curve = _Loop(model, folder, settings), Curve(model)
        warmup, num_steps, num_tokens = settings["warmup"], 0, 0
        started = time.monotonic()
        while (done := (time.monotonic() - started) / (60 * minutes)) < 1:
            curve.look(done, seconds=60 * minutes * done, step=num_steps, tokens=num_tokens)
            num_tokens += loop.step(done / warmup if done < warmup else (1 - done) / (1 - warmup))
            num_steps += 1
        seconds = time.monotonic() - started
        curve.look(1.0, seconds=60 * minutes, step=num_steps, tokens=num_tokens)

        def save(to: Path) -> None:
            model.save_pretrained(to)
            loop.tokenizer.save_pretrained(to)

        return {"num_parameters": model.num_parameters(), "seconds": seconds, "points": curve.write(out, save)}


class _Loop:
    """Batches in random order, epoch after epoch."""

    def __init__(self, model: BertForMaskedLM, folder: Path, settings: dict[str, Any]) -> None:
        self.model = model.train()
        self.tokenizer = AutoTokenizer.from_pretrained(folder / "initial")
        self._collate = DataCollatorForLanguageModeling(self.tokenizer, mlm_probability=settings["mask_rate"])
        self._batches = {name: self._endless(folder / f"{name}.npz") for name in ("blocks", "paragraphs")}
        self._parameters = list(model.parameters())
        self._optimizer = torch.optim.AdamW(
            [
                {"params": [p for p in self._parameters if p.dim() >= 2], "weight_decay": settings["weight_decay"]},
                {"params": [p for p in self._parameters if p.dim() < 2], "weight_decay": 0.0},
            ],
            lr=settings["learning_rate"],
            betas=tuple(settings["betas"]),
            eps=settings["eps"],
            fused=True,
        )
        self._settings = settings

    def step(self, factor: float, sequences: str = "blocks") -> int:
        """An optimizer step at a factor of the peak learning rate; returns its number of tokens without padding."""
        batch, settings = next(self._batches[sequences]), self._settings
        with torch.autocast("cpu", torch.bfloat16, enabled=settings["precision"] == "bfloat16"):
            loss = self.model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._parameters, settings["clip_norm"])
        for group in self._optimizer.param_groups:
            group["lr"] = settings["learning_rate"] * factor
        self._optimizer.step()
        self._optimizer.zero_grad()
        return int(batch["attention_mask"].sum())

    def _endless(self, path: Path) -> Iterator[Any]:
        number, sequences = self._settings["batch_size"], _Sequences(path)
        loader = DataLoader(sequences, number, shuffle=True, drop_last=True, collate_fn=self._collate)
        while True:
            yield from loader


class _Sequences(Dataset):
    """Rows as in a dataset that was tokenized with ``return_special_tokens_mask=True``."""

    def __init__(self, path: Path) -> None:
        with np.load(path) as arrays:
            self._input_ids, self._cu_seqlens = arrays["input_ids"], arrays["cu_seqlens"]

    def __len__(self) -> int:
        return len(self._cu_seqlens) - 1

    def __getitem__(self, index: int) -> dict[str, list[int]]:
        ids = self._input_ids[self._cu_seqlens[index] : self._cu_seqlens[index + 1]].tolist()
        return {
            "input_ids": ids,
            "attention_mask": [1] * len(ids),
            "special_tokens_mask": [1, *[0] * (len(ids) - 2), 1],
        }


def _new_model(folder: Path, settings: dict[str, Any]) -> BertForMaskedLM:
    torch.manual_seed(settings["seed"])
    dropout = settings["dropout"]
    config = BertConfig.from_pretrained(
        folder / "initial", hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout
    )
    return BertForMaskedLM(config)
