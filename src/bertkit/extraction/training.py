"""Training runs of extraction; a stopped run resumes from its last checkpoint."""

import shutil
import tempfile
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from bertkit.device import resolve_device
from bertkit.extraction.opening import open_extractor
from bertkit.extraction.training_data import ExtractionData, ExtractionFeed, character_spans, labels_in
from bertkit.extraction.training_folder import new_network, save_network, saved_network
from bertkit.extraction.training_network import ExtractionLoss
from bertkit.extraction.training_settings import ExtractionTrainingSettings
from bertkit.files.lines import file_of
from bertkit.tasks.examples import TaggedText
from bertkit.tasks.same_texts import dev_in_training
from bertkit.training import ExampleJob, Outcome, Trainer

METRICS = ("f1", "precision", "recall")


@dataclass
class ExtractionTraining(ExampleJob):
    """One run of training of an extraction model, from an encoder, on texts with BIO tags.

    ``start`` raises a DataError for texts without entities, or entities that begin or end inside a word of the model.
    """

    model: str  # a folder or a name as in `bertkit.load`
    settings: ExtractionTrainingSettings = field(default_factory=ExtractionTrainingSettings)
    train: Sequence[TaggedText] = field(default=(), kw_only=True, repr=False)
    dev: Sequence[TaggedText] = field(default=(), kw_only=True, repr=False)

    result_file: ClassVar[str] = "gliner_config.json"

    def known_metrics(self) -> Collection[str]:
        return METRICS

    def check(self) -> None:
        super().check()
        labels_in(self.train)

    def start_facts(self) -> dict[str, Any]:
        return {"model": self.model, "settings": self.settings.values(), "examples": len(self.train)}

    def facts(self) -> dict[str, Any]:
        """As `ExampleJob.facts`, with the number of texts of each file, by which labels are absent from a text."""
        files = Counter(file_of(example.location) for example in self.train)
        return super().facts() | {"examples_of_files": [*files.values()]}

    def open(self, saved: Path | None) -> Trainer:
        chosen = self.settings
        made = new_network(self.model, chosen) if saved is None else saved_network(saved, chosen.dropout)
        self._network, self._tokenizer = made
        if saved is None and (sentence := dev_in_training(self.train, self.dev)):
            self.log_line(sentence)
        config, settings = self._network.encoder.config, self._network.settings
        self._labels = labels_in([*self.train, *self.dev])
        data = ExtractionData(
            self.train, labels_in(self.train), self._tokenizer, settings, config.max_position_embeddings,
            chosen.num_negatives, chosen.training.seed,
        )  # fmt: skip
        if data.num_too_long:
            self.log_line(f"{data.num_too_long} entities exceed the longest span of the scorer: not learned")
        self._network.to(resolve_device(self.device))
        feed = ExtractionFeed(data, self.batch_size, chosen.training.seed, self.ranks.rank, self.ranks.num_ranks)
        return self.trainer(
            self._network, ExtractionLoss(chosen.entity_weight), feed, chosen.of_loop(len(data), config.hidden_size),
            save_model=self._save,
            evaluate=self._evaluate if self.dev else None, best_by="f1", best_is_result=True,
            rate_factor=lambda name: 1.0 if name.startswith("encoder.") else chosen.layer_rate_factor,
        )  # fmt: skip

    def _save(self, folder: Path, parameters: Mapping[str, Tensor] | None = None) -> None:
        folder.mkdir(exist_ok=True)
        save_network(self._network, self._tokenizer, folder, parameters)

    def _evaluate(self) -> dict[str, float]:
        """Metrics of the dev texts, by a folder as it would be the result."""
        with tempfile.TemporaryDirectory() as folder:
            self._save(Path(folder))
            return entity_metrics(folder, self.dev, self._labels)

    def result(self, outcome: Outcome, best: Path | None) -> Outcome:
        metrics = {}
        if self.dev:
            metrics = self._evaluate() if best is None else entity_metrics(best, self.dev, self._labels)
        outcome = self._outcome = replace(outcome, metrics=metrics)
        return outcome

    def write(self, folder: Path, best: Path | None) -> None:
        if best is not None:
            shutil.copytree(best, folder, dirs_exist_ok=True)
        else:
            self._save(folder)
        (folder / "README.md").write_text(self._card(self._outcome), encoding="utf-8", newline="\n")

    def _card(self, outcome: Outcome) -> str:
        scores = "".join(
            f"- {name} on {len(self.dev):,} dev texts: {outcome.metrics[name]:.4f}\n" for name in outcome.metrics
        )
        return (
            "---\nlibrary_name: gliner\ntags: [named-entity-recognition, zero-shot]\n---\n\n# Extraction model\n\n"
            f"Trained with bertkit from {Path(self.model).name}, on {len(self.train):,} texts with the labels "
            f"{', '.join(labels_in(self.train))}.\n\n{scores}\n"
            'Use: `bertkit extract "Ada Lovelace was born in London." --labels person,city --model FOLDER`\n'
        )


def entity_metrics(folder: str | Path, examples: Sequence[TaggedText], labels: Sequence[str]) -> dict[str, float]:
    """Micro F1, precision and recall of entities, exact in characters and label, at threshold 0.5.

    Args:
        labels: labels that the model looks for in every text.
    """
    results = open_extractor(folder, device="cpu").extract([example.text for example in examples], labels)
    predicted = [{(one.start, one.end, one.label) for one in each} for each in results]
    true = [set(character_spans(example)) for example in examples]
    correct = sum(len(one & other) for one, other in zip(predicted, true, strict=True))
    num_predicted, num_true = sum(map(len, predicted)), sum(map(len, true))
    return {
        "f1": 2 * correct / max(1, num_predicted + num_true),
        "precision": correct / max(1, num_predicted),
        "recall": correct / max(1, num_true),
    }
