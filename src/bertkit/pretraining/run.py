"""A pre-training run, from text files to a model folder; a stopped run resumes from its last checkpoint."""

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from bertkit.advice import few_held_out
from bertkit.architectures import Network
from bertkit.checkpoint import save_checkpoint
from bertkit.corpus.shards import TokenShard
from bertkit.device import resolve_device
from bertkit.errors import DataError, UsageError
from bertkit.model import Model, load
from bertkit.objectives import PretrainingTask
from bertkit.pretraining.feed import (
    PretrainingFeed,
    check_lowercase,
    check_share,
    check_vocabulary,
    held_out_batches,
    make_feed,
)
from bertkit.pretraining.network import new_model, new_network
from bertkit.pretraining.recipe import Recipe
from bertkit.pretraining.text import (
    check_texts,
    corpus_facts,
    large_held_out,
    learn_vocabulary,
    text_not_used,
    texts_of,
    write_shards,
)
from bertkit.tasks import Task
from bertkit.tokenizer import Tokenizer
from bertkit.tokenizer.vocabulary import SpecialTokens
from bertkit.training import (
    Ranks,
    Run,
    Trainer,
    TrainingState,
    checkpoints,
    claim_run_folder,
    evaluate,
    gather_full_tensor,
    naming_full_disk,
    read_run_settings,
    tensorboard_writer,
    without_dropout,
    write_run_settings,
)
from bertkit.vocabulary_extension import find_domain_words

HELD_OUT_SEQUENCES = 1_000
"""Maximum number of sequences for evaluation during the run."""

_SHOWN = ("recipe.expected", "recipe.samples")
"""Settings that only affect reports: a run may be resumed with other values."""

_REFUSED = "refused.txt"
"""File with the error of a text that cannot be trained on, in a run folder."""


@dataclass(frozen=True)
class Inputs:
    """The input of a run."""

    corpus: Sequence[str | Path]  # files, folders, or "python-docs"
    held_out: Sequence[str | Path] = ()  # files for evaluation; none: a share of the corpus
    vocabulary: Path | None = None  # a vocab.txt; None: trained on the corpus, or the checkpoint's
    model: str | None = None  # the checkpoint to continue from, for a recipe that does
    new_head: bool = False  # give a checkpoint new heads where it lacks those to train
    column: str | None = None  # of csv, jsonl and parquet files

    def facts(self) -> dict[str, Any]:
        """The fields as JSON values."""
        paths = {name: [str(path) for path in getattr(self, name)] for name in ("corpus", "held_out")}
        vocabulary = None if self.vocabulary is None else str(self.vocabulary)
        return paths | {
            "vocabulary": vocabulary, "model": self.model, "new_head": self.new_head, "column": self.column
        }  # fmt: skip


