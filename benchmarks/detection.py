"""Replaced token detection and masked language modeling on novels: the same minutes, size and text, two seeds.

    python benchmarks/detection.py [--minutes 10] [--size tiny] [--seeds 0,1] [--limit 200] [--out benchmarks/results]

Both models of a seed train at the same time, in separate processes of one thread each. All settings are those of the
recipe electra-minutes; masked language modeling has the mask rates of cpu-minutes. Some authors are held out. Measured
are frozen features of words and sentences, and Zorro: the share of pairs whose grammatical sentence has the higher
score: of a masked LM the pseudo-log-likelihood, of a detector the summed log-probability that its tokens are original.
Takes about 25 minutes on two cores, and needs ../shared/data.
"""

import argparse
import shutil
import statistics
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import report
import torch
import torch.nn.functional as F
from frozen_features import measure_features
from probes import probes
from texts import DATA
from turns import say
from worker import Worker

import bertkit
from bertkit import Batch, Model
from bertkit.evidence.minimal_pairs import score_minimal_pairs
from bertkit.evidence.suites import Paradigm, read_suite
from bertkit.pretraining import Inputs, Pretraining, VocabularySettings, read_recipe, with_length
from bertkit.pretraining.text import learn_vocabulary

HELD_OUT = ("Forster_", "Hardy_", "Stevenson_")
OBJECTIVES = {
    "masked-lm": ["objective.name=masked-lm", "objective.mask_rate=0.25", "objective.final_mask_rate=0.15"],
    "replaced-tokens": [],
}
NEVER = 1_000_000_000  # steps: the minutes are those of training alone
MAX_LENGTH = 64  # tokens of a text whose features are measured
COLUMNS = {
    "steps": "steps", "tokens": "tokens", "parts_of_speech": "parts of speech", "senses": "senses",
    "similarity": "similarity", "zorro": "Zorro", "masked_lm_loss": "masked LM loss",
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0, help="of each training")
    parser.add_argument("--size", default="tiny")
    parser.add_argument("--seeds", default="0,1")
    parser.add_argument("--limit", type=int, default=200, help="pairs of each paradigm of Zorro")
    results, options = report.begin("detection", parser, threads=1)
    novels = sorted((DATA / "english_novels").glob("*_*.txt"))
    if not novels:
        raise SystemExit("detection: ../shared/data/english_novels is not there")
    corpus = [str(file) for file in novels if not file.name.startswith(HELD_OUT)]
    held_out = [str(file) for file in novels if file.name.startswith(HELD_OUT)]
    folder = report.CACHE / "detection"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    vocabulary = folder / "vocab.txt"
    size = read_recipe("electra-minutes").vocabulary.vocab_size
    learn_vocabulary(corpus, VocabularySettings(size), vocabulary, "auto", None, lambda line: None)
    seeds, runs = [int(seed) for seed in options.seeds.split(",")], []
    arguments = (options.minutes, options.size, options.limit, corpus, held_out, str(vocabulary))
    for seed in seeds:
        say(f"seed {seed}: both objectives for {options.minutes:g} minutes")
        with ThreadPoolExecutor(len(OBJECTIVES)) as both:
            started = [
                both.submit(perform, name, str(folder / f"{name}-{seed}"), seed, *arguments) for name in OBJECTIVES
            ]
            runs += [one.result() for one in started]
    results |= {"minutes": options.minutes, "size": options.size, "seeds": seeds, "limit": options.limit, "runs": runs}
    report.finish(results, "\n".join(describe(results)), options.out)


def perform(name: str, run: str, *arguments: Any) -> dict[str, Any]:
    """Train and measure in a separate process."""
    worker = Worker("detection", "training")
    try:
        return worker.turn(name, run, *arguments).result
    finally:
        worker.close()


def training() -> Any:
    """The function of the worker."""
    torch.set_num_threads(1)
    return train_and_measure


