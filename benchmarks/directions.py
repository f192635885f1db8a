"""Bidirectional, unidirectional and static models on novels: `bertkit compare-directions`, all measures, three seeds.

    python benchmarks/directions.py FOLDER [--novels 10] [--minutes 20] [--seeds 0,1,2] [--models bert,static]

The budget is processor time for each model and seed, summed over cores; 20 minutes take 10 minutes on two idle cores.
Each model has two layers, 128 wide, and a vocabulary of 2,000. The folder keeps the trained models: another call with
the same options resumes, and a call for other models or seeds may run at the same time. Needs ../shared/data.
"""

import argparse
from pathlib import Path
from typing import Any

import report
from frozen_features import measure_features
from probes import probes
from turns import say

from bertkit import Tokenizer
from bertkit.comparison import MODELS, Comparison, ComparisonSettings
from bertkit.evidence.suites import read_suite

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
COLUMNS = {
    "cloze_accuracy": "hidden tokens", "cloze_perplexity": "perplexity", "minimal_pairs": "minimal pairs",
    "parts_of_speech": "parts of speech", "senses": "senses", "similarity": "similarity", "word_prob": "“door”",
}  # fmt: skip
CLOZE = ("She opened the [MASK].", "door")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--novels", type=int, default=10)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--models", default=",".join(MODELS))
    results, options = report.begin("directions", parser)
    novels = sorted((DATA / "english_novels").glob("*_*.txt"))
    novels = novels[:: max(1, len(novels) // options.novels)][: options.novels]
    settings = ComparisonSettings.of(
        minutes=options.minutes, seeds=tuple(int(seed) for seed in options.seeds.split(",")),
        models=tuple(options.models.split(",")), vocab_size=2_000, batch_size=16, learning_rate=2e-3,
    )  # fmt: skip
    comparison = Comparison(options.folder, novels, settings, log_line=say)
    suite = read_suite(DATA / "zorro", 20)
    data = probes()

    def measure(network: Any, tokenizer: Tokenizer, seed: int) -> dict[str, float]:
        return measure_features(network, tokenizer, data, settings.max_seqlen, seed)

    rows = comparison.start(suite, CLOZE, measure, resume=True)
    results |= {"minutes": options.minutes, "novels": [novel.name for novel in novels], "seeds": options.seeds,
                "rows": rows}  # fmt: skip
    report.finish(results, describe(results), options.out)


def describe(results: dict) -> str:
    """The results as Markdown."""
    table = [
        [row["model"], row["sees"], f"{row['steps']:.0f}", *(_cell(row, key) for key in COLUMNS)]
        for row in results["rows"]
    ]
    return "\n".join(
        [
            *report.heading("Bidirectional and one-directional models", results),
            f"{results['minutes']} minutes of processor time for each model and seed (seeds {results['seeds']}), "
            f"{len(results['novels'])} novels. Mean over the seeds, standard deviation in brackets.",
            "",
            report.markdown_table(["model", "sees", "steps", *COLUMNS.values()], *table),
        ]
    )


def _cell(row: dict, key: str) -> str:
    spread = f" ({row[f'{key}_sd']:.3f})" if f"{key}_sd" in row else ""
    return f"{row[key]:.4f}{spread}" if key == "word_prob" else f"{row[key]:.3f}{spread}"


if __name__ == "__main__":
    main()
