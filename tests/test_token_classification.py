"""Labels of words: transformers' loss, the first pieces of words, well-formed tags, documents of any length."""

import itertools
import json
from dataclasses import asdict

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from random_models import our_model, published_model, save_published, vocabulary_tokens
from sklearn.utils.class_weight import compute_class_weight

from bertkit import Batch, Model, Tokenizer, load
from bertkit.batch import IGNORED
from bertkit.checkpoint.checkpoint import TrainedTask
from bertkit.errors import DataError, UsageError
from bertkit.inference import InferenceReport
from bertkit.tasks import TokenClassification, stored_task, task_settings
from bertkit.tasks.examples import TaggedText
from bertkit.tasks.tags import Tags, misspelled
from bertkit.tasks.token_classification import TagsPrediction, first_pieces, likeliest_path
from bertkit.tasks.words import words_of
from bertkit.tokenizer.layout import Layout
from bertkit.training import outputs_of

SHAPE = {
    "vocab_size": 99, "hidden_size": 20, "num_attention_heads": 4, "intermediate_size": 44, "num_hidden_layers": 2,
    "max_position_embeddings": 24, "hidden_act": "gelu", "type_vocab_size": 2,
}  # fmt: skip
NAMES = ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
WORDS = "cat dog sat unable walking one-two x.y. three4 ÉTÉ 東京 \u200b mat's".split(" ")
TOKENIZER = Tokenizer.from_vocab(vocabulary_tokens(99))

pytestmark = pytest.mark.usefixtures("one_thread")


def texts(number: int, seed: int = 1, longest: int = 12) -> list[TaggedText]:
    draw = np.random.default_rng(seed)
    results = []
    for line in range(number):
        words = [str(word) for word in draw.choice(WORDS, int(draw.integers(1, longest)))]
        tags = [NAMES[i] for i in draw.integers(0, 5, len(words))]
        for index, tag in enumerate(tags):
            if tag[0] == "I" and (not index or tags[index - 1][1:] != tag[1:]):
                tags[index] = "B" + tag[1:]
        results.append(TokenClassification.example(words, tags, f"a.conll, line {line + 1}"))
    return results


def model_of(task, num_positions: int = 24, **layout) -> Model:
    shape = SHAPE | {"max_position_embeddings": num_positions}
    model = our_model("token_classification", 3, len(task.label_names), **shape)
    with torch.no_grad():  # of random labels most are none, as in real texts
        head = model.network.heads["token_classification"].classifier
        head.weight *= 0.3
        head.bias.copy_(torch.tensor([2.0, 0.5, 0.0, 0.5, 0.0])[: len(head.bias)])
    model.checkpoint.label_names = task.label_names
    model.checkpoint.trained = TrainedTask(task, Layout(**{"max_length": 24, "on_long": "window"} | layout))
    return model


TASK = TokenClassification(NAMES, scheme="BIO", words="spaces")


# Which token answers for a word


def plain_first_pieces(words, encodings):
    """For each word the first token that begins in it, among those its window owns."""
    result = []
    for text, spans in enumerate(words):
        for start, end in spans:
            results = [
                (encoding.offsets[index][0], int(encodings.cu_seqlens[number]) + index)
                for number, encoding in enumerate(encodings)
                if encoding.text_index == text
                for index in range(*encoding.owned)
                if not encoding.special_tokens_mask[index] and start <= encoding.offsets[index][0] < end
            ]
            result.append(min(results)[1] if results else -1)
    return result


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.text(alphabet="abé .-'東\u0301\u200b", max_size=30), min_size=1, max_size=4),
    st.integers(4, 12),
    st.sampled_from(["window", "truncate"]),
    st.sampled_from(["punctuation", "spaces"]),
)
def test_first_pieces_of_words(given_texts, max_length, on_long, rule):
    encodings = TOKENIZER.encode_batch(given_texts, max_length=max_length, on_long=on_long)
    words = [words_of(text, rule) for text in given_texts]
    results, _ = first_pieces(given_texts, words, encodings)
    assert results.tolist() == plain_first_pieces(words, encodings)
    assert len(set(results[results >= 0])) == (results >= 0).sum()


