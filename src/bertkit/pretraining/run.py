"""A pre-training run, from text files to a model folder; a stopped run resumes from its last checkpoint."""

import json
import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import torch

from bertkit.advice import few_held_out
from bertkit.corpus.shards import TokenShard
from bertkit.device import resolve_device
from bertkit.errors import BertkitError, DataError, UnknownWordsWarning, UsageError
from bertkit.model import Model, load
from bertkit.objectives import OBJECTIVES
from bertkit.pretraining.feed import (
    PretrainingFeed,
    check_lowercase,
    check_share,
    check_vocabulary,
    held_out_batches,
    make_feed,
)
from bertkit.pretraining.network import TrainedModels, new_model, new_network
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
from bertkit.reports.recorded_run import logged_events
from bertkit.tasks import Task
from bertkit.tokenizer import Tokenizer
from bertkit.tokenizer.vocabulary import SpecialTokens
from bertkit.training import (
    Job,
    Outcome,
    Trainer,
    checkpoints,
    claim_run_folder,
    evaluate,
    gather_full_tensor,
    longer_of,
    read_run_settings,
    run_job,
    tensorboard_writer,
    without_dropout,
    write_run_settings,
)
from bertkit.vocabulary_extension import find_domain_words

HELD_OUT_SEQUENCES = 1_000
"""Maximum number of sequences for evaluation during the run."""

_SHOWN = ("recipe.expected", "recipe.samples")
"""Settings that only affect reports: a run may be resumed with other values."""

