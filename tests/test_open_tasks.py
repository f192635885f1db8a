"""A task is one file and one line in the registry: a new one works with training, prediction, evidence and commands.

Everything that `ShortOrLong` needs is in its class; the line of the registry is `TASKS[...] = ...` below.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pytest
import torch
from examples_of_tasks import call
from scipy import stats
from test_sequence_training import small_model
from torch import Tensor

from bertkit import Model, load
from bertkit.architectures import Network
from bertkit.batch import Batch, LabeledBatch, LabeledEncodings
from bertkit.cli import finetune, run
from bertkit.errors import UsageError
from bertkit.estimators import TextEstimator
from bertkit.evidence import gather_evidence
from bertkit.finetuning import Finetuning, FinetuningSettings
from bertkit.tasks import (
    TASKS,
    ExampleFile,
    GenerativeTask,
    Loss,
    LossFunction,
    RowTask,
    SequenceExample,
    TextExample,
    task_kind,
)
from bertkit.tasks.cross_entropy import OneOfClasses
from bertkit.tasks.loss import mean_of, sums_of
from bertkit.tasks.reading.texts import LabelKind
from bertkit.tasks.regression import Regression, ScorePrediction
from bertkit.tasks.scoring import OneLabel
from bertkit.tasks.settings import Settings
from bertkit.tasks.task import Option
from bertkit.tasks.texts import OfTexts
from bertkit.tokenizer import Encodings
from bertkit.training import JobKind, Outcome
from bertkit.transformer import EncoderOutput

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("one_thread")]

WORDS = "the of and cat dog sat mat un run walk talk blue red green one two three four".split()


# ---- the one file


@dataclass(frozen=True)
class Length:
    """A prediction of `ShortOrLong`."""

    length: str
    probability: float  # of "short"


@dataclass(frozen=True)
class ShortOrLong(OneOfClasses, OfTexts):
    """Whether a text has up to ``limit`` words."""

    label_names: tuple[str, ...] = ("long", "short")
    limit: int = 6

    name: ClassVar[str] = "short-or-long"
    label_kind: ClassVar[LabelKind] = "class"
    best_by: ClassVar[str] = "accuracy"
    options: ClassVar[Mapping[str, Option]] = {"limit": Option(int, "Words of the longest short text.", 6)}

    @classmethod
    def of_examples(cls, examples: Sequence[TextExample], options: Mapping[str, Any]) -> Self:
        cls.check_options(options)
        return cls(**options)

    def targets(self, examples: Sequence[TextExample]) -> np.ndarray:
        return np.array([self.label_names.index(str(example.label)) for example in examples], np.int64)

    def decode(self, examples: Sequence[TextExample], encodings: Encodings, logits: np.ndarray) -> list[Length]:
        shares = torch.from_numpy(logits).double().softmax(-1)[:, 1].tolist()
        return [Length(self.label_names[share >= 0.5], share) for share in shares]

    def predicted(self, predictions: Sequence[Length]) -> np.ndarray:
        return np.array([self.label_names.index(prediction.length) for prediction in predictions], np.int64)

    def probabilities(
        self, examples: Sequence[Any], predictions: Sequence[Length], encodings: Encodings, logits: np.ndarray
    ) -> tuple[np.ndarray, None]:
        shares = np.array([prediction.probability for prediction in predictions])
        return np.stack([1 - shares, shares], axis=1), None

    @property
    def scoring(self) -> OneLabel:
        return OneLabel(self.label_names)


# ---- everything else


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TASKS, ShortOrLong.name, ShortOrLong)


def rows(number: int, seed: int) -> list[tuple[str, str]]:
    draw = np.random.default_rng(seed)
    texts = [" ".join(draw.choice(WORDS, int(draw.integers(2, 12)))) for _ in range(number)]
    return [(text, "short" if len(text.split()) <= 6 else "long") for text in texts]


def write(path: Path, number: int, seed: int) -> str:
    path.write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in rows(number, seed)))
    return str(path)


def test_commands_work_with_a_new_task(registered: None, encoder: Path, tmp_path: Path, capsys) -> None:
    train, dev, out = write(tmp_path / "train.csv", 60, 1), write(tmp_path / "dev.csv", 40, 2), str(tmp_path / "out")
    arguments = ["finetune", "short-or-long", "--model", str(encoder), "--train", train, "--dev", dev, "--out", out,
                 "--limit", "7", "--num-epochs", "20", "--learning-rate", "0.01"]  # fmt: skip
    code, (result,), error = call(capsys, *arguments)
    assert code == 0 and result["accuracy"] > 0.6, error
    assert "most frequent label" in error and "frozen features" in error and "the saved model is" in error
    assert load(out).trained.task == ShortOrLong(limit=7, num_vectors=1)  # over sentence vectors
    assert "fine-tuned for short-or-long" in (tmp_path / "out" / "README.md").read_text()

    code, predictions, _ = call(capsys, "predict", "--model", out, "--input", dev)
    assert code == 0 and [row["text"] for row in predictions] == [text for text, _ in rows(40, 2)]
    right = np.mean([row["length"] == label for row, (_, label) in zip(predictions, rows(40, 2), strict=True)])
    assert right == pytest.approx(result["accuracy"])

    report = tmp_path / "report.html"
    code, (scores,), _ = call(capsys, "evaluate", "--model", out, "--data", dev, "--report", str(report), "--train",
                              train, "--card")  # fmt: skip
    assert code == 0 and scores["accuracy"] == pytest.approx(right) and "accuracy" in scores["intervals"]
    evidence = json.loads(report.with_suffix(".json").read_text())
    assert evidence["baseline"]["method"].startswith("TF-IDF") and evidence["calibration"] and evidence["thresholds"]
    assert "## Scores on dev.csv" in (tmp_path / "out" / "README.md").read_text()
    assert run(["finetune", "short-or-long", "--help"]) == 0 and "--limit INT" in capsys.readouterr().out


def test_python_works_with_a_new_task(registered: None, encoder: Path, tmp_path: Path) -> None:
    class LengthClassifier(TextEstimator):
        """The estimator of the new task."""

        _task = ShortOrLong

    texts, labels = zip(*rows(60, 1), strict=True)
    fitted = LengthClassifier(encoder, limit=5, num_epochs=1).fit(list(texts), list(labels))
    assert fitted.get_params()["limit"] == 5 and fitted.model_.trained.task.limit == 5
    dev = [ShortOrLong.example(text, label) for text, label in rows(30, 3)]
    evidence = gather_evidence(fitted.model_, dev)
    assert evidence.scores["accuracy"].value == pytest.approx(fitted.model_.evaluate(rows(30, 3))["accuracy"])
    assert task_kind("short-or-long") is ShortOrLong
    settings = FinetuningSettings.of(num_epochs=1, lora_rank=2)
    Finetuning(tmp_path / "lora", encoder, "short-or-long", settings).start(dev)
    assert json.loads((tmp_path / "lora" / "adapter" / "adapter_config.json").read_text())["task_type"] == "SEQ_CLS"


# ---- a loss of the whole batch, and predictions from vectors


@dataclass(frozen=True)
class Similarity(Regression):
    """Similarity of two texts: the cosine of their vectors, learned with in-batch negatives."""

    name: ClassVar[str] = "similarity"
    head: ClassVar[str] = "vector_classification"
    of_vectors: ClassVar[bool] = True

    @classmethod
    def of_examples(cls, examples: Sequence[TextExample], options: Mapping[str, Any]) -> Self:
        return cls()

    def encode(self, tokenizer: Any, examples: Sequence[TextExample], layout: Any, first_index: int = 0) -> Encodings:
        """Text and pair as sequences next to each other."""
        texts = [text for example in examples for text in (example.text, example.pair or "")]
        encodings = tokenizer.encode_batch(texts, max_length=layout.max_length, on_long="truncate", with_offsets=False)
        object.__setattr__(encodings, "text_index", encodings.text_index // 2)
        return encodings

    def labeled(self, examples: Sequence[TextExample], encodings: Encodings) -> LabeledEncodings:
        return LabeledEncodings(encodings, self.targets(examples), group_size=2)

    def loss(self, outputs: Tensor, part: LabeledBatch, totals: Tensor) -> Loss:
        """Each text must be nearest to its pair among all pairs of the batch (van den Oord et al. 2018)."""
        texts, pairs = outputs.view(-1, 2, outputs.shape[1]).unbind(1)
        scores = texts @ pairs.T / 0.05
        own = torch.arange(len(scores), device=scores.device)
        loss = torch.nn.functional.cross_entropy(scores, own, reduction="sum")
        return Loss(loss / float(totals[0]), torch.stack([loss.detach().double().cpu(), totals[0]]))

    def read_out(self, network: Network, encoded: EncoderOutput, batch: Batch) -> Tensor:
        head: Any = network.heads[self.head]
        return head.vectors(encoded, batch)

    def decode(self, examples: Sequence[Any], encodings: Encodings, logits: np.ndarray) -> list[ScorePrediction]:
        vectors = logits.reshape(-1, 2, logits.shape[1])
        return [ScorePrediction(float(cosine)) for cosine in (vectors[:, 0] * vectors[:, 1]).sum(axis=1)]


def test_vectors_are_trained_and_evaluated(
    monkeypatch: pytest.MonkeyPatch, encoder: Path, tmp_path: Path, capsys
) -> None:
    monkeypatch.setitem(TASKS, Similarity.name, Similarity)
    draw = np.random.default_rng(4)

    def pairs(number: int) -> list[TextExample]:
        texts = [draw.choice(WORDS, 6) for _ in range(number)]
        return [TextExample(" ".join(words), " ".join(draw.permutation(words)), 1.0) for words in texts]

    train, same = pairs(40), pairs(20)
    other = [TextExample(one.text, two.pair, 0.0) for one, two in zip(same, same[1:] + same[:1], strict=True)]
    settings = FinetuningSettings.of(num_epochs=6, batch_size=16, learning_rate=3e-3)
    outcome = Finetuning(
        tmp_path / "out", encoder, "similarity", settings, log_line=lambda line: None, compare=False
    ).start(train, [*same, *other])
    model: Model = load(tmp_path / "out")
    dev = [*same, *other]
    cosines = [
        float(np.dot(*model.embed([one.text, one.pair]))) for one in dev
    ]  # the sentence encoder that was saved gives the vectors that were evaluated
    expected = stats.spearmanr(cosines, [one.label for one in dev]).statistic
    assert model.evaluate(dev)["spearman"] == pytest.approx(expected) == pytest.approx(outcome.metrics["spearman"])
    assert expected > 0.7 and model.sentence_settings.normalize
    assert [one.score for one in model.predict(dev)] == pytest.approx(cosines, abs=1e-5)


# ---- a loss function, and a generative task


@dataclass(frozen=True)
class AbsoluteError(LossFunction):
    """Mean absolute error of (N, 1) logits, and the share of rows with an error below a quarter."""

    shares: ClassVar[tuple[str, ...]] = ("near",)

    def loss(self, outputs: Tensor, part: LabeledBatch, totals: Tensor) -> Loss:
        errors = (outputs.squeeze(-1) - part.labels).abs()
        return Loss(mean_of(errors.sum(), totals[0]), sums_of(errors.sum(), (errors < 0.25).sum(), len(errors)))


@dataclass(frozen=True)
class Typical(Regression):
    """A number for each text, with the least absolute error."""

    name: ClassVar[str] = "typical"

    @classmethod
    def of_examples(cls, examples: Sequence[TextExample], options: Mapping[str, Any]) -> Self:
        return cls()

    @property
    def loss_function(self) -> AbsoluteError:  # pyrefly: ignore
        return AbsoluteError()


def test_head_is_fitted_and_trained_by_another_loss(
    monkeypatch: pytest.MonkeyPatch, encoder: Path, tmp_path: Path
) -> None:
    """Frozen features predict the median of equal texts, not their mean."""
    monkeypatch.setitem(TASKS, Typical.name, Typical)
    train = [TextExample(text, label=label) for text in ("cat", "dog") for label in (0.0, 0.0, 0.0, 0.0, 5.0)]
    lines: list[str] = []
    settings = FinetuningSettings.of(num_epochs=2, learning_rate=1e-4, best_by="mean_squared_error")
    Finetuning(tmp_path / "out", encoder, "typical", settings, log_line=lines.append, compare=False).start(train, train)
    assert any("frozen features" in line for line in lines)
    (step, *_) = [
        row for row in map(json.loads, (tmp_path / "out/run/metrics.jsonl").read_text().splitlines()) if "near" in row
    ]
    assert step["near"] == 0.8
    (prediction,) = load(tmp_path / "out").predict(["cat"])
    assert abs(prediction.score) < 0.25


class Backwards(GenerativeTask):
    """Each line backwards."""

    name: ClassVar[str] = "backwards"
    has_sources: ClassVar[bool] = True
    files: ClassVar[str] = "Lines of text."
    models: ClassVar[str] = "An encoder-decoder."

    @classmethod
    def read(cls, file: ExampleFile) -> Iterator[SequenceExample]:
        for line in Path(file.path).read_text().split():
            yield SequenceExample(line[::-1], line)


def test_generative_task_is_trained_by_its_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys) -> None:
    monkeypatch.setitem(TASKS, Backwards.name, Backwards)
    (tmp_path / "lines.txt").write_text("012\n11\n20\n2\n")
    model, out = small_model(tmp_path / "start"), tmp_path / "out"
    arguments = ["finetune", "backwards", "--train", str(tmp_path / "lines.txt"), "--model", str(model), "--out",
                 str(out), "--num-steps", "3", "--batch-size", "2", "--device", "cpu"]  # fmt: skip
    code, (result,), error = call(capsys, *arguments)
    assert code == 0 and result["step"] == 3, error
    assert run(["finetune", "backwards", "--help"]) == 0 and "Lines of text." in capsys.readouterr().out
    code, (found,), error = call(capsys, "data", str(tmp_path / "lines.txt"), "--task", "backwards")
    assert code == 0 and found["example"] == {"source": "012", "target": "210"}, error
    with pytest.raises(UsageError, match="task 'backwards': expected one of sequence-classification, "):
        task_kind("backwards")


class Lines(RowTask):
    """Lines of text, counted."""

    name: ClassVar[str] = "lines"
    example_type: ClassVar[type] = SequenceExample
    files: ClassVar[str] = "Lines to count."
    first_model: ClassVar[str | None] = "a-counter"
    about: ClassVar[str] = "Counts lines."

    @classmethod
    def read(cls, file: ExampleFile) -> Iterator[SequenceExample]:
        for line in Path(file.path).read_text().split():
            yield SequenceExample(line)


@dataclass(frozen=True)
class CountSettings(Settings):
    """Settings of counting.

    Parameters
    ----------
    factor
        What each line counts.
    """

    factor: int = 2


class Counting:
    """A run that is not over texts."""

    def __init__(self, **fields: Any):
        self.fields = fields

    def start(self, train: list[Any], dev: list[Any], **how: Any) -> Outcome:
        factor, model = self.fields["settings"].factor, self.fields["model"]
        return Outcome("finished", factor * len(train), None, {f"lines of {model}": float(len(dev))})


def test_task_with_a_run_of_its_own_is_trained_by_the_same_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys
) -> None:
    monkeypatch.setitem(TASKS, Lines.name, Lines)
    monkeypatch.setattr(finetune, "JOB_KINDS", [*finetune.JOB_KINDS, JobKind(Lines, CountSettings(), Counting)])
    (tmp_path / "train.txt").write_text("a\nb\nc\n")
    (tmp_path / "dev.txt").write_text("d\ne\n")
    files = ["--train", str(tmp_path / "train.txt"), "--dev", str(tmp_path / "dev.txt"), "--out", str(tmp_path / "out")]
    code, (result,), error = call(capsys, "finetune", "lines", *files, "--factor", "5")
    assert code == 0 and result["step"] == 15 and result["lines of a-counter"] == 2.0, error
    assert run(["finetune", "lines", "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert all(text in shown for text in ("Lines to count.", "Counts lines.", "What each line counts. [default: 2]"))
    assert "--sweep" not in shown and "--label-names" not in shown