@dataclass
class Pretraining:
    """One run in its folder ``run``; ``log_line`` is called with lines of text for the user."""

    run: Path
    recipe: Recipe
    inputs: Inputs
    ranks: Ranks = field(default_factory=Ranks)
    log_line: Callable[[str], None] = tqdm.write
    device: str = "auto"
    shard: bool = False  # shard every parameter over ranks
    compile: bool = False  # compile the network once, for batches padded to one shape; on a CUDA device
    tensorboard: bool = False
    make_task: Callable[[Network, Task], Task] = lambda network, task: task  # the task in which the network is trained
    state: TrainingState = field(default_factory=TrainingState, init=False)  # progress of the run
    metrics: dict[str, float] = field(default_factory=dict, init=False)  # the last; after the end, of the saved model

    def start(self, *, resume: bool, should_stop: Callable[[], bool] = lambda: False) -> str:
        """Train to the end, or until ``should_stop()`` is true; returns "finished" or "stopped".

        The model is in ``run/model`` when the run is finished.

        Raises:
            UsageError: the run exists and ``resume`` is false, or was started with other settings; or invalid
                settings.
            DataError: a corpus that cannot be read, or has no examples.
            TrainingError: a loss that is not a number (NonFiniteError), a full disk, a checkpoint that cannot be
                written.
        """
        with naming_full_disk(self.run):
            return self._train(resume, should_stop)

    def _train(self, resume: bool, should_stop: Callable[[], bool]) -> str:
        """`start`, with errors of a full disk as they are."""
        model = self._checked()
        self._claim_folder(resume)
        settings = self.recipe.training
        with self._refusal_noted():
            model = self._model(model)
            _check_samples(model, self.recipe.samples)
            tokenizer = model.tokenizer
            shard, held_out = self._shards(tokenizer)
            feed = make_feed(
                shard, tokenizer, self.recipe.data, batch_size=settings.batch_size, seed=settings.seed,
                rank=self.ranks.rank, num_ranks=self.ranks.num_ranks,
                static_tokens=settings.most_tokens(resolve_device(self.device)) if self.compile else None,
            )  # fmt: skip
            parts = held_out_batches(
                held_out, tokenizer, self.recipe.data, max_sequences=HELD_OUT_SEQUENCES,
                tokens_per_batch=settings.most_tokens(resolve_device(self.device)),
            )  # fmt: skip
        model.mark_trained()
        network = model.network.to(resolve_device(self.device))
        network.encoder.gradient_checkpointing = settings.gradient_checkpointing  # pyrefly: ignore
        if self.shard:
            self.ranks.shard(network)
        task, dtype = self.make_task(network, PretrainingTask()), getattr(torch, settings.precision)
        parts = [part.to(resolve_device(self.device)) for part in parts]

        def judge() -> dict[str, float]:
            self.metrics = evaluate(network, task, parts, dtype=dtype)
            return self.metrics

        run = Run(self.run, self.ranks, self.log_line)
        trainer = run.trainer(
            network,
            task,
            feed,
            settings,
            save_model=partial(save_checkpoint, model.checkpoint),
            evaluate=judge,
            best_by="masked_lm_loss",
            sample=partial(_samples, model, self.recipe.samples, self.log_line),
            should_stop=should_stop,
            tensorboard=self.tensorboard,
            compile=self.compile,
        )
        self.state = trainer.state
        self._log_start(run, trainer, model, shard, held_out, feed)
        reason = trainer.train()
        if reason == "finished" and not self.metrics:  # it was finished before
            judge()
        parameters = {name: gather_full_tensor(parameter) for name, parameter in network.named_parameters()}
        if reason == "finished" and self.ranks.is_first:
            save_checkpoint(model.checkpoint, self.run / "model", overwrite=True, parameters=parameters)
        return reason

    def _checked(self) -> Model | None:
        """Raise errors of settings, files, device and ranks, before the folder is created and any work is done.

        Returns:
            The initial model; None if its vocabulary must be trained first, or it is in a checkpoint.
        """
        recipe, inputs = self.recipe, self.inputs
        device = resolve_device(self.device)
        if self.compile and (device.type != "cuda" or self.shard):
            raise UsageError("compile=True requires device='cuda', and parameters that are not sharded")
        check_share(recipe.training.batch_size, self.ranks.num_ranks)
        if self.shard:
            self.ranks.check_several()
        if self.tensorboard:
            tensorboard_writer()
        check_texts(inputs.corpus, inputs.held_out, recipe.data, inputs.column)
        if checkpoints(self.run):
            return None
        tokenizer = None
        if inputs.vocabulary is None and not recipe.model.from_checkpoint:
            new_network(recipe, inputs.model)
            for text in recipe.samples:
                _check_masked(text, SpecialTokens().mask)
            return None
        if inputs.vocabulary is not None:
            if recipe.model.from_checkpoint:
                raise UsageError("a checkpoint has its own vocabulary: omit --vocab, or add words to it")
            tokenizer = Tokenizer.from_vocab(inputs.vocabulary, lowercase=recipe.vocabulary.lowercase)
            if recipe.vocabulary.lowercase:
                check_lowercase(tokenizer.vocabulary, inputs.vocabulary)
        model = new_model(recipe, inputs.model, tokenizer, new_head=inputs.new_head)
        check_vocabulary(model.tokenizer, recipe.data)
        _check_samples(model, recipe.samples)
        return model

    def _claim_folder(self, resume: bool) -> None:
        """Create the run folder, or reuse that of this run; before training has begun, with any settings that fit the
        text prepared in it, or, if that text was refused, with any settings."""
        if self.ranks.is_first:
            content = {"recipe": self.recipe.facts(), "inputs": self.inputs.facts()}
            record = self.run / "recipe.json"
            before = read_run_settings(record)
            has_begun = bool(checkpoints(self.run)) or (self.run / "metrics.jsonl").is_file()
            if before is None or has_begun:
                claim_run_folder(self.run, record, content, resume=resume, ignored=_SHOWN)
            elif _text_settings(before) == _text_settings(json.loads(json.dumps(content))):
                write_run_settings(record, content)
            elif (self.run / _REFUSED).is_file():
                shutil.rmtree(self.run)
                claim_run_folder(self.run, record, content, resume=resume)
            else:
                raise UsageError(
                    f"{self.run} holds text that was prepared with other settings: choose another folder, or delete it"
                )
        self.ranks.wait()

    @contextmanager
    def _refusal_noted(self) -> Iterator[None]:
        """Note in the folder that its text was refused, so that a command with other text can use it. The text is kept
        for the same command: a file that could not be read may be corrected."""
        (self.run / _REFUSED).unlink(missing_ok=True)
        try:
            yield
        except DataError as error:
            (self.run / _REFUSED).write_text(f"{error}\n", encoding="utf-8", newline="\n")
            raise

    def _model(self, model: Model | None) -> Model:
        """The initial model, or that of the last checkpoint."""
        if saved := checkpoints(self.run):
            return load(saved[-1] / "model", device="cpu")
        if model is None:
            model = new_model(self.recipe, None, self._learned_tokenizer())
        if self.recipe.vocabulary.add_words:
            texts = texts_of(self.inputs.corpus, self.recipe.data.layout, self.inputs.column)
            domain_words = find_domain_words(model.tokenizer, texts, num_words=self.recipe.vocabulary.add_words)
            words = [one.word for one in domain_words]
            shown = ", ".join(words[:8]) + (", ..." if len(words) > 8 else "")
            self.log_line(
                f"added {len(words):,} words to the vocabulary: {shown}" if words
                else "added no words to the vocabulary: no word of several tokens is frequent enough in the corpus"
            )  # fmt: skip
            model.extend_vocabulary(words)
        return model

    def _learned_tokenizer(self) -> Tokenizer:
        """The tokenizer of the vocabulary trained on the corpus, now or earlier."""
        learned = self.run / "vocab.txt"
        if not learned.is_file() and self.ranks.is_first:
            learn_vocabulary(
                self.inputs.corpus, self.recipe.vocabulary, learned, self.recipe.data.layout, self.inputs.column,
                self.log_line,
            )  # fmt: skip
        self.ranks.wait()
        return Tokenizer.from_vocab(learned, lowercase=self.recipe.vocabulary.lowercase)

    def _shards(self, tokenizer: Tokenizer) -> tuple[TokenShard, TokenShard]:
        """Shards of training and held-out tokens; written by the first rank, which reports skipped rows, and opened by
        all."""
        inputs, data = self.inputs, self.recipe.data
        shards = partial(write_shards, inputs.corpus, inputs.held_out, self.run, tokenizer, data, inputs.column)
        opened = shards() if self.ranks.is_first else None
        if opened is not None:
            corpus, held_out = opened
            if unused := text_not_used(corpus, self.run / "shard", tokenizer):
                self.log_line(f"corpus: {unused}")
            if inputs.held_out and (unused := text_not_used(held_out, self.run / "held-out", tokenizer)):
                self.log_line(f"held-out files: {unused}")
            if (finding := few_held_out(len(held_out.tokens))) is not None:
                self.log_line(finding.line)
            if not inputs.held_out and (line := large_held_out(corpus, held_out, data.held_out_share)):
                self.log_line(line)
        self.ranks.wait()
        return opened or shards()

    def _log_start(
        self,
        run: Run,
        trainer: Trainer,
        model: Model,
        shard: TokenShard,
        held_out: TokenShard,
        feed: PretrainingFeed,
    ) -> None:
        corpus, share = corpus_facts(shard), feed.random_share()
        if share is not None:
            corpus["random_pair_share"] = share
            if self.ranks.is_first:
                self.log_line(f"{100 * share:.1f} % of the sentence pairs are random, the others are consecutive")
        run.log_start(
            trainer, settings=self.recipe.facts(), inputs=self.inputs.facts(), vocab_size=model.config.vocab_size,
            corpus=corpus, held_out=corpus_facts(held_out, was_read=bool(self.inputs.held_out)),
        )  # fmt: skip


