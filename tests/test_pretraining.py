"""Runs from raw text to a model: recipes, bad input, signals, kills, ranks."""

import errno
import gc
import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import nullcontext, suppress
from dataclasses import replace
from importlib.resources import files
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from bertkit import BertConfig, Model, ModernBertConfig, Tokenizer, load
from bertkit.cli import run as run_command
from bertkit.cli.killed_runs import ResumeCheck, verify_resume
from bertkit.cli.verify_resume import command as verify_resume_command
from bertkit.errors import BertkitError, DataError, DependencyError, MissingHeadError, TrainingError, UsageError
from bertkit.files import SkippedRow
from bertkit.objectives import NextSentence, PretrainingBatch
from bertkit.pretraining import RECIPES, Inputs, Pretraining, read_recipe, with_length
from bertkit.pretraining.network import new_model
from bertkit.pretraining.recipe import RecipeSettings, recipe_of
from bertkit.pretraining.run import _samples
from bertkit.pretraining.text import texts_of
from bertkit.reports.recorded_run import read_run
from bertkit.reports.training import training_report
from bertkit.reports.training_findings import findings_of
from bertkit.tasks.settings import Settings
from bertkit.training import OPTIMIZERS, SCHEDULES, Outcome, Ranks, checkpoints
from bertkit.training.batch_gradients import BatchGradients
from bertkit.training.recipe_files import read_toml

WORDS = "the cat dog bird fish sat ran saw ate on under near a big small red blue old mat tree house river".split()
TINY = [
    "model.architecture=bert", "model.size=tiny", "model.config.num_hidden_layers=1", "model.config.hidden_size=32",
    "model.config.intermediate_size=48", "vocabulary.vocab_size=200", "data.max_seqlen=24", "data.held_out_share=0.1",
    "training.num_steps=12", "training.batch_size=16", "training.optimizer=adamw", "training.precision=float32",
    "training.evaluate_every=6", "training.save_every=4", "training.log_every=2",
]  # fmt: skip


def write_corpus(path: Path, num_documents: int = 60, seed: int = 0) -> Path:
    """Sentences of a little grammar, one a line, documents between empty lines."""
    generator = torch.Generator().manual_seed(seed)

    def word(first: int, last: int) -> str:
        return WORDS[int(torch.randint(first, last, (1,), generator=generator))]

    documents = []
    for _ in range(num_documents):
        sentences = [
            f"the {word(13, 18)} {word(1, 5)} {word(5, 9)} {word(9, 12)} the {word(18, 22)}." for _ in range(8)
        ]
        documents.append("\n".join(sentences))
    path.write_text("\n\n".join(documents) + "\n")
    return path


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("text") / "corpus.txt")


def pretraining(corpus: Path | str, run: Path, *changes: str, recipe: str = "cpu-minutes", **inputs) -> Pretraining:
    lines = []
    of_new_models = ("model.", "vocabulary.") if "model.from_checkpoint=true" in changes else ()
    tiny = [change for change in TINY if not change.startswith(of_new_models)]
    made = Pretraining(run, read_recipe(recipe, [*tiny, *changes]), Inputs((corpus,), **inputs), log_line=lines.append)
    made.lines = lines
    return made


def digest(run: Path) -> bytes:
    return (run / "model" / "model.safetensors").read_bytes()


def events(run: Path, kind: str) -> list[dict]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if line["event"] == kind]


# ---- recipes


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_can_be_read_and_is_complete(name: str) -> None:
    recipe = read_recipe(name)
    assert json.loads(json.dumps(recipe.facts()))["training"]["batch_size"] >= 64
    assert with_length(recipe, num_steps=7).training.num_steps == 7
    assert with_length(recipe, minutes=2.0).training.num_steps is None


def test_shortened_run_is_evaluated_and_saved() -> None:
    recipe = read_recipe("bert-2018")

    def intervals(changes: tuple = (), read=recipe, **length) -> tuple:
        training = with_length(read, changes=changes, **length).training
        return training.evaluate_every, training.save_every

    assert intervals() == intervals(num_steps=10_000) == (10_000, 10_000)
    assert intervals(num_steps=9_999) == intervals(minutes=60.0) == (None, None)
    changes = ("training.save_every=7",)
    assert intervals(changes, read_recipe("bert-2018", changes), minutes=60.0) == (None, 7)
    by_minutes = read_recipe("cpu-minutes", changes)  # steps that were chosen for a run by the clock
    assert intervals((), by_minutes, minutes=5.0) == (None, 7)


def test_recipe_of_2018_is_the_published_one() -> None:
    recipe = read_recipe("bert-2018")
    training, data, objective = recipe.training, recipe.data, recipe.objective
    assert (training.num_steps, training.batch_size, training.learning_rate) == (1_000_000, 256, 1e-4)
    assert training.schedule == SCHEDULES["linear-2018"](0.01) and training.clip_norm == 1.0
    assert training.optimizer == OPTIMIZERS["adamw-2018"](0.01, (0.9, 0.999), 1e-6)
    assert objective == NextSentence(mask_rate=0.15, balanced=False, short_prob=0.1)
    assert (data.max_seqlen, data.final_max_seqlen, objective.mask_rate_at(0.7)) == (128, 512, 0.15)
    assert [data.stage_at(done) for done in (0.0, 0.899, 0.9, 1.0)] == [0, 0, 1, 1]


@pytest.mark.slow
def test_small_bert_with_both_heads_learns_next_sentences(tmp_path: Path) -> None:
    """Each document has five words of its own, so a sentence of another document is recognized by its words."""
    draw = random.Random(0)
    syllables = [consonant + vowel for consonant in "bdfgklmnprst" for vowel in "aeiou"]
    words = sorted({draw.choice(syllables) + draw.choice(syllables) for _ in range(120)})
    documents = []
    for _ in range(400):
        own = draw.sample(words, 5)
        documents.append("\n".join(" ".join(draw.choices(own, k=6)) + "." for _ in range(8)))
    (tmp_path / "corpus.txt").write_text("\n\n".join(documents) + "\n")
    changes = [
        "model.size=tiny", "vocabulary.vocab_size=300", "data.max_seqlen=48", "data.held_out_share=0.1",
        "data.layout=lines",
        "training.num_steps=240", "training.evaluate_every=80", "training.precision=float32",
        "training.learning_rate=5e-3", "training.matrix_learning_rate=0.03",
    ]  # fmt: skip
    recipe = read_recipe("bert-minutes", changes)
    run = Pretraining(tmp_path / "run", recipe, Inputs((tmp_path / "corpus.txt",)), log_line=lambda line: None)
    run.start(resume=False)
    accuracies = [event["next_sentence_accuracy"] for event in events(tmp_path / "run", "evaluation")]
    assert accuracies[0] == pytest.approx(0.5, abs=0.1) and accuracies[-1] > 0.75
    model = load(tmp_path / "run" / "model")
    first, second = documents[0].split("\n")[:2], documents[1].split("\n")[:2]
    assert model.next_sentence_probability(*first) > model.next_sentence_probability(first[0], second[1])


