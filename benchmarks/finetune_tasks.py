"""The tasks of the fine-tuning benchmark: real data sets, the settings of both libraries, and scores of predictions.

The numbers of examples are limited so that training with transformers in float32 takes about two minutes on two cores,
for the first two tasks four.
"""

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import texts
from finetuners import Settings

from bertkit.tasks import read_examples
from bertkit.tasks.answers import AnswerScores
from bertkit.tasks.reading import BadRows
from bertkit.tasks.scoring import EntityLabels, Numbers, OneLabel, Scores
from bertkit.tasks.tags import Tags, complete_names, entities_in, guess_scheme, spell

MAX_TEST = 1_500  # examples
_FEWEST = 40  # examples of a trial
Examples = list[Any]


@dataclass(frozen=True)
class Task:
    """One data set; ``read`` gives its training and its test examples."""

    name: str
    read: Callable[["Task"], tuple[Examples, Examples]]
    num_train: int  # most examples to learn from
    metric: str  # of `score`, that is compared
    settings: Settings

    def examples(self, scale: float) -> tuple[Examples, Examples]:
        """Training and test examples, the same in the same order for every run.

        Raises:
            RuntimeError: the data are not on this machine.
        """
        train, test = self.read(self)
        limits = (max(_FEWEST, round(number * scale)) for number in (self.num_train, MAX_TEST))
        train, test = (texts.shuffled(examples)[:limit] for examples, limit in zip((train, test), limits, strict=True))
        return train, test


def score(task: Task, train: Examples, test: Examples, predictions: Sequence[Any]) -> dict[str, float]:
    """The metrics of predictions by name, computed in the same way for both libraries."""
    return _SCORES[task.settings.kind](train, test, predictions)


def _of_classes(train: Examples, test: Examples, predictions: Sequence[str]) -> dict[str, float]:
    names = sorted({example.label for example in (*train, *test)})
    scores = Scores(OneLabel(tuple(names)))
    scores.add([names.index(example.label) for example in test], [names.index(name) for name in predictions])
    return scores.results()


def _of_numbers(train: Examples, test: Examples, predictions: Sequence[float]) -> dict[str, float]:
    scores = Scores(Numbers(()))
    scores.add([example.label for example in test], predictions)
    return scores.results()


def _of_tags(train: Examples, test: Examples, predictions: Sequence[Sequence[str]]) -> dict[str, float]:
    found = {tag for example in (*train, *test) for tag in example.tags}
    scheme = guess_scheme(found)
    tags = Tags(complete_names(found, scheme), scheme)
    true = [tags.numbers[tag] for example in test for tag in example.tags]
    if scheme == "plain":
        scores = Scores(OneLabel(tags.names))
        scores.add(true, [tags.numbers[tag] for of_text in predictions for tag in of_text])
        return scores.results()
    # An I- without a preceding tag of its type begins an entity, as by default in seqeval.
    read = [spell(entities_in(of_text, "IOB1"), len(of_text), scheme) for of_text in predictions]
    scores = Scores(EntityLabels(tags.types, tags))
    text_of = np.repeat(np.arange(len(read)), [len(of_text) for of_text in read])
    scores.add(true, [tags.numbers[tag] for of_text in read for tag in of_text], text_of)
    return scores.results()


def _of_answers(train: Examples, test: Examples, predictions: Sequence[str]) -> dict[str, float]:
    scores = AnswerScores(no_answer=False)
    for example, answer in zip(test, predictions, strict=True):
        scores.add(answer, example.answer_texts)
    jaccard = statistics.mean(
        max(_jaccard(answer, true) for true in example.answer_texts)
        for example, answer in zip(test, predictions, strict=True)
    )
    return {**scores.results(), "jaccard": jaccard}


def _jaccard(answer: str, true: str) -> float:
    """Jaccard similarity of the words of two answers, as in the tweet sentiment extraction competition."""
    a, b = (set(text.lower().split()) for text in (answer, true))
    return len(a & b) / len(a | b) if a | b else 1.0


def _of_choices(train: Examples, test: Examples, predictions: Sequence[int]) -> dict[str, float]:
    scores = Scores(OneLabel(tuple(map(str, range(len(test[0].choices))))))
    scores.add([example.label for example in test], predictions)
    return scores.results()