def test_small_label_example():
    example = TokenClassification.example(["unable", "cat", "\u200b", "x.y."], ["B-PER", "I-PER", "O", "B-LOC"])
    encodings = TASK.encode(TOKENIZER, [example], Layout(24, "error"))
    assert [TOKENIZER.vocabulary.tokens[i] for i in encodings.input_ids] == [
        "[CLS]", "un", "##able", "cat", "x", "[UNK]", "y", "[UNK]", "[SEP]"
    ]  # fmt: skip
    data = TASK.labeled([example], encodings)
    assert data.of_tokens
    assert data.labels.tolist() == [IGNORED, 3, IGNORED, 4, 1, IGNORED, IGNORED, IGNORED, IGNORED]


def test_every_word_is_learned_once_in_windows():
    examples = texts(9, longest=40)
    encodings = TASK.encode(TOKENIZER, examples, Layout(11, "window", 3))
    assert len(encodings) > 2 * len(examples)
    labels = TASK.labeled(examples, encodings).labels
    whole = TASK.labeled(examples, TASK.encode(TOKENIZER, examples, Layout())).labels
    assert labels[labels != IGNORED].tolist() == whole[whole != IGNORED].tolist()
    expected = [
        tag for text in examples for word, tag in zip(text.text.split(" "), text.tags, strict=True) if word != "\u200b"
    ]
    assert [NAMES[number] for number in whole[whole != IGNORED]] == expected


# The loss


def test_loss_equals_transformers(tmp_path):
    reference = published_model("token_classification", 7, num_labels=5, **SHAPE)
    model = load(save_published(reference, tmp_path), device="cpu")
    examples = texts(13)
    encodings = TASK.encode(model.tokenizer, examples, Layout(24, "truncate"))
    data = TASK.labeled(examples, encodings)
    batch = data.take(np.arange(len(data)))
    padded = {
        "input_ids": batch.batch.pad(batch.batch.input_ids),
        "attention_mask": batch.batch.attention_mask().long(),
        "labels": batch.batch.pad(batch.labels, IGNORED),
    }
    expected = reference(**padded)
    totals = TASK.totals(batch)
    for num_parts in (1, 4):
        losses = [TASK.loss(outputs_of(model.network, part), part, totals) for part in batch.split(num_parts)]
        assert float(sum(loss.value.detach() for loss in losses)) == pytest.approx(expected.loss.item(), rel=1e-6)
        metrics = TASK.metrics(torch.stack([loss.sums for loss in losses]).sum(0))
        assert metrics["loss"] == pytest.approx(expected.loss.item(), rel=1e-6)
    real = padded["labels"] != IGNORED
    right = (expected.logits.argmax(-1) == padded["labels"])[real]
    assert metrics["accuracy"] == pytest.approx(float(right.double().mean()))


def test_weights_and_smoothing_of_torch():
    weights, examples = (0.1, 2.0, 1.25, 0.5, 3.0), texts(13)
    task = TokenClassification(NAMES, class_weights=weights, label_smoothing=0.2, words="spaces")
    model = model_of(task)
    batch = task.labeled(examples, task.encode(TOKENIZER, examples, Layout(24, "truncate"))).take(np.arange(13))
    logits, real = model.network(batch.batch).logits[task.head], batch.labels != IGNORED
    expected = torch.nn.functional.cross_entropy(
        logits[real], batch.labels[real], torch.tensor(weights), label_smoothing=0.2
    )
    totals = task.totals(batch)
    for num_parts in (1, 4):
        losses = [task.loss(outputs_of(model.network, part), part, totals) for part in batch.split(num_parts)]
        assert float(sum(loss.value.detach() for loss in losses)) == pytest.approx(expected.item(), rel=1e-5)
        metrics = task.metrics(torch.stack([loss.sums for loss in losses]).sum(0))
        assert metrics["loss"] == pytest.approx(expected.item(), rel=1e-5)