_LENGTHS = ("recipe.training.num_steps", "recipe.training.minutes")

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
class Pretraining(Job):
    """One run in its folder ``out``, with the model of the last step in ``out/model`` when it is finished."""

    recipe: Recipe
    inputs: Inputs
    _: KW_ONLY
    shard: bool = False  # shard every parameter over ranks
    compile: bool = False  # compile the network once, for batches padded to one shape; on a CUDA device
    tensorboard: bool = False
    make_task: Callable[[Any, Task], Task] = lambda network, task: task  # the task in which the network is trained
    metrics: dict[str, float] = field(default_factory=dict, init=False)  # the last; after the end, of the saved model

    prepares_folder: ClassVar[bool] = True

    def start(self, *, resume: bool, should_stop: Callable[[], bool] = lambda: False) -> Outcome:
        """Train to the end, or until ``should_stop()`` is true; as `run_job`."""
        return run_job(self, resume=resume, should_stop=should_stop)

    @property
    def folder(self) -> Path:
        return self.out

    @property
    def record(self) -> Path:
        return self.out / "recipe.json"

    @property
    def batch_size(self) -> int:
        return self.recipe.training.batch_size

    def facts(self) -> dict[str, Any]:
        return {"recipe": self.recipe.facts(), "inputs": self.inputs.facts()}

    def open(self, saved: Path | None) -> Trainer:
        settings, device = self.recipe.training, resolve_device(self.device)
        with self._refusal_noted():
            models = self._models(saved)
            model, objective = models.model, self.recipe.objective
            _check_samples(models, self.recipe.samples)
            tokenizer = model.tokenizer
            if number := _num_unknown(tokenizer, self.recipe.samples):
                self.log_line(
                    f"{number} of the {len(self.recipe.samples)} samples have words that the vocabulary cannot spell "
                    "([UNK]): in a recipe file, set samples to texts like those of the corpus"
                )
            shard, held_out = self._shards(tokenizer)
            feed = make_feed(
                shard, tokenizer, self.recipe.data, objective, batch_size=settings.batch_size, seed=settings.seed,
                rank=self.ranks.rank, num_ranks=self.ranks.num_ranks,
                static_tokens=settings.most_tokens(device) if self.compile else None,
            )  # fmt: skip
            parts = held_out_batches(
                held_out, tokenizer, objective, max_seqlen=self.recipe.data.max_seqlen,
                max_sequences=HELD_OUT_SEQUENCES, tokens_per_batch=settings.most_tokens(device),
            )  # fmt: skip
        network = models.network.to(device)
        for one in models:
            one.mark_trained()
            one.encoder.gradient_checkpointing = settings.gradient_checkpointing
        if self.shard:
            self.ranks.shard(network)
        task, dtype = self.make_task(network, objective.task), getattr(torch, settings.precision)
        parts = [part.to(device) for part in parts]

        def evaluate_held_out() -> dict[str, float]:
            self.metrics = evaluate(network, task, parts, dtype=dtype)
            return self.metrics

        self._opened, self._network, self._evaluate = models, network, evaluate_held_out
        self._corpus_facts = self._facts_of(shard, held_out, feed)
        if saved is not None:
            self._check_same_text()
        return self.trainer(
            network, task, feed, settings, save_model=models.save,
            evaluate=evaluate_held_out, best_by=objective.best_by,
            sample=partial(_samples, models.mask_filler, self.recipe.samples, self.log_line),
            tensorboard=self.tensorboard, compile=self.compile,
        )  # fmt: skip

    def finish(self, outcome: Outcome) -> Outcome:
        if not self.metrics:  # it was finished before
            self._evaluate()
        parameters = {name: gather_full_tensor(value) for name, value in self._network.named_parameters()}
        if self.ranks.is_first:
            self._opened.save(self.out / "model", overwrite=True, parameters=parameters)
        return replace(outcome, best_step=None, metrics=self.metrics)

    def check(self) -> None:
        recipe, inputs, self._initial = self.recipe, self.inputs, None
        device = resolve_device(self.device)
        if self.compile and (device.type != "cuda" or self.shard):
            raise UsageError("compile=True requires device='cuda', and parameters that are not sharded")
        if self.compile and not recipe.objective.compiles:
            raise UsageError(f"objective {recipe.objective.name} cannot be compiled: omit compile")
        check_share(recipe.training.batch_size, self.ranks.num_ranks)
        if self.shard:
            self.ranks.check_several()
        if self.tensorboard:
            tensorboard_writer()
        check_texts(inputs.corpus, inputs.held_out, recipe.data, inputs.column)
        if checkpoints(self.out):
            return
        tokenizer = None
        if inputs.vocabulary is None and not recipe.model.from_checkpoint:
            new_network(recipe, inputs.model)
            for text in recipe.samples:
                _check_masked(text, SpecialTokens().mask)
            return
        if inputs.vocabulary is not None:
            if recipe.model.from_checkpoint:
                raise UsageError("a checkpoint has its own vocabulary: omit --vocab, or add words to it")
            tokenizer = Tokenizer.from_vocab(inputs.vocabulary, lowercase=recipe.vocabulary.lowercase)
            if recipe.vocabulary.lowercase:
                check_lowercase(tokenizer.vocabulary, inputs.vocabulary)
        model = new_model(recipe, inputs.model, tokenizer, new_head=inputs.new_head)
        models = TrainedModels.of(recipe, model, inputs.model, may_be_new=inputs.new_head)
        check_vocabulary(model.tokenizer, recipe.objective)
        _check_samples(models, recipe.samples)
        self._initial = models

    def claim(self, *, resume: bool) -> None:
        """Create the run folder, or reuse that of this run; before training has begun, with any settings that fit the
        text prepared in it, or, if that text was refused, with any settings; and add steps to a finished run."""
        content, before = self.facts(), read_run_settings(self.record)
        has_begun = bool(checkpoints(self.out)) or (self.out / "metrics.jsonl").is_file()
        is_finished = before is not None and resume and (self.out / "model").is_dir()
        if is_finished and (change := longer_of(before, content, _LENGTHS)):
            self.log_line(
                f"{self.out} is a finished run: training continues with {change}, at the learning rate of the longer "
                "run"
            )
            write_run_settings(self.record, content)
        if before is None or has_begun:
            claim_run_folder(self.out, self.record, content, resume=resume, ignored=_SHOWN)
        elif _text_settings(before) == _text_settings(json.loads(json.dumps(content))):
            write_run_settings(self.record, content)
        elif (self.out / _REFUSED).is_file():
            shutil.rmtree(self.out)
            claim_run_folder(self.out, self.record, content, resume=resume)
        else:
            raise UsageError(
                f"{self.out} holds text that was prepared with other settings: choose another folder, or delete it"
            )

    @contextmanager
    def _refusal_noted(self) -> Iterator[None]:
        """Note in the folder that its text was refused, so that a command with other text can use it. The text is kept
        for the same command: a file that could not be read may be corrected."""
        (self.out / _REFUSED).unlink(missing_ok=True)
        try:
            yield
        except BertkitError as error:
            (self.out / _REFUSED).write_text(f"{error}\n", encoding="utf-8", newline="\n")
            raise

    def _models(self, saved: Path | None) -> TrainedModels:
        """The initial models, or those of the last checkpoint."""
        if saved is not None:
            return TrainedModels.of(self.recipe, load(saved, device="cpu"), saved)
        if (models := self._initial) is None:
            models = TrainedModels.of(self.recipe, new_model(self.recipe, None, self._learned_tokenizer()), None)
        if self.recipe.vocabulary.add_words:
            texts = texts_of(self.inputs.corpus, self.recipe.data.layout, self.inputs.column)
            domain_words = find_domain_words(models.model.tokenizer, texts, num_words=self.recipe.vocabulary.add_words)
            words = [one.word for one in domain_words]
            shown = ", ".join(words[:8]) + (", ..." if len(words) > 8 else "")
            self.log_line(
                f"added {len(words):,} words to the vocabulary: {shown}" if words
                else "added no words to the vocabulary: no word of several tokens is frequent enough in the corpus"
            )  # fmt: skip
            models.extend_vocabulary(words)
        return models

    def _learned_tokenizer(self) -> Tokenizer:
        """The tokenizer of the vocabulary trained on the corpus, now or earlier."""
        learned = self.out / "vocab.txt"
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
        shards = partial(
            write_shards, inputs.corpus, inputs.held_out, self.out, tokenizer, data, inputs.column,
            self.recipe.objective.least_documents,
        )  # fmt: skip
        opened = shards() if self.ranks.is_first else None
        if opened is not None:
            corpus, held_out = opened
            if unused := text_not_used(corpus, self.out / "shard", tokenizer):
                self.log_line(f"corpus: {unused}")
            if inputs.held_out and (unused := text_not_used(held_out, self.out / "held-out", tokenizer)):
                self.log_line(f"held-out files: {unused}")
            if (finding := few_held_out(len(held_out.tokens))) is not None:
                self.log_line(finding.line)
            if not inputs.held_out and (line := large_held_out(corpus, held_out, data.held_out_share)):
                self.log_line(line)
        self.ranks.wait()
        return opened or shards()

    def _facts_of(self, shard: TokenShard, held_out: TokenShard, feed: PretrainingFeed) -> dict[str, Any]:
        """Facts about the text."""
        corpus, share = corpus_facts(shard), feed.random_share()
        if share is not None:
            corpus["random_pair_share"] = share
            self.log_line(f"{100 * share:.1f} % of the sentence pairs are random, the others are consecutive")
        return {"corpus": corpus, "held_out": corpus_facts(held_out, was_read=bool(self.inputs.held_out))}

    def _check_same_text(self) -> None:
        """Check that a resumed run has the text with which it began, also if its shard was deleted and written again.

        Raises:
            DataError: it has another text.
        """
        begun = [one for one in logged_events(self.out) if one["event"] == "start" and not one.get("resumed")]
        start = begun[-1] if begun else {}
        for name, facts in self._corpus_facts.items():
            before = start.get(name) or facts
            if any(facts[key] != before[key] for key in ("num_documents", "num_tokens", "unigram_entropy")):
                raise DataError(
                    f"{self.out} was started with other text ({name}: {before['num_tokens']:,} tokens, now "
                    f"{facts['num_tokens']:,}): put the files back and delete {self.out / 'shard'}, "
                    "or choose another folder"
                )

    def start_facts(self) -> dict[str, Any]:
        return {"settings": self.recipe.facts(), "inputs": self.inputs.facts(),
                "vocab_size": self._opened.model.config.vocab_size, **self._corpus_facts}  # fmt: skip


