"""A pre-training run, from files of text to a model directory; a run that stopped goes on from its last checkpoint."""

import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import nn
from tqdm import tqdm

from bertkit.checkpoint import save_checkpoint
from bertkit.corpus.shards import TokenShard
from bertkit.device import cpu_name, resolve_device
from bertkit.errors import UsageError
from bertkit.model import Model, load
from bertkit.pretraining.feed import held_out_batches, make_feed
from bertkit.pretraining.network import new_model
from bertkit.pretraining.recipe import Recipe
from bertkit.pretraining.text import corpus_facts, learn_vocabulary, text_not_used, texts_of, write_shards
from bertkit.tasks import PretrainingTask
from bertkit.tokenizer import Tokenizer, find_domain_words
from bertkit.training import (
    MetricsLog,
    Ranks,
    Together,
    Trainer,
    TrainingState,
    checkpoints,
    claim_run_folder,
    evaluate,
    load_state,
    make_optimizer,
    same_bits_threads,
    whole,
)

HELD_OUT_SEQUENCES = 1_000
"""Of an evaluation during the run."""


@dataclass(frozen=True)
class Inputs:
    """What a run reads."""

    corpus: Sequence[str | Path]  # files, folders, or "python-docs"
    held_out: Sequence[str | Path] = ()  # files for evaluation; none: a share of the corpus
    vocabulary: Path | None = None  # a vocab.txt; None: learned from the corpus, or the checkpoint's
    model: str | None = None  # the checkpoint to go on from, where the recipe does
    new_head: bool = False  # give a checkpoint without a masked LM head a new one
    column: str | None = None  # of csv, jsonl and parquet files

    def facts(self) -> dict[str, Any]:
        """As JSON has it."""
        paths = {name: [str(path) for path in getattr(self, name)] for name in ("corpus", "held_out")}
        vocabulary = None if self.vocabulary is None else str(self.vocabulary)
        return paths | {
            "vocabulary": vocabulary, "model": self.model, "new_head": self.new_head, "column": self.column
        }  # fmt: skip