def test_balanced_weights_are_scikit_learns():
    tags = np.array(["O", "B-x", "O", "O", "I-x", "B-y", "O"])
    example = TokenClassification.example([f"w{number}" for number in range(7)], tags.tolist())
    task = TokenClassification.of_examples([example], {"class_weights": "balanced", "label_smoothing": 0.1})
    classes = np.unique(tags)
    expected = dict(zip(classes, compute_class_weight("balanced", classes=classes, y=tags), strict=True))
    assert task.label_names == ("O", "B-x", "I-x", "B-y", "I-y") and task.label_smoothing == 0.1
    assert task.class_weights == pytest.approx([expected.get(name, 1.0) for name in task.label_names])
    weights = dict.fromkeys(task.label_names, 2.0)
    assert TokenClassification.of_examples([example], {"class_weights": weights}).class_weights == (2.0,) * 5
    with pytest.raises(UsageError, match="a weight for each of"):
        TokenClassification.of_examples([example], {"class_weights": {"O": 1.0}})
    with pytest.raises(UsageError, match="label_smoothing=1"):
        TokenClassification.of_examples([example], {"label_smoothing": 1})


@pytest.mark.parametrize("weights", [(), (0.1, 2.0, 1.25, 0.5, 3.0)])
def test_loss_of_a_batch_without_words(weights):
    task = TokenClassification(NAMES, class_weights=weights, words="spaces")
    example = TokenClassification.example(["\u200b"], ["O"])
    batch = task.labeled([example], task.encode(TOKENIZER, [example], Layout())).take(np.arange(1))
    loss = task.loss(outputs_of(model_of(task).network, batch), batch, task.totals(batch))
    assert float(loss.value.detach()) == 0.0 and task.metrics(loss.sums) == {"loss": 0.0, "accuracy": 0.0}


# Predictions


def plain_predictions(model, task, examples):
    """The likeliest well-formed labels of each text by itself, by trying all paths."""
    for example in examples:
        words = example.words or words_of(example.text, task.words)
        encodings = task.encode(model.tokenizer, [example], model.trained.layout)
        with torch.inference_mode():
            rows = {}
            for number, encoding in enumerate(encodings):
                ids = torch.from_numpy(encoding.input_ids.astype(np.int64))[None]
                logits = model.network(Batch.from_padded(ids)).logits["token_classification"]
                rows |= {int(encodings.cu_seqlens[number]) + index: row for index, row in enumerate(logits)}
        pieces = plain_first_pieces([words], encodings)
        scores = [rows[piece].double().log_softmax(-1).numpy() if piece >= 0 else None for piece in pieces]
        yield words, scores


def test_predictions_are_the_likeliest_well_formed_tags():
    model, examples = model_of(TASK, max_length=9), texts(40, longest=6)
    predictions = model.predict(examples, report=InferenceReport())
    num_corrected = 0
    for example, prediction, (words, scores) in zip(
        examples, predictions, plain_predictions(model, TASK, examples), strict=True
    ):
        assert prediction.words == words and misspelled(prediction.labels, "BIO") is None
        best = max(
            (
                path
                for path in itertools.product(range(5), repeat=len(words))
                if misspelled([NAMES[i] for i in path], "BIO") is None
                and all(i == 0 for i, row in zip(path, scores, strict=True) if row is None)
            ),
            key=lambda path: sum(row[i] for i, row in zip(path, scores, strict=True) if row is not None),
        )
        assert prediction.labels == tuple(NAMES[i] for i in best)
        chances = [0.0 if row is None else float(np.exp(row[i])) for i, row in zip(best, scores, strict=True)]
        assert prediction.probabilities == pytest.approx(chances, abs=1e-5)
        num_corrected += any(row is not None and row.argmax() != i for i, row in zip(best, scores, strict=True))
        for entity in prediction.entities:
            assert entity.text == example.text[entity.start : entity.end]
            inside = [i for i, (start, end) in enumerate(words) if start >= entity.start and end <= entity.end]
            assert prediction.labels[inside[0]] == f"B-{entity.label}"
            assert entity.probability == pytest.approx(float(np.prod([chances[i] for i in inside])), abs=1e-5)
        assert len(prediction.entities) == sum(label[0] == "B" for label in prediction.labels)
    assert 3 < num_corrected < 40  # the likeliest tags alone would at times spell nothing
    json.dumps(asdict(predictions[0]))


@pytest.mark.parametrize("scheme", ["BIO", "BIOES", "IO", "plain"])
def test_likeliest_paths_of_all(scheme):
    names = {"BIO": NAMES, "BIOES": ("O", "B-x", "I-x", "E-x", "S-x"), "IO": ("O", "I-x", "I-y"), "plain": ("a", "b")}
    tags = Tags(names[scheme], scheme)
    draw = np.random.default_rng(4)
    for length in (1, 2, 5):
        scores = draw.normal(size=(length, len(tags.names)))
        results = likeliest_path(scores, tags.may_follow)
        allowed = [
            path
            for path in itertools.product(range(len(tags.names)), repeat=length)
            if misspelled([tags.names[i] for i in path], scheme) is None
        ]
        best = max(allowed, key=lambda path: sum(row[i] for row, i in zip(scores, path, strict=True)))
        assert tuple(results) == best