def test_mask_rate_falls_in_a_line() -> None:
    objective = read_recipe("bert-modern").objective
    assert [objective.mask_rate_at(done) for done in (0.0, 0.5, 1.0)] == pytest.approx([0.30, 0.225, 0.15])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("training.lr=1", "unknown setting 'lr'"),
        ("trainng.num_steps=1", "unknown section trainng"),
        ("training.num_steps=many", r"toml, \[training\]: num_steps='many': expected an integer or None"),
        ("training.learning_rate=true", "learning_rate=True: expected a finite number"),
        ("objective.mask_unit=letters", "'token', 'word', 'span'"),
        ("objective.mask_unit=3", "mask_unit=3: expected one of 'token', 'word', 'span'"),
        ("data.layout=foo", "layout='foo': expected one of 'auto', 'lines'"),
        ("data.max_seqlen=128.0", r"\[data\]: max_seqlen=128.0: expected an integer"),
        ("vocabulary.vocab_size=big", r"\[vocabulary\]: vocab_size='big': expected an integer"),
        ("vocabulary.vocab_size=6", r"vocab_size=6: expected an integer of at least 7, for 5 special tokens"),
        ("vocabulary.add_words=-1", "add_words=-1: expected an integer of at least 0"),
        ("model.config=3", r"\[model\]: config=3: expected keys and values"),
        ("objective.mask_rate=1.5", "a share"),
        ("objective.mask_rate=0.0", "a share above 0"),
        ("data.max_seqlen=-4", r"max_seqlen=-4: expected at least 3, for \[CLS\] A \[SEP\]"),
        ("data.final_max_seqlen=2", "final_max_seqlen=2: expected at least 3"),
        ("training.betas=[0.9,1.5]", "two numbers"),
        ("training.optimizer=[1]", r"optimizer=\(1,\): expected one of adamw"),
        ("training.optimizer=3", "optimizer=3: expected one of adamw"),
        ("training.warmup=1.0", "warmup=1.0: expected a share from 0 to below 1"),
        ("batch_size=3", "section.name=value"),
        ("training.batch_size", "section.name=value"),
        ("model.size.foo=1", "size is 'fit', which has no settings"),
        ("samples.x=1", r"samples is \[.* has no settings"),
    ],
)
def test_invalid_settings(change: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_recipe("cpu-minutes", [change])


def test_every_setting_has_one_name_in_python_on_the_command_line_and_in_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = {
        "size": "tiny", "architecture": "albert", "vocab_size": 300, "lowercase": False, "layout": "lines",
        "max_seqlen": 32, "held_out_share": 0.1, "drop_duplicates": True, "mask_rate": 0.3, "optimizer": "adamw",
        "betas": (0.8, 0.9), "evaluate_every": 7,
    }  # fmt: skip
    recipe = read_recipe("cpu-minutes").changed(**changes)
    recipe = with_length(recipe, num_steps=20, changes=["training.evaluate_every"])
    sections = {name: part.values().keys() for name, part in vars(recipe).items() if isinstance(part, Settings)}
    assert {*changes} <= {*RecipeSettings().values()} - {"objective"}
    content = read_toml(Path(str(files("bertkit.pretraining") / "recipes" / "cpu-minutes.toml")))
    del content["training"]["minutes"], content["training"]["matrix_learning_rate"]
    for name, value in {**changes, "num_steps": 20}.items():
        section = next(section for section, names in sections.items() if name in names)
        content[section][name] = value
    assert recipe_of(content, "file").facts() == recipe.facts()

    read = []
    arguments = ["pretrain", "--corpus", "missing", "--out", str(tmp_path / "run"), "--num-steps", "20"]
    for name, value in changes.items():
        option = f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            arguments.append(option if value else f"--no-{name}")
        else:
            arguments += [option, *map(str, value if isinstance(value, tuple) else (value,))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Pretraining, "start", lambda self, **_: read.append(self.recipe) or Outcome("stopped", 0, None))
        assert run_command(arguments) == 0, capsys.readouterr().err
        capsys.readouterr()
        further = ["--objective", "next-sentence", "--balanced", "--size", "mini"]
        assert run_command([*arguments[:7], *further]) == 0, capsys.readouterr().err
        assert run_command([*arguments[:7], "--balanced"]) == 2
    said = capsys.readouterr().err
    assert "--balanced is a setting of --objective next-sentence, not of --objective masked-lm: omit one" in said
    assert read[0].facts() == recipe.facts()
    assert read[1].objective.balanced and read[1].model.size == "mini"
    assert run_command(["pretrain", "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "--max-seqlen INT: Tokens of the longest sequence, [CLS] and [SEP] included. [default: 64]" in shown
    assert "--generator-size FLOAT: With --objective replaced-tokens: Width of the generator's layers" in shown


def test_rejects_invalid_recipes(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="bert-2018"):
        read_recipe("bert-2019")
    (tmp_path / "own.toml").write_text("[training\n")
    with pytest.raises(UsageError, match="not TOML"):
        read_recipe(tmp_path / "own.toml")
    (tmp_path / "own.toml").write_text("[training]\nnum_steps = 5\nbatch_size = 8\n")
    with pytest.raises(UsageError, match="max_seqlen=4: expected at least 5, for"):
        read_recipe("cpu-minutes", ["data.max_seqlen=4", "objective.name=next-sentence"])
    (tmp_path / "numbers.toml").write_text("samples = [3]\n[training]\nnum_steps = 5\nbatch_size = 8\n")
    with pytest.raises(UsageError, match=r"samples has 3: expected texts with \[MASK\]"):
        read_recipe(tmp_path / "numbers.toml")
    with pytest.raises(UsageError, match=r"samples = \{'x': 1\}: expected a list"):
        read_recipe(tmp_path / "own.toml", ["samples.x=1"])
    assert read_recipe(tmp_path / "own.toml").training.batch_size == 8


# ---- a run


@pytest.mark.full
def test_run_learns_and_its_model_fills_masks(corpus: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    changes = ["training.num_steps=250", "training.optimizer=muon", "training.evaluate_every=50"]
    made = pretraining(corpus, run, *changes, "training.save_every=100")
    assert made.start(resume=False).reason == "finished"
    losses = [event["masked_lm_loss"] for event in events(run, "evaluation")]
    assert losses[-1] < losses[0] - 0.25
    (start,) = events(run, "start")
    assert "random_pair_share" not in start["corpus"]
    assert "num_set_aside" not in start["held_out"] and 1 <= start["held_out"]["num_documents"] <= 10
    assert start["corpus"]["num_documents"] >= 50 and losses[-1] < start["corpus"]["unigram_entropy"] - 0.1
    model = load(run / "model")
    (mask,) = model.fill_mask("the big cat sat on [MASK] tree.")
    assert mask.candidates[0].token == "the"
    sample = events(run, "samples")[-1]["samples"][0]
    assert set(sample) == {"text", "candidates"} and len(sample["candidates"]) == 5


@pytest.mark.full
def test_run_of_the_modern_encoder(corpus: Path, tmp_path: Path) -> None:
    run, modern = tmp_path / "run", "model.architecture=modernbert"
    changes = ["training.num_steps=90", "training.optimizer=muon", "training.evaluate_every=30"]
    assert pretraining(corpus, run, modern, *changes).start(resume=False).reason == "finished"
    losses = [event["masked_lm_loss"] for event in events(run, "evaluation")]
    assert losses[-1] < losses[0] - 0.15
    model = load(run / "model")
    assert isinstance(model.config, ModernBertConfig) and model.config.intermediate_size == 48
    assert len(model.fill_mask("the big cat sat on [MASK] tree.")[0].candidates) == 5
    with pytest.raises(UsageError, match="no next_sentence head"):
        pretraining(corpus, tmp_path / "pairs", modern, "objective.name=next-sentence").start(resume=False)


@pytest.mark.full
def test_sentence_pairs_hold_out_two_documents_of_a_few(tmp_path: Path) -> None:
    few = write_corpus(tmp_path / "few.txt", num_documents=8)
    one = "data.held_out_share=0.000001"
    for run, objective, number in (("with", "next-sentence", 2), ("without", "masked-lm", 1)):
        made = pretraining(few, tmp_path / run, one, f"objective.name={objective}", "training.num_steps=1")
        assert made.start(resume=False).reason == "finished"
        manifest = json.loads((tmp_path / run / "shard" / "held-out" / "manifest.json").read_text())
        assert manifest["num_documents"] == number
        assert any("tokens are held out, so held-out loss is mostly chance" in line for line in made.lines)
    single = write_corpus(tmp_path / "single.txt", num_documents=1, seed=1)
    pairs = ["objective.name=next-sentence", "data.layout=lines"]
    with pytest.raises(DataError, match=r"^the held-out text .*held_out_share.*--held-out.*there is 1"):
        pretraining(few, tmp_path / "files", *pairs, held_out=(single,)).start(resume=False)
    with pytest.raises(DataError, match=r"^the corpus without its held-out share .*there is 1"):
        pretraining(single, tmp_path / "single", *pairs, held_out=(few,)).start(resume=False)
    three = write_corpus(tmp_path / "three.txt", num_documents=3)
    with pytest.raises(DataError, match=r"3 documents, .* 2 documents each: expected 4 or more files, held-out files"):
        pretraining(three, tmp_path / "three", *pairs).start(resume=False)


@pytest.mark.full
@pytest.mark.parametrize("balanced", ["false", "true"])
def test_run_with_sentence_pairs_and_longer_sequences_at_the_end(corpus: Path, tmp_path: Path, balanced: str) -> None:
    run = tmp_path / "run"
    made = pretraining(corpus, run, f"objective.balanced={balanced}", "objective.mask_unit=word",
                       "data.final_max_seqlen=40", "data.final_share=0.5", recipe="bert-2018")  # fmt: skip
    assert made.start(resume=False).reason == "finished"
    first, *_, last = events(run, "step")
    assert first["next_sentence_loss"] > 0.3 and last["tokens"] - 2 * events(run, "step")[2]["tokens"] > 500
    assert list(load(run / "model").network.heads) == ["masked_lm", "next_sentence"]
    share = events(run, "start")[0]["corpus"]["random_pair_share"]
    assert share > 0.52 if balanced == "false" else share == pytest.approx(0.5, abs=0.01)
    assert any(f"{100 * share:.1f} % of the sentence pairs are random" in line for line in made.lines)


def test_stopped_run_resumes_with_the_same_bits(corpus: Path, tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert pretraining(corpus, whole).start(resume=False).reason == "finished"
    steps = 0
    while True:
        made = pretraining(corpus, parts)
        outcome = made.start(resume=True, should_stop=lambda made=made, last=steps: made.state.step >= last + 5)
        if outcome.reason == "finished":
            break
        assert made.state.step == steps + 5
        steps = made.state.step
    assert steps == 10 and any("resuming after step 10" in line for line in made.lines)
    assert digest(parts) == digest(whole)


def test_resumed_run_refuses_another_text(tmp_path: Path) -> None:
    path, run = write_corpus(tmp_path / "corpus.txt"), tmp_path / "run"
    made = pretraining(path, run)
    assert made.start(resume=False, should_stop=lambda: made.state.step >= 5).reason == "stopped"
    whole = path.read_text()
    path.write_text(whole + "the cat sat.\n")
    shutil.rmtree(run / "shard")
    with pytest.raises(
        DataError, match=r"started with other text \(corpus: [\d,]+ tokens, now [\d,]+\): put the files"
    ):
        pretraining(path, run).start(resume=True)
    path.write_text(whole)
    shutil.rmtree(run / "shard")
    assert pretraining(path, run).start(resume=True).reason == "finished"


def test_samples_are_filled_without_dropout() -> None:
    tokenizer = Tokenizer.from_vocab(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS])
    config = BertConfig(
        vocab_size=len(tokenizer.vocabulary), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=24, hidden_dropout_prob=0.5, attention_probs_dropout_prob=0.5,
    )  # fmt: skip
    model = Model.create(config, tokenizer, ["masked_lm"])
    model.mark_trained()
    model.network.train()
    first, second = (_samples(model, ["the cat [MASK] on the [MASK]"], lambda line: None) for _ in range(2))
    assert first == second and len(first["samples"]) == 2 and model.network.training


def test_run_in_used_folder_raises(corpus: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    pretraining(corpus, run, "training.num_steps=2").start(resume=False)
    with pytest.raises(UsageError, match="resume=True"):
        pretraining(corpus, run, "training.num_steps=2").start(resume=False)
    with pytest.raises(UsageError, match=r"recipe\.training\.batch_size"):
        pretraining(corpus, run, "training.num_steps=2", "training.batch_size=8").start(resume=True)
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.doc").write_text("mine")
    for resume in (False, True):
        with pytest.raises(UsageError, match="is not a run"):
            pretraining(corpus, other).start(resume=resume)
    assert [path.name for path in other.iterdir()] == ["thesis.doc"]


def test_invalid_settings_raise_before_the_folder_is_created(corpus: Path, tmp_path: Path) -> None:
    run, without_mask = tmp_path / "run", tmp_path / "without.txt"
    without_mask.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS, "."]))

    def fails(*changes: str, inputs: dict | None = None, source: Path = corpus, **options) -> str:
        made = replace(pretraining(source, run, *changes, **inputs or {}), **options)
        with pytest.raises(BertkitError) as error:
            made.start(resume=False)
        assert not run.exists()
        return str(error.value)

    assert "give --minutes" in fails("model.size=fit")
    assert "architecture='gpt': expected one of bert, modernbert" in fails("model.architecture=gpt")
    assert "num_attention_heads" in fails("model.config.num_attention_heads=5")
    assert "set vocabulary.vocab_size" in fails("model.config.vocab_size=400")
    said = fails("model.architecture=modernbert", "objective.name=next-sentence")
    assert "no next_sentence head" in said and "architecture of bert, albert," in said and "such as masked-lm" in said
    assert "the model has 20 positions" in fails("model.config.max_position_embeddings=20")
    assert "3 ranks" in fails(ranks=Ranks(0, 3))
    with pytest.raises(UsageError, match="falls from the end of its warm-up"):
        pretraining(corpus, run, "training.schedule=inverse-square-root", "training.warmup=0")
    assert "is training text, which held-out text must not be" in fails(inputs={"held_out": (corpus,)})
    (tmp_path / "twice").mkdir()
    (tmp_path / "twice" / "a.txt").symlink_to(corpus)
    (tmp_path / "twice" / "b.txt").symlink_to(corpus)
    assert "b.txt of the corpus is given twice" in fails(source=tmp_path / "twice")
    (tmp_path / "names").mkdir()
    (tmp_path / "names" / "caf\udce9.txt").touch()
    assert r"caf\udce9.txt': the file name is not UTF-8" in fails(source=tmp_path / "names")
    assert "requires several ranks" in fails(shard=True)
    assert "device='abacus'" in fails(device="abacus")
    assert "typo.txt" in fails(source=tmp_path / "typo.txt")
    assert "typo.txt" in fails(inputs={"held_out": (tmp_path / "typo.txt",)})
    assert "no column 'text'" in fails(inputs={"column": "text"})
    with pytest.raises(UsageError, match="the corpus is empty"):
        Pretraining(run, read_recipe("cpu-minutes", TINY), Inputs(())).start(resume=False)
    assert "held_out_share" in fails("data.held_out_share=0")
    assert "[MASK]" in fails(inputs={"vocabulary": without_mask})
    assert "reads from left to right" in fails("model.architecture=gpt2")
    assert "reads from left to right" in fails("model.config.is_decoder=true")
    assert "nowhere" in fails("model.from_checkpoint=true", inputs={"model": str(tmp_path / "nowhere")})


@pytest.mark.parametrize("option", ["--size=mini", "--vocab-size=900", "--set=model.config.hidden_dropout_prob=0.0"])
def test_settings_of_new_models_are_refused_for_a_checkpoint(option: str, corpus: Path, tmp_path: Path, capsys) -> None:
    out = tmp_path / "run"
    arguments = ["pretrain", "--corpus", str(corpus), "--out", str(out), "--recipe", "domain-adapt", "--model", "any"]
    assert run_command([*arguments, option]) == 2 and not out.exists()
    assert "the checkpoint to continue from has its own" in capsys.readouterr().err


def test_settings_of_new_models_are_refused_for_a_checkpoint_in_files_and_in_python(tmp_path: Path) -> None:
    path, own = tmp_path / "mine.toml", "has its own "
    for section in (
        '[model]\nfrom_checkpoint = true\nsize = "tiny"\n',
        "[model]\nfrom_checkpoint = true\n[vocabulary]\nvocab_size = 99\n",
    ):
        path.write_text(section)
        with pytest.raises(UsageError, match=f"mine.toml: .*{own}(size|vocab_size): omit"):
            read_recipe(path, ["training.num_steps=2"])
    with pytest.raises(UsageError, match=f"{own}vocab_size: omit"):
        read_recipe("domain-adapt").changed(vocab_size=99)
    with pytest.raises(UsageError, match=f"{own}size: omit"):
        read_recipe("cpu-minutes", ["model.size=tiny", "model.from_checkpoint=true"])
    for recipe in (
        read_recipe("cpu-minutes", ["model.from_checkpoint=true"]),
        read_recipe("cpu-minutes").changed(from_checkpoint=True),
    ):
        assert recipe.model.from_checkpoint


def test_bad_samples_and_cased_vocabularies_raise_before_training(corpus: Path, tmp_path: Path) -> None:
    run, vocabulary = tmp_path / "run", tmp_path / "vocab.txt"
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[NUM]", "[unused0]"]

    def fails(*changes: str, samples: tuple = (), **inputs) -> str:
        made = pretraining(corpus, run, *changes, "training.num_steps=2", **inputs)
        made.recipe = replace(made.recipe, samples=samples)
        with pytest.raises(UsageError) as error:
            made.start(resume=False)
        return str(error.value)

    vocabulary.write_text("\n".join([*special, "Paris", "NATO", *WORDS, "."]))
    cased = fails(vocabulary=vocabulary)
    assert "2 entries with uppercase letters, such as 'Paris'" in cased and "--no-lowercase" in cased
    vocabulary.write_text("\n".join([*special, *WORDS, "."]))
    assert "'the cat': put [MASK]" in fails(samples=("the cat",), vocabulary=vocabulary)
    assert "'the cat': put [MASK]" in fails(samples=("the cat",))  # before a vocabulary is trained
    short, long = "model.config.max_position_embeddings=24", "the [MASK] " * 12
    assert "of 26 tokens: the model has 24 positions" in fails(short, samples=(long,), vocabulary=vocabulary)
    assert not run.exists()
    assert "tokens: the model has 24 positions" in fails(short, samples=(long,))
    assert not (run / "shard").exists() and not checkpoints(run)


@pytest.mark.parametrize(
    ("text", "message", "changes"),
    [
        ("She sat there. He ran on.\n", "one document, which cannot be split", ()),
        ("A cat.\n\nA dog.\n\nA mat.\n", "of 2 documents each", ("objective.name=next-sentence",)),
        ("", "no words to learn from", ()),
    ],
)
def test_folder_of_refused_text_is_used_by_the_corrected_command(
    corpus: Path, tmp_path: Path, text: str, message: str, changes: tuple[str, ...]
) -> None:
    run, small = tmp_path / "run", tmp_path / "small.txt"
    small.write_text(text)
    for _ in range(2):  # the same command has the same answer
        with pytest.raises(DataError, match=message):
            pretraining(small, run, "training.num_steps=1", *changes).start(resume=False)
    assert pretraining(corpus, run, "training.num_steps=1").start(resume=False).reason == "finished"
    assert json.loads((run / "recipe.json").read_text())["inputs"]["corpus"] == [str(corpus)]
    assert not (run / "refused.txt").exists()


def test_refused_text_is_kept_for_the_same_command(tmp_path: Path) -> None:
    run, small, made = tmp_path / "run", tmp_path / "small.txt", []
    small.write_text("She sat there. He ran on.\n")
    for num_steps in (1, 2):
        with pytest.raises(DataError, match="one document"):
            pretraining(small, run, f"training.num_steps={num_steps}").start(resume=False)
        made.append((run / "vocab.txt").stat().st_mtime_ns)
    assert made[0] == made[1] and (run / "shard" / "tokens.bin").stat().st_size


def test_folder_without_started_training_is_reused(corpus: Path, tmp_path: Path, monkeypatch) -> None:
    run = tmp_path / "run"

    def stop(*args, **options):
        raise KeyboardInterrupt("stopped here")

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt, match="stopped here"):
        patch.setattr("bertkit.pretraining.run.held_out_batches", stop)
        pretraining(corpus, run, "training.num_steps=2").start(resume=False)
    made = [run / "vocab.txt", run / "shard" / "tokens.bin"]
    times = [path.stat().st_mtime_ns for path in made]
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt, match="stopped here"):  # the same text
        patch.setattr("bertkit.pretraining.run.held_out_batches", stop)
        pretraining(corpus, run, "training.num_steps=3").start(resume=True)
    assert [path.stat().st_mtime_ns for path in made] == times
    with pytest.raises(UsageError, match="prepared with other settings"):
        pretraining(corpus, run, "training.num_steps=1", "vocabulary.vocab_size=70").start(resume=True)
    again = pretraining(corpus, run, "training.num_steps=1", "objective.mask_rate=0.2")
    assert again.start(resume=False).reason == "finished"
    assert [path.stat().st_mtime_ns for path in made] == times
    assert json.loads((run / "recipe.json").read_text())["recipe"]["training"]["num_steps"] == 1
    other = tmp_path / "cake"
    other.mkdir()
    (other / "recipe.json").write_text('{"flour": 500}')
    (other / "vocab.txt").write_text("mine")
    with pytest.raises(UsageError, match="choose another folder"):
        pretraining(corpus, other).start(resume=False)
    assert (other / "vocab.txt").read_text() == "mine"


