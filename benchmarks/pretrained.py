"""A small BERT pre-trained here, for benchmarks that must not start from a published model.

    python benchmarks/pretrained.py

4 layers of 256, a vocabulary of 8,192 entries, 600 steps of up to 8,192 tokens of the shared novels, by the recipe
`cpu-minutes`; some ten minutes on two cores. It is made once and kept.
"""

from pathlib import Path

import report
import texts
from pretrain_texts import AUTHORS
from turns import say

from bertkit.pretraining import Inputs, Pretraining, read_recipe

NUM_STEPS = 600
_CHANGES = ("model.architecture=bert", "model.size=mini", f"training.num_steps={NUM_STEPS}")


def pretrained_run() -> Path:
    """The folder of the run, finished; the model is in ``model``.

    Raises:
        RuntimeError: the novels are not on this machine.
    """
    novels = texts.DATA / "english_novels"
    if not novels.is_dir():
        raise RuntimeError("../shared/data/english_novels is not there")
    out = report.CACHE / f"pretrained-mini-{NUM_STEPS}"
    if not (out / "model").is_dir():
        held_out = held_out_novels()
        corpus = tuple(file for file in sorted(novels.glob("*_*.txt")) if file not in held_out)
        recipe = read_recipe("cpu-minutes", _CHANGES)
        Pretraining(out, recipe, Inputs(corpus, held_out), log_line=say, device="cpu").start(resume=True)
    return out


def held_out_novels() -> tuple[Path, ...]:
    """Of authors that the model has not read."""
    novels = texts.DATA / "english_novels"
    return tuple(sorted(file for author in AUTHORS["decide"] for file in novels.glob(f"{author}_*.txt")))


if __name__ == "__main__":
    print(pretrained_run())
