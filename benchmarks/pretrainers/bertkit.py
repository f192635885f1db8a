"""bertkit: its own loop, feed and recipe."""

import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from pretrain_texts import MAX_LENGTH
from trainers import ByName

from bertkit import Model, Tokenizer, load
from bertkit.corpus.shards import open_shard
from bertkit.objectives import MaskedLM, Objective, PretrainingBatch
from bertkit.pretraining import DataSettings, PretrainingFeed, make_feed
from bertkit.pretraining.network import new_model
from bertkit.pretraining.recipe import recipe_of
from bertkit.training import Trainer, TrainingSettings, make_optimizer
from pretrainers import BATCH_SIZE, Curve, Facts

_LONG = 1_000_000  # optimizer steps: more than are ever made


class Pretrainer(ByName):
    def __init__(self, threads: int) -> None:
        torch.set_num_threads(threads)

    def start(self, folder: Path, precision: str) -> None:
        model = load(folder / "initial", device="cpu")
        settings = TrainingSettings(num_steps=_LONG, batch_size=BATCH_SIZE, precision=precision)
        self._run = tempfile.TemporaryDirectory()  # as long as this lives
        data = DataSettings(max_seqlen=MAX_LENGTH)
        self._trainer = _loop(model, folder / "train", data, MaskedLM(), settings, Path(self._run.name))

    def steps(self, number: int, sequences: str) -> int:
        assert sequences == "blocks"  # which it cuts itself
        state = self._trainer.state
        tokens, until = state.num_tokens, state.step + number
        self._trainer.should_stop = lambda: state.step >= until
        self._trainer.train()
        return state.num_tokens - tokens

    def train(self, folder: Path, settings: dict[str, Any], minutes: float, out: Path) -> Facts:
        recipe = recipe_of(settings, "the run")
        start = partial(new_model, recipe, None, Tokenizer.load(folder / "initial"))
        with tempfile.TemporaryDirectory() as run:  # machine code is read, or made
            warm_up = replace(recipe.training, num_steps=3, minutes=None)
            _loop(start(), folder / "train", recipe.data, recipe.objective, warm_up, Path(run)).train()
        model = start()
        settings_of_loop = replace(recipe.training, minutes=minutes)
        loop = _loop(model, folder / "train", recipe.data, recipe.objective, settings_of_loop, out)
        curve = Curve(model.network)

        def look(done: float) -> None:
            curve.look(done, seconds=60 * minutes * done, step=loop.state.step, tokens=loop.state.num_tokens)

        loop.feed = _Watched(loop.feed, look)
        loop.train()
        look(1.0)
        model.mark_trained()
        num_parameters = sum(parameter.numel() for parameter in model.network.parameters())
        return {
            "num_parameters": num_parameters,
            "seconds": loop.state.seconds,
            "points": curve.write(out, model.save),
        }


class _Loop(Trainer):
    """The training loop of bertkit without checkpoints, because training alone is compared."""

    def _save(self) -> None:
        return


class _Watched:
    """A feed that calls ``look`` before every batch."""

    def __init__(self, feed: PretrainingFeed, look: Any) -> None:
        self._feed, self._look = feed, look
        self.next_position, self.facts = feed.next_position, feed.facts

    def batch(self, position: int, done: float) -> PretrainingBatch:
        self._look(done)
        return self._feed.batch(position, done)


def _loop(
    model: Model, shard: Path, data: DataSettings, objective: Objective, settings: TrainingSettings, run: Path
) -> _Loop:
    tokens = open_shard(shard, model.tokenizer)
    feed = make_feed(
        tokens, model.tokenizer, data, objective, batch_size=settings.batch_size, seed=settings.seed, rank=0,
        num_ranks=1,
    )  # fmt: skip
    assert settings.learning_rate is not None
    optimizer = make_optimizer(settings.optimizer, model.network, learning_rate=settings.learning_rate)
    return _Loop(model.network, objective.task, feed, settings, optimizer, run, save_model=model.save)