@pytest.mark.parametrize("piece", ["claim_run_folder", "learn_vocabulary", "write_shards", "log_start"])
def test_full_disk_is_named_before_the_first_checkpoint(corpus: Path, tmp_path: Path, monkeypatch, piece: str) -> None:
    def full(*_, **__) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    run = tmp_path / "run"
    with monkeypatch.context() as patch, pytest.raises(TrainingError, match=r"run cannot be written \(No space.*room"):
        module = "bertkit.training.job" if piece == "log_start" else "bertkit.pretraining.run"
        patch.setattr(f"{module}.{piece}", full)
        pretraining(corpus, run, "training.num_steps=1").start(resume=False)
    assert (
        not checkpoints(run)
        and pretraining(corpus, run, "training.num_steps=1").start(resume=True).reason == "finished"
    )


def test_run_resumes_with_other_samples_and_expected_curve(corpus: Path, tmp_path: Path) -> None:
    made = pretraining(corpus, tmp_path / "run", "training.num_steps=3")
    assert made.start(resume=False, should_stop=lambda: made.state.step >= 1).reason == "stopped"
    again = pretraining(corpus, tmp_path / "run", "training.num_steps=3")
    assert again.recipe.samples and again.recipe.expected
    again.recipe = replace(again.recipe, samples=("a [MASK].",), expected=({"tokens": 5, "masked_lm_loss": 2.0},))
    assert again.start(resume=True).reason == "finished"
    assert events(tmp_path / "run", "samples")[-1]["samples"][0]["text"] == "a [MASK]."


