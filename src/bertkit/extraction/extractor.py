"""Extraction of entities from texts of any length."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bertkit.batch import Batch
from bertkit.errors import UsageError
from bertkit.extraction.decoding import Entity, best_spans, entity_of
from bertkit.extraction.label_encoder import LabelEncoder
from bertkit.extraction.layers import PROJECTION, Layers
from bertkit.extraction.prompts import Prompt, checked_labels, prompts_of
from bertkit.extraction.schema import Schema, named
from bertkit.extraction.schema_reading import Reading
from bertkit.extraction.scorer import Candidates, Scorer
from bertkit.extraction.settings import ExtractionSettings
from bertkit.extraction.windowed import Chunk, ExtractionReport, WindowedExtractor
from bertkit.extraction.windows import Window, Words, WordSplitter, encodings_of, windows_of
from bertkit.inference.runner import Runner, inferred
from bertkit.tokenizer import Encodings

_SEQUENCES_AT_A_TIME = 256


@dataclass(frozen=True)
class _Plan:
    """How texts are read for some labels."""

    labels: tuple[str, ...]
    prompts: list[Prompt]
    window_tokens: int  # tokens of the words of a window
    label_values: list[Any] | None  # of a model with an encoder of labels: `Scorer.shared_labels`

    @property
    def label_groups(self) -> tuple[tuple[str, ...], ...]:
        """The labels that are read together."""
        return tuple(tuple(self.labels[index] for index in prompt.labels) for prompt in self.prompts)


@dataclass(frozen=True)
class _Sequence:
    """A window of a text, read for some of the labels."""

    text: int
    window: Window
    prompt: Prompt


class Extractor(WindowedExtractor[_Plan]):
    """Finds spans of texts for labels that are given at run time; see `WindowedExtractor`."""

    def __init__(
        self, runner: Runner, settings: ExtractionSettings, layers: Layers, scorer: Scorer,
        label_encoder: LabelEncoder | None, threshold: float = 0.5,
    ) -> None:  # fmt: skip
        self._most_tokens = runner.max_positions - 2  # between [CLS] and [SEP]
        super().__init__(runner, WordSplitter(runner.tokenizer, self._most_tokens // 8), threshold)
        self.settings, self._layers, self._scorer = settings, layers, scorer
        self._label_encoder = label_encoder
        of_spans = 0 if settings.of_tokens else settings.max_width - 1
        self._context = max(of_spans, settings.max_words // 8)

    def _plan_of(self, schema: Schema) -> _Plan:
        for field in fields(schema):
            labels = getattr(schema, field.name)
            if labels and field.name != "entities":
                raise UsageError(f"the schema has {field.name}: this model reads entities only")
            if labels and isinstance(labels, Mapping):
                raise UsageError(f'{field.name} have descriptions: this model reads names only, such as ["person"]')
        return self._plan(named(schema.entities)[0])

    def _windows(self, words: Words, plan: _Plan) -> list[Window]:
        return windows_of(words, plan.window_tokens, self.settings.max_words, self._context)

    def _readings(
        self, chunk: Chunk, plan: _Plan, threshold: float, report: ExtractionReport, **options: bool
    ) -> Iterator[Reading]:
        sequences = [
            _Sequence(text, window, prompt)
            for text, of_text in enumerate(chunk.windows)
            for window in of_text
            for prompt in plan.prompts
        ]
        found: list[list[tuple[Candidates, Window]]] = [[] for _ in chunk.texts]
        for first in range(0, len(sequences), _SEQUENCES_AT_A_TIME):
            part = sequences[first : first + _SEQUENCES_AT_A_TIME]
            candidates = self._candidates(chunk.words, part, plan, threshold, report)
            for sequence, each in zip(part, candidates, strict=True):
                if len(each.score):
                    found[sequence.text].append((each, sequence.window))
        for text, words, of_text in zip(chunk.texts, chunk.words, found, strict=True):
            yield Reading(_entities(text, words, of_text, plan.labels, options["nested"]))

    def _plan(self, labels: Sequence[str]) -> _Plan:
        names, tokenizer = checked_labels(labels), self._runner.tokenizer
        if self._label_encoder is not None:
            encoder, vectors = self._label_encoder, self._label_encoder.vectors(names)
            values = inferred(lambda: self._scorer.shared_labels(vectors.to(encoder.layers.device)))
            return _Plan(names, [Prompt.empty(len(names))], self._most_tokens, values)
        prompts = prompts_of(names, tokenizer, self.settings, self._most_tokens // 2)
        longest = max(len(prompt.tokens) for prompt in prompts)
        return _Plan(names, prompts, self._most_tokens - longest, None)

    def _candidates(
        self, words: list[Words], sequences: list[_Sequence], plan: _Plan, threshold: float, report: ExtractionReport
    ) -> list[Candidates]:
        """The spans of each sequence above the threshold, with words and labels of the text and the plan."""
        results: list[Candidates | None] = [None] * len(sequences)

        def keep(index: int, logits: np.ndarray) -> None:
            window, prompt = sequences[index].window, sequences[index].prompt
            num_starts = window.end_owned - window.first_owned
            found = self._scorer.candidates(logits, num_starts, threshold)
            results[index] = Candidates(
                found.start + window.first_owned,
                found.end + window.first_owned,
                prompt.labels[found.label],
                found.score,
            )

        report.num_tokens += self._run(words, sequences, plan, keep)
        return [result for result in results if result is not None]

    def _run(self, words: list[Words], sequences: list[_Sequence], plan: _Plan, keep: Any) -> int:
        """Call ``keep`` with each index and the logits of its sequence, on several threads; returns the number of
        tokens."""
        encodings = self._encodings(words, sequences)

        def forward(batch: Batch, indices: np.ndarray) -> Tensor:
            hidden = self._runner.encoder(batch, with_pooled=False).last_hidden_state
            own = [sequences[index] for index in indices]
            starts, prompts = batch.cu_seqlens[:-1].cpu().numpy().astype(np.int64), [each.prompt for each in own]
            num_words = np.array([each.window.end - each.window.first for each in own], np.int64)
            firsts = np.concatenate([
                words[each.text].first_tokens[each.window.first : each.window.end]
                - words[each.text].first_tokens[each.window.first]
                for each in own
            ])  # fmt: skip
            before = starts + 1 + [len(prompt.tokens) for prompt in prompts]
            word_rows = self._rows(hidden, firsts + np.repeat(before, num_words))
            bounds = np.cumsum([0, *num_words])
            word_values = self._scorer.words(self._layers.through_lstm(word_rows, bounds))
            label_values, num_labels = plan.label_values, [0] * len(own)
            if label_values is None:
                num_labels = [len(prompt.labels) for prompt in prompts]
                places = np.concatenate(
                    [start + prompt.label_tokens for start, prompt in zip(starts, prompts, strict=True)]
                )
                label_values = self._scorer.labels(self._rows(hidden, places))
            label_bounds = np.cumsum([0, *num_labels])
            for number, (index, each) in enumerate(zip(indices, own, strict=True)):
                first = bounds[number] + each.window.first_owned - each.window.first
                of_words = [values[first : bounds[number + 1]] for values in word_values]
                of_labels = label_values
                if plan.label_values is None:
                    of_labels = [values[label_bounds[number] : label_bounds[number + 1]] for values in label_values]
                num_starts = each.window.end_owned - each.window.first_owned
                keep(int(index), self._scorer.logits(of_words, of_labels, num_starts))
            return torch.zeros(len(own))

        if sequences:
            self._runner.run(encodings, forward)
        return len(encodings.input_ids)

    def _rows(self, hidden: Tensor, rows: np.ndarray) -> Tensor:
        chosen = hidden[torch.from_numpy(rows).to(hidden.device)].to(self._layers.dtype)
        return self._layers.projected(PROJECTION, chosen)

    def _encodings(self, words: list[Words], sequences: list[_Sequence]) -> Encodings:
        """``[CLS] prompt words [SEP]`` of each sequence."""
        first, last = [self._runner.tokenizer.cls_id], [self._runner.tokenizer.sep_id]
        rows = list[np.ndarray]()
        for each in sequences:
            of_text = words[each.text]
            start, end = of_text.first_tokens[[each.window.first, each.window.end]]
            rows.append(np.concatenate([first, each.prompt.tokens, of_text.tokens[start:end], last]))
        return encodings_of(rows, [each.text for each in sequences])


def _entities(
    text: str, words: Words, found: list[tuple[Candidates, Window]], labels: Sequence[str], nested: bool
) -> tuple[Entity, ...]:
    """The entities of a text, from the candidates of its windows."""
    if not found:
        return ()
    candidates = Candidates(*map(np.concatenate, zip(*(each for each, _ in found), strict=True)))
    window_of = np.repeat(np.arange(len(found)), [len(each.score) for each, _ in found])
    return tuple(
        entity_of(text, words, candidates, index, labels[candidates.label[index]], found[window_of[index]][1])
        for index in best_spans(candidates, nested=nested).tolist()
    )