def test_small_prediction_example():
    task = TokenClassification(("O", "B-P", "I-P"), scheme="BIO", words="punctuation")
    example = TokenClassification.example("Cat-dog sat")
    encodings = task.encode(TOKENIZER, [example], Layout())
    high = {"cat": 1, "[UNK]": 2, "dog": 2, "sat": 2}  # [UNK] is the hyphen
    logits = np.zeros((len(encodings.input_ids), 3), np.float32)
    for index, token in enumerate(TOKENIZER.tokens(encodings[0])):
        if token in high:
            logits[index, high[token]] = 2.0
    logits[-2] = [2.0, 0.0, 1.0]  # sat
    (prediction,) = task.decode([example], encodings, logits)
    assert prediction.labels == ("B-P", "I-P", "I-P", "O")
    (entity,) = prediction.entities
    assert (entity.start, entity.end, entity.text, entity.label) == (0, 7, "Cat-dog", "P")
    one = np.exp(2) / (np.exp(2) + 2)
    assert entity.probability == pytest.approx(one**3)


def test_words_that_cannot_be_read():
    long = TokenClassification.example(["cat"] * 30)
    report = InferenceReport()
    (prediction,) = model_of(TASK, on_long="truncate").predict([long], report=report)
    assert report.num_texts_cut == 1 and report.num_tokens_cut == 8
    assert prediction.labels[22:] == ("O",) * 8 and prediction.probabilities[22:] == (0.0,) * 8
    assert min(prediction.probabilities[:22]) > 0
    empty, nothing = model_of(TASK).predict(["", TaggedText("\u200b", ((0, 1),))])
    assert empty == TagsPrediction((), (), (), ()) and nothing == TagsPrediction(((0, 1),), ("O",), (0.0,), ())
    plain = TokenClassification(("NOUN", "VERB"), scheme="plain")
    assert model_of(plain).predict([["\u200b"]])[0].labels == ("NOUN",)


@pytest.mark.every_processor
def test_predictions_are_equal_regardless_of_batch():
    model, examples = model_of(TASK, max_length=11), texts(17, longest=30)
    together = model.predict(examples, report=InferenceReport())
    assert together == [model.predict([example], report=InferenceReport())[0] for example in examples]
    assert together[::-1] == model.predict(examples[::-1], report=InferenceReport())


# Documents of any length


@pytest.mark.full
def test_long_document_has_the_tags_of_its_parts():
    """20,000 tokens in windows; every window by itself gives what the document gives for the words that it owns."""
    draw = np.random.default_rng(3)
    words = [str(word) for word in draw.choice(["cat", "dog", "sat", "unable", "mat", "walking"], 14_000)]
    document = TokenClassification.example(words)
    model = model_of(TASK, 128, max_length=128)
    report = InferenceReport()
    (prediction,) = model.predict([document], report=report)
    assert report.num_tokens > 20_000 and report.num_texts_cut == 0
    assert len(prediction.labels) == 14_000 and misspelled(prediction.labels, "BIO") is None
    assert min(prediction.probabilities) > 0 and len(prediction.entities) > 1_000
    encodings = TASK.encode(model.tokenizer, [document], model.trained.layout)
    num_compared = 0
    word_starts, word_ends = ({span[side] for span in document.words} for side in (0, 1))
    for encoding in list(encodings)[5:-5:7]:
        real = encoding.offsets[~encoding.special_tokens_mask]
        start, end = int(real[:, 0].min()), int(real[:, 1].max())
        if start not in word_starts or end not in word_ends:
            continue  # a window that cuts a word is no text by itself
        first_word = next(i for i, span in enumerate(document.words) if span[0] >= start)
        moved = document.words[first_word][0]
        inside = [
            word for word, (first, last) in zip(words, document.words, strict=True) if start <= first and last <= end
        ]
        (alone,) = model.predict([inside])
        owned = encoding.offsets[slice(*encoding.owned)]
        first, last = int(owned[0, 0]) + 30, int(owned[-1, 1]) - 30  # away from the window's borders
        results = {(entity.start + moved, entity.end + moved, entity.label) for entity in alone.entities}
        expected = {(entity.start, entity.end, entity.label) for entity in prediction.entities}
        results, expected = ({one for one in some if one[0] > first and one[1] < last} for some in (results, expected))
        assert results == expected
        num_compared += len(results)
    assert num_compared > 100