def train_and_measure(
    name: str, run: str, seed: int, minutes: float, size: str, limit: int, corpus: list[str], held_out: list[str],
    vocabulary: str,
) -> dict[str, Any]:  # fmt: skip
    """Train with one objective and seed, and measure the model."""
    changes = [
        *OBJECTIVES[name], f"model.size={size}", f"training.seed={seed}", f"training.evaluate_every={NEVER}",
        f"training.save_every={NEVER}",
    ]  # fmt: skip
    recipe = with_length(read_recipe("electra-minutes", changes), minutes=minutes, changes=changes)
    inputs = Inputs(corpus, held_out, Path(vocabulary))
    made = Pretraining(Path(run), recipe, inputs, log_line=lambda line: None, device="cpu")
    made.start(resume=False)
    model = bertkit.load(Path(run) / "model", device="cpu")
    facts = {"objective": name, "seed": seed, "steps": made.state.step, "tokens": made.state.num_tokens}
    facts["num_parameters"] = sum(parameter.numel() for parameter in model.network.parameters())
    facts |= made.metrics | measure_features(model.network, model.tokenizer, probes(), MAX_LENGTH, seed)
    suite = read_suite(DATA / "zorro", limit)
    if "masked_lm" in model.network.heads:
        return facts | {"zorro": score_minimal_pairs(model, suite, progress=False).accuracy}
    generator = bertkit.load(Path(run) / "model" / "generator", device="cpu")
    return facts | {
        "zorro": detected_share(model, suite),
        "zorro_of_generator": score_minimal_pairs(generator, suite, progress=False).accuracy,
    }


@torch.inference_mode()
def detected_share(model: Model, suite: list[Paradigm]) -> float:
    """Share of the pairs whose good sentence looks more original to a detector."""
    model.network.eval()

    def score(text: str) -> float:
        ids = torch.from_numpy(np.array([model.tokenizer.encode(text).input_ids], np.int64))
        return float(F.logsigmoid(-model.network(Batch.from_padded(ids)).logits["replaced_tokens"]).sum())

    return statistics.mean(score(pair.good) > score(pair.bad) for paradigm in suite for pair in paradigm.pairs)


def describe(results: dict[str, Any]) -> list[str]:
    """The results as Markdown: each run, and the means over seeds."""
    rows = [[f"{run['objective']}, seed {run['seed']}", *cells(run)] for run in results["runs"]]
    for name in OBJECTIVES:
        runs = [run for run in results["runs"] if run["objective"] == name]
        rows.append([f"{name}, mean", *cells({key: statistics.mean(run[key] for run in runs) for key in COLUMNS})])
    detectors = [run for run in results["runs"] if run["objective"] == "replaced-tokens"]
    of_generator = ", ".join(f"{run['zorro_of_generator']:.3f}" for run in detectors)
    accuracies = ", ".join(
        f"{run['replaced_tokens_accuracy']:.3f} (recall {run['replaced_tokens_recall']:.3f})" for run in detectors
    )
    sizes = sorted({run["num_parameters"] for run in results["runs"]})
    return [
        *report.heading("Replaced token detection and masked language modeling", results),
        f"{results['minutes']:g} minutes of one thread for each model, size {results['size']} "
        f"({', '.join(f'{size:,}' for size in sizes)} parameters, without the generator).",
        f"Parts of speech: accuracy of a linear classifier of words. Senses: accuracy of the nearest mean. Similarity: "
        f"Spearman's correlation on STS-B. Zorro: {results['limit']} pairs of each paradigm, chance 0.5. The masked LM "
        "loss of replaced-tokens is that of its generator.",
        "",
        report.markdown_table(["objective", *COLUMNS.values()], *rows),
        "",
        f"Zorro by the generators: {of_generator}. Accuracy of the detectors on held-out tokens: {accuracies}.",
    ]


def cells(run: dict[str, Any]) -> list[str]:
    return [f"{run[key]:,.0f}" if key in ("steps", "tokens") else f"{run[key]:.3f}" for key in COLUMNS]


if __name__ == "__main__":
    main()
