"""Accuracy of a small encoder-decoder after minutes of training: copy, reverse, sort, and numbers to words.

    python benchmarks/sequence_learning.py [copy reverse sort words] > results.jsonl

A new model of 2 + 2 layers, 128 wide, is trained on random digits (1 to 12 of them) or on pairs such as "40713" and
"forty thousand seven hundred thirteen". Reported are the processor time of the run, the exact matches on 1,000 held-out
sources, which are not in the training data but select the checkpoint, and for the first three tasks the exact matches
on 200 sources of 13 to 16 digits, which are longer than those in training.
"""

import json
import random
import sys
import tempfile
import time
from pathlib import Path

from turns import say

from bertkit.generation import load_generator
from bertkit.sequence_training import SequenceSettings, SequenceTraining
from bertkit.tasks import SequenceExample

ONES = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen".split()
ONES += "seventeen eighteen nineteen".split()
TENS = "_ _ twenty thirty forty fifty sixty seventy eighty ninety".split()

TASKS = {
    "copy": lambda digits: digits,
    "reverse": lambda digits: digits[::-1],
    "sort": lambda digits: "".join(sorted(digits)),
}


def in_words(number: int) -> str:
    """A number below a million in English words.

    >>> in_words(40_713)
    'forty thousand seven hundred thirteen'
    """
    if number < 20:
        return ONES[number]
    if number < 100:
        return TENS[number // 10] + (f"-{ONES[number % 10]}" if number % 10 else "")
    size, name = (1_000, "thousand") if number >= 1_000 else (100, "hundred")
    rest = f" {in_words(number % size)}" if number % size else ""
    return f"{in_words(number // size)} {name}{rest}"


def digits_of(draw: random.Random, shortest: int, longest: int) -> str:
    """A random string of digits."""
    return "".join(draw.choice("0123456789") for _ in range(draw.randint(shortest, longest)))


def examples_of(task: str, seed: int) -> tuple[list[SequenceExample], list[SequenceExample], list[SequenceExample]]:
    """Training, held-out and longer examples."""
    draw = random.Random(seed)
    if task == "words":
        numbers = draw.sample(range(100_000), 13_000)
        pairs = [SequenceExample(in_words(number), str(number)) for number in numbers]
        return pairs[1_000:], pairs[:1_000], []
    rule = TASKS[task]
    sources = list(dict.fromkeys(digits_of(draw, 1, 12) for _ in range(40_000)))
    draw.shuffle(sources)
    held_out = [source for source in sources if len(source) > 3][:1_000]
    known = set(held_out)
    longer = [digits_of(draw, 13, 16) for _ in range(200)]
    made = ([source for source in sources if source not in known], held_out, longer)
    return tuple([SequenceExample(rule(source), source) for source in part] for part in made)


def main() -> None:
    """Train and report each task as a line of JSON."""
    for task in sys.argv[1:] or ["reverse", "words", "sort", "copy"]:
        train, held_out, longer = examples_of(task, 0)
        settings = SequenceSettings.of(
            num_steps=1_200, batch_size=64, learning_rate=2e-3, label_smoothing=0.0, dropout=0.0, vocab_size=400,
            max_length=96, schedule="linear",
        )  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            began, out = time.process_time(), Path(folder) / "model"
            run = SequenceTraining(out, "seq2seq", "new-tiny", settings, device="cpu", log_line=say)
            outcome = run.start(train, held_out)
            seconds = time.process_time() - began
            line = {"task": task, "processor_seconds": round(seconds), **outcome.metrics}
            if longer:
                made = load_generator(out).generate([one.source or "" for one in longer])
                right = [one.text == other.target for one, other in zip(made, longer, strict=True)]
                line["exact_match_of_longer"] = sum(right) / len(right)
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