def test_bad_corpora_and_vocabularies(corpus: Path, tmp_path: Path) -> None:
    def fails(text: str, *changes: str, **inputs) -> str:
        path = tmp_path / "bad.txt"
        path.write_text(text)
        with pytest.raises(BertkitError) as error:
            pretraining(path, tmp_path / f"run {len(list(tmp_path.iterdir()))}", *changes, **inputs).start(resume=False)
        return str(error.value)

    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, "."]))
    without_mask = tmp_path / "without.txt"
    without_mask.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS, "."]))
    assert "no sentences" in fails("", vocabulary=vocabulary)
    assert "one sentence" in fails("the cat sat.\n", vocabulary=vocabulary)
    singles = "\n\n".join(["the cat sat."] * 30)
    assert "every document has one" in fails(
        singles, "objective.name=next-sentence", "data.layout=lines", vocabulary=vocabulary
    )
    assert "[MASK]" in fails(corpus.read_text(), vocabulary=without_mask)
    assert "no entries such as ##ing" in fails(corpus.read_text(), "objective.mask_unit=word", vocabulary=vocabulary)
    assert "held" in fails(corpus.read_text(), "data.held_out_share=0", vocabulary=vocabulary)
    assert "--model" in fails(corpus.read_text(), vocabulary=vocabulary, model="all-MiniLM-L6-v2")
    with pytest.raises(DataError, match=r"none\.txt"):
        pretraining(tmp_path / "none.txt", tmp_path / "run none").start(resume=False)


