"""Losses of both libraries at each step: without dropout, from the same weights, over the same batches."""

import json
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from finetune_tasks import TASKS
from finetuners import Settings
from models import MINILM, published_folder
from worker import Worker

from bertkit import load
from bertkit.finetuning import FinetuningSettings
from bertkit.finetuning.network import model_to_train
from bertkit.randomness import in_random_order
from bertkit.tasks import task_kind

NUM_STEPS = 20
BATCH_SIZES = {"sst2": 8, "wnut17": 8, "xquad": 1}  # transformers lets answers start at padding: here there is none
_MOST_CHARACTERS = 1_000  # of an example, which then is read in one window


def measure(threads: int) -> Iterator[str]:
    """A line for each task."""
    for task in TASKS:
        if task.name not in BATCH_SIZES:
            continue
        size = BATCH_SIZES[task.name]
        settings = replace(task.settings, batch_size=size, num_epochs=1, learning_rate=5e-5)
        examples = [one for one in task.examples(1.0)[0] if one.num_characters < _MOST_CHARACTERS][: NUM_STEPS * size]
        with tempfile.TemporaryDirectory() as folder:
            ours, theirs = _losses(Path(folder), examples, settings, threads)
        worst = np.abs(np.array(ours) - np.array(theirs)).max()
        yield (
            f"- {task.name}, {len(ours)} steps of {size}: loss {ours[0]:.4f} to {ours[-1]:.4f}, largest difference "
            f"{worst:.1e}"
        )


def _losses(folder: Path, examples: list, settings: Settings, threads: int) -> tuple[list[float], list[float]]:
    still, start = folder / "still", folder / "start"
    load(published_folder(MINILM), device="cpu").save(still)
    config = json.loads((still / "config.json").read_text())
    config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (still / "config.json").write_text(json.dumps(config))
    task = task_kind(settings.kind).of_examples(examples, {})
    with_head = FinetuningSettings.of(max_length=settings.max_length, seed=settings.seed, head="drawn")
    model_to_train(str(still), task, with_head, lambda line: None).save(start)
    order = in_random_order(np.arange(len(examples)), len(examples), settings.seed, 0)
    in_order = [examples[place] for place in order]
    losses = []
    for module, model, given in (("bertkit", still, examples), ("transformers", start, in_order)):
        worker = Worker(f"finetuners.{module}", "Finetuner", threads)
        losses.append(worker.turn("losses", model, given, settings).result)
        worker.close()
    return losses[0], losses[1]
