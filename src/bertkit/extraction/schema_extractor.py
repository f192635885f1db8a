"""Extraction by a schema: entities, records, relations and classes of a text from one run of the encoder."""

import re
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np

from bertkit.batch import Batch
from bertkit.extraction.candidates import Candidates
from bertkit.extraction.counting import MOST_INSTANCES, Counting, counting_shapes
from bertkit.extraction.layers import Layers, Shapes, mlp_shapes, span_shapes
from bertkit.extraction.schema import Schema, SchemaPrompt, Task, schema_prompt
from bertkit.extraction.schema_reading import Finding, Reading, TextReader
from bertkit.extraction.scorer import SpanScorer
from bertkit.extraction.windowed import Chunk, ExtractionReport, WindowedExtractor, as_rows
from bertkit.extraction.windows import Window, Words, WordSplitter, encodings_of, windows_of
from bertkit.inference.runner import Runner
from bertkit.tasks.probabilities import sigmoid, softmax
from bertkit.transformer.kernels.arrays import Rows, array, library_of, rows_beside, split

_CLASSIFIER, _COUNT = "classifier", "count_pred"


def shapes_of_heads(width: int, *, with_transformer: bool) -> Shapes:
    """Tensors after the encoder."""
    return (
        span_shapes(width)
        | mlp_shapes(_CLASSIFIER, (0, 2), (width, 2 * width, 1))
        | mlp_shapes(_COUNT, (0, 2), (width, 2 * width, MOST_INSTANCES))
        | counting_shapes(width, with_transformer=with_transformer)
    )


class SchemaExtractor(WindowedExtractor[SchemaPrompt]):
    """Answers the questions of a schema about texts of any length; see `WindowedExtractor`."""

    def __init__(self, runner: Runner, layers: Layers, max_width: int, threshold: float = 0.5) -> None:
        splitter = WordSplitter(runner.tokenizer, runner.max_positions // 8, _word(), in_lower_case=True)
        super().__init__(runner, splitter, threshold)
        self._layers, self._max_width = layers, max_width
        self._scorer, self._counting = SpanScorer(layers, max_width), Counting(layers)
        self._most_tokens = runner.max_positions

    def _plan_of(self, schema: Schema) -> SchemaPrompt:
        return schema_prompt(schema, self._runner.tokenizer, self._most_tokens // 2)

    def _words(self, texts: Sequence[str]) -> list[Words]:
        return super()._words([_with_stop(text) for text in texts])

    def _windows(self, words: Words, plan: SchemaPrompt) -> list[Window]:
        most_tokens = self._most_tokens - len(plan.tokens)
        return windows_of(words, most_tokens, most_tokens, max(self._max_width - 1, most_tokens // 8))

    def _readings(
        self, chunk: Chunk, plan: SchemaPrompt, threshold: float, report: ExtractionReport, **options: bool
    ) -> Iterator[Reading]:
        sequences = [(text, window) for text, of_text in enumerate(chunk.windows) for window in of_text]
        found: list[list[Finding]] = [[] for _ in chunk.texts]
        for (text, _), one in zip(sequences, self._run(chunk.words, sequences, plan, threshold, report), strict=True):
            found[text].append(one)
        for text, words, of_text in zip(chunk.texts, chunk.words, found, strict=True):
            yield TextReader(text, words, of_text, **options).reading(plan.tasks)

    def _run(
        self,
        words: list[Words],
        sequences: list[tuple[int, Window]],
        prompt: SchemaPrompt,
        threshold: float,
        report: ExtractionReport,
    ) -> list[Finding]:
        """What each window says; ``prompt words`` is a sequence."""
        rows = []
        for text, window in sequences:
            start, end = words[text].first_tokens[[window.first, window.end]]
            rows.append(np.concatenate([prompt.tokens, words[text].tokens[start:end]]))
        encodings = encodings_of(rows, [text for text, _ in sequences])
        report.num_tokens += len(encodings.input_ids)
        marks = np.concatenate([task.marks for task in prompt.tasks])

        def forward(batch: Batch, indices: np.ndarray) -> Rows:
            starts = np.cumsum([0, *batch.seqlens[:-1]])
            own = [sequences[index] for index in indices]
            firsts = [
                start + len(prompt.tokens) + words[text].first_tokens[window.first : window.end]
                - words[text].first_tokens[window.first]
                for start, (text, window) in zip(starts, own, strict=True)
            ]  # fmt: skip
            bounds = np.cumsum([0, *map(len, firsts)])
            read = np.concatenate([(starts[:, None] + marks).ravel(), *firsts])
            rows = rows_beside(read, batch.input_ids)
            hidden = self._layers.read(self._runner.encoder(batch, with_pooled=False, rows=rows).last_hidden_state)
            labels, own_words = split(hidden[self._layers.rows(read)], [len(own) * len(marks), bounds[-1]])
            values, labels = self._scorer.words(own_words), labels.reshape(len(own), len(marks), -1)
            findings = [Finding(window) for _, window in own]
            for number, finding in enumerate(findings):
                of_words = [value[bounds[number] : bounds[number + 1]] for value in values]
                self._decide(finding, of_words, labels[number], prompt.tasks, threshold)
            return as_rows(findings)

        findings: Any = self._runner.run(encodings, forward) if sequences else ()
        return list(findings)

    def _decide(
        self, found: Finding, words: Sequence[np.ndarray], labels: Rows, tasks: list[Task], threshold: float
    ) -> None:
        """Note what a window says.

        Args:
            labels: rows of the marks of all tasks.
        """
        parts = split(labels, [len(task.marks) for task in tasks])
        queries: list[tuple[int, Rows]] = []
        for number, (task, rows) in enumerate(zip(tasks, parts, strict=True)):
            if task.kind in ("classes", "multilabel_classes"):
                logits = array(self._layers.mlp(_CLASSIFIER, (0, 2), rows[1:]))[:, 0]
                found.probabilities[number] = softmax(logits) if task.kind == "classes" else sigmoid(logits)
                continue
            count = int(self._layers.mlp(_COUNT, (0, 2), rows[:1]).argmax())
            if task.kind == "entities":
                count = min(count, 1)
            if count:
                queries.append((number, self._counting.queries(rows[1:], count)))
        if not queries or not len(words[0]):
            return
        flat = library_of(labels).concatenate([each.reshape(-1, labels.shape[1]) for _, each in queries])
        logits = self._scorer.logits(words, [self._scorer.queries(flat)], len(words[0]))
        spans, first = self._scorer.candidates(logits, len(words[0]), threshold), found.window.first
        spans = Candidates(spans.start + first, spans.end + first, spans.label, spans.score)
        at = 0
        for number, each in queries:
            count, num_labels = each.shape[:2]
            found.spans[number] = [
                [spans.chosen(spans.label == at + instance * num_labels + label) for label in range(num_labels)]
                for instance in range(count)
            ]
            at += count * num_labels


def _with_stop(text: str) -> str:
    """The text as published models read it: it ends with a mark of a sentence."""
    return text if text.endswith((".", "!", "?")) else text + "."


@cache
def _word() -> re.Pattern[str]:
    """A word of published models: an address, a name of a user, letters and digits joined by hyphens; or another
    character."""
    marks = "".join(chr(code) for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code))[0] == "M")
    letter = rf"[\w{marks}\u200c\u200d]"
    return re.compile(
        r"(?:https?://\S+|www\.\S+)|[a-z0-9._%+-]+@[a-z0-9.-]+\.[a-z]{2,}|@[a-z0-9_]+"
        rf"|{letter}+(?:[-_]{letter}+)*|\S",
        re.IGNORECASE,
    )
