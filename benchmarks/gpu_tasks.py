"""Fine-tuning of every kind of task on a GPU, a part of `gpu.py`: losses without dropout against float32 on the CPU.

Batches have several parts, so that the loss of similarity is computed in two passes.
"""

import json
import tempfile
import warnings
from pathlib import Path
from typing import Any

import texts

from bertkit import BertConfig, Model, Tokenizer
from bertkit.finetuning import Finetuning, FinetuningSettings
from bertkit.locate import locate
from bertkit.tasks.examples import ChoiceQuestion, Question, TaggedText, TextExample, TextSet
from bertkit.tasks.words import joined

BOUNDS = {"float32": 2e-3, "bfloat16": 5e-2}
"""Maximum allowed differences of losses, relative to the largest loss."""


def checks(device: str, quick: bool, model: str) -> dict[str, Any]:
    """The largest difference of the losses of a short run, by task and precision."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        encoder, tokenizer = Path(folder, "encoder"), Tokenizer.load(locate(model))
        config = BertConfig.of_size("tiny", vocab_size=len(tokenizer.vocabulary), hidden_dropout_prob=0.0,
                                    attention_probs_dropout_prob=0.0)  # fmt: skip
        Model.create(config, tokenizer, seed=0).save(encoder)
        for name, examples in examples_by_task(24 if quick else 160).items():
            expected = _losses(Path(folder, f"{name}-cpu"), encoder, name, examples, "cpu", "float32")
            for precision, bound in BOUNDS.items():
                losses = _losses(Path(folder, f"{name}-{precision}"), encoder, name, examples, device, precision)
                pairs = zip(losses, expected, strict=True)
                found[f"{name}, {precision}"] = max(abs(a - b) for a, b in pairs) / max(map(abs, expected))
                found[f"{name}, {precision} holds"] = found[f"{name}, {precision}"] <= bound
    return found


def examples_by_task(number: int) -> dict[str, list[Any]]:
    """Examples of each kind of task, made from passages of Python's documentation; labels follow from the texts."""
    passages = [" ".join(passage.split())[:200] for passage in texts.documentation()[: 2 * number]]
    chosen, others = passages[:number], passages[number:]
    words = [joined(passage.split())[1] for passage in chosen]
    return {
        "sequence-classification": [TextExample(one, label="long" if len(one) > 150 else "short") for one in chosen],
        "regression": [TextExample(one, label=len(one) / 200) for one in chosen],
        "token-classification": [
            TaggedText(one, spans, tuple("LONG" if end - start > 5 else "SHORT" for start, end in spans))
            for one, spans in zip(chosen, words, strict=True)
        ],
        "question-answering": [
            Question(one[:30], one, (spans[len(spans) // 2],)) for one, spans in zip(chosen, words, strict=True)
        ],
        "multiple-choice": [
            ChoiceQuestion(one[:60], tuple([other[60:], one[60:]][:: -1 if at % 2 else 1]), 1 - at % 2)
            for at, (one, other) in enumerate(zip(chosen, others, strict=True))
        ],
        "similarity": [TextSet(one[:60], (one[60:],), (other,)) for one, other in zip(chosen, others, strict=True)],
        "cross-encoder": [TextSet(one[:60], (one[60:],), (other,)) for one, other in zip(chosen, others, strict=True)],
    }  # fmt: skip


def _losses(out: Path, encoder: Path, task: str, examples: list[Any], device: str, precision: str) -> list[float]:
    """The losses of the steps of a run without a dev set."""
    settings = FinetuningSettings.of(num_epochs=2, batch_size=8, head="drawn", learning_rate=1e-4, max_length=64,
                                  precision=precision, tokens_per_part=256)  # fmt: skip
    run = Finetuning(out, encoder, task, settings, device=device, log_line=lambda line: None,
                     compare=False, resumable=False)  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of texts that are truncated
        run.start(examples)
    lines = [json.loads(line) for line in (out / "run" / "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if line["event"] == "step"]