def test_skipped_text_is_printed_logged_and_reported(corpus: Path, tmp_path: Path) -> None:
    folder, held_out, run = tmp_path / "texts", tmp_path / "held-out.txt", tmp_path / "run"
    folder.mkdir()
    (folder / "a.txt").write_text(corpus.read_text() + "the caf\u00e9.\nun \u00e9t\u00e9.\n", encoding="latin-1")
    for name in ("B.rst", "c.md", "d.txt.gz", "e.text"):
        (folder / name).write_text("the cat sat.\n")
    held_out.write_text(
        write_corpus(tmp_path / "x.txt", 9, seed=1).read_text() + "the caf\u00e9.\n", encoding="latin-1"
    )
    made = pretraining(folder, run, "training.num_steps=2", held_out=(held_out,))
    assert made.start(resume=False).reason == "finished"
    (of_corpus,) = [line for line in made.lines if line.startswith("corpus: ")]
    (of_held_out,) = [line for line in made.lines if line.startswith("held-out files: ")]
    (start,) = events(run, "start")
    num_duplicates = start["corpus"]["num_duplicates"]
    assert num_duplicates > 0 and f"duplicate sentences: {num_duplicates:,}, kept" in of_corpus
    assert f"could not be read: 2, see {run / 'shard' / 'set_aside.jsonl'}" in of_corpus
    names = ", ".join(str(folder / name) for name in ("B.rst", "c.md", "d.txt.gz"))
    assert f"files skipped because of their extension: 4 ({names}, ...)" in of_corpus
    assert "not detected" not in of_corpus
    assert f"could not be read: 1, see {run / 'held-out' / 'set_aside.jsonl'}" in of_held_out
    assert "extension" not in of_held_out
    names = ("num_set_aside", "num_invalid", "num_left_out", "num_forgotten")
    assert [start["corpus"][name] for name in names] == [2, 3, 4, 0]
    assert [start["held_out"][name] for name in names] == [1, 1, 0, 0] and start["held_out"]["num_documents"] == 9
    (said,) = [said for kind, said in findings_of(read_run(run)) if "Not all of the text was read" in said]
    assert "of the corpus 2 rows and sentences were skipped" in said and "of the corpus 4 files were skipped" in said
    assert "of the held-out files 1 rows" in said
    page = training_report(read_run(run))
    assert "held out: rows skipped" in page and "files skipped for their extension" in page