def _text_settings(record: dict[str, Any]) -> list[Any]:
    """The settings that determine the vocabulary and the tokens of a run, from its JSON record."""
    inputs, data = record["inputs"] | {"new_head": None}, record["recipe"].get("data", {})
    decisive = [data.get(name) for name in ("layout", "drop_duplicates", "held_out_share")]
    return [inputs, record["recipe"].get("vocabulary"), *decisive, data.get("sentence_pairs") == "none"]


def _check_samples(model: Model, texts: Sequence[str]) -> None:
    """Raise a UsageError for a text without a mask, or with more tokens than the model has positions."""
    for text in texts:
        _check_masked(text, model.tokenizer.vocabulary.special.mask)
        num_tokens = len(model.tokenizer.encode(text, special_tokens_in_text=True).input_ids)
        if num_tokens > (longest := model.config.max_position_embeddings):
            raise UsageError(f"samples has {text!r:.60}, of {num_tokens} tokens: the model has {longest} positions")


def _check_masked(text: str, mask: str) -> None:
    if mask not in text:
        raise UsageError(f"samples has {text!r:.60}: put {mask} where a word is to be predicted")


def _samples(model: Model, texts: Sequence[str], log_line: Callable[[str], None]) -> dict[str, Any]:
    """Predict the masks of texts without dropout, and log one line per mask."""
    filled = []
    with without_dropout(model.network):
        for text in texts:
            for mask in model.fill_mask(text, top_k=5):
                candidates = [{"token": one.token, "score": round(one.score, 4)} for one in mask.candidates]
                filled.append({"text": text, "candidates": candidates})
                log_line(f"    {text}  {', '.join(one.token for one in mask.candidates)}")
    return {"samples": filled}
