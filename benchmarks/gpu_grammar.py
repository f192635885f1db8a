"""Grammar learned in minutes of pre-training on a GPU from 11 million words of English novels, a part of `gpu.py`.

The score is the accuracy on Zorro (Huebner et al. 2021): 23 kinds of pairs of sentences, one of them grammatical; an
untrained model prefers the grammatical one in half of the pairs. For comparison, a plain encoder trained on 10 million
words reaches 60.6 % on the similar pairs of BLiMP (Charpentier and Samuel 2024, table 1).
"""

import time
from pathlib import Path
from typing import Any

import texts
from pretrain_texts import AUTHORS

import bertkit
from bertkit.evidence import read_suite, score_minimal_pairs
from bertkit.pretraining import Inputs, Pretraining, read_recipe, with_length

PAIRS_PER_PARADIGM = 500


def learn(folder: Path, device: str, quick: bool, vocabulary: Path | None) -> dict[str, Any]:
    """Seconds from text to model, and the share of pairs whose grammatical sentence is more likely by the model."""
    files = sorted((texts.DATA / "english_novels").glob("*.txt"))
    novels = {
        judged: tuple(file for file in files if (file.name.partition("_")[0] in AUTHORS["decide"]) == judged)
        for judged in (False, True)
    }
    size, num_steps, batch_size = ("tiny", 6, 8) if quick else ("medium", 3_500, 256)
    changes = (f"model.size={size}", f"training.batch_size={batch_size}", "data.max_seqlen=128",
               "training.tokens_per_part=32768", f"training.evaluate_every={-(-num_steps // 5)}",
               f"training.save_every={num_steps}")  # fmt: skip
    recipe = with_length(read_recipe("cpu-minutes", changes), num_steps=num_steps, minutes=None, changes=changes)
    started = time.perf_counter()
    Pretraining(folder, recipe, Inputs(novels[False], novels[True], vocabulary), device=device,
                compile=device.startswith("cuda"), log_line=print).start(resume=False)  # fmt: skip
    seconds = time.perf_counter() - started
    model = bertkit.load(folder / "model", device=device)
    suite = read_suite(texts.DATA / "zorro", 5 if quick else PAIRS_PER_PARADIGM)
    score = score_minimal_pairs(model, suite, progress=False)
    return {"seconds from text to model": seconds, "Zorro": score.accuracy, "Zorro, interval": list(score.interval)}