@pytest.mark.full(sample=1)
@pytest.mark.cpu_only
@pytest.mark.parametrize(("precision", "is_slow"), [("float32", True), ("bfloat16", True), ("bfloat16", False)])
def test_bfloat16_without_fast_instructions_is_printed(
    precision: str, is_slow: bool, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bertkit.training.job.has_fast_bfloat16", lambda: not is_slow)
    made = pretraining(corpus, tmp_path / "run", "training.num_steps=1", f"training.precision={precision}")
    assert made.start(resume=False).reason == "finished"
    lines = [line for line in made.lines if "bfloat16" in line]
    assert len(lines) == (1 if (precision, is_slow) == ("bfloat16", True) else 0)
    assert all(line.startswith(PRECISION_LINE) for line in lines)


PRECISION_LINE = (
    "precision bfloat16: this processor lacks fast bfloat16 instructions (or its virtual machine hides AMX), so "
    "products run in float32 and take its time"
)


@pytest.mark.filterwarnings("error::bertkit.errors.UnknownWordsWarning")
def test_share_of_unknown_words_is_printed(corpus: Path, tmp_path: Path) -> None:
    vocabulary, path = tmp_path / "vocab.txt", tmp_path / "corpus.txt"
    vocabulary.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, "."]))
    held_out = write_corpus(tmp_path / "held-out.txt", 9, seed=1)
    path.write_text(corpus.read_text() + "\u65e5\u672c.\n" * 30)
    made = pretraining(path, tmp_path / "run", "training.num_steps=1", vocabulary=vocabulary, held_out=(held_out,))
    assert made.start(resume=False).reason == "finished"
    counts = np.fromfile(tmp_path / "run" / "shard" / "counts.bin", "<i8")
    of_samples, line = [line for line in made.lines if "[UNK]" in line]
    assert of_samples.startswith("3 of the 3 samples have words that the vocabulary cannot spell")
    assert counts[1] == 60 and line.startswith("corpus: ") and f"{60 / counts.sum():.1%} of the tokens" in line


