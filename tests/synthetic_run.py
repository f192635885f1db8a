"""A synthetic run folder: the curves of a small BERT that leaves the plateau and learns."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

VOCAB_SIZE, ENTROPY = 8_192, 6.62
SETTINGS = {
    "name": "cpu-minutes",
    "model": {"architecture": "modernbert", "size": "mini", "config": {"num_hidden_layers": 5}},
    "training": {"num_steps": 2_000, "batch_size": 128, "learning_rate": 1e-3, "warmup": 0.05, "clip_norm": 1.0},
    "data": {"max_seqlen": 128, "mask_rate": [0.3, 0.15], "next_sentence": True},
    "expected": [
        {"tokens": tokens, "masked_lm_loss": loss}
        for tokens, loss in ((1e5, 7.6), (1e6, 6.4), (3e6, 5.2), (1e7, 4.2), (3e7, 3.6), (1e8, 3.2))
    ]
    + [{"origin": "the mean of three seeds on the same novels"}],
}
TEXTS = {
    "The capital of France is [MASK].": ["the", "a", "london", "paris", "paris", "paris"],
    "She opened the [MASK] and walked in.": ["the", ",", "house", "window", "door", "door"],
    "He had not [MASK] a word for an hour.": [",", "the", "been", "heard", "spoken", "said"],
}
OTHERS = ["of", "and", "##s", "time", "little", "great"]


def curve(tokens: np.ndarray) -> np.ndarray:
    """Masked LM loss after a number of tokens: from ln V to the plateau, then past it and on as a power law."""
    fall = (np.log(VOCAB_SIZE) - ENTROPY) * np.exp(-tokens / 2e5)
    return 1.75 + (ENTROPY - 1.75) * (1 + np.maximum(tokens - 1.2e6, 0) / 1e6) ** -0.33 + fall


def events(
    num_steps: int = 2_000, log_every: int = 1, seed: int = 11, next_sentence: bool = True
) -> Iterator[dict[str, Any]]:
    """The lines of a run's metrics, from its start to its end."""
    generator = np.random.default_rng(seed)
    yield start(0)
    steps = np.arange(log_every, num_steps + 1, log_every)
    seconds = tokens = 0.0
    for step in steps.tolist():
        done = step / num_steps
        speed = 21_500 * (0.82 if 0.55 < done < 0.6 else 1.0) * generator.normal(1, 0.015)
        tokens += log_every * int(generator.integers(15_200, 16_384)) * 2_000 / num_steps
        seconds += log_every * 15_800 * 2_000 / num_steps / speed
        loss = float(curve(np.array(tokens)))
        rate = 0.3 - 0.15 * done
        noisy = loss + 0.9 * (rate - 0.15) + generator.normal(0, 0.07)
        line = {
            "event": "step", "step": step, "epoch": int(tokens // 12e6), "seconds": seconds, "tokens": int(tokens),
            "loss": noisy, "masked_lm_loss": noisy, "masked_lm_accuracy": accuracy(loss) + generator.normal(0, 0.006),
            "learning_rate": 1e-3 * min(done / 0.05, (1 - done) / 0.95),
            "gradient_norm": float(np.exp(generator.normal(-0.3, 0.25)) + 3 * np.exp(-step / 60)),
            "tokens_per_second": speed, "mask_rate": rate,
        }  # fmt: skip
        if next_sentence:
            line["next_sentence_accuracy"] = min(
                1.0, 0.5 + 0.42 * max(0.0, done - 0.1) ** 0.6 + generator.normal(0, 0.03)
            )
            line["next_sentence_loss"] = 0.69 - 0.4 * done
            line["loss"] += line["next_sentence_loss"]
        yield line
        if step % max(log_every, num_steps // 20) == 0:
            held_out = loss + 0.03 + generator.normal(0, 0.004)
            evaluation = {
                "event": "evaluation", "step": step, "seconds": seconds, "tokens": int(tokens),
                "masked_lm_loss": held_out,
                "masked_lm_accuracy": accuracy(held_out), "masked_lm_perplexity": float(np.exp(held_out)),
            }  # fmt: skip
            if next_sentence:
                evaluation["next_sentence_accuracy"] = 0.5 + 0.4 * max(0.0, done - 0.1) ** 0.6
            yield evaluation
            yield {"event": "samples", "step": step, "samples": list(fillings(done))}
            yield {"event": "checkpoint", "step": step, "path": f"checkpoints/step-{step:08d}"}
    yield {"event": "end", "step": num_steps, "seconds": seconds, "reason": "finished"}


def start(step: int, resumed: bool = False) -> dict[str, Any]:
    corpus = {"num_documents": 214, "num_sentences": 641_220, "num_tokens": 14_870_331, "unigram_entropy": ENTROPY}
    return {
        "event": "start", "time": "2026-11-21T09:14:03+00:00", "step": step, "resumed": resumed, "settings": SETTINGS,
        "num_parameters": 5_392_896, "versions": {"bertkit": "0.1.0", "torch": "2.13.0"},
        "processor": "a processor of two cores",
        "inputs": {"corpus": ["novels"], "vocabulary": None}, "corpus": corpus, "vocab_size": VOCAB_SIZE,
    }  # fmt: skip


def accuracy(loss: float) -> float:
    return float(0.06 + 0.62 * max(0.0, 1 - loss / 6.7) ** 0.8)


def fillings(done: float) -> Iterator[dict[str, Any]]:
    for text, words in TEXTS.items():
        best = words[min(len(words) - 1, int(done**0.6 * len(words)))]
        others = [word for word in [*words, *OTHERS] if word != best]
        scores = (0.06 + 0.6 * done) * 0.4 ** np.arange(5)
        names = [best, *dict.fromkeys(others)][:5]
        yield {
            "text": text,
            "candidates": [{"token": t, "score": float(s)} for t, s in zip(names, scores, strict=True)],
        }


def write_run(folder: Path, lines: list[dict[str, Any]], cut_off: str = "") -> Path:
    """Write a run folder with these lines, and the rest of one more that a kill cut off."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "recipe.json").write_text(json.dumps(SETTINGS))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + cut_off)
    return folder
