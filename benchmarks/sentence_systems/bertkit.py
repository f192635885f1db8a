"""bertkit: `Finetuning` of similarity or siamese classification, and `Model.score_pairs`."""

import json
import tempfile
import time
from pathlib import Path

import torch

import bertkit
from bertkit.finetuning import Finetuning, FinetuningSettings
from bertkit.tasks import TextExample, TextSet
from sentence_systems import ByName, Data, Ranked, Settings, Trained


class System(ByName):
    def __init__(self, threads: int) -> None:
        torch.set_num_threads(threads)

    def train(self, model: Path, data: Data, settings: Settings) -> Trained:
        if settings.objective == "softmax":
            task, options = "siamese-classification", {}
            rows = [TextExample(a, b, label=label) for a, b, label in data.rows]
        else:
            task, options = "similarity", {"objective": settings.objective}
            rows = [TextSet(a, (b,), score=score) for a, b, score in data.rows]
        chosen = FinetuningSettings.of(
            head="drawn", num_epochs=settings.num_epochs, batch_size=settings.batch_size,
            learning_rate=settings.learning_rate, precision=settings.precision, seed=settings.seed,
        )  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder, "out")
            run = Finetuning(
                out, model, task, chosen, options, device="cpu", log_line=lambda line: None, resumable=False
            )
            run.start(rows)
            log = [json.loads(line) for line in (out / "run" / "metrics.jsonl").read_text().splitlines()]
            vectors = bertkit.load(out, device="cpu").embed(data.texts)
        return Trained(log[-1]["seconds"], vectors)

    def rank(self, model: Path, precision: str, query: str, texts: list[str], rounds: int) -> Ranked:
        loaded, seconds = bertkit.load(model, precision=precision, device="cpu"), []
        scores = loaded.score_pairs(query, texts)
        for _ in range(rounds):
            began = time.perf_counter()
            scores = loaded.score_pairs(query, texts)
            seconds.append(time.perf_counter() - began)
        return Ranked(seconds, scores)