@dataclass
class Pretraining:
    """One run in its folder ``run``; ``tell`` gets lines for a person."""

    run: Path
    recipe: Recipe
    inputs: Inputs
    ranks: Ranks = field(default_factory=Ranks)
    tell: Callable[[str], None] = tqdm.write
    device: str = "auto"
    shard: bool = False  # leave each rank with a shard of every parameter
    tensorboard: bool = False
    state: TrainingState = field(default_factory=TrainingState, init=False)  # where the run is

    def start(self, *, resume: bool, should_stop: Callable[[], bool] = lambda: False) -> str:
        """Train to the end, or until told to stop; returns "finished" or "stopped".

        The model is in ``run/model`` when the run is finished.

        Raises:
            UsageError: the run exists and ``resume`` is false, or goes on with other settings; or settings that
                cannot be.
            DataError: a corpus that cannot be read, or gives no examples.
            TrainingError: a loss that is no longer a number.
        """
        self._claim_folder(resume)
        model = self._model()
        tokenizer, settings = model.tokenizer, self.recipe.training
        shard, held_out = self._shards(tokenizer)
        feed = make_feed(
            shard, tokenizer, self.recipe.data, batch_size=settings.batch_size, seed=settings.seed,
            rank=self.ranks.rank, num_ranks=self.ranks.num_ranks,
        )  # fmt: skip
        model.mark_trained()
        network = model.network.to(resolve_device(self.device))
        network.encoder.gradient_checkpointing = settings.gradient_checkpointing  # pyrefly: ignore
        if self.shard:
            self.ranks.shard(network)
        optimizer = make_optimizer(
            settings.optimizer, network, learning_rate=settings.learning_rate, weight_decay=settings.weight_decay,
            betas=settings.betas, eps=settings.eps, matrix_learning_rate=settings.matrix_learning_rate,
        )  # fmt: skip
        self.state = self._start_state(network, optimizer)
        task, dtype = PretrainingTask(), getattr(torch, settings.precision)
        parts = held_out_batches(
            held_out, tokenizer, self.recipe.data, max_sequences=HELD_OUT_SEQUENCES,
            tokens_per_batch=settings.tokens_per_part,
        )  # fmt: skip
        parts = [part.to(resolve_device(self.device)) for part in parts]
        self._log_start(model, shard, held_out)
        trainer = Trainer(
            network,
            task,
            feed,
            settings,
            optimizer,
            self.run,
            save_model=partial(save_checkpoint, model.checkpoint),
            state=self.state,
            evaluate=partial(evaluate, network, task, parts, dtype=dtype),
            best_by="masked_lm_loss",
            sample=partial(_samples, model, self.recipe.samples, self.tell),
            tell=self.tell,
            ranks=self.ranks,
            should_stop=should_stop,
            tensorboard=self.tensorboard,
        )
        reason = trainer.train()
        parameters = {name: whole(parameter) for name, parameter in network.named_parameters()}
        if reason == "finished" and self.ranks.is_first:
            save_checkpoint(model.checkpoint, self.run / "model", overwrite=True, parameters=parameters)
        return reason

    def _claim_folder(self, resume: bool) -> None:
        """The run's folder, new or this very run's."""
        if self.ranks.is_first:
            content = {"recipe": self.recipe.facts(), "inputs": self.inputs.facts()}
            claim_run_folder(self.run, self.run / "recipe.json", content, resume=resume)
        self.ranks.wait()

    def _model(self) -> Model:
        """The model as it is at the start, or in the last checkpoint."""
        if saved := checkpoints(self.run):
            return load(saved[-1] / "model", device="cpu")
        model = new_model(self.recipe, self.inputs.model, self._tokenizer(), new_head=self.inputs.new_head)
        if self.recipe.vocabulary.add_words:
            texts = texts_of(self.inputs.corpus, self.recipe.data.layout, self.inputs.column)
            found = find_domain_words(model.tokenizer, texts, num_words=self.recipe.vocabulary.add_words)
            words = [one.word for one in found]
            self.tell(f"added {len(words):,} words to the vocabulary: {', '.join(words[:8])}, ...")
            model.extend_vocabulary(words)
        return model

    def _tokenizer(self) -> Tokenizer | None:
        """That of the given or the learned vocabulary; None: the checkpoint's own."""
        if self.recipe.model.from_checkpoint:
            if self.inputs.vocabulary is not None:
                raise UsageError("a checkpoint has its own vocabulary: leave --vocab out, or add words to it")
            return None
        vocabulary, learned = self.inputs.vocabulary, self.run / "vocab.txt"
        if vocabulary is None:
            if not learned.is_file() and self.ranks.is_first:
                learn_vocabulary(
                    self.inputs.corpus, self.recipe.vocabulary, learned, self.recipe.data.layout, self.inputs.column,
                    self.tell,
                )  # fmt: skip
            self.ranks.wait()
            vocabulary = learned
        return Tokenizer.from_vocab(vocabulary, lowercase=self.recipe.vocabulary.lowercase)

    def _shards(self, tokenizer: Tokenizer) -> tuple[TokenShard, TokenShard]:
        """The tokens to train on and those held out; made by the first rank, which tells what was not read, opened by
        all."""
        inputs, data = self.inputs, self.recipe.data
        shards = partial(write_shards, inputs.corpus, inputs.held_out, self.run, tokenizer, data, inputs.column)
        if self.ranks.is_first:
            corpus, held_out = shards()
            if told := text_not_used(corpus, self.run / "shard"):
                self.tell(f"corpus: {told}")
            if inputs.held_out and (told := text_not_used(held_out, self.run / "held-out")):
                self.tell(f"held-out files: {told}")
        self.ranks.wait()
        return shards()

    def _start_state(self, network: nn.Module, optimizer: Together) -> TrainingState:
        found = checkpoints(self.run)
        if not found:
            return TrainingState()
        state = load_state(found[-1], network, optimizer)
        if self.ranks.is_first:
            self.tell(f"going on after step {state.step}, from {found[-1]}")
            if warning := same_bits_threads(state):
                self.tell(warning)
        if state.num_ranks != self.ranks.num_ranks and self.ranks.is_first:
            self.tell(
                f"this run used {state.num_ranks} ranks and goes on with {self.ranks.num_ranks}: the same examples in "
                "the same order, sums that differ in the last bits"
            )
        return state

    def _log_start(self, model: Model, shard: TokenShard, held_out: TokenShard) -> None:
        if not self.ranks.is_first:
            return
        log = MetricsLog(self.run)
        log.write(
            "start", self.state.step, time=datetime.now(UTC).isoformat(timespec="seconds"),
            resumed=self.state.step > 0, settings=self.recipe.facts(), inputs=self.inputs.facts(),
            num_parameters=sum(parameter.numel() for parameter in model.network.parameters()),
            vocab_size=model.config.vocab_size, corpus=corpus_facts(shard), processor=cpu_name(),
            held_out=corpus_facts(held_out, was_read=bool(self.inputs.held_out)),
            versions={"python": platform.python_version(), "bertkit": version("bertkit"), "torch": torch.__version__},
        )  # fmt: skip
        log.close()


def _samples(model: Model, texts: Sequence[str], tell: Callable[[str], None]) -> dict[str, Any]:
    """The texts' masks, filled as the model would fill them now; a line of each is told."""
    filled = []
    for text in texts:
        for mask in model.fill_mask(text, top_k=5):
            candidates = [{"token": one.token, "score": round(one.score, 4)} for one in mask.candidates]
            filled.append({"text": text, "candidates": candidates})
            tell(f"    {text}  {', '.join(one.token for one in mask.candidates)}")
    return {"samples": filled}