@pytest.mark.full
def test_vocabulary_is_learned_in_little_memory_from_bad_text(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("bertkit.corpus.documents._PART_BYTES", 5_000)
    path = tmp_path / "latin-1.txt"
    path.write_text("A caf\u00e9 on the street.\nThe cat sat.\n" * 1_000, encoding="latin-1")

    def num_set_aside() -> int:
        return sum(type(one) is SkippedRow for one in gc.get_objects())

    before, texts = num_set_aside(), texts_of([path], "lines", None)
    assert sum(1 for _ in islice(texts, 999)) == 999  # of the thousand that can be read
    assert num_set_aside() - before < 200
    assert list(texts) == ["The cat sat."]


@pytest.mark.full
def test_continuing_from_a_checkpoint(corpus: Path, tmp_path: Path) -> None:
    pretraining(corpus, tmp_path / "first").start(resume=False)
    start = tmp_path / "first" / "model"
    adapt = ["model.from_checkpoint=true", "training.num_steps=3"]
    made = pretraining(corpus, tmp_path / "second", *adapt, recipe="domain-adapt", model=str(start))
    assert made.start(resume=False).reason == "finished"
    (first,) = events(tmp_path / "second", "evaluation")[:1]
    last = events(tmp_path / "first", "evaluation")[-1]
    assert abs(first["masked_lm_loss"] - last["masked_lm_loss"]) < 0.5
    with pytest.raises(UsageError, match="name it with --model"):
        pretraining(corpus, tmp_path / "third", *adapt, recipe="domain-adapt").start(resume=False)


@pytest.mark.full
def test_continuing_after_a_non_finite_loss(corpus: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    compute = BatchGradients.compute

    def broken_at_step_4(self: BatchGradients, batch: PretrainingBatch, step: int) -> tuple[Tensor, Tensor, int]:
        sums, norm, num_tokens = compute(self, batch, step)
        return sums, norm * math.nan if step == 4 else norm, num_tokens

    monkeypatch.setattr(BatchGradients, "compute", broken_at_step_4)
    code = run_command(["pretrain", "--corpus", str(corpus), "--out", str(tmp_path / "run"), "--set", *TINY])
    start, error = tmp_path / "run" / "checkpoints" / "step-00000004" / "model", capsys.readouterr().err
    ways = ("not a finite number", "--out", "--model", "--learning-rate LOWER", "--from-checkpoint")
    ways = (*ways, str(start))
    assert code == 2 and all(way in error for way in ways), error
    monkeypatch.undo()
    lower = ["training.learning_rate=1e-4", "model.from_checkpoint=true", "training.num_steps=1"]
    assert pretraining(corpus, tmp_path / "on", *lower, model=str(start)).start(resume=False).reason == "finished"


@pytest.mark.full
def test_domain_words_are_added_to_a_checkpoint(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus.txt")
    pretraining(corpus, tmp_path / "first", "vocabulary.vocab_size=60").start(resume=False)
    start = tmp_path / "first" / "model"
    adapt = ["model.from_checkpoint=true", "training.num_steps=8", "vocabulary.add_words=5"]
    made = pretraining(corpus, tmp_path / "second", *adapt, recipe="domain-adapt", model=str(start))
    assert made.start(resume=False, should_stop=lambda: made.state.step >= 5).reason == "stopped"
    assert [line.count(",") for line in made.lines if line.startswith("added 5 words to the vocabulary: ")] == [4]
    again = pretraining(corpus, tmp_path / "second", *adapt, recipe="domain-adapt", model=str(start))
    assert again.start(resume=True).reason == "finished"
    before, after = load(start).tokenizer, load(tmp_path / "second" / "model").tokenizer
    added = after.vocabulary.tokens[len(before.vocabulary) :]
    assert len(added) == 5 and after.vocabulary.tokens[: len(before.vocabulary)] == before.vocabulary.tokens
    assert all(len(after.encode(word)) == 3 < len(before.encode(word)) for word in added)


def test_a_corpus_without_domain_words_is_logged_as_such(corpus: Path, tmp_path: Path) -> None:
    assert pretraining(corpus, tmp_path / "first", "training.num_steps=1").start(resume=False).reason == "finished"
    adapt = ["model.from_checkpoint=true", "training.num_steps=1", "vocabulary.add_words=5"]
    start = str(tmp_path / "first" / "model")
    made = pretraining(corpus, tmp_path / "second", *adapt, recipe="domain-adapt", model=start)
    assert made.start(resume=False).reason == "finished"
    (line,) = (line for line in made.lines if "to the vocabulary" in line)
    assert line.startswith("added no words to the vocabulary: ")


@pytest.mark.full
def test_checkpoint_without_a_head_requires_new(corpus: Path, tmp_path: Path) -> None:
    adapt = ["model.from_checkpoint=true", "training.num_steps=2", "training.batch_size=4"]
    with pytest.raises(MissingHeadError, match="--new-head"):
        pretraining(corpus, tmp_path / "run", *adapt, recipe="domain-adapt", model="all-MiniLM-L6-v2").start(
            resume=False
        )
    made = pretraining(corpus, tmp_path / "new", *adapt, recipe="domain-adapt", model="all-MiniLM-L6-v2", new_head=True)
    assert made.start(resume=False).reason == "finished"
    assert "masked_lm" in load(tmp_path / "new" / "model").network.heads


@pytest.mark.full
def test_new_heads_leave_the_stored_ones(corpus: Path, tmp_path: Path) -> None:
    assert pretraining(corpus, tmp_path / "run", "training.num_steps=1").start(resume=False).reason == "finished"
    saved = str(tmp_path / "run" / "model")
    pairs = read_recipe("domain-adapt", ["objective.name=next-sentence", "data.max_seqlen=16"])
    with pytest.raises(MissingHeadError, match=r"no next_sentence head .*--new-head"):
        new_model(pairs, saved, None)
    heads, stored = new_model(pairs, saved, None, new_head=True).network.heads, load(saved, device="cpu").network.heads
    assert list(heads) == ["masked_lm", "next_sentence"] and list(stored) == ["masked_lm"]
    for name, parameter in stored["masked_lm"].named_parameters():
        assert torch.equal(parameter, heads["masked_lm"].get_parameter(name))


# ---- processes


def start(arguments: list[str], **environment: str) -> subprocess.Popen:
    command = [sys.executable, "-c", "from bertkit.cli import main; main()", "pretrain", *arguments]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | environment
    )


def test_printed_loss_is_that_of_the_saved_model(corpus, tmp_path, monkeypatch, capsys) -> None:
    losses = iter([5.0, 3.0, 4.0, 4.5])
    monkeypatch.setattr("bertkit.pretraining.run.evaluate", lambda *args, **options: {"masked_lm_loss": next(losses)})
    arguments = ["pretrain", "--corpus", str(corpus), "--out", str(tmp_path / "run"), "--set", *TINY,
                 "training.num_steps=2", "training.evaluate_every=1"]  # fmt: skip
    for loss, more in ((4.0, []), (4.5, ["--resume"])):  # the second time there is nothing left to train
        assert run_command([*arguments, *more]) == 0
        printed = json.loads(capsys.readouterr().out)
        assert (printed["step"], printed["masked_lm_loss"]) == (2, loss)
        assert (printed["best_step"], printed["best_masked_lm_loss"]) == (1, 3.0)


@pytest.mark.full
@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_stop_signal_saves_and_exits(corpus: Path, tmp_path: Path, number: int) -> None:
    run = tmp_path / "run"
    changes = [*TINY, "training.num_steps=100000", "training.save_every=100000", "training.evaluate_every=100000"]
    process = start(["--corpus", str(corpus), "--out", str(run), "--set", *changes])
    for _ in range(1_200):
        if (run / "metrics.jsonl").exists() and '"event": "step"' in (run / "metrics.jsonl").read_text():
            break
        time.sleep(0.05)
    process.send_signal(number)
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert json.loads(out)["reason"] == "stopped" and "--resume" in errors
    assert errors.count("stopping as soon as this step is done") == 1
    step = events(run, "end")[0]["step"]
    assert (run / "checkpoints" / f"step-{step:08d}" / "state.json").exists()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("piece", ["learn_vocabulary", "write_shards", "make_feed"])
def test_stop_signal_before_training_stops_at_once(
    corpus: Path, tmp_path: Path, monkeypatch, number: int, code: int, piece: str
) -> None:
    arguments = ["pretrain", "--corpus", str(corpus), "--out", str(tmp_path / "run"), "--set", *TINY]
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, "."]))
    if piece != "learn_vocabulary":
        arguments += ["--vocab", str(vocabulary)]

    def interrupted(*_, **__) -> None:
        signal.raise_signal(number)
        raise AssertionError("the signal was only noted")

    monkeypatch.setattr(f"bertkit.pretraining.run.{piece}", interrupted)
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as `main` has it
    try:
        results = run_command(arguments)
    except SystemExit as ending:
        results = ending.code
    finally:
        signal.signal(signal.SIGTERM, before)
    assert results == code


@pytest.mark.slow
def test_killed_at_random_moments_it_ends_with_the_same_bits(corpus: Path, tmp_path: Path) -> None:
    changes = ["training.num_steps=80", "training.save_every=10", "training.evaluate_every=80"]
    arguments = ["pretrain", "--corpus", str(corpus), "--set", *TINY, *changes]
    check = verify_resume(arguments, tmp_path / "runs", num_kills=1, seed=1, log=lambda line: None)
    assert check.verdict == "exact" and len(check.killed_after_steps) == 1
    assert 0 < check.resumed_from_steps[0] <= check.killed_after_steps[0] < 80


def test_verify_resume_of_a_run_that_continues_from_a_checkpoint(monkeypatch, capsys) -> None:
    given = []

    def verify(arguments: list[str], folder: Path, **options) -> ResumeCheck:
        given.extend(arguments)
        return ResumeCheck("a", "a", (3,), (2,))

    monkeypatch.setattr("bertkit.cli.killed_runs.verify_resume", verify)
    assert run_command(["verify-resume", "--recipe", "domain-adapt", "--model", "minilm", "--new-head"]) == 0
    assert given[-3:] == ["--model", "minilm", "--new-head"] and '"exact"' in capsys.readouterr().out


