"""Run of a comparison: the same corpus, vocabulary, size and time for every model; resumable."""

import json
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from tqdm import tqdm

from bertkit.architectures import Network
from bertkit.comparison.clozes import HELD_OUT_SEED, held_out_rows, measured_clozes, word_id
from bertkit.comparison.features import Probes, measure_features
from bertkit.comparison.models import MODELS, special_ids
from bertkit.comparison.page import write_comparison_page
from bertkit.comparison.predictors import Predictor, check_lengths
from bertkit.corpus.documents import Reading, read_sentences
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
from bertkit.training import TrainingSettings, checkpoints, claim_run_folder, evaluate, log_start, make_trainer
from bertkit.transformer import BertConfig

_NO_PROBES = Probes()
_SPREAD = ("cloze_accuracy", "minimal_pairs", "parts_of_speech", "senses", "similarity")
"""Metrics whose standard deviation is given."""


@dataclass
class Comparison:
    """One comparison; ``log_line`` is called with lines of text for the user."""

    out: Path
    corpus: Sequence[Path]
    size: str = "tiny"  # a name of SIZES
    minutes: float | None = 20.0  # processor time per model and seed, summed over cores
    num_steps: int | None = None  # instead of minutes
    seeds: Sequence[int] = (0, 1, 2)
    models: Sequence[str] = tuple(MODELS)
    vocab_size: int = 8_000
    max_seqlen: int = 64
    batch_size: int = 64
    learning_rate: float = 1e-3
    column: str | None = None  # of csv, jsonl and parquet files
    log_line: Callable[[str], None] = tqdm.write

    def start(
        self,
        suite: Sequence[Paradigm] = (),
        cloze: tuple[str, str] | None = None,
        probes: Probes = _NO_PROBES,
        *,
        resume: bool = False,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> list[dict[str, Any]]:
        """Train every model without results, evaluate all, and write ``comparison.html``.

        Args:
            suite: minimal pairs, from `read_suite`.
            cloze: a text with [MASK], and the word that it hides.
            probes: labeled data for the frozen features.

        Returns:
            A row for each model: mean and standard deviation over the seeds.

        Raises:
            UsageError: an unknown size or model, no model or seed, one of these twice, no training time,
                a cloze without exactly one [MASK], or another comparison's folder.
            DataError: a corpus that cannot be read or split, or has no held-out sequence of 7 tokens; a minimal
                pair or a cloze longer than the models' positions.
        """
        BertConfig.of_size(self.size)  # which refuses an unknown one, before the folder is claimed
        if unknown := set(self.models) - MODELS.keys():
            raise UsageError(f"models {', '.join(sorted(unknown))}: expected one or more of {', '.join(MODELS)}")
        if not self.seeds or not self.models:
            raise UsageError("a comparison needs at least one model and one seed")
        for kind, given in (("seeds", self.seeds), ("models", self.models)):
            if len(set(given)) < len(given):
                raise UsageError(f"{kind} {', '.join(map(str, given))}: expected each once")
        if self.num_steps is not None and self.num_steps < 1:
            raise UsageError(f"num_steps={self.num_steps}: expected at least 1")
        if self.num_steps is None and not (self.minutes is not None and self.minutes > 0):
            raise UsageError(f"minutes={self.minutes}: expected a number above 0, or num_steps instead")
        if cloze is not None and cloze[0].count("[MASK]") != 1:
            raise UsageError(f"the cloze {cloze[0]!r:.60} has {cloze[0].count('[MASK]')} [MASK]: expected one")
        data = DataSettings(max_seqlen=self.max_seqlen, held_out_share=0.05)
        check_texts(self.corpus, (), data, self.column)
        _check_documents(self.corpus, Reading(data.layout, self.column))
        settings = asdict(self) | {"corpus": [str(path) for path in self.corpus]}
        kept = {name: value for name, value in settings.items() if name not in ("log_line", "out", "seeds", "models")}
        claim_run_folder(self.out, self.out / "comparison.json", json.loads(json.dumps(kept)), resume=resume)
        vocabulary = self.out / "vocab.txt"
        if not vocabulary.is_file():
            learn_vocabulary(
                self.corpus, VocabularySettings(self.vocab_size), vocabulary, data.layout, self.column, self.log_line
            )
        tokenizer = Tokenizer.from_vocab(vocabulary, lowercase=True)
        if cloze is not None:
            word_id(tokenizer, cloze[1])  # before hours of training
        sentences = [text for paradigm in suite for pair in paradigm.pairs for text in pair]
        check_lengths(tokenizer, [*sentences, *(cloze or ())[:1]], self._num_positions)
        shards = write_shards(self.corpus, (), self.out, tokenizer, data, self.column)
        held_out = held_out_rows(tokenizer, shards[1], self.max_seqlen)  # before hours of training
        for seed in self.seeds:
            for name in self.models:
                folder = self.out / f"{name}-{seed}"
                network = self._trained(folder, name, seed, tokenizer, shards, data, should_stop)
                if network is None:
                    return self._rows(cloze is not None)
                result = read_json(folder / "result.json") or {}
                result |= measured_clozes(network, tokenizer, held_out, suite, cloze)
                result |= measure_features(network, tokenizer, probes, self.max_seqlen, seed)
                write_json(folder / "result.json", result)
                self.log_line(f"{name}, seed {seed}: cloze accuracy {result['cloze_accuracy']:.3f}")
        rows = self._rows(cloze is not None)
        write_comparison_page(self.out / "comparison.html", rows, self._training(), cloze)
        return rows

    @property
    def _num_positions(self) -> int:
        return max(self.max_seqlen, 128)

    def _training(self) -> str:
        """What every model was trained on, and for how long: a sentence for people."""
        budget = f"{self.minutes:g} minutes of processor time" if self.num_steps is None else f"{self.num_steps} steps"
        seeds = ", ".join(map(str, self.seeds))
        return f"Each model: size {self.size}, the same corpus and vocabulary, {budget} for each seed ({seeds})."

    def _rows(self, with_cloze: bool) -> list[dict[str, Any]]:
        """The table so far: a row for each model with results."""
        rows: list[dict[str, Any]] = []
        for name in self.models:
            results = [read_json(self.out / f"{name}-{seed}" / "result.json") for seed in self.seeds]
            measured = [numbers(result) for result in results if result]
            if not measured:
                continue
            row: dict[str, Any] = {"model": name, "sees": MODELS[name].sees, "seeds": len(measured)}
            for key in ("parameters", "steps", "cloze_accuracy", "cloze_perplexity", *_SPREAD[1:], "word_prob"):
                values = [result[key] for result in measured if key in result]
                if not values or (key == "word_prob" and not with_cloze):
                    continue
                row[key] = float(np.mean(values)) if key != "parameters" else values[0]
                if key in _SPREAD and len(values) > 1:
                    row[f"{key}_sd"] = float(np.std(values, ddof=1))
            rows.append(row)
        return rows

    def _trained(
        self,
        folder: Path,
        name: str,
        seed: int,
        tokenizer: Tokenizer,
        shards: tuple[TokenShard, TokenShard],
        data: DataSettings,
        should_stop: Callable[[], bool],
    ) -> Network | Predictor | None:
        """The trained network of a model; None: stopped."""
        config = BertConfig.of_size(
            self.size, vocab_size=len(tokenizer.vocabulary), max_position_embeddings=self._num_positions,
            hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        )  # fmt: skip
        network = MODELS[name].network(config, seed)
        if (folder / "result.json").is_file():
            network.load_state_dict(load_file(folder / "model.safetensors"))
            return network.eval()
        if saved := checkpoints(folder):
            network.load_state_dict(load_file(saved[-1] / "model" / "model.safetensors"))
        special, objective = special_ids(tokenizer), MODELS[name].objective(tokenizer, seed)
        loader = Loader([TokenBlocks(shards[0], special, self.max_seqlen, seed)], objective, seed)
        minutes = None if self.num_steps is not None else self.minutes
        training = TrainingSettings(
            num_steps=self.num_steps, minutes=minutes, batch_size=self.batch_size, learning_rate=self.learning_rate,
            warmup=0.1, tokens_per_part=None, seed=seed,
        )  # fmt: skip
        held_out = Loader([TokenBlocks(shards[1], special, self.max_seqlen, HELD_OUT_SEED)], objective, HELD_OUT_SEED)
        number = min(64, held_out.sources[0].num_examples(0))
        parts = held_out.batch(0, number, stage=0, mask_rate=0.15).split(4)
        folder.mkdir(exist_ok=True)
        task = PretrainingTask()
        trainer = make_trainer(
            folder, network, task, PretrainingFeed(loader, data, MaskedLM(), self.batch_size), training,
            should_stop=should_stop, log_line=self.log_line, save_model=_save, best_by="masked_lm_loss",
            clock=time.process_time, evaluate=partial(evaluate, network, task, parts, dtype=torch.float32),
        )  # fmt: skip
        log_start(trainer, model=name)
        if trainer.train() == "stopped":
            return None
        save_file(
            {key: value.contiguous() for key, value in network.state_dict().items()}, folder / "model.safetensors"
        )
        facts = {"model": name, "seed": seed, "steps": trainer.state.step, "tokens": trainer.state.num_tokens}
        facts["parameters"] = sum(parameter.numel() for parameter in network.parameters())
        write_json(folder / "result.json", facts)
        return network.eval()


def _check_documents(corpus: Sequence[Path], reading: Reading) -> None:
    """Check that a part of the corpus can be held out.

    Raises:
        DataError: it is one document.
    """
    sentences = read_sentences(corpus, reading, set_aside=deque(maxlen=0))
    documents = islice((sentence for sentence in sentences if sentence.starts_document), 2)
    if len(list(documents)) < 2:
        raise DataError(
            f"{', '.join(map(str, corpus))}: expected two or more documents, to train on some and test on the others; "
            "a txt file is one unless each line is a sentence and empty lines separate documents: give two files"
        )


def _save(folder: Path, parameters: Mapping[str, Tensor]) -> None:
    """Write the weights of a checkpoint."""
    folder.mkdir(parents=True)
    _write(folder / "model.safetensors", parameters)


def _write(path: Path, tensors: Mapping[str, Tensor]) -> None:
    with whole_file(path) as temporary:
        save_file({name: value.detach().cpu().contiguous() for name, value in tensors.items()}, temporary)
