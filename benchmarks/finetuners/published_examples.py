"""Conversion of examples to features and of outputs to predictions, as in the published scripts of transformers:
run_glue.py, run_ner.py, run_qa.py with utils_qa.py, run_swag.py.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from transformers import (
    AutoModelForMultipleChoice,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    DataCollatorForMultipleChoice,
    DataCollatorForTokenClassification,
    DataCollatorWithPadding,
)

from finetuners import Settings

_IGNORED = -100
_STRIDE = 128  # tokens that two windows share, as in run_qa.py
_NUM_BEST = 20  # starts and ends that are looked at, as in run_qa.py


class _Kind:
    """The conversions for one kind of task."""

    model_class: ClassVar[Any]
    collate: ClassVar[Any] = DataCollatorWithPadding

    def __init__(self, tokenizer: Any, train: Sequence[Any], settings: Settings) -> None:
        self.tokenizer, self.settings = tokenizer, settings
        self.collator = self.collate(tokenizer)
        self.model_options = self.options(train)

    def options(self, train: Sequence[Any]) -> dict[str, Any]:
        """Arguments of ``from_pretrained`` in addition to the folder."""
        return {}

    def features(self, examples: Sequence[Any]) -> list[dict[str, Any]]:
        """The input rows of the Trainer."""
        raise NotImplementedError

    def predictions(self, examples: Sequence[Any], outputs: Any) -> list[Any]:
        """Predictions of the examples, from the outputs of the Trainer."""
        raise NotImplementedError

    def _encode(self, *texts: list[Any], **named: Any) -> Any:
        return self.tokenizer(*texts, **{"truncation": True, "max_length": self.settings.max_length, **named})


class _Texts(_Kind):
    model_class = AutoModelForSequenceClassification

    def features(self, examples: Sequence[Any]) -> list[dict[str, Any]]:
        pairs = [] if examples[0].pair is None else [[example.pair for example in examples]]
        encoded = self._encode([example.text for example in examples], *pairs)
        labels = [self.target(example.label) for example in examples]
        return _rows({**encoded, "labels": labels})

    def target(self, label: Any) -> Any:
        return label


class Classes(_Texts):
    def options(self, train: Sequence[Any]) -> dict[str, Any]:
        self.names = sorted({example.label for example in train})
        return {"num_labels": len(self.names)}

    def target(self, label: str) -> int:
        return self.names.index(label)

    def predictions(self, examples: Sequence[Any], outputs: np.ndarray) -> list[str]:
        return [self.names[place] for place in outputs.argmax(axis=1)]


class Scores(_Texts):
    def options(self, train: Sequence[Any]) -> dict[str, Any]:
        return {"num_labels": 1}

    def predictions(self, examples: Sequence[Any], outputs: np.ndarray) -> list[float]:
        return outputs[:, 0].tolist()


class TaggedWords(_Kind):
    """The first piece of a word has its label; a word without one has the first label, O where there is one."""

    model_class = AutoModelForTokenClassification
    collate = DataCollatorForTokenClassification

    def options(self, train: Sequence[Any]) -> dict[str, Any]:
        names = {tag for example in train for tag in example.tags}
        self.names = sorted(names, key=lambda name: (name != "O", name.partition("-")[2], name))  # O, B-x, I-x, B-y
        return {"num_labels": len(self.names)}

    def features(self, examples: Sequence[Any]) -> list[dict[str, Any]]:
        numbers = {name: number for number, name in enumerate(self.names)}
        encoded, labels = self._of_words(examples), []
        for row, example in enumerate(examples):
            labels.append([_IGNORED] * len(encoded["input_ids"][row]))
            for word, place in _first_pieces(encoded.word_ids(row)).items():
                labels[-1][place] = numbers.get(example.tags[word], 0)
        return _rows({**encoded, "labels": labels})

    def predictions(self, examples: Sequence[Any], outputs: np.ndarray) -> list[tuple[str, ...]]:
        best, encoded, found = outputs.argmax(axis=2), self._of_words(examples), []
        for row, example in enumerate(examples):
            tags = [self.names[0]] * len(example.words)
            for word, place in _first_pieces(encoded.word_ids(row)).items():
                tags[word] = self.names[best[row, place]]
            found.append(tuple(tags))
        return found

    def _of_words(self, examples: Sequence[Any]) -> Any:
        words = [[example.text[start:end] for start, end in example.words] for example in examples]
        return self._encode(words, is_split_into_words=True)


class Answers(_Kind):
    model_class = AutoModelForQuestionAnswering

    def features(self, examples: Sequence[Any]) -> list[dict[str, Any]]:
        encoded, places = self._windows(examples), []
        for row, of_example in enumerate(encoded["overflow_to_sample_mapping"]):
            context, (start, end) = examples[of_example].context, examples[of_example].answers[0]
            tokens = self._context(encoded, row)
            touched = [(place, span) for place, span in tokens if span[0] < end and span[1] > start]
            whole = touched and not (context[start : touched[0][1][0]] + context[touched[-1][1][1] : end]).strip()
            places.append((touched[0][0], touched[-1][0]) if whole else (0, 0))
        starts, ends = zip(*places, strict=True)
        names = ("input_ids", "token_type_ids", "attention_mask")
        kept = {name: encoded[name] for name in names}
        return _rows({**kept, "start_positions": starts, "end_positions": ends})

    def predictions(self, examples: Sequence[Any], outputs: tuple[np.ndarray, np.ndarray]) -> list[str]:
        encoded, answers = self._windows(examples), [(-np.inf, "")] * len(examples)
        for row, number in enumerate(encoded["overflow_to_sample_mapping"]):
            spans = dict(self._context(encoded, row))
            start_logits, end_logits = (logits[row, : len(encoded["input_ids"][row])] for logits in outputs)
            for first in np.argsort(start_logits)[::-1][:_NUM_BEST].tolist():
                for last in np.argsort(end_logits)[::-1][:_NUM_BEST].tolist():
                    if first not in spans or last not in spans or not first <= last < first + self._most_tokens:
                        continue
                    text = examples[number].context[spans[first][0] : spans[last][1]]
                    answers[number] = max(answers[number], (float(start_logits[first] + end_logits[last]), text))
        return [text for _, text in answers]

    @property
    def _most_tokens(self) -> int:
        assert self.settings.max_answer_length is not None
        return self.settings.max_answer_length

    def _windows(self, examples: Sequence[Any]) -> Any:
        questions, contexts = ([getattr(example, part) for example in examples] for part in ("question", "context"))
        return self._encode(
            questions, contexts, truncation="only_second", stride=min(_STRIDE, self.settings.max_length // 3),
            return_overflowing_tokens=True, return_offsets_mapping=True,
        )  # fmt: skip

    def _context(self, encoded: Any, row: int) -> list[tuple[int, tuple[int, int]]]:
        """Indices of the tokens of the context in a window, and their characters."""
        ids, offsets = encoded.sequence_ids(row), encoded["offset_mapping"][row]
        return [(place, offsets[place]) for place, part in enumerate(ids) if part == 1]


class Choices(_Kind):
    model_class = AutoModelForMultipleChoice
    collate = DataCollatorForMultipleChoice

    def features(self, examples: Sequence[Any]) -> list[dict[str, Any]]:
        num_choices = len(examples[0].choices)
        contexts = [example.context for example in examples for _ in example.choices]
        encoded = self._encode(contexts, [choice for example in examples for choice in example.choices])
        grouped = {
            name: [values[start : start + num_choices] for start in range(0, len(values), num_choices)]
            for name, values in encoded.items()
        }
        return _rows({**grouped, "labels": [example.label for example in examples]})

    def predictions(self, examples: Sequence[Any], outputs: np.ndarray) -> list[int]:
        return outputs.argmax(axis=1).tolist()


KINDS: dict[str, type[_Kind]] = {
    "sequence-classification": Classes,
    "regression": Scores,
    "token-classification": TaggedWords,
    "question-answering": Answers,
    "multiple-choice": Choices,
}


def _rows(columns: dict[str, Any]) -> list[dict[str, Any]]:
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _first_pieces(word_ids: Sequence[int | None]) -> dict[int, int]:
    """The index of the first piece of each word."""
    found: dict[int, int] = {}
    for place, word in enumerate(word_ids):
        if word is not None:
            found.setdefault(word, place)
    return found
