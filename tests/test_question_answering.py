"""Answers as spans: transformers' loss, exact merging of windows, exact offsets at any position."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from random_models import our_model, published_model, save_published, vocabulary_tokens

from bertkit import Batch, Model, Tokenizer, load
from bertkit.checkpoint.checkpoint import TrainedTask
from bertkit.errors import DataError, OverLengthError, UsageError
from bertkit.finetuning import Finetuning, FinetuningSettings
from bertkit.inference import InferenceReport
from bertkit.tasks import Question, QuestionAnswering, stored_task, task_settings
from bertkit.tasks.answers import AnswerScores
from bertkit.tasks.spans import best_spans, windows_of
from bertkit.tokenizer.layout import Layout
from bertkit.training import outputs_of

SHAPE = {
    "vocab_size": 99, "hidden_size": 20, "num_attention_heads": 4, "intermediate_size": 44, "num_hidden_layers": 2,
    "max_position_embeddings": 24, "hidden_act": "gelu", "type_vocab_size": 2,
}  # fmt: skip
WORDS = "cat dog sat unable walking mat's one, two three4 ÉTÉ 東京".split()
TOKENIZER = Tokenizer.from_vocab(vocabulary_tokens(99))
TASK = QuestionAnswering(max_answer_length=5, num_candidates=7)

pytestmark = pytest.mark.usefixtures("one_thread")


def questions(number: int, seed: int = 1, longest: int = 12, share_without: float = 0.0) -> list[Question]:
    draw = np.random.default_rng(seed)
    results = []
    for line in range(number):
        words = [str(word) for word in draw.choice(WORDS, int(draw.integers(2, longest)))]
        first = int(draw.integers(0, len(words)))
        answer = " ".join(words[first : first + int(draw.integers(1, 3))])
        start = len(" ".join(words[:first])) + (first > 0)
        answers = ((start, start + len(answer)),) if draw.random() >= share_without else ()
        question = " ".join(str(word) for word in draw.choice(WORDS[:3], int(draw.integers(1, 4))))
        results.append(Question(question, " ".join(words), answers, str(line), f"a.json, line {line + 1}"))
    return results


def model_of(task, seed: int = 3, **layout) -> Model:
    model = our_model("question_answering", seed, **SHAPE)
    with torch.no_grad():
        model.network.heads["question_answering"].classifier.weight *= 0.3
    model.checkpoint.trained = TrainedTask(task, Layout(**{"max_length": 24, "on_long": "window"} | layout))
    return model


# Where the answer stands


@pytest.mark.parametrize(
    ("layout", "side"),
    [
        (Layout(), "right"),
        (Layout(24, "window"), "right"),
        (Layout(20, "window", 3), "right"),
        (Layout(19, "truncate"), "right"),
        (Layout(19, "truncate"), "left"),
    ],
)
def test_labels_point_at_the_answer(layout, side):
    examples = questions(60, longest=14)
    encodings = TASK.encode(replace(TOKENIZER, truncation_side=side), examples, layout)
    data = TASK.labeled(examples, encodings)
    seen = dict.fromkeys(range(60), 0)
    for encoding, (first, last) in zip(encodings, data.labels.tolist(), strict=True):
        (start, end), context = examples[encoding.text_index].answers[0], examples[encoding.text_index].context
        real = (encoding.token_type_ids == 1) & ~encoding.special_tokens_mask
        inside = [
            index
            for index in np.flatnonzero(real)
            if start < encoding.offsets[index, 1] and encoding.offsets[index, 0] < end
        ]
        whole = (
            bool(inside)
            and context[encoding.offsets[inside[0], 0] : encoding.offsets[inside[-1], 1]] == context[start:end]
        )
        if whole:
            assert (first, last) == (inside[0], inside[-1])
            seen[encoding.text_index] += 1
        else:
            assert (first, last) == (0, 0)
    if layout.on_long != "truncate":
        assert min(seen.values()) >= 1
        assert layout.on_long == "error" or max(seen.values()) > 1
    else:
        assert 20 < sum(seen.values()) < 60


def test_answer_inside_a_word_is_its_tokens():
    example = Question("who", "unable cats", ((3, 5),))
    encodings = TASK.encode(TOKENIZER, [example], Layout())
    tokens = TOKENIZER.tokens(encodings[0])
    assert tokens == ["[CLS]", "w", "##h", "##o", "[SEP]", "un", "##able", "cat", "##s", "[SEP]"]
    assert TASK.labeled([example], encodings).labels.tolist() == [[6, 6]]
    none = replace(example, answers=())
    assert TASK.labeled([none], encodings).labels.tolist() == [[0, 0]]


# The loss


@pytest.mark.parametrize("equal", [True, False])
def test_loss_equals_transformers(tmp_path, equal):
    reference = published_model("question_answering", 7, **SHAPE)
    model = load(save_published(reference, tmp_path), device="cpu")
    examples = questions(23)
    if equal:  # all windows but the last of a text are as long as the model reads: no padding
        long = questions(1, longest=60, seed=5)[0]
        encodings = TASK.encode(model.tokenizer, [long], Layout(24, "window", 5))
        data = TASK.labeled([long], encodings)
        batch = data.take(np.flatnonzero(encodings.seqlens == 24))
    else:
        data = TASK.labeled(examples, TASK.encode(model.tokenizer, examples, Layout(24, "truncate")))
        batch = data.take(np.arange(len(data)))
    assert len(batch) > 4
    mask = batch.batch.attention_mask()
    expected = reference(
        input_ids=batch.batch.pad(batch.batch.input_ids),
        attention_mask=mask.long(),
        token_type_ids=batch.batch.pad(batch.batch.token_type_ids),
        start_positions=batch.labels[:, 0],
        end_positions=batch.labels[:, 1],
    )
    wanted = expected.loss
    if not equal:  # transformers counts padding among the tokens an answer may start at
        losses = [
            torch.nn.functional.cross_entropy(logits.masked_fill(~mask, float("-inf")), batch.labels[:, side])
            for side, logits in enumerate((expected.start_logits, expected.end_logits))
        ]
        wanted = sum(losses) / 2
    totals = TASK.totals(batch)
    for num_parts in (1, 3):
        losses = [TASK.loss(outputs_of(model.network, part), part, totals) for part in batch.split(num_parts)]
        assert sum(loss.value.detach() for loss in losses).item() == pytest.approx(wanted.item(), rel=1e-6)
        metrics = TASK.metrics(torch.stack([loss.sums for loss in losses]).sum(0))
        assert metrics["loss"] == pytest.approx(wanted.item(), rel=1e-6)
    best = [
        logits.masked_fill(~mask, float("-inf")).argmax(-1) for logits in (expected.start_logits, expected.end_logits)
    ]
    assert metrics["accuracy"] == pytest.approx((torch.stack(best, 1) == batch.labels).all(1).double().mean().item())
    losses[0].value.backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.network.heads.parameters())


# Windows merged exactly


def plain_spans(start_logits, end_logits, encodings, num_texts, max_length):
    """Of each text all spans by their tokens' numbers in the text: score, and indices of first and last token; from the
    window with the most context on the poorer side."""
    results = [{} for _ in range(num_texts)]
    texts = [[] for _ in range(num_texts)]
    for number, encoding in enumerate(encodings):
        texts[encoding.text_index].append(number)
    for text, windows in enumerate(texts):
        numbered, so_far = [], 0  # of each window, the number in the text of each of its tokens
        for number in windows:
            encoding = encodings[number]
            start = int((encoding.token_type_ids == 0).sum())
            owned = range(max(start, encoding.owned[0]), min(encoding.owned[1], len(encoding) - 1))
            shift = so_far - owned.start
            numbered.append([index + shift for index in range(start, len(encoding) - 1)])
            so_far += len(owned)
        for number, tokens in zip(windows, numbered, strict=True):
            first = int(encodings.cu_seqlens[number]) + int((encodings[number].token_type_ids == 0).sum())
            for i, left in enumerate(tokens):
                for j in range(i, min(len(tokens), i + max_length)):
                    context = min(i, len(tokens) - 1 - j)
                    score = float(start_logits[first + i]) + float(end_logits[first + j])
                    old = results[text].get((left, left + j - i))
                    if old is None or context > old[0]:
                        results[text][left, left + j - i] = (context, score, first + i, first + j)
    return results


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 10_000),
    st.integers(13, 24),
    st.integers(1, 5),
    st.integers(1, 6),
    st.integers(1, 9),
    st.integers(3, 40),
)
def test_best_spans_equal_those_of_all(seed, max_length, stride, longest_answer, num, longest):
    examples = questions(3, seed, longest)
    encodings = TASK.encode(TOKENIZER, examples, Layout(max_length, "window", stride))
    logits = np.random.default_rng(seed).normal(size=(len(encodings.input_ids), 2)).astype(np.float32)
    windows = windows_of(encodings, 3)
    best = best_spans(logits[:, 0], logits[:, 1], windows, longest_answer, num)
    assert best.scores.shape == (3, num)
    plain = plain_spans(logits[:, 0], logits[:, 1], encodings, 3, longest_answer)
    for text, spans in enumerate(plain):
        ordered = sorted(spans.values(), key=lambda span: -span[1])[:num]
        count = len(ordered)
        assert best.scores[text, :count] == pytest.approx([span[1] for span in ordered])
        assert best.starts[text, :count].tolist() == [span[2] for span in ordered]
        assert best.ends[text, :count].tolist() == [span[3] for span in ordered]
        assert not np.isfinite(best.scores[text, count:]).any()
        assert best.totals[text] == pytest.approx(np.logaddexp.reduce([span[1] for span in spans.values()]))


def test_every_span_is_in_exactly_one_window():
    example = questions(1, seed=8, longest=60)[0]
    whole = TASK.encode(TOKENIZER, [example], Layout())
    encodings = TASK.encode(TOKENIZER, [example], Layout(24, "window", 4))
    zeros = np.zeros(len(encodings.input_ids), np.float32)
    best = best_spans(zeros, zeros, windows_of(encodings, 1), 4, 1_000)
    alone = np.zeros(len(whole.input_ids), np.float32)
    expected = best_spans(alone, alone, windows_of(whole, 1), 4, 1_000)
    assert len(encodings) > 3

    def spans(some, of):
        count = int(np.isfinite(some.scores[0]).sum())
        return sorted(zip(of.offsets[some.starts[0, :count], 0], of.offsets[some.ends[0, :count], 1], strict=True))

    assert spans(best, encodings) == spans(expected, whole)
    none = best_spans(np.full_like(alone, -np.inf), alone, windows_of(whole, 1), 4, 2)
    assert none.totals.tolist() == [-np.inf] and none.scores.tolist() == [[-np.inf] * 2]


# Predictions


@pytest.mark.parametrize("no_answer", [False, True])
def test_predictions_follow_from_the_logits(no_answer):
    task = replace(TASK, no_answer=no_answer, no_answer_threshold=0.3)
    model, examples = model_of(task), questions(40, longest=30)
    predictions = model.predict(examples, report=InferenceReport())
    encodings = task.encode(model.tokenizer, examples, model.trained.layout)
    assert len(encodings) > 60
    with torch.inference_mode():
        logits = torch.cat(
            [
                model.network(
                    Batch.from_padded(
                        torch.from_numpy(encoding.input_ids.astype(np.int64))[None],
                        token_type_ids=torch.from_numpy(encoding.token_type_ids.astype(np.int64))[None],
                    )
                ).logits["question_answering"]
                for encoding in encodings
            ]
        ).numpy()
    plain = plain_spans(logits[:, 0], logits[:, 1], encodings, 40, 5)
    num_without = 0
    for number, (example, prediction, spans) in enumerate(zip(examples, predictions, plain, strict=True)):
        ordered = sorted(spans.values(), key=lambda span: -span[1])
        none = min(
            float(logits[encodings.cu_seqlens[i]].sum())
            for i in range(len(encodings))
            if encodings.text_index[i] == number
        )
        total = np.logaddexp.reduce([span[1] for span in ordered] + [none] * no_answer)
        assert [candidate.probability for candidate in prediction.candidates] == pytest.approx(
            [np.exp(span[1] - total) for span in ordered[:7]], rel=1e-3
        )
        assert prediction.no_answer_probability == pytest.approx(no_answer * np.exp(none - total), rel=1e-3)
        assert prediction.no_answer_margin == pytest.approx(none - ordered[0][1], abs=1e-4)
        for candidate, span in zip(prediction.candidates, ordered, strict=False):
            assert (candidate.start, candidate.end) == (encodings.offsets[span[2], 0], encodings.offsets[span[3], 1])
        assert (prediction.answer is None) == (no_answer and prediction.no_answer_margin > 0.3)
        assert prediction.answer in (None, prediction.candidates[0])
        num_without += prediction.answer is None
        check(prediction, example)
    assert not no_answer or 0 < num_without < 40


def check(prediction, example) -> None:
    """Properties of every prediction."""
    chances = [candidate.probability for candidate in prediction.candidates]
    assert chances == sorted(chances, reverse=True) and min(chances, default=0) >= 0
    assert sum(chances) + prediction.no_answer_probability <= 1 + 1e-6
    spans = [(candidate.start, candidate.end) for candidate in prediction.candidates]
    assert len(set(spans)) == len(spans)
    for candidate in prediction.candidates:
        assert candidate.text == example.context[candidate.start : candidate.end] != ""
    json.dumps(asdict(prediction), allow_nan=False)


@settings(deadline=None, max_examples=80)
@given(
    st.text(alphabet="ab ?é東", max_size=8),
    st.text(alphabet="ab .,-'é東\u0301\u200b\u00a0\n😀Ⅳﬁ", max_size=60),
    st.integers(12, 24),
    st.booleans(),
)
def test_answers_are_exact_spans_of_any_context(question, context, max_length, no_answer):
    model = MODELS[no_answer]
    model.checkpoint.trained = replace(model.trained, layout=Layout(max_length, "window"))
    example = Question(question, context)
    (prediction,) = model.predict([example])
    check(prediction, example)
    if not prediction.candidates:
        assert prediction.answer is None and not len(TOKENIZER.encode(context).input_ids[2:])


MODELS = [model_of(replace(TASK, no_answer=no_answer)) for no_answer in (False, True)]


@pytest.mark.parametrize("position", [0, 1, 300, 997, 1_999])
def test_answer_is_extracted_from_any_position(position):
    """A head trained for one word locates it in a context of 2,000 words."""
    words = ["cat"] * 2_000
    words[position] = "three"
    context = " ".join(words)
    encodings = TASK.encode(TOKENIZER, [Question("dog", context)], Layout(24, "window"))
    logits = np.zeros((len(encodings.input_ids), 2), np.float32)
    logits[encodings.input_ids == TOKENIZER.vocabulary.id("three")] = 9.0
    (prediction,) = TASK.decode([Question("dog", context)], encodings, logits)
    start = context.index("three")
    assert (prediction.answer.start, prediction.answer.end, prediction.answer.text) == (start, start + 5, "three")
    assert prediction.answer.probability > 0.9


@pytest.mark.every_processor
def test_predictions_are_equal_regardless_of_batch():
    model, examples = model_of(TASK), questions(17, longest=30)
    together = model.predict(examples)
    assert together == [model.predict([example])[0] for example in examples]
    assert together[::-1] == model.predict(examples[::-1])


# Scores and the threshold


def test_scores_and_the_threshold():
    task = replace(TASK, no_answer=True)
    model, examples = model_of(task), questions(80, share_without=0.4)
    predictions = model.predict(examples)
    tuned = task.with_calibrated_thresholds(examples, predictions)
    scores = AnswerScores(no_answer=True)
    for example, prediction in zip(examples, predictions, strict=True):
        scores.add(prediction.candidates[0].text, example.answer_texts, prediction.no_answer_margin)
    assert tuned.no_answer_threshold == scores.best_threshold() != 0.0
    model.checkpoint.trained = replace(model.trained, task=tuned)
    results = model.evaluate(examples)
    assert results["f1"] == results["best_f1"] == pytest.approx(scores.results(tuned.no_answer_threshold)["f1"])
    assert results["f1"] >= max(scores.results(0.0)["f1"], scores.results()["f1"])
    plain = model_of(TASK).evaluate(questions(9))
    assert set(plain) == {"exact_match", "f1"} and TASK.with_calibrated_thresholds(examples, predictions) is TASK


def test_task_of_examples():
    assert QuestionAnswering.of_examples(questions(9), {}) == QuestionAnswering(max_answer_length=30)
    assert QuestionAnswering.of_examples(questions(30, share_without=0.5), {}).no_answer
    long = Question("who", "a " * 40, ((0, 79),))
    task = QuestionAnswering.of_examples([long], {"num_candidates": 3})
    assert (task.max_answer_length, task.num_candidates) == (80, 3)
    assert stored_task(task.name, None, task_settings(task), "here") == task
    for one in (task, replace(task, no_answer=True)):
        assert one.best_by in one.scorer().results()


@pytest.mark.parametrize("share_without", [0.5, 1.0])
def test_training_questions_without_answers_are_noted(share_without, encoder, tmp_path):
    lines: list[str] = []
    run = Finetuning(
        tmp_path / "out", encoder, "question-answering", FinetuningSettings.of(num_epochs=1, max_length=24),
        compare=False, log_line=lines.append,
    )  # fmt: skip
    run.start(questions(8, share_without=share_without))
    assert any("none of the 8 training questions has an answer" in line for line in lines) == (share_without == 1)


def test_rejects_invalid_examples():
    make = QuestionAnswering.example
    assert make(("who", "the cat"), "cat").answers == make(("who", "the cat"), (4, 7)).answers == ((4, 7),)
    assert make(("who", "the cat"), "").answers == make(("who", "the cat"), ()).answers == ()
    assert make(["who", "the cat"]).answers is None
    assert make(("who", "the cat"), "the").answers == make(("who", "the cat"), ("the", 0)).answers == ((0, 3),)
    assert make(("who", "the cat"), ("cat", 4)).answers == make(("who", "the cat"), (4, 7)).answers
    for label, message in (
        ("dog", "'dog' is not in its context"),
        (("cat", 3), "'cat' is not at 3"),
        (("cat", -3), "'cat' is not at -3"),  # which counts from the end in Python
        ((4, 9), "4-9 is not a span"),
        ((4, 4), "4-4 is not a span"),
        ((-1, 4), "-1-4 is not a span"),
        (4, "is 4: expected a text"),
        (("cat", "4"), r"is \('cat', '4'\): expected a text"),
    ):
        with pytest.raises(DataError, match=f"line 3: the answer {message}"):
            make(("who", "the cat"), label, "line 3")
    with pytest.raises(UsageError, match="expected a question and its context"):
        make("who")
    with pytest.raises(UsageError, match="max_answer_length=0"):
        QuestionAnswering(max_answer_length=0)
    assert QuestionAnswering(max_answer_length=1, num_candidates=1).num_candidates == 1
    with pytest.raises(UsageError, match="longest"):
        QuestionAnswering.of_examples(questions(2), {"longest": 3})
    with pytest.raises(DataError, match="line 3: has no answers"):
        QuestionAnswering.of_examples([Question("who", "a", location="line 3")], {})
    with pytest.raises(DataError, match="no examples"):
        QuestionAnswering.of_examples([], {})
    lost = Question("who", "a \u200b b", ((2, 3),), location="line 3")
    with pytest.raises(DataError, match=r"line 3: the answer .* has no tokens"):
        TASK.labeled([lost], TASK.encode(TOKENIZER, [lost], Layout()))
    long = Question("cat " * 30, "dog", location="a.json, line 3")
    with pytest.raises(OverLengthError, match=r"^a.json, line 3: has 30 tokens in text A and leaves no room"):
        model_of(TASK).predict([Question("cat", "dog", location="a.json, line 2"), long])
    with pytest.raises(OverLengthError, match=r"^example 8: has 30 tokens in text A"):
        TASK.encode(
            TOKENIZER, [Question("cat", "dog"), replace(long, location="")], Layout(24, "window"), first_index=7
        )


def test_task_of_published_model(tmp_path):
    reference = published_model("question_answering", 7, **SHAPE)
    model = load(save_published(reference, tmp_path / "published"), device="cpu")
    assert model.trained.task == QuestionAnswering()
    model.checkpoint.trained = replace(model.trained, task=replace(TASK, no_answer_threshold=1.5))
    model.save(tmp_path / "ours")
    again = load(tmp_path / "ours", device="cpu")
    assert again.trained.task == replace(TASK, no_answer_threshold=1.5)
    assert again.predict([("who", "cat dog")]) == model.predict([("who", "cat dog")])
