"""Extraction of entities from texts of any length."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np

from bertkit.batch import Batch
from bertkit.errors import UsageError
from bertkit.extraction.candidates import NO_CANDIDATES, Candidates
from bertkit.extraction.decoding import best_spans, entity_of
from bertkit.extraction.label_encoder import LabelEncoder
from bertkit.extraction.layers import PROJECTION, Layers
from bertkit.extraction.prompts import Prompt, checked_labels, prompts_of
from bertkit.extraction.relations import Pairs, RelationScorer, pairs_of
from bertkit.extraction.schema import Schema, named
from bertkit.extraction.schema_reading import Reading, Relation
from bertkit.extraction.scorer import Part, Scorer
from bertkit.extraction.settings import ExtractionSettings
from bertkit.extraction.windowed import Chunk, ExtractionReport, WindowedExtractor, as_rows
from bertkit.extraction.windows import Window, Words, WordSplitter, encodings_of, windows_of
from bertkit.inference.runner import Runner
from bertkit.tokenizer import Encodings
from bertkit.transformer.kernels.arrays import Rows, rows_beside

_SEQUENCES_AT_A_TIME = 256


@dataclass(frozen=True)
class _Plan:
    """How texts are read for some labels."""

    labels: tuple[str, ...]
    relations: tuple[str, ...]
    prompts: list[Prompt]
    window_tokens: int  # tokens of the words of a window
    label_values: list[Any] | None  # of a model with an encoder of labels: `Scorer.shared_labels`

    @property
    def label_groups(self) -> tuple[tuple[str, ...], ...]:
        """The labels that are read together."""
        return tuple(tuple(self.labels[index] for index in prompt.labels) for prompt in self.prompts)


@dataclass(frozen=True, eq=False)
class _Sequence:
    """A window of a text, read for some of the labels."""

    text: int
    window: Window
    prompt: Prompt


class _Chosen(NamedTuple):
    """Entities of a text."""

    spans: Candidates
    windows: list[Window]  # in which they were decided


class _Encoded(NamedTuple):
    """Sequences after the encoder."""

    indices: np.ndarray  # of the sequences
    word_rows: Rows  # (W, D) of the words of all sequences, after the LSTM
    word_bounds: np.ndarray  # cumulative numbers of words
    prompt_rows: Callable[[list[np.ndarray]], Rows]  # (n, D) of tokens in the prompts of the sequences


class Extractor(WindowedExtractor[_Plan]):
    """Finds spans of texts for labels that are given at run time, and relations between them; see `WindowedExtractor`.

    A relation is decided where one window holds both entities.
    """

    def __init__(
        self, runner: Runner, settings: ExtractionSettings, layers: Layers, scorer: Scorer,
        label_encoder: LabelEncoder | None, relation_scorer: RelationScorer | None = None, threshold: float = 0.5,
    ) -> None:  # fmt: skip
        self._most_tokens = runner.max_positions - 2  # between [CLS] and [SEP]
        super().__init__(runner, WordSplitter(runner.tokenizer, self._most_tokens // 8), threshold)
        self.settings, self._layers, self._scorer = settings, layers, scorer
        self._label_encoder, self._relation_scorer = label_encoder, relation_scorer
        of_spans = 0 if settings.of_tokens else settings.max_width - 1
        self._context = max(of_spans, settings.max_words // 8)

    def _plan_of(self, schema: Schema) -> _Plan:
        known = ("entities",) if self._relation_scorer is None else ("entities", "relations")
        for field in fields(schema):
            labels = getattr(schema, field.name)
            if labels and field.name not in known:
                raise UsageError(f"the schema has {field.name}: this model reads {' and '.join(known)} only")
            if labels and isinstance(labels, Mapping):
                raise UsageError(f'{field.name} have descriptions: this model reads names only, such as ["person"]')
        return self._plan(named(schema.entities)[0], named(schema.relations)[0] if schema.relations else ())

    def _windows(self, words: Words, plan: _Plan) -> list[Window]:
        return windows_of(words, plan.window_tokens, self.settings.max_words, self._context)

    def _readings(
        self, chunk: Chunk, plan: _Plan, threshold: float, report: ExtractionReport, **options: bool
    ) -> Iterator[Reading]:
        words, sequences = (
            chunk.words,
            [
                _Sequence(text, window, prompt)
                for text, of_text in enumerate(chunk.windows)
                for window in of_text
                for prompt in plan.prompts
            ],
        )
        found: list[list[tuple[Candidates, Window]]] = [[] for _ in chunk.texts]
        for first in range(0, len(sequences), _SEQUENCES_AT_A_TIME):
            part = sequences[first : first + _SEQUENCES_AT_A_TIME]
            for sequence, candidates in zip(part, self._candidates(words, part, plan, threshold, report), strict=True):
                if len(candidates.score):
                    found[sequence.text].append((candidates, sequence.window))
        chosen = [_chosen(of_text, nested=options["nested"]) for of_text in found]
        entities = [
            tuple(entity_of(text, each, spans, index, plan.labels[spans.label[index]], window)
                  for index, window in enumerate(of_spans))
            for text, each, (spans, of_spans) in zip(chunk.texts, words, chosen, strict=True)
        ]  # fmt: skip
        related: list[list[tuple[int, int, int, float]]] = [[] for _ in chunk.texts]
        if plan.relations:
            for text, pairs, scores in self._related(words, chosen, plan, threshold, report):
                pair, relation = np.nonzero(scores > threshold)
                columns = (pairs.head[pair], pairs.tail[pair], relation, scores[pair, relation])
                related[text] += zip(*(column.tolist() for column in columns), strict=True)
        for own, of_text in zip(entities, related, strict=True):
            relations = (
                Relation(plan.relations[relation], own[head], own[tail], score)
                for head, tail, relation, score in sorted(of_text)
            )
            yield Reading(own, relations=tuple(relations))

    def _plan(self, labels: Sequence[str], relations: Sequence[str] = ()) -> _Plan:
        names, tokenizer = checked_labels(labels), self._runner.tokenizer
        between = checked_labels(relations) if relations else ()
        if self._label_encoder is not None:
            values = self._label_encoder.prepared(names)
            return _Plan(names, between, [Prompt.empty(len(names))], self._most_tokens, values)
        prompts = prompts_of(names, tokenizer, self.settings, self._most_tokens // 2, between)
        longest = max(len(prompt.tokens) for prompt in prompts)
        return _Plan(names, between, prompts, self._most_tokens - longest, None)

    def _candidates(
        self, words: list[Words], sequences: list[_Sequence], plan: _Plan, threshold: float, report: ExtractionReport
    ) -> list[Candidates]:
        """The spans of each sequence above the threshold, with words and labels of the text and the plan."""

        def decide(encoded: _Encoded) -> list[Candidates]:
            results = []
            own = [sequences[index] for index in encoded.indices]
            word_values, label_values = self._scorer.words(encoded.word_rows), plan.label_values
            if label_values is None:
                label_values = self._scorer.labels(encoded.prompt_rows([each.prompt.label_tokens for each in own]))
            parts, first_label = list[Part](), 0
            for each, first, end in zip(own, encoded.word_bounds, encoded.word_bounds[1:], strict=False):
                window, end_label = each.window, first_label + len(each.prompt.labels)
                own_words = slice(first + window.first_owned - window.first, end)
                parts.append(Part(own_words, window.end_owned - window.first_owned, slice(first_label, end_label)))
                first_label = end_label if plan.label_values is None else 0
            spans = self._scorer.spans(word_values, label_values, parts, threshold)
            for each, found in zip(own, spans, strict=True):
                start, end = found.start + each.window.first_owned, found.end + each.window.first_owned
                results.append(Candidates(start, end, each.prompt.labels[found.label], found.score))
            return results

        return self._run(words, sequences, decide, report)

    def _related(
        self, words: list[Words], chosen: list[_Chosen], plan: _Plan, threshold: float, report: ExtractionReport
    ) -> Iterator[tuple[int, Pairs, np.ndarray]]:
        """Text, pairs and (P, R) probabilities of the windows that hold pairs of entities, which are read again."""
        scorer, prompt_of = self._relation_scorer, np.empty(len(plan.labels), np.int64)
        assert scorer is not None, "the plan has relations"
        for number, prompt in enumerate(plan.prompts):
            prompt_of[prompt.labels] = number
        found = [(text, each) for text, one in enumerate(chosen) for each in pairs_of(*one, prompt_of)]
        for first in range(0, len(found), _SEQUENCES_AT_A_TIME):
            part = found[first : first + _SEQUENCES_AT_A_TIME]
            sequences = [_Sequence(text, each.window, plan.prompts[each.prompt]) for text, each in part]

            def decide(encoded: _Encoded, part: Any = part, sequences: Any = sequences) -> list[np.ndarray]:
                results = []
                rows = encoded.prompt_rows([sequences[index].prompt.relation_tokens for index in encoded.indices])
                bounds, number = encoded.word_bounds, len(plan.relations)
                for at, index in enumerate(encoded.indices):
                    text, pairs = part[index]
                    of_words = encoded.word_rows[bounds[at] : bounds[at + 1]]
                    of_relations = rows[at * number : (at + 1) * number]
                    results.append(scorer.probabilities(of_words, chosen[text].spans, pairs, of_relations, threshold))
                return results

            results = self._run(words, sequences, decide, report)
            yield from ((text, pairs, result) for (text, pairs), result in zip(part, results, strict=True))

    def _run(
        self,
        words: list[Words],
        sequences: list[_Sequence],
        decide: Callable[[_Encoded], Sequence[Any]],
        report: ExtractionReport,
    ) -> list[Any]:
        """What ``decide`` says of each sequence: it is called with parts of them, on several threads."""
        encodings = self._encodings(words, sequences)

        def forward(batch: Batch, indices: np.ndarray) -> Rows:
            own = [sequences[index] for index in indices]
            starts = np.cumsum([0, *batch.seqlens[:-1]])
            num_words = np.array([each.window.end - each.window.first for each in own], np.int64)
            firsts = np.concatenate([
                words[each.text].first_tokens[each.window.first : each.window.end]
                - words[each.text].first_tokens[each.window.first]
                for each in own
            ])  # fmt: skip
            before = starts + 1 + [len(each.prompt.tokens) for each in own]
            firsts += np.repeat(before, num_words)
            marks = [s + t for s, each in zip(starts, own, strict=True) for t in each.prompt.marks]
            read = rows_beside(np.concatenate([firsts, *marks]), batch.input_ids)
            hidden = self._layers.read(self._runner.encoder(batch, with_pooled=False, rows=read).last_hidden_state)
            word_rows, bounds = self._rows(hidden, firsts), np.cumsum([0, *num_words])

            def prompt_rows(places: list[np.ndarray]) -> Rows:
                return self._rows(hidden, np.concatenate([s + of for s, of in zip(starts, places, strict=True)]))

            encoded = _Encoded(indices, self._layers.through_lstm(word_rows, bounds), bounds, prompt_rows)
            return as_rows(decide(encoded))

        report.num_tokens += len(encodings.input_ids)
        return list(self._runner.run(encodings, forward)) if sequences else []

    def _rows(self, hidden: Rows, rows: np.ndarray) -> Rows:
        return self._layers.projected(PROJECTION, hidden[rows_beside(rows, hidden)])

    def _encodings(self, words: list[Words], sequences: list[_Sequence]) -> Encodings:
        """``[CLS] prompt words [SEP]`` of each sequence."""
        first, last = [self._runner.tokenizer.cls_id], [self._runner.tokenizer.sep_id]
        rows = list[np.ndarray]()
        for each in sequences:
            of_text = words[each.text]
            start, end = of_text.first_tokens[[each.window.first, each.window.end]]
            rows.append(np.concatenate([first, each.prompt.tokens, of_text.tokens[start:end], last]))
        return encodings_of(rows, [each.text for each in sequences])


def _chosen(found: list[tuple[Candidates, Window]], *, nested: bool) -> _Chosen:
    """The entities of a text, from the candidates of its windows."""
    if not found:
        return _Chosen(NO_CANDIDATES, [])
    candidates = Candidates(*map(np.concatenate, zip(*(each for each, _ in found), strict=True)))
    window_of = np.repeat(np.arange(len(found)), [len(each.score) for each, _ in found])
    kept = best_spans(candidates, nested=nested)
    return _Chosen(candidates.chosen(kept), [found[index][1] for index in window_of[kept].tolist()])
