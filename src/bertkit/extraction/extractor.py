"""Extraction of entities from texts of any length."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
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
from bertkit.extraction.scorer import Candidates, Scorer
from bertkit.extraction.settings import ExtractionSettings
from bertkit.extraction.windows import Window, Words, WordSplitter, encodings_of, windows_of
from bertkit.inference.runner import Runner, checked_text, chunks, inferred, text_length
from bertkit.tokenizer import Encodings
from bertkit.tokenizer.tokenizer import refuse_one_text

_SEQUENCES_AT_A_TIME = 256


@dataclass
class ExtractionReport:
    """What was read."""

    num_texts: int = 0
    num_characters: int = 0
    num_words: int = 0
    num_windows: int = 0
    num_tokens: int = 0  # computed: labels, special tokens and overlaps of windows included
    label_groups: tuple[tuple[str, ...], ...] = ()  # labels that the model read together

    def to_json(self) -> dict[str, Any]:
        """The report as a JSON object."""
        return asdict(self)


@dataclass(frozen=True)
class _Plan:
    """How texts are read for some labels."""

    labels: tuple[str, ...]
    prompts: list[Prompt]
    window_tokens: int  # tokens of the words of a window
    label_values: list[Any] | None  # of a model with an encoder of labels: `Scorer.shared_labels`


@dataclass(frozen=True)
class _Sequence:
    """A window of a text, read for some of the labels."""

    text: int
    window: Window
    prompt: Prompt


class Extractor:
    """Finds spans of texts for labels that are given at run time.

    Long texts are read in windows, so nothing is left out. The score of an entity has the same bits regardless of the
    other texts and of the order of the labels.
    """

    def __init__(
        self, runner: Runner, settings: ExtractionSettings, layers: Layers, scorer: Scorer,
        label_encoder: LabelEncoder | None, threshold: float = 0.5,
    ) -> None:  # fmt: skip
        self.threshold = threshold  # default of `extract`: what `bertkit calibrate` stored, or 0.5
        self.settings, self._runner, self._layers, self._scorer = settings, runner, layers, scorer
        self._label_encoder = label_encoder
        self._most_tokens = runner.max_positions - 2  # between [CLS] and [SEP]
        of_spans = 0 if settings.of_tokens else settings.max_width - 1
        self._context = max(of_spans, settings.max_words // 8)
        self._splitter = WordSplitter(runner.tokenizer, self._most_tokens // 8)

    def extract(
        self,
        texts: Iterable[str],
        labels: Sequence[str],
        *,
        threshold: float | None = None,
        nested: bool = False,
        report: ExtractionReport | None = None,
    ) -> list[tuple[Entity, ...]]:
        """The entities of each text, in the order of the text.

        Args:
            labels: what to look for, such as "person"; their order does not matter.
            threshold: entities have a higher score; from 0 to 1; None: that of the model.
            nested: also entities inside others; by default no two overlap.
            report: counts what is read.

        Raises:
            UsageError: no labels, or a label that is empty, given twice or too long; a threshold out of range; a str
                instead of texts.
        """
        return list(self.extract_stream(texts, labels, threshold=threshold, nested=nested, report=report))

    def extract_stream(
        self,
        texts: Iterable[str],
        labels: Sequence[str],
        *,
        threshold: float | None = None,
        nested: bool = False,
        report: ExtractionReport | None = None,
    ) -> Iterator[tuple[Entity, ...]]:
        """`extract` in bounded memory; a text is in memory as a whole."""
        refuse_one_text(texts)
        threshold = self.threshold if threshold is None else threshold
        check_threshold(threshold)
        plan, report = self._plan(labels), report or ExtractionReport()
        report.label_groups = tuple(tuple(plan.labels[i] for i in prompt.labels) for prompt in plan.prompts)
        return self._stream(texts, plan, threshold, nested, report)

    def _stream(
        self, texts: Iterable[str], plan: _Plan, threshold: float, nested: bool, report: ExtractionReport
    ) -> Iterator[tuple[Entity, ...]]:
        for chunk in chunks(map(checked_text, texts), text_length):
            words = self._splitter.split(chunk)
            windows = [windows_of(each, plan.window_tokens, self.settings.max_words, self._context) for each in words]
            sequences = [
                _Sequence(text, window, prompt)
                for text, of_text in enumerate(windows)
                for window in of_text
                for prompt in plan.prompts
            ]
            report.num_texts += len(chunk)
            report.num_characters += sum(map(len, chunk))
            report.num_words += sum(len(each.starts) for each in words)
            report.num_windows += sum(map(len, windows))
            found: list[list[tuple[Candidates, Window]]] = [[] for _ in chunk]
            for first in range(0, len(sequences), _SEQUENCES_AT_A_TIME):
                part = sequences[first : first + _SEQUENCES_AT_A_TIME]
                for sequence, candidates in zip(
                    part, self._candidates(words, part, plan, threshold, report), strict=True
                ):
                    if len(candidates.score):
                        found[sequence.text].append((candidates, sequence.window))
            for text, each, of_text in zip(chunk, words, found, strict=True):
                yield _entities(text, each, of_text, plan.labels, nested)

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


def check_threshold(threshold: float) -> None:
    """Raise UsageError unless the threshold is a number from 0 to 1."""
    if not 0 <= threshold <= 1:
        raise UsageError(f"threshold={threshold}: expected a number from 0 to 1")
