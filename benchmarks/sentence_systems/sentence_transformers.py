"""sentence-transformers: its own loop (`old_fit`, which needs no further library; in bfloat16 with autocast), and
`CrossEncoder.predict`."""

import logging
import math
import time
from pathlib import Path

import numpy as np
import torch
from sentence_transformers import CrossEncoder, InputExample, SentenceTransformer
from sentence_transformers.sentence_transformer import losses
from sentence_transformers.sentence_transformer.datasets.no_duplicates_dataloader import NoDuplicatesDataLoader
from torch.utils.data import DataLoader

from sentence_systems import ByName, Data, Ranked, Settings, Trained

logging.disable(logging.WARNING)


class System(ByName):
    def __init__(self, threads: int) -> None:
        torch.set_num_threads(threads)

    def train(self, model: Path, data: Data, settings: Settings) -> Trained:
        torch.manual_seed(settings.seed)
        encoder = SentenceTransformer(str(model), device="cpu")
        labels = sorted({label for _, _, label in data.rows}) if settings.objective == "softmax" else []
        examples = [
            InputExample(texts=[a, b], label=labels.index(label) if labels else label or 0.0)
            for a, b, label in data.rows
        ]
        match settings.objective:
            case "cosent":
                loss = losses.CoSENTLoss(encoder)
            case "softmax":
                loss = losses.SoftmaxLoss(encoder, encoder.get_embedding_dimension() or 0, len(labels))
            case _:
                loss = losses.MultipleNegativesRankingLoss(encoder)
        if settings.no_duplicates:
            loader = NoDuplicatesDataLoader(examples, batch_size=settings.batch_size)
        else:
            loader = DataLoader(examples, shuffle=True, batch_size=settings.batch_size)
        num_steps = math.ceil(len(examples) / settings.batch_size) * settings.num_epochs
        began = time.perf_counter()
        encoder.old_fit(
            [(loader, loss)], epochs=settings.num_epochs, warmup_steps=num_steps // 10, weight_decay=0.01,
            optimizer_params={"lr": settings.learning_rate}, use_amp=settings.precision != "float32",
            show_progress_bar=False,
        )  # fmt: skip
        seconds = time.perf_counter() - began
        return Trained(seconds, np.asarray(encoder.encode(data.texts, show_progress_bar=False)))

    def rank(self, model: Path, precision: str, query: str, texts: list[str], rounds: int) -> Ranked:
        kind = {"float32": torch.float32, "bfloat16": torch.bfloat16}[precision]
        encoder, seconds = CrossEncoder(str(model), device="cpu", model_kwargs={"torch_dtype": kind}), []
        pairs = [(query, text) for text in texts]
        scores = encoder.predict(pairs)
        for _ in range(rounds):
            began = time.perf_counter()
            scores = encoder.predict(pairs)
            seconds.append(time.perf_counter() - began)
        return Ranked(seconds, np.asarray(scores, np.float32))