STAND_IN = """
import json, pathlib, sys, time
goes_on, final, num_checkpoints = {goes_on}, {final!r}, {num_checkpoints}
run = pathlib.Path(sys.argv[-1])
run.mkdir(exist_ok=True)
metrics = run / "metrics.jsonl"
before = metrics.read_text().splitlines() if metrics.exists() else []
def write(event, step, **facts):
    with metrics.open("a") as file:
        file.write(json.dumps(dict(event=event, step=step, **facts)) + chr(10))
write("start", 5 if goes_on and before else 0)
write("step", 2, seconds=0.0)
for _ in range(num_checkpoints):
    write("checkpoint", 5)
time.sleep(num_checkpoints if run.name == "killed" and not before else 0)
write("step", 10, seconds=0.4)
(run / "model").mkdir(exist_ok=True)
(run / "model" / "model.safetensors").write_text(final if before else "whole")
"""


@pytest.mark.parametrize(
    ("verdict", "goes_on", "final", "num_checkpoints"),
    [
        ("exact", True, "whole", 1),
        ("different", True, "other", 1),
        ("inconclusive", False, "whole", 1),  # killed, and started again
        ("inconclusive", True, "whole", 0),  # never killed, as it wrote no checkpoint
    ],
)
def test_verdicts_of_killed_runs(
    tmp_path: Path, monkeypatch, capsys, verdict: str, goes_on: bool, final: str, num_checkpoints: int
) -> None:
    program = STAND_IN.format(goes_on=goes_on, final=final, num_checkpoints=num_checkpoints)
    monkeypatch.setattr("bertkit.cli.killed_runs._COMMAND", (sys.executable, "-c", program))
    with pytest.raises(SystemExit) if verdict != "exact" else nullcontext():
        verify_resume_command(kills=1)
    assert json.loads(capsys.readouterr().out)["verdict"] == verdict


def test_verify_resume_refuses_no_kills_before_it_runs(capsys) -> None:
    for option in ("--kills", "--num-steps"):
        assert run_command(["verify-resume", option, "0"]) == 2
        assert f"{option} 0: expected an int of at least 1" in capsys.readouterr().err


def on_two_ranks(arguments: list[str]) -> None:
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--no-python"]
    program = [sys.executable, "-c", "from bertkit.cli import main; main()", "pretrain"]
    results = subprocess.run([*launch, *program, *arguments], capture_output=True, text=True, timeout=240)
    assert results.returncode == 0, results.stderr


WITHOUT_DROPOUT = [
    "model.config.hidden_dropout_prob=0", "model.config.attention_probs_dropout_prob=0", "training.num_steps=20",
    "training.log_every=1",
]  # fmt: skip


@pytest.fixture(scope="module")
def one_rank(corpus: Path, tmp_path_factory) -> Path:
    run = tmp_path_factory.mktemp("ranks") / "one"
    assert pretraining(corpus, run, *WITHOUT_DROPOUT).start(resume=False).reason == "finished"
    return run


@pytest.mark.full
@pytest.mark.parametrize(
    "first_steps",
    [
        pytest.param(0, id="from the start", marks=pytest.mark.slow),
        pytest.param(7, id="sharded, after seven steps of one"),
    ],
)
def test_two_ranks_equal_one(corpus: Path, one_rank: Path, tmp_path: Path, first_steps: int) -> None:
    run, options = tmp_path / "two", []
    if first_steps:
        made = pretraining(corpus, run, *WITHOUT_DROPOUT)
        assert made.start(resume=False, should_stop=lambda: made.state.step >= first_steps).reason == "stopped"
        options = ["--shard", "--resume"]
    on_two_ranks(["--corpus", str(corpus), "--out", str(run), *options, "--set", *TINY, *WITHOUT_DROPOUT])
    one, two = (events(folder, "step") for folder in (one_rank, run))
    assert [event["step"] for event in two] == [event["step"] for event in one] == list(range(1, 21))
    assert max(abs(a["loss"] - b["loss"]) for a, b in zip(one, two, strict=True)) < 1e-5
    assert [event["tokens"] for event in one] == [event["tokens"] for event in two]
    weights = [load(folder / "model").network.state_dict() for folder in (one_rank, run)]
    assert all((weights[0][name] - weights[1][name]).abs().max() < 1e-3 for name in weights[0])


def process_of_rank(launcher: int, rank: int) -> int | None:
    """The process id of a rank among the children of torchrun, once it runs."""
    for line in Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split():
        with suppress(OSError):  # it may just have ended
            if f"RANK={rank}".encode() in Path(f"/proc/{line}/environ").read_bytes().split(b"\0"):
                return int(line)
    return None


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="reads the children of a process from /proc")
def test_killed_rank_restarts_and_ends_at_the_same_loss(corpus: Path, one_rank: Path, tmp_path: Path) -> None:
    run = tmp_path / "two"
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
              "--max-restarts", "1", "--no-python"]  # fmt: skip
    program = [sys.executable, "-c", "from bertkit.cli import main; main()", "pretrain"]
    arguments = ["--corpus", str(corpus), "--out", str(run), "--resume", "--set", *TINY, *WITHOUT_DROPOUT]
    launcher = subprocess.Popen([*launch, *program, *arguments, "training.save_every=2"], stderr=subprocess.PIPE)
    deadline = time.monotonic() + 180
    while not checkpoints(run) and time.monotonic() < deadline and launcher.poll() is None:
        time.sleep(0.005)
    (rank,) = {process_of_rank(launcher.pid, 1)} - {None}
    os.kill(rank, signal.SIGKILL)
    _, errors = launcher.communicate(timeout=240)
    assert launcher.returncode == 0, errors.decode()
    assert b"exitcode: -9" in errors or b"Signal 9" in errors, errors.decode()  # and the others started again
    one, two = ({event["step"]: event["loss"] for event in events(folder, "step")} for folder in (one_rank, run))
    assert list(one) == sorted(two) == list(range(1, 21))
    assert max(abs(one[step] - two[step]) for step in one) < 1e-5


def test_tensorboard_on_request(corpus: Path, tmp_path: Path) -> None:
    made = pretraining(corpus, tmp_path / "run", "training.num_steps=2")
    made.tensorboard = True
    try:
        import tensorboard  # noqa: F401
    except ImportError:
        with pytest.raises(DependencyError, match=r"bertkit\[track\]"):
            made.start(resume=False)
    else:
        assert made.start(resume=False).reason == "finished" and any((tmp_path / "run" / "tensorboard").iterdir())
