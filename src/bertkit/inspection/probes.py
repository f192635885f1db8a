"""Linear probes of each layer, with baselines that make their scores meaningful.

Shape letters: W words, S layers (embeddings and every layer), D hidden_size, C labels.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from bertkit.architectures import initialize
from bertkit.errors import UsageError, check_type
from bertkit.inspection.contextual import LabeledWords, pieces_of, word_vectors
from bertkit.inspection.view import View
from bertkit.model import Model, check_model
from bertkit.pages import Line, Markup, Reference, line_chart, paragraph, section, table

_EPOCHS, _LEAST_STEPS, _BATCH_SIZE = 10, 300, 256
_LEARNING_RATE, _MIXING_RATE = 3e-3, 3e-2


@dataclass(frozen=True, eq=False)
class ProbeView(View):
    """Accuracy of a linear classifier on each layer, for words it was not trained on."""

    title: ClassVar[str] = "Probes"
    label: str  # the predicted property
    num_train: int
    num_test: int
    num_labels: int
    num_omitted: int  # words without tokens, such as a lone variation selector
    accuracy: np.ndarray  # (S,)
    control: np.ndarray  # (S,) with a fixed random label for each word type (Hewitt & Liang 2019)
    random_encoder: np.ndarray  # (S,) the same architecture with initial weights
    majority: float  # share of the most frequent label
    cumulative: np.ndarray  # (S,) with a trained mix of layers 0 to l (Tenney et al. 2019)
    mix: np.ndarray  # (S,) the weights of the mix of all layers

    @property
    def selectivity(self) -> np.ndarray:
        """(S,) accuracy minus control accuracy: the part due to the layer, not to the probe's memorization."""
        return self.accuracy - self.control

    @property
    def center_of_gravity(self) -> float:
        """The mean layer under the mixing weights."""
        return float((np.arange(len(self.mix)) * self.mix).sum())

    @property
    def expected_layer(self) -> float:
        """The mean layer at which cumulative scores rise; layer 0 is excluded and decreases count (Tenney et al.
        2019)."""
        gains = np.diff(self.cumulative)
        total = float(gains.sum())
        return float((np.arange(1, len(self.mix)) * gains).sum() / total) if abs(total) > 1e-12 else float("nan")

    def numbers(self) -> dict[str, Any]:
        return vars(self) | {
            "selectivity": self.selectivity,
            "center_of_gravity": self.center_of_gravity,
            "expected_layer": self.expected_layer,
        }

    def rows(self) -> list[dict[str, Any]]:
        names = ("accuracy", "control", "random_encoder", "cumulative")
        return [
            {"layer": layer} | {name: float(getattr(self, name)[layer]) for name in names}
            for layer in range(len(self.accuracy))
        ]

    def parts(self) -> list[Markup]:
        layers = np.arange(len(self.accuracy), dtype=np.float64)
        curves = [
            Line("this model", layers, self.accuracy),
            Line("random encoder", layers, self.random_encoder, color=2),
            Line("control task", layers, self.control, color=3, look="dashed"),
            Line("layers 0 to here, mixed", layers, self.cumulative, color=4),
        ]
        rows = [[int(layer), *(float(column[int(layer)]) for column in
                 (self.accuracy, self.selectivity, self.random_encoder, self.cumulative, self.mix))]
                for layer in layers]  # fmt: skip
        names = ["layer", "accuracy", "selectivity", "random encoder", "cumulative", "mixing weight"]
        return [
            paragraph(
                f"A linear classifier learns {self.label} ({self.num_labels} labels) from the vectors of "
                f"{self.num_train:,} words and is tested on {self.num_test:,} words of other sentences. Layer 0 is the "
                "embeddings. A layer encodes more than word identity only if it is above layer 0 and the random "
                "encoder."
                + (f" {self.num_omitted:,} words without tokens are left out." if self.num_omitted else "")
            ),
            line_chart(f"Accuracy of {self.label}", curves, x_name="layer", x_kind="integer", y_name="share correct",
                       references=[Reference("most frequent label", self.majority)]),
            paragraph(
                f"Center of gravity {self.center_of_gravity:.2f}, expected layer {self.expected_layer:.2f}: the height "
                "in the layers where the information is. They describe where a probe finds it, not where the model "
                "uses it."
            ),
            section("Numbers", table(names, rows)),
        ]  # fmt: skip


