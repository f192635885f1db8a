"""A small model pre-trained here, for benchmarks that must not start from a published one.

    python benchmarks/pretrained.py

4 layers of 256 (ModernBERT), 150 steps of up to 8,192 tokens of novels by the recipe `cpu-minutes`: two minutes on two
cores. The model is trained once and cached.
"""

from pathlib import Path

import report
import texts
from pretrain_texts import AUTHORS
from turns import say

from bertkit.pretraining import Inputs, Pretraining, read_recipe, with_length

NUM_STEPS = 150


def pretrained_run() -> Path:
    """The folder of the run, finished; the model is in ``model``.

    Raises:
        RuntimeError: the novels are not on this machine.
    """
    novels = texts.DATA / "english_novels"
    if not novels.is_dir():
        raise RuntimeError("../shared/data/english_novels is not there")
    out = report.CACHE / f"pretrained-{NUM_STEPS}-steps"
    if not (out / "model").is_dir():
        inputs = Inputs(corpus(), held_out())
        recipe = with_length(read_recipe("cpu-minutes", ("model.size=mini",)), num_steps=NUM_STEPS)
        Pretraining(out, recipe, inputs, log_line=say, device="cpu").start(resume=True)
    return out


def corpus() -> tuple[Path, ...]:
    """The novels of authors from A to E, who are not in `held_out`."""
    return tuple(sorted((texts.DATA / "english_novels").glob("[A-E]*_*.txt")))


def held_out() -> tuple[Path, ...]:
    """Novels of other authors."""
    novels = texts.DATA / "english_novels"
    return tuple(sorted(file for author in AUTHORS["decide"] for file in novels.glob(f"{author}_*.txt")))


if __name__ == "__main__":
    print(pretrained_run())