_SCORES: dict[str, Callable[[Examples, Examples, Any], dict[str, float]]] = {
    "sequence-classification": _of_classes,
    "regression": _of_numbers,
    "token-classification": _of_tags,
    "question-answering": _of_answers,
    "multiple-choice": _of_choices,
}


_WNUT = "ner_wnut17/CONLL-format/data"


def of_files(train: str, test: str) -> Callable[[Task], tuple[Examples, Examples]]:
    """A function that reads training and test examples from two files of ``../shared/data``."""

    def read(task: Task) -> tuple[Examples, Examples]:
        return _read(task, train), _read(task, test)

    return read


def _read(task: Task, file: str) -> Examples:
    path = texts.open_data(file)
    return list(read_examples(task.settings.kind, path, bad_rows=BadRows(skip=True)))


def _parts(file: str) -> Callable[[Task], tuple[Examples, Examples]]:
    """A function that reads one file, whose last fifth becomes the test examples."""

    def read(task: Task) -> tuple[Examples, Examples]:
        examples = _read(task, file)
        end = len(examples) * 4 // 5
        return examples[:end], examples[end:]

    return read


def _articles(file: str) -> Callable[[Task], tuple[Examples, Examples]]:
    """A function that reads one SQuAD file, whose every fourth article becomes test examples."""

    def read(task: Task) -> tuple[Examples, Examples]:
        questions = iter(_read(task, file))
        parts: tuple[Examples, Examples] = [], []
        for number, article in enumerate(json.loads(texts.open_data(file).read_text(encoding="utf-8"))["data"]):
            count = sum(len(paragraph["qas"]) for paragraph in article["paragraphs"])
            parts[number % 4 == 3].extend(islice(questions, count))
        return parts

    return read


TASKS = (
    Task(
        "sst2", of_files("glue_sst2/train.tsv", "glue_sst2/test.tsv"), 5_000, "accuracy",
        Settings("sequence-classification", num_epochs=2, learning_rate=1e-4, max_length=128),
    ),
    Task(
        "tweets", of_files("tweet_sentiment_extraction/train.csv", "tweet_sentiment_extraction/test.csv"), 5_000,
        "accuracy", Settings("sequence-classification", num_epochs=2, learning_rate=1e-4, max_length=128),
    ),
    Task(
        "stsb", of_files("sts_benchmark/sts-train.csv", "sts_benchmark/sts-test.csv"), 1_500, "spearman",
        Settings("regression", num_epochs=2, learning_rate=1e-4, max_length=128),
    ),
    Task(
        "mrpc", of_files("mrpc/msr-para-train.tsv", "mrpc/msr-para-test.tsv"), 1_000, "f1",
        Settings("sequence-classification", num_epochs=2, learning_rate=1e-4, max_length=128),
    ),
    Task(
        "wnut17", of_files(f"{_WNUT}/train/wnut17train.conll", f"{_WNUT}/test/emerging.test.annotated"), 1_500, "f1",
        Settings("token-classification", num_epochs=2, learning_rate=2e-4, max_length=128),
    ),
    Task(
        "ewt", of_files("ud_english_ewt/en_ewt-ud-train.conllu", "ud_english_ewt/en_ewt-ud-test.conllu"), 1_200,
        "accuracy", Settings("token-classification", num_epochs=2, learning_rate=2e-4, max_length=128),
    ),
    Task(
        "tweet-spans", _parts("tweet_sentiment_extraction/train.csv"), 2_000, "jaccard",
        Settings("question-answering", num_epochs=2, learning_rate=2e-4, max_length=128, max_answer_length=100),
    ),
    Task(
        "xquad", _articles("xquad/xquad.en.json"), 200, "f1",
        Settings("question-answering", num_epochs=2, learning_rate=2e-4, max_length=384, max_answer_length=30),
    ),
    Task(
        "openbookqa", of_files("openbookqa/Main/train.tsv", "openbookqa/Main/test.tsv"), 600, "accuracy",
        Settings("multiple-choice", num_epochs=2, learning_rate=1e-4, max_length=128),
    ),
)  # fmt: skip