def inspect_probes(
    model: Model, train: Sequence[LabeledWords], test: Sequence[LabeledWords], *, label: str, seed: int = 0
) -> ProbeView:
    """Probe each layer for a label of words.

    Args:
        label: what the labels are, for the page: "parts of speech", "entities", ...
        seed: seed of the probes, the control labels and the random encoder.

    Raises:
        OverLengthError: a text has more tokens than the model accepts.
        UsageError: no labeled words in one of the parts.
    """
    check_model(model)
    train, test = list(train), list(test)
    for each in train + test:
        check_type("a text", each, LabeledWords)
    parts = [_with_tokens(model, part) for part in (train, test)]
    num_given = sum(len(each.labels) for part in (train, test) for each in part)
    names = [[name for each in part for name in each.labels] for part in parts]
    words = [[word for each in part for word in each.words] for part in parts]
    if not all(names):
        raise UsageError("no labeled words: expected some for training and others for testing")
    number_of = {name: number for number, name in enumerate(sorted(set(names[0])))}
    labels = [np.array([number_of.get(name, -1) for name in part]) for part in names]
    controls = _control_labels(words, labels[0], seed)

    def vectors_of(encoder: Model) -> list[np.ndarray]:
        return [word_vectors(encoder, [each.text for each in part], [each.spans for each in part]) for part in parts]

    vectors = vectors_of(model)
    layers = range(len(vectors[0]))

    def score(layer: int, targets: list[np.ndarray]) -> float:
        return probe(vectors[0][layer], targets[0], vectors[1][layer], targets[1], len(number_of), seed)

    accuracy, control = ([score(layer, targets) for layer in layers] for targets in (labels, controls))
    mixed = [mixed_probe([each[: layer + 1] for each in vectors], labels, len(number_of), seed) for layer in layers]
    untrained = Model.create(model.config, model.tokenizer, seed=seed)
    initialize(untrained.network, model.config, seed=seed)
    vectors = vectors_of(untrained)
    random = [score(layer, labels) for layer in layers]
    return ProbeView(
        label=label,
        num_train=len(labels[0]),
        num_test=len(labels[1]),
        num_labels=len(number_of),
        num_omitted=num_given - len(labels[0]) - len(labels[1]),
        accuracy=np.array(accuracy),
        control=np.array(control),
        random_encoder=np.array(random),
        majority=float((labels[1] == np.bincount(labels[0]).argmax()).mean()),
        cumulative=np.array([score for score, _ in mixed]),
        mix=mixed[-1][1],
    )


def probe(
    train: np.ndarray, labels: np.ndarray, test: np.ndarray, test_labels: np.ndarray, num_labels: int, seed: int = 0
) -> float:
    """Test accuracy of a linear classifier, trained by Adam on standardized vectors.

    Args:
        train, test: (W, D).
        labels, test_labels: (W,) int64; -1 in the test is never correct.
    """
    score, _ = mixed_probe([train[None], test[None]], [labels, test_labels], num_labels, seed)
    return score


def mixed_probe(
    vectors: Sequence[np.ndarray], labels: Sequence[np.ndarray], num_labels: int, seed: int = 0
) -> tuple[float, np.ndarray]:
    """Test accuracy on a mix of layers with weights trained jointly with the classifier (Peters et al. 2018, equation
    1).

    Args:
        vectors: (S, W, D) for training and for testing.

    Returns:
        The accuracy, and the (S,) weights.
    """
    generator = torch.Generator().manual_seed(seed)
    mean = vectors[0].mean(axis=1, keepdims=True)
    spread = vectors[0].std(axis=1, keepdims=True) + 1e-6
    train, test = (torch.from_numpy((each - mean) / spread) for each in vectors)  # (S, W, D)
    targets, expected = (torch.from_numpy(each) for each in labels)
    scales = torch.zeros(len(train), requires_grad=True)
    classifier = nn.Linear(train.shape[-1], num_labels)
    with torch.no_grad():
        classifier.weight.copy_(torch.randn(classifier.weight.shape, generator=generator) * 0.01)
        classifier.bias.zero_()
    parameters = [{"params": [scales], "lr": _MIXING_RATE}, {"params": list(classifier.parameters())}]
    optimizer = torch.optim.Adam(parameters, lr=_LEARNING_RATE)
    num_batches = -(-len(targets) // _BATCH_SIZE)
    epochs = max(_EPOCHS, -(-_LEAST_STEPS // num_batches))
    steps = epochs * num_batches
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)

    def mixed(rows: Tensor) -> Tensor:
        return rows[0] if len(rows) == 1 else torch.einsum("s,swd->wd", scales.softmax(0), rows)

    for _ in range(epochs):
        for rows in torch.randperm(len(targets), generator=generator).split(_BATCH_SIZE):
            loss = nn.functional.cross_entropy(classifier(mixed(train[:, rows])), targets[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    with torch.no_grad():
        correct = (classifier(mixed(test)).argmax(-1) == expected).double().mean()
    return float(correct), scales.detach().softmax(0).double().numpy()


def _with_tokens(model: Model, part: Sequence[LabeledWords]) -> list[LabeledWords]:
    """The words that have tokens."""
    kept = []
    for each, encoding in zip(part, model.tokenizer.encode_batch([one.text for one in part]), strict=True):
        rows = [row for row in zip(each.spans, each.labels, strict=True) if pieces_of(encoding, row[0]).any()]
        kept.append(LabeledWords(each.text, [span for span, _ in rows], [label for _, label in rows]))
    return kept


def _control_labels(words: Sequence[Sequence[str]], labels: np.ndarray, seed: int) -> list[np.ndarray]:
    """A label for each word type, drawn from the distribution of the real ones."""
    types = sorted({word for part in words for word in part})
    drawn = np.random.default_rng(seed).choice(labels, size=len(types))
    label_of = dict(zip(types, drawn.tolist(), strict=True))
    return [np.array([label_of[word] for word in part]) for part in words]
