"""Words and answers with tokenizers that keep the white space before a word in its token, or give pairs one type."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from test_library_tokenizer import saved

from bertkit import BertConfig, Model, Tokenizer, load
from bertkit.batch import IGNORED
from bertkit.finetuning import Finetuning, FinetuningSettings
from bertkit.tasks import Question, QuestionAnswering, TokenClassification
from bertkit.tasks.spans import windows_of
from bertkit.tasks.words import words_of
from bertkit.tokenizer.layout import Layout

pytestmark = pytest.mark.usefixtures("one_thread")

TEXT = "cat dog,  walked\n\n   naïve\u00a0café 日本 \U0001f600\tunable "


@pytest.fixture(scope="module", params=["byte-level", "trimmed", "unigram", "xlm-r"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(request.param, tmp_path_factory)


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Tokenizer:
    return Tokenizer.load(folder)


@pytest.mark.parametrize("layout", [Layout(), Layout(14, "window", 5)])
def test_every_word_has_the_token_that_begins_it(tokenizer: Tokenizer, layout: Layout) -> None:
    task = TokenClassification(tuple("abcdefghij"), scheme="plain", words="spaces")
    examples = [TokenClassification.example(text) for text in (TEXT, "cat dog", " \n ")]
    examples = [replace(one, words=words_of(one.text, "spaces")) for one in examples]
    examples = [replace(one, tags=tuple("abcdefghij"[: len(one.words or ())])) for one in examples]
    encodings = task.encode(tokenizer, examples, layout)
    labels = task.labeled(examples, encodings).labels
    results = {}
    for number, encoding in enumerate(encodings):
        of_sequence = labels[encodings.cu_seqlens[number] : encodings.cu_seqlens[number + 1]]
        for index in np.flatnonzero(of_sequence != IGNORED):
            results[encoding.text_index, "abcdefghij"[of_sequence[index]]] = encoding.offsets[index].tolist()
    assert [len(one.words or ()) for one in examples] == [10, 2, 0] and len(results) == 12
    for (number, tag), (start, end) in results.items():
        text, word = examples[number].text, examples[number].words[ord(tag) - ord("a")]
        blank = len(text[start:end]) - len(text[start:end].lstrip())
        assert start + blank == word[0] < end
    logits = np.zeros((len(labels), 10), np.float32)
    logits[np.arange(len(labels)), np.maximum(labels, 0)] = 9.0
    predictions = task.decode(examples, encodings, logits)
    assert [one.labels for one in predictions] == [one.tags for one in examples]
    assert all(min(one.probabilities, default=1.0) > 0.9 for one in predictions)


@pytest.mark.parametrize("layout", [Layout(), Layout(24, "window", 5)])
def test_answers_are_words_to_the_character(tokenizer: Tokenizer, layout: Layout) -> None:
    task = QuestionAnswering(max_answer_length=9)
    answers = ["cat", "dog", "walked", "naïve", "café", "\U0001f600", "unable", "dog,  walked"]
    examples = [QuestionAnswering.example(("the cat", TEXT), f"{answer} ") for answer in ("dog, ", "walked\n\n  ")]
    whole = task.encode(tokenizer, examples, Layout())
    for (_, last), encoding, expected in zip(task.labeled(examples, whole).labels, whole, (",", "d"), strict=True):
        assert TEXT[slice(*encoding.offsets[last])].endswith(expected)  # and not the white space after it
    examples = [QuestionAnswering.example(("the cat", TEXT), answer) for answer in answers]
    encodings = task.encode(tokenizer, examples, layout)
    data = task.labeled(examples, encodings)
    logits = np.zeros((len(encodings.input_ids), 2), np.float32)
    for side in (0, 1):
        logits[(encodings.cu_seqlens[:-1] + data.labels[:, side])[data.labels[:, side] > 0], side] = 9.0
    for answer, prediction in zip(answers, task.decode(examples, encodings, logits), strict=True):
        assert prediction.answer is not None
        assert (prediction.answer.text, prediction.answer.start) == (answer, TEXT.index(answer))


def test_no_answer_is_white_space(tokenizer: Tokenizer) -> None:
    task = QuestionAnswering(num_candidates=500)
    examples = [QuestionAnswering.example(("the cat", context)) for context in (TEXT, "  \n ")]
    encodings = task.encode(tokenizer, examples, Layout())
    logits = np.random.default_rng(3).normal(size=(len(encodings.input_ids), 2)).astype(np.float32)
    results, nothing = task.decode(examples, encodings, logits)
    assert nothing.answer is None and nothing.candidates == ()
    assert len(results.candidates) > 100
    assert sum(one.probability for one in results.candidates) == pytest.approx(1.0)
    for one in results.candidates:
        assert one.text == TEXT[one.start : one.end] == one.text.strip() != ""


def test_contexts_of_any_type(tokenizer: Tokenizer) -> None:
    encodings = tokenizer.encode_batch(["the cat", ""], ["dogs talk", "a"])
    windows = windows_of(encodings, 2)
    for number, (first, length) in enumerate(zip(windows.first, windows.length, strict=True)):
        context = tokenizer.encode(["dogs talk", "a"][number]).input_ids[1:-1]
        assert encodings.input_ids[first : first + length].tolist() == context.tolist()


@pytest.mark.full(sample=2)
def test_question_answering_learns(tokenizer: Tokenizer, tmp_path: Path) -> None:
    config = BertConfig(
        vocab_size=len(tokenizer.vocabulary), hidden_size=20, num_hidden_layers=1, num_attention_heads=4,
        intermediate_size=37, max_position_embeddings=40, initializer_range=0.1,
    )  # fmt: skip
    Model.create(config, tokenizer, seed=3).save(tmp_path / "encoder")
    words = ["cat", "dog", "walk", "talk"]
    train = [
        QuestionAnswering.example((asked, " ".join(words[turn:] + words[:turn])), asked)
        for turn in range(4)
        for asked in words
    ]
    settings = FinetuningSettings.of(num_epochs=1, batch_size=8, learning_rate=3e-3, seed=5)
    run = Finetuning(tmp_path / "out", tmp_path / "encoder", "question-answering", settings, log_line=lambda line: None)
    assert run.start(train).step == 2
    predictions = load(tmp_path / "out").predict([Question(one.question, one.context) for one in train])
    for example, prediction in zip(train, predictions, strict=True):
        assert prediction.answer is not None
        assert prediction.answer.text == example.context[prediction.answer.start : prediction.answer.end] != ""
