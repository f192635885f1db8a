"""What a model finds in texts: entities, personal data, and the results of several heads from one pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bertkit.checkpoint import Checkpoint
from bertkit.errors import MissingHeadError, UsageError
from bertkit.inference import InferenceReport
from bertkit.inference.runner import checked_text, chunks, text_length
from bertkit.model.predictions import ModelPredictions
from bertkit.tokenizer.tokenizer import as_items

if TYPE_CHECKING:
    from bertkit.extraction import Entity, ExtractionReport, Extractor, Schema, SchemaExtractor
    from bertkit.extraction.schema import Labels
    from bertkit.redaction import Key

_WEIGHT_OF_PASS = 16
"""Characters of texts count so often in chunks of one pass, whose hidden states stay in memory."""


class ModelFinding(ModelPredictions):
    """The part of a Model that finds spans with labels: of an extraction model, or of a tagger."""

    def __init__(
        self, checkpoint: Checkpoint, precision: str, extractor: Extractor | SchemaExtractor | None = None
    ) -> None:
        super().__init__(checkpoint, precision)
        self._opened_extractor = extractor
        if extractor is not None:
            prepared: Any = extractor.runner.encoder
            self._kept_runner, self._prepared = extractor.runner, prepared

    @property
    def is_extractor(self) -> bool:
        """Whether the model finds labels that are given at run time."""
        return self._opened_extractor is not None

    @property
    def extractor(self) -> Extractor | SchemaExtractor:
        """The extraction model over this model's encoder.

        Raises:
            MissingHeadError: this is none.
        """
        if self._opened_extractor is None:
            raise MissingHeadError(
                "this model does not find labels that are given at run time: expected an extraction model, in the form "
                "of GLiNER or GLiNER2"
            )
        return self._opened_extractor.over(self._runner)

    def change_task(self, **settings: Any) -> None:
        """As `ModelPredictions.change_task`; an extraction model has the setting ``threshold`` only."""
        if self._opened_extractor is None:
            super().change_task(**settings)
        elif settings.keys() == {"threshold"}:
            self._opened_extractor.threshold = settings["threshold"]
        else:
            raise UsageError(f"an extraction model has no {', '.join(settings)}: expected threshold")

    def entity_labels(self, labels: Labels | None = None) -> tuple[str, ...]:
        """The labels that `extract` looks for: those that are given, sorted; by default all of a tagger.

        Raises:
            MissingHeadError: the model finds no entities.
            UsageError: no labels for an extraction model, labels that cannot be used, or that a tagger does not have.
        """
        from bertkit.extraction.schema import named

        names = None if labels is None else named(labels)[0]
        if self.is_extractor:
            return named(())[0] if names is None else names
        types = () if self.checkpoint.trained is None else self.trained.task.entity_types
        if not types:
            raise MissingHeadError(
                "this model finds no entities: expected an extraction model, or one fine-tuned for token-classification"
            )
        for name in names or ():
            if name not in types:
                raise UsageError(
                    f"the label {name!r:.40}: this tagger has {', '.join(types):.200}; choose some of them"
                )
        return types if names is None else names

    def extract(
        self,
        texts: str | Iterable[str],
        labels: Labels | None = None,
        *,
        schema: Schema | None = None,
        threshold: float | None = None,
        nested: bool = False,
        report: ExtractionReport | None = None,
    ) -> Any:
        """The entities of texts of any length: spans with a label, a score and the window that they were decided in.

        Args:
            labels: what to look for, such as ["person", "place"], in any order; a model in the form of GLiNER2 also
                reads descriptions: {"drug": "a medical substance"}. A tagger has its own labels; None: all of them.
            schema: instead of labels, for models that relate entities or answer several questions at once.
            threshold: entities have a higher score; from 0 to 1; None: what `bertkit calibrate` stored, else 0.5, or of
                a tagger 0.
            nested: also entities inside others; by default no two overlap.
            report: counts what is read.

        Returns:
            For each text a tuple of `Entity` in the order of the text, or with a schema a `Reading`; not in a list if
            ``texts`` is a str. A score has the same bits in any batch and for any order of the labels.

        Raises:
            MissingHeadError: the model finds no entities.
            UsageError: no labels, or one that is empty, given twice, too long or not of the tagger; a threshold out of
                range; a schema that the model does not read.
        """
        given = as_items(texts)
        if schema is not None:
            if labels is not None:
                raise UsageError("labels and a schema: give one of them")
            found: Any = self.extractor.read(given, schema, threshold=threshold, report=report)
        elif self.is_extractor:
            self.entity_labels(labels)
            found = self.extractor.extract(given, labels or (), threshold=threshold, nested=nested, report=report)
        else:
            found = self._tagged(given, self.entity_labels(labels), threshold, report)
        return found[0] if isinstance(texts, str) else found

    def _tagged(
        self, texts: Iterable[str], labels: Sequence[str], threshold: float | None, report: ExtractionReport | None
    ) -> list[tuple[Entity, ...]]:
        from bertkit.extraction.decoding import Entity
        from bertkit.extraction.windowed import ExtractionReport, check_threshold

        task: Any = self.trained.task
        if threshold is not None:
            check_threshold(threshold)
            task = replace(task, threshold=threshold)
        found, read, counts = list[tuple[Entity, ...]](), InferenceReport(), report or ExtractionReport()
        options: dict[str, Any] = {"report": read, "decode": task.decode, "on_long": "window"}
        for examples, predictions in self.predict_stream(map(checked_text, texts), **options):
            counts.num_texts += len(predictions)
            counts.num_characters += sum(example.num_characters for example in examples)
            counts.num_words += sum(len(each.words) for each in predictions)
            found += [
                tuple(
                    Entity(each.start, each.end, each.text, each.label, each.probability, None)
                    for each in prediction.entities
                    if each.label in labels
                )
                for prediction in predictions
            ]
        counts.num_tokens += read.num_tokens
        return found

    def redact(
        self,
        texts: str | Iterable[str],
        kinds: Sequence[str] | None = None,
        *,
        labels: Labels | None = None,
        threshold: float | None = None,
        regions: Sequence[str] | None = None,
        key: Key | None = None,
        is_json: bool = False,
    ) -> Any:
        """Texts with placeholders for formatted identifiers, and for the entities that `extract` finds.

        Arguments are those of `Redactor`, which also redacts streams, and needs no model for identifiers alone.

        Returns:
            A `Redaction` for each text; not in a list if ``texts`` is a str.

        Raises:
            MissingHeadError: the model finds no entities.
            UsageError: as `Redactor`.
        """
        from bertkit.redaction import Redactor

        redactor = Redactor(
            kinds, regions=regions, tagger=self, labels=labels, threshold=threshold, key=key, is_json=is_json
        )
        redactions = redactor.redact_all(list(as_items(texts)))
        return redactions[0] if isinstance(texts, str) else redactions

    def run(
        self,
        texts: str | Iterable[str],
        heads: Sequence[str | ModelFinding],
        *,
        labels: Labels | None = None,
        threshold: float | None = None,
    ) -> Any:
        """Results of several heads for each text, from one pass of the encoder; with the bits of each head alone.

        Args:
            heads: "entities" (`extract`), "redaction" (`redact`), "vector" (`embed`, of the whole text) or "prediction"
                (`predict`) of this model, and further models, whose predictions are wanted: fine-tuned over the same
                frozen encoder.
            labels, threshold: of entities and redactions, as in `extract`.

        Returns:
            For each text a tuple with a result for each head, in their order; not in a list if ``texts`` is a str.
            A text is computed again for a head that cuts it in another way, or reads labels before it.

        Raises:
            UsageError: no heads, an unknown one, or a model with another trunk, precision or device.
            MissingHeadError: a head that the model lacks.
        """
        from bertkit.model.shared_pass import SharedTrunk

        options: dict[str, Any] = {"labels": labels, "threshold": threshold}
        own: dict[str, Callable[[Any, Any], Any]] = {
            "entities": lambda model, part: model.extract(part, **options),
            "redaction": lambda model, part: model.redact(part, **options),
            "vector": lambda model, part: model.embed(part, on_long="window"),
            "prediction": lambda model, part: model.predict(part),
        }
        heads = heads if isinstance(heads, str) else list(heads)
        if isinstance(heads, str) or not heads:
            raise UsageError(f"heads={heads!r}: expected a list of some of {', '.join(own)}, and of models")
        for head in heads:
            if not isinstance(head, ModelFinding) and not (isinstance(head, str) and head in own):
                raise UsageError(f"the head {head!r:.40}: expected one of {', '.join(own)}, or a model")
        others = {f"heads[{index}]": head for index, head in enumerate(heads) if isinstance(head, ModelFinding)}
        trunk, rows = SharedTrunk({"this model": self, **others}), list[tuple[Any, ...]]()
        given = as_items(texts)
        for part in chunks(given, lambda text: _WEIGHT_OF_PASS * text_length(text)):
            models = trunk.one_pass()
            results = [
                own[head](models["this model"], part)
                if isinstance(head, str)
                else models[f"heads[{index}]"].predict(part)
                for index, head in enumerate(heads)
            ]
            rows += zip(*results, strict=True)
        return rows[0] if isinstance(texts, str) else rows
