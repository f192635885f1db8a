"""Run of a comparison: the same corpus, vocabulary, size and time for every model; resumable."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice, product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from tqdm import tqdm

from bertkit.architectures import Network
from bertkit.comparison.clozes import HELD_OUT_SEED, held_out_rows, measured_clozes, word_id
from bertkit.comparison.models import MODELS, special_ids
from bertkit.comparison.page import write_comparison_page
from bertkit.comparison.predictors import Predictor, check_lengths
from bertkit.comparison.settings import ComparisonSettings
from bertkit.corpus.documents import Reading, readable_sentences
from bertkit.corpus.shards import TokenShard
from bertkit.errors import DataError, UsageError
from bertkit.evidence.suites import Paradigm
from bertkit.files.json_files import numbers, read_json, write_json
from bertkit.files.whole_files import whole_file
from bertkit.objectives import Loader, MaskedLM, PretrainingTask, TokenBlocks
from bertkit.pretraining.feed import PretrainingFeed
from bertkit.pretraining.recipe import DataSettings, VocabularySettings
from bertkit.pretraining.text import check_texts, learn_vocabulary, write_shards
from bertkit.tokenizer import Tokenizer
from bertkit.training import (
    Job,
    Outcome,
    Trainer,
    TrainingSettings,
    claim_run_folder,
    evaluate,
    run_job,
    search,
)
from bertkit.transformer import BertConfig

_RESULT, _WEIGHTS = "result.json", "model.safetensors"
_FACTS = ("model", "seed", "parameters", "steps", "tokens", "clozes")
"""Keys of a result that are no metrics."""
_WITHOUT_SPREAD = ("cloze_perplexity", "word_prob")
"""Metrics whose standard deviation is not given."""

Measure = Callable[[Network | Predictor, Tokenizer, int], Mapping[str, float]]
"""Further metrics of a trained network, from its tokenizer and seed."""


@dataclass
class Comparison:
    """One comparison; ``log_line`` is called with lines of text for the user."""

    out: Path
    corpus: Sequence[Path]
    settings: ComparisonSettings = field(default_factory=ComparisonSettings)
    column: str | None = None  # of csv, jsonl and parquet files
    log_line: Callable[[str], None] = tqdm.write

    def start(
        self,
        suite: Sequence[Paradigm] = (),
        cloze: tuple[str, str] | None = None,
        measure: Measure = lambda network, tokenizer, seed: {},
        *,
        resume: bool = False,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> list[dict[str, Any]]:
        """Train every model without results, evaluate all, and write ``comparison.html``.

        Args:
            suite: minimal pairs, from `read_suite`.
            cloze: a text with [MASK], and the word that it hides.
            measure: further metrics of each trained network.

        Returns:
            A row for each model: mean and standard deviation over the seeds.

        Raises:
            UsageError: an unknown size or model, two lengths of training, a cloze without exactly one [MASK], or
                another comparison's folder.
            DataError: a corpus that cannot be read or split, or has no held-out sequence of 7 tokens; a minimal
                pair or a cloze longer than the models' positions.
        """
        settings = self.settings
        BertConfig.of_size(settings.size)  # which refuses an unknown one, before the folder is claimed
        if unknown := set(settings.models) - MODELS.keys():
            raise UsageError(f"models {', '.join(sorted(unknown))}: expected one or more of {', '.join(MODELS)}")
        settings.of_loop(seed=0).check_length()
        if cloze is not None and cloze[0].count("[MASK]") != 1:
            raise UsageError(f"the cloze {cloze[0]!r:.60} has {cloze[0].count('[MASK]')} [MASK]: expected one")
        data = DataSettings(max_seqlen=settings.max_seqlen, held_out_share=0.05)
        check_texts(self.corpus, (), data, self.column)
        _check_documents(self.corpus, Reading(data.layout, self.column))
        facts = {name: value for name, value in settings.values().items() if name not in ("seeds", "models")}
        facts |= {"corpus": [str(path) for path in self.corpus], "column": self.column}
        claim_run_folder(self.out, self.out / "comparison.json", facts, resume=resume)
        vocabulary = self.out / "vocab.txt"
        if not vocabulary.is_file():
            size = VocabularySettings(settings.vocab_size)
            learn_vocabulary(self.corpus, size, vocabulary, data.layout, self.column, self.log_line)
        tokenizer = Tokenizer.from_vocab(vocabulary, lowercase=True)
        if cloze is not None:
            word_id(tokenizer, cloze[1])  # before hours of training
        sentences = [text for paradigm in suite for pair in paradigm.pairs for text in pair]
        check_lengths(tokenizer, [*sentences, *(cloze or ())[:1]], settings.num_positions)
        shards = write_shards(self.corpus, (), self.out, tokenizer, data, self.column)
        held_out = held_out_rows(tokenizer, shards[1], settings.max_seqlen)  # before hours of training

        def jobs() -> Iterator[tuple[str, Callable[[], Outcome]]]:
            """The trainings without results; every model is evaluated after its training."""
            for seed, name in product(settings.seeds, self._models):
                job = ComparedTraining(
                    self.out / f"{name}-{seed}", name, seed, settings, tokenizer, shards, data, log_line=self.log_line
                )
                if job.finished() is None:
                    yield job.out.name, partial(run_job, job, resume=True, should_stop=should_stop)
                network, result = job.trained_network(), read_json(job.out / _RESULT) or {}
                result |= measured_clozes(network, tokenizer, held_out, suite, cloze)
                result |= measure(network, tokenizer, seed)
                write_json(job.out / _RESULT, result)
                self.log_line(f"{name}, seed {seed}: cloze accuracy {result['cloze_accuracy']:.3f}")

        stopped = search(jobs(), record=lambda name, outcome: None, choose=lambda: ([], []))
        rows = self._rows(cloze is not None)
        if stopped is not None:
            num_results, number = sum(row["seeds"] for row in rows), len(self._models) * len(settings.seeds)
            self.log_line(f"stopped: the table holds {num_results} of {number} results so far; --resume continues")
        else:
            write_comparison_page(self.out / "comparison.html", rows, self._training(), cloze)
        return rows

    @property
    def _models(self) -> Sequence[str]:
        return self.settings.models or tuple(MODELS)

    def _training(self) -> str:
        """What every model was trained on, and for how long: a sentence for people."""
        settings, loop = self.settings, self.settings.of_loop(seed=0)
        minutes = f"{loop.minutes:g} minutes of processor time" if loop.minutes is not None else ""
        seeds = ", ".join(map(str, settings.seeds))
        return (
            f"Each model: size {settings.size}, the same corpus and vocabulary, {minutes or f'{loop.num_steps} steps'} "
            f"for each seed ({seeds})."
        )

    def _rows(self, with_cloze: bool) -> list[dict[str, Any]]:
        """The table so far: a row for each model with results."""
        rows: list[dict[str, Any]] = []
        for name in self._models:
            results = [read_json(self.out / f"{name}-{seed}" / _RESULT) for seed in self.settings.seeds]
            measured = [numbers(result) for result in results if result]
            if not measured:
                continue
            row: dict[str, Any] = {"model": name, "sees": MODELS[name].sees, "seeds": len(measured)}
            metrics = dict.fromkeys(key for result in measured for key in result if key not in _FACTS)
            for key in ("parameters", "steps", *metrics):
                values = [result[key] for result in measured if key in result]
                if key == "word_prob" and not with_cloze:
                    continue
                row[key] = float(np.mean(values)) if key != "parameters" else values[0]
                if key in metrics and key not in _WITHOUT_SPREAD and len(values) > 1:
                    row[f"{key}_sd"] = float(np.std(values, ddof=1))
            rows.append(row)
        return rows


@dataclass
class ComparedTraining(Job):
    """The training of one model with one seed; ``out`` is its folder."""

    name: str  # of MODELS
    seed: int
    settings: ComparisonSettings
    tokenizer: Tokenizer
    shards: tuple[TokenShard, TokenShard]
    data: DataSettings

    @property
    def folder(self) -> Path:
        return self.out

    @property
    def batch_size(self) -> int:
        return self.settings.training.batch_size

    def check(self) -> None:
        """The comparison has checked its settings."""

    def facts(self) -> dict[str, Any]:
        return {"model": self.name, "settings": TrainingSettings.facts(self.settings.of_loop(self.seed))}

    def finished(self) -> Outcome | None:
        result = read_json(self.out / _RESULT)
        return None if result is None else Outcome("finished", result["steps"], None)

    def open(self, saved: Path | None) -> Trainer:
        network = self._network = self._new_network()
        if saved is not None:
            network.load_state_dict(load_file(saved / _WEIGHTS))
        special, objective = special_ids(self.tokenizer), MODELS[self.name].objective(self.tokenizer, self.seed)
        loader, held_out = (
            Loader([TokenBlocks(shard, special, self.settings.max_seqlen, seed)], objective, seed)
            for shard, seed in zip(self.shards, (self.seed, HELD_OUT_SEED), strict=True)
        )
        number = min(64, held_out.sources[0].num_examples(0))
        parts, task = held_out.batch(0, number, stage=0, mask_rate=0.15).split(4), PretrainingTask()
        return self.trainer(
            network, task, PretrainingFeed(loader, self.data, MaskedLM(), self.batch_size),
            self.settings.of_loop(self.seed), save_model=_save, best_by="masked_lm_loss", clock=time.process_time,
            evaluate=partial(evaluate, network, task, parts, dtype=torch.float32),
        )  # fmt: skip

    def start_facts(self) -> dict[str, Any]:
        return {"model": self.name}

    def finish(self, outcome: Outcome) -> Outcome:
        _write(self.out / _WEIGHTS, self._network.state_dict())
        facts = {"model": self.name, "seed": self.seed, "steps": outcome.step, "tokens": self.state.num_tokens}
        facts["parameters"] = sum(parameter.numel() for parameter in self._network.parameters())
        write_json(self.out / _RESULT, facts)
        return outcome

    def trained_network(self) -> Network | Predictor:
        """The network of a finished training."""
        network = self._new_network()
        network.load_state_dict(load_file(self.out / _WEIGHTS))
        return network.eval()

    def _new_network(self) -> Any:
        config = BertConfig.of_size(
            self.settings.size, vocab_size=len(self.tokenizer.vocabulary), hidden_dropout_prob=0.0,
            max_position_embeddings=self.settings.num_positions, attention_probs_dropout_prob=0.0,
        )  # fmt: skip
        return MODELS[self.name].network(config, self.seed)


def _check_documents(corpus: Sequence[Path], reading: Reading) -> None:
    """Check that a part of the corpus can be held out.

    Raises:
        DataError: it is one document.
    """
    sentences = readable_sentences(corpus, reading)
    documents = islice((sentence for sentence in sentences if sentence.starts_document), 2)
    if len(list(documents)) < 2:
        raise DataError(
            f"{', '.join(map(str, corpus))}: expected two or more documents, to train on some and test on the others; "
            "a txt file is one unless each line is a sentence and empty lines separate documents: give two files"
        )


def _save(folder: Path, parameters: Mapping[str, Tensor]) -> None:
    """Write the weights of a checkpoint."""
    folder.mkdir(parents=True)
    _write(folder / _WEIGHTS, parameters)


def _write(path: Path, tensors: Mapping[str, Tensor]) -> None:
    with whole_file(path) as temporary:
        save_file({name: value.detach().cpu().contiguous() for name, value in tensors.items()}, temporary)
