"""Students: layers of a teacher, its probabilities, its vectors, its scores."""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from examples_of_tasks import WORDS, call
from random_models import our_model
from sentence_transformers import SentenceTransformer

import bertkit
from bertkit import Model, TextSet
from bertkit.checkpoint import SentenceSettings
from bertkit.checkpoint.checkpoint import TrainedTask
from bertkit.errors import UsageError
from bertkit.finetuning import Finetuning, FinetuningSettings, sweep, teaching
from bertkit.finetuning.distillation import Distillation
from bertkit.finetuning.student import layers_taken, student_of
from bertkit.finetuning.teaching import taught
from bertkit.inference.vector_cache import kept_scores
from bertkit.tasks import Alignment, SequenceClassification, Similarity, TokenClassification
from bertkit.tasks.examples import TextExample
from bertkit.tokenizer.layout import Layout
from bertkit.training import compute_gradients, outputs_of
from bertkit.training.distillation import DistillationSettings, distilled, teach

pytestmark = pytest.mark.usefixtures("one_thread")

SHAPE = {
    "vocab_size": 99, "hidden_size": 20, "num_attention_heads": 4, "intermediate_size": 44, "num_hidden_layers": 4,
    "max_position_embeddings": 24, "hidden_act": "gelu", "type_vocab_size": 2, "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}  # fmt: skip
LABELS = ("a", "b", "c")


def texts(number: int, seed: int = 0) -> list[str]:
    draw = np.random.default_rng(seed)
    return [" ".join(draw.choice(WORDS, int(draw.integers(3, 9)))) for _ in range(number)]


def classifier() -> Model:
    model = our_model("sequence_classification", 3, 3, **SHAPE)
    model.checkpoint.label_names = LABELS
    model.checkpoint.trained = TrainedTask(SequenceClassification(LABELS), Layout(24, "truncate"))
    return model


@pytest.mark.cpu_only
def test_student_has_layers_of_its_teacher(tmp_path: Path) -> None:
    teacher = classifier()
    student = student_of(teacher, 2)
    assert layers_taken(4, 2) == [0, 3] and student.config.num_hidden_layers == 2
    for number, taken in enumerate((0, 3)):
        ours, theirs = student.network.encoder.layers[number], teacher.network.encoder.layers[taken]
        assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))
    student.save(tmp_path / "student")
    again, given = bertkit.load(tmp_path / "student"), texts(5)
    assert again.predict(given) == student.predict(given) and teacher.config.num_hidden_layers == 4
    for number in (0, 4):
        with pytest.raises(UsageError, match="expected 1 to 3, fewer than the teacher has"):
            student_of(teacher, number)


@pytest.mark.parametrize("kind", ["sequences", "tokens"])
def test_loss_equals_that_of_distilbert(kind: str) -> None:
    """Against torch's own losses of the logits, in one part and in three."""
    if kind == "sequences":
        teacher, head = classifier(), "sequence_classification"
        task, data = teacher.trained.task, [TextExample(text, label=LABELS[i % 3]) for i, text in enumerate(texts(7))]
    else:
        tags, head = ("O", "B-X", "I-X"), "token_classification"
        teacher, task = our_model(head, 3, 3, **SHAPE), TokenClassification(tags)
        data = [TokenClassification.example(text.split(), ["O"] * len(text.split())) for text in texts(7)]
    student = student_of(teacher, 2)
    settings = DistillationSettings(3.0, 0.7, 0.2, 0.4)
    labeled = task.labeled(data, task.encode(student.tokenizer, data, Layout(24, task.on_long)))
    batch = labeled.take(np.arange(len(labeled)))
    outputs = [outputs_of(model.network, batch) for model in (student, teacher)]
    logits = [output.logits[head] for output in outputs]
    if kind == "tokens":
        logits = [each[batch.labels != -100] for each in logits]
    soft = F.kl_div((logits[0] / 3).log_softmax(-1), (logits[1] / 3).softmax(-1), reduction="batchmean") * 9
    states = [output.encoded.last_hidden_state for output in outputs]
    hidden = F.cosine_embedding_loss(*states, torch.ones(len(states[0])))
    hard = F.cross_entropy(outputs[0].logits[head], batch.labels)
    expected = float((0.7 * soft + 0.2 * hard + 0.4 * hidden).detach())
    whole = distilled(teacher.network, head, settings, student.network, task)
    totals, parameters = whole.totals(batch), list(student.network.parameters())
    for num_parts in (1, 3):
        losses = compute_gradients(
            parameters, batch.split(num_parts), lambda part: whole.loss(outputs_of(student.network, part), part, totals)
        )
        assert sum(float(loss.value) for loss in losses) == pytest.approx(expected, rel=1e-5)
        metrics = whole.metrics(torch.stack([loss.sums for loss in losses]).sum(dim=0))
        assert metrics["loss"] == pytest.approx(expected, rel=1e-5)
        assert metrics["soft_loss"] == pytest.approx(float(soft.detach()), rel=1e-5)
    assert all(parameter.grad is None for parameter in teacher.network.parameters())