# What cannot be learned


def test_task_of_examples():
    task = TokenClassification.of_examples(texts(40), {})
    assert task == TokenClassification(NAMES, scheme="BIO", words="spaces")
    spans = [TokenClassification.example("In New-York!", [[3, 11, "L"]]), TokenClassification.example("x", [])]
    assert TokenClassification.of_examples(spans, {}) == TokenClassification(
        ("O", "B-L", "I-L"), scheme="BIO", words="punctuation"
    )
    single = TokenClassification.example(["a", "b"], ["O", "S-x"])
    assert TokenClassification.of_examples([single], {}).label_names == ("O", "B-x", "I-x", "E-x", "S-x")
    nouns = TokenClassification.example(["a", "b"], ["NOUN", "DET"])
    plain = TokenClassification.of_examples([nouns], {})
    assert (
        plain == TokenClassification(("DET", "NOUN"), scheme="plain", words="punctuation")
        and plain.best_by == "accuracy"
    )
    assert stored_task(plain.name, plain.label_names, task_settings(plain), "here") == plain
    for one in (task, plain):
        assert one.best_by in one.scorer().results()


@pytest.mark.parametrize(
    ("example", "message"),
    [
        (TaggedText("a b", ((0, 1), (2, 3)), ("O",), "x.conll, line 3"), "x.conll, line 3: has 2 words and 1 tags"),
        (TaggedText("a b", location="x.conll, line 3"), "x.conll, line 3: has no tags"),
        (TaggedText("a", ((0, 1),), ("B-ORG",), "y"), "y: the tag 'B-ORG' of word 1, 'a', is not one of the model's"),
        (
            TaggedText("a", ((0, 1),), ("I-PER",)),
            "'a': the tag 'I-PER' of word 1, 'a', is not part of an entity in scheme BIO",
        ),
    ],
)
def test_rejects_tags_with_one_label(example, message):
    encodings = TASK.encode(TOKENIZER, [example], Layout())
    with pytest.raises(DataError, match=message):
        TASK.labeled([example], encodings)
    with pytest.raises(DataError, match=message):
        model_of(TASK).evaluate([example])


def test_rejects_invalid_examples():
    with pytest.raises(DataError, match="no examples"):
        TokenClassification.of_examples([], {})
    with pytest.raises(DataError, match="every word has the label 'O'"):
        TokenClassification.of_examples([TokenClassification.example(["a"], ["O"])], {})
    with pytest.raises(UsageError, match="no color"):
        TokenClassification.of_examples(texts(2), {"color": 1})
    with pytest.raises(UsageError, match="expected a str, or a list of words"):
        TokenClassification.example(["a", ""])
    with pytest.raises(DataError, match="line 7: the span 1-3, 'bc', starts inside a word"):
        TokenClassification.example("abc", [[1, 3, "P"]], "line 7")
    with pytest.raises(UsageError, match="words='commas'"):
        TokenClassification(NAMES, scheme="BIO", words="commas")
    with pytest.raises(UsageError, match="not a tag of scheme IO"):
        TokenClassification(NAMES, scheme="IO")


def test_scores_of_entities_and_of_plain_labels():
    model, examples = model_of(TASK), texts(30)
    results = model.evaluate(examples)
    predictions = model.predict(examples)
    true = {
        (number, *entity)
        for number, example in enumerate(examples)
        for entity in Tags(NAMES, "BIO")
        .entities([NAMES.index(tag) for tag in example.tags], [0, len(example.tags)])
        .tolist()
    }
    predicted = set()
    for number, prediction in enumerate(predictions):
        firsts, ends = ([span[side] for span in prediction.words] for side in (0, 1))
        for entity in prediction.entities:
            index = firsts.index(entity.start), ends.index(entity.end) + 1
            predicted.add((number, *index, ("LOC", "PER").index(entity.label)))
    assert results["precision"] == pytest.approx(len(true & predicted) / len(predicted))
    assert results["recall"] == pytest.approx(len(true & predicted) / len(true))
    plain = TokenClassification(NAMES, scheme="plain")
    model = model_of(plain)
    tags = np.concatenate([example.tags for example in examples])
    labels = np.concatenate([prediction.labels for prediction in model.predict(examples)])
    assert model.evaluate(examples)["accuracy"] == pytest.approx(np.mean(tags == labels))


