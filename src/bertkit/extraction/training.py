"""Training runs of extraction; a stopped run resumes from its last checkpoint."""

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from bertkit.device import resolve_device
from bertkit.errors import DataError, UsageError
from bertkit.extraction.opening import open_extractor
from bertkit.extraction.training_data import ExtractionData, ExtractionFeed, character_spans, labels_in
from bertkit.extraction.training_folder import new_network, save_network, saved_network
from bertkit.extraction.training_network import ExtractionLoss
from bertkit.extraction.training_settings import ExtractionTrainingSettings
from bertkit.files.whole_files import whole_folder
from bertkit.tasks.examples import TaggedText
from bertkit.training import (
    Outcome,
    RowsJob,
    Trainer,
    checkpoint_folder,
    write_run_records,
)

METRICS = ("f1", "precision", "recall")


@dataclass
class ExtractionTraining(RowsJob):
    """One run of training of an extraction model, from an encoder, on texts with BIO tags.

    Raises:
        DataError: no texts, no entities, or an entity that begins or ends inside a word of the model.
    """

    model: str  # a folder or a name as in `bertkit.load`
    settings: ExtractionTrainingSettings = field(default_factory=ExtractionTrainingSettings)

    result: ClassVar[str] = "gliner_config.json"

    def check(self) -> None:
        if not self.train:
            raise DataError("no texts to train on: expected at least one with tags")
        labels_in(self.train)
        self.settings.training.check_dev(self.dev, ("patience", "best_by"))
        if (best_by := self.settings.training.best_by) not in (None, *METRICS):
            raise UsageError(f"best_by={best_by!r}: expected one of {', '.join(METRICS)}")

    def start_facts(self) -> dict[str, Any]:
        return {"model": self.model, "settings": self.settings.values(), "examples": len(self.train)}

    def open(self, saved: Path | None) -> Trainer:
        chosen = self.settings
        made = new_network(self.model, chosen) if saved is None else saved_network(saved, chosen.dropout)
        self._network, self._tokenizer = made
        config, settings = self._network.encoder.config, self._network.settings
        self._labels = labels_in([*self.train, *self.dev])
        data = ExtractionData(
            self.train, labels_in(self.train), self._tokenizer, settings, config.max_position_embeddings,
            chosen.num_negatives, chosen.training.seed,
        )  # fmt: skip
        self.log_skipped()
        if data.num_too_long:
            self.log_line(f"{data.num_too_long} entities exceed the longest span of the scorer: not learned")
        self._network.to(resolve_device(self.device))
        feed = ExtractionFeed(data, self.batch_size, chosen.training.seed, self.ranks.rank, self.ranks.num_ranks)
        return self.trainer(
            self._network, ExtractionLoss(), feed, chosen.of_loop(len(data)), save_model=self._save,
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

    def finish(self, outcome: Outcome) -> Outcome:
        if not self.ranks.is_first:
            return outcome
        with whole_folder(self.out, overwrite=True) as folder:
            if outcome.best_step is not None and outcome.best_step != outcome.step:
                best = checkpoint_folder(self.folder, outcome.best_step) / "model"
                shutil.copytree(best, folder, dirs_exist_ok=True)
            else:
                self._save(folder)
            metrics = entity_metrics(folder, self.dev, self._labels) if self.dev else {}
            outcome = replace(outcome, metrics=metrics)
            (folder / "README.md").write_text(self._card(outcome), encoding="utf-8", newline="\n")
            write_run_records(self, outcome, folder)
        return outcome

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
