"""Write these files: run in this folder with the code of commit cd08e3f, the last version before issue 16.

Paths are relative, so that a copy of the folder is the same run; the test runs in such a copy.
"""

import json
import shutil
from pathlib import Path

import numpy as np

from bertkit import Features, Model, Tokenizer, TransformerConfig, load
from bertkit.corpus.shard_writing import write_shard
from bertkit.finetuning import Finetuning, FinetuningSettings
from bertkit.pretraining import Inputs, Pretraining, read_recipe
from bertkit.tasks import TextExample

WORDS = "the cat dog bird fish sat ran saw ate on under near a big small red blue old mat tree house river".split()
LETTERS = [chr(code) for code in range(ord("a"), ord("z") + 1)]
TOKENS = list(dict.fromkeys(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", *LETTERS, *WORDS]))
RECIPE = [
    "model.architecture=bert", "model.size=tiny", "model.config.num_hidden_layers=1", "model.config.hidden_size=8",
    "model.config.intermediate_size=12", "model.config.num_attention_heads=2", "vocabulary.size=70",
    "data.max_seqlen=24", "data.held_out_share=0.1", "training.num_steps=12", "training.batch_size=16",
    "training.optimizer=adamw", "training.precision=float32", "training.evaluate_every=6", "training.save_every=4",
    "training.log_every=2",
]  # fmt: skip
SETTINGS = FinetuningSettings(num_epochs=3, batch_size=8, learning_rate=1e-2, tokens_per_part=150, seed=5)
TEXTS = ["the cat sat", "a red house", "the dog ran near the old tree", "", "blue"]


def corpus() -> str:
    draw = np.random.default_rng(0)

    def sentence() -> str:
        return " ".join(["the", *draw.choice(WORDS, 4), *draw.choice(WORDS, 3)]) + "."

    return "\n\n".join("\n".join(sentence() for _ in range(5)) for _ in range(20)) + "\n"


def examples(number: int, seed: int) -> list[TextExample]:
    """Whether a text names an animal."""
    draw = np.random.default_rng(seed)
    texts = [" ".join(draw.choice(WORDS, 4)) for _ in range(number)]
    labels = ["animal" if {"cat", "dog", "bird", "fish"} & set(text.split()) else "other" for text in texts]
    return [
        TextExample(text, label=label, place=f"line {line}")
        for line, (text, label) in enumerate(zip(texts, labels, strict=True), start=1)
    ]


def finetuning(out: str) -> Finetuning:
    return Finetuning(Path(out), "encoder", "sequence-classification", SETTINGS, tell=lambda line: None)


def stop_after(num_steps: int):
    steps: list[int] = []
    return lambda: steps.append(1) or len(steps) > num_steps


def main() -> None:
    for folder in ("encoder", "classifier", "finetuning", "pretraining", "shard", "vectors"):
        shutil.rmtree(folder, ignore_errors=True)
    Path("corpus.txt").write_text(corpus())
    tokenizer = Tokenizer.from_vocab(TOKENS)
    config = TransformerConfig(
        vocab_size=len(TOKENS), hidden_size=8, num_attention_heads=2, intermediate_size=12, num_hidden_layers=1,
        max_position_embeddings=24, initializer_range=0.3,
    )  # fmt: skip
    Model.create(config, tokenizer, ["masked_lm"], seed=3).save("encoder")
    train, dev = examples(37, seed=1), examples(20, seed=2)
    outcome = finetuning("classifier").start(train, dev)
    assert finetuning("finetuning").start(train, dev, should_stop=stop_after(7)).reason == "stopped"
    recipe, inputs = read_recipe("cpu-minutes", RECIPE), Inputs(("corpus.txt",))
    run = Pretraining(Path("pretraining"), recipe, inputs, tell=lambda line: None)
    assert run.start(resume=False, should_stop=lambda: run.state.step >= 6) == "stopped"
    write_shard("corpus.txt", "shard", tokenizer)
    vectors = Features("encoder", cache="vectors", device="cpu").fit(TEXTS).transform(TEXTS)
    predictions = load("classifier", device="cpu").predict(TEXTS[:3])
    expected = {
        "metrics": outcome.metrics,
        "labels": [one.label for one in predictions],
        "probabilities": [one.probabilities for one in predictions],
        "vectors": vectors.tolist(),
    }
    Path("expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