def test_task_of_published_tagger(tmp_path):
    reference = published_model("token_classification", 7, num_labels=3, **SHAPE)
    reference.config.id2label = dict(enumerate(["O", "B-PER", "I-PER"]))
    reference.config.label2id = {name: number for number, name in reference.config.id2label.items()}
    model = load(save_published(reference, tmp_path / "published"), device="cpu")
    assert model.trained.task == TokenClassification(("O", "B-PER", "I-PER"), scheme="BIO", words="spaces")
    model.save(tmp_path / "ours")
    again = load(tmp_path / "ours", device="cpu")
    assert again.trained.task == model.trained.task
    assert again.predict(["cat dog sat mat"]) == model.predict(["cat dog sat mat"])


UNSPACED = {
    "Chinese": ("张三去了北京，在中国人民银行工作。", "张|三|去|了|北|京|，|在|中|国|人|民|银|行|工|作|。"),
    "mixed": ("在iPhone上买了2台，“U.S.”！", "在|iPhone|上|买|了|2|台|，|“|U.S.|”|！"),
    "beyond the basic plane": ("葛\U000e0100城 \U00020000\U00030000ada", "葛\U000e0100|城|\U00020000|\U00030000|ada"),
    "Japanese": ("私はトヨタで働く", "私|は|ト|ヨ|タ|で|働|く"),
    "decomposed": ("か\u3099き", "か\u3099|き"),
    "Thai": ("ผมอยู่กรุงเทพครับ", "ผ|ม|อ|ยู่|ก|รุ|ง|เ|ท|พ|ค|รั|บ"),
    "Lao": ("ຂ້ອຍຢູ່ວຽງຈັນ", "ຂ້|ອ|ຍ|ຢູ່|ວ|ຽ|ງ|ຈັ|ນ"),
    "Khmer": ("ខ្ញុំនៅភ្នំពេញ", "ខ្|ញុំ|នៅ|ភ្|នំ|ពេ|ញ"),
    "Burmese": ("ရန်ကုန်မှာ", "ရ|န်|ကု|န်|မှာ"),
    "Tibetan": ("ང་ལྷ་ས་ལ་", "ང|་|ལྷ|་|ས|་|ལ|་"),
    "Korean, which has spaces": ("나는 서울에 산다", "나는|서울에|산다"),
}


def vocabulary_for(text: str) -> list[str]:
    """Every character of a text alone and within a word, and some longer pieces."""
    pieces = ["ผม", "##อยู่", "##กรุงเทพ", "##ครับ", "##トヨタ", "iPhone"]
    characters = sorted(set(text) - set(" #"))
    return [*vocabulary_tokens(5), *pieces, *characters, *(f"##{one}" for one in characters)]


@pytest.mark.parametrize("language", UNSPACED)
def test_published_tagger_labels_the_tokens_of_scripts_without_spaces(language: str) -> None:
    text, expected = UNSPACED[language]
    tokenizer = Tokenizer.from_vocab(vocabulary_for(text), lowercase=False)
    names = ("O", "B-PER", "I-PER")
    task = TokenClassification.of_published(names, None)
    config = SHAPE | {"vocab_size": len(tokenizer.vocabulary)}
    model = Model.create(
        our_model("encoder", 3, **config).config, tokenizer, ("token_classification",), label_names=names
    )
    model.checkpoint.trained = TrainedTask(task, Layout(max_length=24, on_long="window"))
    model.checkpoint.provenance = our_model("token_classification", 3, 3, **config).checkpoint.provenance
    (prediction, other) = model.predict([text, f"a b {text}"])
    assert "|".join(text[start:end] for start, end in prediction.words) == expected
    assert len(prediction.labels) == len(expected.split("|")) and min(prediction.probabilities) > 0
    assert other.words == ((0, 1), (2, 3), *((start + 4, end + 4) for start, end in prediction.words))