def _text_settings(record: dict[str, Any]) -> list[Any]:
    """The settings that determine the vocabulary and the tokens of a run, from its JSON record."""
    inputs, data = record["inputs"] | {"new_head": None}, record["recipe"].get("data", {})
    decisive = [data.get(name) for name in ("layout", "drop_duplicates", "held_out_share")]
    objective = OBJECTIVES.get(record["recipe"].get("objective", {}).get("name"))
    return [inputs, record["recipe"].get("vocabulary"), *decisive, objective and objective.least_documents]


def _check_samples(models: TrainedModels, texts: Sequence[str]) -> None:
    """Raise a UsageError for a text without a mask, or with more tokens than the model has positions, or without a
    model that predicts masks."""
    if not texts:
        return
    model = models.mask_filler
    if model is None:
        raise UsageError(f"samples: no model of objective {models.objective.name} fills masks; omit them")
    for text in texts:
        _check_masked(text, model.tokenizer.vocabulary.special.mask)
        num_tokens = len(model.tokenizer.encode(text, special_tokens_in_text=True).input_ids)
        if num_tokens > (longest := model.config.max_position_embeddings):
            raise UsageError(f"samples has {text!r:.60}, of {num_tokens} tokens: the model has {longest} positions")


def _num_unknown(tokenizer: Tokenizer, texts: Sequence[str]) -> int:
    """The number of texts with [UNK] tokens."""
    return sum(tokenizer.encode(text, special_tokens_in_text=True).num_unknown > 0 for text in texts)


def _check_masked(text: str, mask: str) -> None:
    if mask not in text:
        raise UsageError(f"samples has {text!r:.60}: put {mask} where a word is to be predicted")


def _samples(model: Model | None, texts: Sequence[str], log_line: Callable[[str], None]) -> dict[str, Any]:
    """Predict the masks of texts without dropout, and log one line per mask."""
    filled = []
    if model is None:
        return {"samples": filled}
    with without_dropout(model.network), warnings.catch_warnings():
        warnings.simplefilter("ignore", UnknownWordsWarning)  # logged once, before training
        for text in texts:
            for mask in model.fill_mask(text, top_k=5):
                candidates = [{"token": one.token, "score": round(one.score, 4)} for one in mask.candidates]
                filled.append({"text": text, "candidates": candidates})
                log_line(f"    {text}  {', '.join(one.token for one in mask.candidates)}")
    return {"samples": filled}