@pytest.mark.parametrize(
    "change", [{"soft_temperature": math.nan}, {"soft_temperature": "2"}, {"soft_weight": math.nan},
               {"hidden_weight": math.inf}, {"task_weight": -1.0}],
)  # fmt: skip
def test_settings_that_are_no_numbers(change: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=f"{next(iter(change))}.*: expected"):
        DistillationSettings(**change)


@pytest.mark.full
def test_distill_a_classifier(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    teacher = classifier()
    teacher.save(tmp_path / "teacher")
    (tmp_path / "train.txt").write_text("\n".join(texts(60, 1)) + "\n")
    (tmp_path / "dev.txt").write_text("\n".join(texts(40, 2)) + "\n")
    arguments = ["--teacher", str(tmp_path / "teacher"), "--layers", "2", "--unlabeled", "--learning-rate", "0.003"]
    code, (result,), printed = call(
        capsys, "distill", *arguments, "--train", str(tmp_path / "train.txt"), "--dev", str(tmp_path / "dev.txt"),
        "--out", str(tmp_path / "out"), "--num-epochs", "6", "--batch-size", "10",
    )  # fmt: skip
    assert code == 0, printed
    student, given = bertkit.load(tmp_path / "out"), texts(40, 2)
    agreement = np.mean(
        [a.label == b.label for a, b in zip(student.predict(given), teacher.predict(given), strict=True)]
    )
    before = bertkit.load(tmp_path / "out-student").predict(given)
    untrained = np.mean([a.label == b.label for a, b in zip(before, teacher.predict(given), strict=True)])
    assert agreement == pytest.approx(result["accuracy"]) and agreement > untrained
    assert student.config.num_hidden_layers == 2


def test_untrained_student_is_judged_on_the_device_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    classifier().save(tmp_path / "student")
    devices: list[str] = []
    monkeypatch.setattr("bertkit.finetuning.distillation.resolve_device", torch.device, raising=False)
    monkeypatch.setattr("bertkit.finetuning.distillation.judge", lambda model, dev: devices.append(model.device.type))
    run = Distillation(tmp_path / "out", tmp_path / "student", "sequence-classification", device="meta")
    run.frozen([], [])
    assert devices == ["meta"]


def test_students_with_other_labels_than_their_teacher_are_refused(tmp_path: Path) -> None:
    teacher, student = classifier(), classifier()
    teacher.save(tmp_path / "teacher")
    student.checkpoint.label_names = LABELS[::-1]
    student.checkpoint.trained = TrainedTask(SequenceClassification(LABELS[::-1]), Layout(24, "truncate"))
    student.save(tmp_path / "student")
    rows = [TextExample(text, label=label) for text in texts(6) for label in LABELS]
    run = Distillation(tmp_path / "out", tmp_path / "student", "sequence-classification", teacher=tmp_path / "teacher")
    with pytest.raises(UsageError, match="the same in the same order, as in a student made of this teacher"):
        run.start(rows)


def test_out_may_be_the_current_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    classifier().save(tmp_path / "teacher")
    (tmp_path / "train.csv").write_text("text,label\n" + "".join(f"{text},a\n{text},b\n" for text in texts(6)))
    given = ["--train", str(tmp_path / "train.csv"), "--out", ".", "--num-epochs", "1"]
    for name, *arguments in (
        ("distilled", "distill", "--teacher", str(tmp_path / "teacher"), "--layers", "2"),
        ("tuned", "finetune", "sequence-classification", "--model", str(tmp_path / "teacher")),
    ):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        code, _, printed = call(capsys, *arguments, *given)
        assert code == 0, printed
        assert bertkit.load(tmp_path / name).predict(["the cat"])
    assert (tmp_path / "distilled-student").is_dir()


@pytest.mark.full
def test_student_is_of_the_layers_and_the_teacher_given(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    teacher, rows = tmp_path / "teacher", tmp_path / "train.csv"
    classifier().save(teacher)
    rows.write_text("text,label\n" + "".join(f"{text},a\n{text},b\n" for text in texts(6)))

    def distill(layers: int, train: Path, *more: str) -> tuple[int, str]:
        code, _, printed = call(
            capsys, "distill", "--teacher", str(teacher), "--layers", str(layers), "--train", str(train), "--out",
            str(tmp_path / "out"), "--num-epochs", "1", *more,
        )  # fmt: skip
        return code, printed

    code, printed = distill(1, rows, "--minutes", "1")
    assert code == 2 and "--minutes 1 does not limit distillation: omit it, or pass --num-epochs" in printed
    assert distill(1, tmp_path / "missing.csv")[0] == 2 and not (tmp_path / "out-student").exists()
    assert distill(1, rows, "--best-by", "unknown")[0] == 2 and (tmp_path / "out-student").is_dir()
    assert distill(3, rows)[0] == 0
    assert bertkit.load(tmp_path / "out").config.num_hidden_layers == 3
    code, printed = distill(2, rows, "--resume")
    assert code == 2 and "was not started with 2 layers of" in printed
    assert distill(3, rows, "--resume")[0] == 0
    code, printed = distill(3, rows)
    assert code == 2 and "pass --resume" in printed
    student_of(classifier(), 3).save(teacher, overwrite=True)
    code, printed = distill(3, rows, "--resume")
    assert code == 2 and "was not started with 3 layers of" in printed


def sentence_encoder(path: Path, **changes: int) -> Model:
    model = our_model("encoder", 3, **(SHAPE | changes))
    model.checkpoint.sentence = SentenceSettings()
    model.save(path)
    return bertkit.load(path)


@pytest.mark.full
def test_student_learns_the_vectors_of_a_wider_teacher(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    teacher = sentence_encoder(tmp_path / "teacher", hidden_size=28)
    small = sentence_encoder(tmp_path / "unscaled", num_hidden_layers=1)
    small.checkpoint.sentence = SentenceSettings(normalize=True)  # unlike the teacher
    small.save(tmp_path / "small")
    for name, number, seed in (("train", 80, 1), ("dev", 30, 2)):
        (tmp_path / f"{name}.txt").write_text("\n".join(texts(number, seed)) + "\n")
    arguments = ["finetune", "alignment", "--model", str(tmp_path / "small"), "--out", str(tmp_path / "out")]
    arguments += ["--train", str(tmp_path / "train.txt"), "--dev", str(tmp_path / "dev.txt")]
    code, _, printed = call(capsys, *arguments)
    assert code == 2 and "alignment needs a teacher" in printed
    code, results, printed = call(
        capsys, *arguments, "--teacher", str(tmp_path / "teacher"), "--learning-rate", "0.01", "--num-epochs", "8",
        "--batch-size", "16",
    )  # fmt: skip
    assert code == 0, printed
    (result,) = results
    student, given = bertkit.load(tmp_path / "out"), texts(30, 2)
    vectors, expected = student.embed(given), teacher.embed(given)
    assert vectors.shape == expected.shape == (30, 28)
    assert result["vector_error"] == pytest.approx(np.square(vectors - expected).sum(axis=1).mean(), rel=1e-4)
    logged = [json.loads(line) for line in (tmp_path / "out/run/metrics.jsonl").read_text().splitlines()]
    first = next(line["vector_error"] for line in logged if line["event"] == "evaluation")
    assert result["vector_error"] < 0.7 * first
    reference = SentenceTransformer(str(tmp_path / "out"), device="cpu")
    np.testing.assert_allclose(vectors, reference.encode(given), atol=1e-5)
    assert (tmp_path / "out-teacher").is_dir()


def test_distill_a_sentence_encoder(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    sentence_encoder(tmp_path / "teacher")
    (tmp_path / "train.txt").write_text("\n".join(texts(40, 1)) + "\n")
    code, _, printed = call(
        capsys, "distill", "--teacher", str(tmp_path / "teacher"), "--layers", "2", "--train",
        str(tmp_path / "train.txt"), "--out", str(tmp_path / "out"),
    )  # fmt: skip
    assert code == 0, printed
    student = bertkit.load(tmp_path / "out")
    assert student.config.num_hidden_layers == 2 and student.embed(["the cat"]).shape == (1, 20)
    assert not student.sentence_settings.layers  # no Dense: the width is the same


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("encoder", ["--soft-temperature", "3"], "--soft-temperature has no effect on a sentence encoder"),
        ("masked_lm", ["--unlabeled", "--learning-rate", "0.001"], "--unlabeled, --learning-rate have no effect on a"),
    ],
)
def test_options_of_another_kind_of_teacher(
    tmp_path: Path, capsys: pytest.CaptureFixture, kind: str, options: list[str], message: str
) -> None:
    our_model(kind, 3, **SHAPE).save(tmp_path / "teacher")
    (tmp_path / "train.txt").write_text("\n".join(texts(9)))
    arguments = ["--layers", "2", "--train", str(tmp_path / "train.txt"), "--out", str(tmp_path / "out")]
    code, _, printed = call(capsys, "distill", "--teacher", str(tmp_path / "teacher"), *arguments, *options)
    assert code == 2 and message in printed and not (tmp_path / "out-student").exists()


@pytest.mark.full
def test_distill_a_masked_lm(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    shape = SHAPE | {"max_position_embeddings": 128}
    our_model("masked_lm", 3, **shape).save(tmp_path / "teacher")
    (tmp_path / "corpus.txt").write_text("".join(f"{' '.join(texts(30, seed))}.\n\n" for seed in range(40)))
    (tmp_path / "dev.txt").write_text("".join(f"{' '.join(texts(30, seed))}.\n\n" for seed in range(40, 45)))
    code, results, printed = call(
        capsys, "distill", "--teacher", str(tmp_path / "teacher"), "--layers", "2", "--train",
        str(tmp_path / "corpus.txt"), "--out", str(tmp_path / "out"), "--num-steps", "4", "--dev",
        str(tmp_path / "dev.txt"),
    )  # fmt: skip
    assert code == 0, printed
    (result,) = results
    assert result["step"] == 4 and 0 < result["hidden_cosine"] <= 1
    logged = [json.loads(line) for line in (tmp_path / "out/metrics.jsonl").read_text().splitlines()]
    assert all("soft_loss" in line for line in logged if line["event"] == "step")
    assert bertkit.load(tmp_path / "out/model").config.num_hidden_layers == 2


def test_teacher_scores_texts(tmp_path: Path) -> None:
    teacher = sentence_encoder(tmp_path / "bi")
    cross = our_model("sequence_classification", 4, 1, **SHAPE)
    cross.save(tmp_path / "cross")
    row = TextSet("the cat", ("a dog",), ("one two", "red"))
    scored = TextSet("blue", ("cat",), scores=(0.5,))
    expected = {"bi": teacher.embed(["a dog", "one two", "red"]) @ teacher.embed("the cat"),
                "cross": cross.score_pairs("the cat", ["a dog", "one two", "red"])}  # fmt: skip
    for name in ("bi", "cross"):
        for _ in range(2):  # the second time they are kept
            ((first, second), ()) = taught({"teacher": str(tmp_path / name)}, ([row, scored], []), tmp_path / "kept")
            np.testing.assert_allclose(first.scores, expected[name], atol=1e-5)
            assert second == scored


def test_kept_scores_are_those_of_their_pairs(tmp_path: Path) -> None:
    pairs = [("a\x1fb", "c"), ("a", "b\x1fc"), ("1 a", "b"), ("1", " ab")]

    def lengths(queries: list[str], texts: list[str]) -> np.ndarray:
        return np.array([len(query) for query in queries], np.float32)

    for _ in range(2):  # the second time they are kept
        assert kept_scores(tmp_path / "kept", pairs, lengths).tolist() == [3, 1, 3, 1]


def test_a_replaced_teacher_gives_its_own_vectors(tmp_path: Path) -> None:
    for path, size in ((tmp_path / "v1.0", 28), (tmp_path / "v1-0", 20), (tmp_path / "v1.0", 24)):
        shutil.rmtree(path, ignore_errors=True)
        teacher = sentence_encoder(path, hidden_size=size)
        ((example,),) = taught({"teacher": str(path)}, [[Alignment.example("the cat")]], tmp_path / "kept")
        np.testing.assert_allclose(example.vector, teacher.embed("the cat"), atol=1e-6)


def test_one_model_as_teacher_and_guide(tmp_path: Path) -> None:
    model = sentence_encoder(tmp_path / "bi")
    options = {"teacher": str(tmp_path / "bi"), "guide": str(tmp_path / "bi")}
    vectors = model.embed(["the cat", "a dog"])
    for _ in range(2):  # the second time they are kept
        ((row,),) = taught(options, [[TextSet("the cat", ("a dog",))]], tmp_path / "kept")
        np.testing.assert_allclose(row.scores, [vectors[0] @ vectors[1]], atol=1e-5)
        np.testing.assert_allclose(row.guide, vectors, atol=1e-5)


@pytest.mark.full
@pytest.mark.parametrize("task", ["similarity", "alignment"])
def test_teacher_is_asked_once_for_all_runs_of_a_sweep(
    tmp_path: Path, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sentence_encoder(tmp_path / "teacher")
    sentence_encoder(tmp_path / "small", num_hidden_layers=1)
    loaded, given = [], texts(40, 1)
    monkeypatch.setattr(teaching, "load", lambda name, **options: loaded.append(name) or bertkit.load(name, **options))
    kind = Similarity if task == "similarity" else Alignment
    rows = [kind.example((a, b, c, d) if task == "similarity" else a)
            for a, b, c, d in zip(*[iter(given)] * 4, strict=True)]  # fmt: skip
    options = {"teacher": str(tmp_path / "teacher")} | ({"objective": "margin"} if task == "similarity" else {})
    out = tmp_path / "out"
    run = Finetuning(
        out, tmp_path / "small", task, FinetuningSettings.of(num_epochs=1), options, log_line=lambda line: None
    )
    sweep(run, {"learning_rate": [1e-3, 1e-2]}, rows[:6], rows[6:])
    assert len(loaded) == 1 and [path.name for path in out.parent.glob("**/out*-teacher")] == ["out-teacher"]


def test_refuses_a_teacher_of_another_width() -> None:
    student, teacher = classifier(), our_model("sequence_classification", 3, 3, **(SHAPE | {"hidden_size": 28}))
    with pytest.raises(UsageError, match="a student has the teacher's width, vocabulary and heads"):
        teach(student.network, teacher.network)
    with pytest.raises(UsageError, match=r"classifier\.weight of the teacher is missing, of the student \[3, 20\]"):
        teach(student.network, our_model("encoder", 3, **SHAPE).network)
