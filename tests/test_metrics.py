"""Metrics against scikit-learn, scipy, a transcription of seqeval's rules and of the SQuAD scripts' rules."""

import itertools
import json
import re
import string
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics as sklearn_metrics

from bertkit.errors import UsageError
from bertkit.tasks.answers import AnswerScores, answer_f1, exact_match, normalized
from bertkit.tasks.metrics import class_results, label_scores, number_results
from bertkit.tasks.scoring import EntityLabels, Numbers, OneLabel, Scores, SeveralLabels
from bertkit.tasks.tags import Tags, entities_in, guess_file_scheme, guess_scheme, misspelled, spell

PARTS = [(0, 1), (1, 8), (8, 8), (8, 97)]  # batches of odd sizes, an empty one among them


def in_parts(scoring, *columns):
    """Scores of all rows, added in parts."""
    scores = Scores(scoring)
    for start, end in PARTS:
        scores.add(*(column[start:end] for column in columns))
    return scores


def one_label(num_labels):
    return OneLabel(tuple("abcde"[:num_labels]))


@pytest.mark.parametrize("num_labels", [2, 5])
@pytest.mark.parametrize("seed", range(4))
def test_classification_equals_scikit_learn(num_labels, seed):
    random = np.random.default_rng(seed)
    num_seen = num_labels - (num_labels > 2) * (seed % 2)  # now and then a label never occurs
    labels = random.integers(0, num_seen, 97)
    predictions = np.where(random.random(97) < 0.5, labels, random.integers(0, num_seen, 97))
    scores = in_parts(one_label(num_labels), labels, predictions)
    expected = {
        "accuracy": sklearn_metrics.accuracy_score(labels, predictions),
        "macro_f1": sklearn_metrics.f1_score(labels, predictions, average="macro"),
        "matthews": sklearn_metrics.matthews_corrcoef(labels, predictions),
    }
    if num_labels == 2:
        expected["f1"] = sklearn_metrics.f1_score(labels, predictions, zero_division=0)
    assert scores.results() == pytest.approx(expected, abs=1e-12)
    assert scores.results()["accuracy"] == pytest.approx(
        sklearn_metrics.f1_score(labels, predictions, average="micro"), abs=1e-12
    )


def test_matthews_of_constants_and_of_many():
    constant = Scores(one_label(3))
    constant.add([0, 1, 2], [1, 1, 1])
    assert constant.results()["matthews"] == 0.0
    counts = np.array([[3_000_000_000, 1], [1, 2_000_000_000]])  # whose product is beyond 64 bits
    many = class_results(counts.diagonal(), counts.sum(axis=1), counts.sum(axis=0))
    assert many["matthews"] == pytest.approx(1.0, abs=1e-8)
    assert Scores(one_label(3)).results() == {"accuracy": 0.0, "macro_f1": 0.0, "matthews": 0.0}


@pytest.mark.parametrize("wrong", [([0, 1], [0]), ([0, 3], [0, 1]), ([0, 1], [-1, 1])])
def test_rejects_invalid_labels(wrong):
    with pytest.raises(UsageError, match="expected"):
        Scores(one_label(3)).add(*wrong)


@pytest.mark.parametrize("seed", range(3))
def test_multi_label_equals_scikit_learn(seed):
    random = np.random.default_rng(seed)
    labels = random.random((97, 5)) < [0.1, 0.5, 0.9, 0.3, 0.0]
    predictions = labels ^ (random.random((97, 5)) < 0.2)
    predictions[:, 4] = False
    scores = in_parts(SeveralLabels(tuple("abcde")), labels, predictions)
    expected = {
        "accuracy": sklearn_metrics.accuracy_score(labels, predictions),
        "micro_f1": sklearn_metrics.f1_score(labels, predictions, average="micro"),
        "macro_f1": sklearn_metrics.f1_score(labels, predictions, average="macro", zero_division=0),
    }
    assert scores.results() == pytest.approx(expected, abs=1e-12)
    columns = sklearn_metrics.precision_recall_fscore_support(labels, predictions, zero_division=0)
    both = np.concatenate([labels, predictions], axis=1)
    counts = SeveralLabels(tuple("abcde")).counts(both, np.ones((1, 97)))[:, 0].astype(int)
    rows = label_scores("abcde", *counts)
    for row, *numbers in zip(rows, *columns, strict=True):
        assert row[1:] == pytest.approx(numbers)
    with pytest.raises(UsageError, match="5 labels"):
        scores.add([[True]], [[True]])


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_regression_equals_scipy(offset):
    random = np.random.default_rng(7)
    targets = np.round(random.random(97) * 5) + offset  # with ties
    predictions = np.round(targets + random.normal(0, 2, 97), 1)
    scores = in_parts(Numbers(()), targets, predictions)
    assert scores.results() == pytest.approx(
        {
            "pearson": stats.pearsonr(targets, predictions).statistic,
            "spearman": stats.spearmanr(targets, predictions).statistic,
            "mean_squared_error": sklearn_metrics.mean_squared_error(targets, predictions),
            "mean_absolute_error": sklearn_metrics.mean_absolute_error(targets, predictions),
        },
        rel=1e-9,
    )


@pytest.mark.parametrize("scale", [1e-20, 1e20])
def test_correlation_does_not_depend_on_scale(scale):
    targets, predictions = np.random.default_rng(0).normal(size=(2, 7))
    scores = Scores(Numbers(()))
    scores.add(targets * scale, predictions * scale)
    assert scores.results()["pearson"] == pytest.approx(stats.pearsonr(targets, predictions).statistic)


@pytest.mark.parametrize("seed", range(3))
def test_numbers_that_are_drawn_several_times(seed):
    random = np.random.default_rng(seed)
    targets, predictions = random.integers(0, 9, (2, 40)) / 2
    times = random.integers(0, 4, (3, 40))  # each row another number of draws
    results = number_results(targets, predictions, times)
    for row, drawn in enumerate(times):
        values = np.repeat(targets, drawn), np.repeat(predictions, drawn)
        assert {name: numbers[row] for name, numbers in results.items()} == pytest.approx(
            {
                "pearson": stats.pearsonr(*values).statistic,
                "spearman": stats.spearmanr(*values).statistic,
                "mean_squared_error": sklearn_metrics.mean_squared_error(*values),
                "mean_absolute_error": sklearn_metrics.mean_absolute_error(*values),
            }
        )


def test_correlation_is_at_most_one():
    random = np.random.default_rng(0)
    for _ in range(200):  # for some of them rounding leads above 1
        values = random.normal(size=9)
        (pearson,) = number_results(values, 3 * values + 0.1, np.ones((1, 9)))["pearson"]
        assert 1 - 1e-12 < pearson <= 1


def test_undefined_correlation():
    scores = Scores(Numbers(()))
    assert np.isnan(scores.results()["pearson"])
    scores.add([1, 2, 3], [4, 4, 4])
    assert np.isnan(scores.results()["pearson"]) and np.isnan(scores.results()["spearman"])
    rounded = Scores(Numbers(()))
    rounded.add([1, 2, 3], [0.1, 0.1, 0.1])  # whose mean is another number
    assert np.isnan(rounded.results()["pearson"])
    for constant, other in (([number] * 7, range(7)) for number in (1e8 + 0.1, -1e8 - 0.1)):
        for targets, predictions in ((constant, other), (other, constant)):
            large = Scores(Numbers(()))
            large.add(targets, predictions)
            assert np.isnan(large.results()["pearson"])
    with pytest.raises(UsageError, match=r"predicted .*: expected finite numbers"):
        scores.add([1, 2], [1, float("nan")])


# Which tag begins, continues and ends an entity, by the tag before it: the tables of seqeval 1.2's strict mode
# (seqeval/scheme.py). A prefix set, the next prefix set, and whether the types must be the same, differ, or may be any.
ANY = "OIBES"
RULES = {
    "BIO": (
        {(ANY, "B", "any")},
        {("B", "I", "same"), ("I", "I", "same")},
        {("I", "O", "any"), ("I", "I", "differ"), ("I", "B", "any")}
        | {("B", "O", "any"), ("B", "I", "differ"), ("B", "B", "any")},
    ),
    "BIOES": (
        {(ANY, "B", "any"), (ANY, "S", "any")},
        {("B", "I", "same"), ("B", "E", "same"), ("I", "I", "same"), ("I", "E", "same")},
        {("S", ANY, "any"), ("E", ANY, "any")},
    ),
}  # fmt: skip
IOB1_RULES = (
    {("O", "I", "any"), ("I", "I", "differ"), ("B", "I", "any"), ("I", "B", "same"), ("B", "B", "same")},
    {("B", "I", "same"), ("I", "I", "same")},
    {("I", "I", "differ"), ("I", "O", "any"), ("I", "B", "any")}
    | {("B", "O", "any"), ("B", "I", "differ"), ("B", "B", "same")},
)  # fmt: skip


def seqeval_entities(tags, rules):
    """The strict reading, tag by tag."""
    starts, insides, ends = rules
    tags = [*tags, "O"]

    def fits(before, tag, patterns):
        same = before[1:].strip("-") == tag[1:].strip("-")
        return any(
            before[0] in first and tag[0] in second and (wanted == "any" or (wanted == "same") == same)
            for first, second, wanted in patterns
        )

    results, index, before = [], 0, "O"
    while index < len(tags):
        if fits(before, tags[index], starts):
            end = index + 1
            while end < len(tags) and fits(tags[end - 1], tags[end], insides):
                end += 1
            if fits(tags[end - 1], tags[end], ends):
                results.append((index, end, tags[index][1:].strip("-") or "_"))
            index = end
        else:
            index += 1
        before = tags[index - 1]
    return results


def spelled(tags: Tags, texts):
    """Entities of texts by name, read together."""
    cu_words = np.cumsum([0, *map(len, texts)])
    numbers = [tags.numbers[tag] for text in texts for tag in text]
    results = tags.entities(numbers, cu_words)
    result = [[] for _ in texts]
    for first, end, kind in results.tolist():
        text = int(np.searchsorted(cu_words, first, "right")) - 1
        while not len(texts[text]):
            text -= 1
        result[text].append((first - int(cu_words[text]), end - int(cu_words[text]), tags.types[kind]))
    return result


def random_texts(names, seed, num_texts=60):
    random = np.random.default_rng(seed)
    return [[names[i] for i in random.integers(0, len(names), random.integers(0, 9))] for _ in range(num_texts)]


NAMES = {
    "BIO": ["O", "I-x", "B-y-z", "B-x", "I-y-z", "B", "I"],
    "BIOES": ["B-x", "I-x", "E-x", "S-x", "O", "B-y", "I-y", "E-y", "S-y"],
    "IO": ["I-x", "O", "I-y"],
}


@pytest.mark.parametrize("scheme", ["BIO", "BIOES"])
@pytest.mark.parametrize("seed", range(5))
def test_entities_are_read_as_seqeval_reads_them(scheme, seed):
    tags, texts = Tags(tuple(NAMES[scheme]), scheme), random_texts(NAMES[scheme], seed)
    expected = [seqeval_entities(text, RULES[scheme]) for text in texts]
    assert spelled(tags, texts) == expected and any(expected)


def test_entities_of_io_are_runs():
    tags = Tags(tuple(NAMES["IO"]), "IO")
    assert spelled(tags, [["I-x", "I-x", "I-y", "O", "I-y"], [], ["I-y"]]) == [
        [(0, 2, "x"), (2, 3, "y"), (4, 5, "y")],
        [],
        [(0, 1, "y")],
    ]


def random_entities(seed, num_words=9):
    random, index, results = np.random.default_rng(seed), 0, []
    while index < num_words:
        end = min(num_words, index + int(random.integers(1, 4)))
        if random.random() < 0.6:
            results.append((index, end, str(random.choice(["x", "y", "y-z", "_"]))))
        index = end
    return results


@pytest.mark.parametrize("seed", range(30))
def test_entities_spelled_in_any_scheme_are_read_back(seed):
    entities = random_entities(seed)
    for scheme, rules in (("BIO", RULES["BIO"]), ("BIOES", RULES["BIOES"]), ("IOB1", IOB1_RULES)):
        tags = spell(entities, 9, scheme)
        assert entities_in(tags, scheme) == seqeval_entities(tags, rules) == entities
        assert misspelled(tags, scheme) is None
    apart = [entity for entity, (first, _, _) in zip(entities, [*entities[1:], (99, 0, "")]) if first > entity[1]]  # noqa: B905
    tags = spell(apart, 9, "IO")
    assert entities_in(tags, "IO") == apart and misspelled(tags, "IO") is None


@pytest.mark.parametrize("scheme", ["BIO", "BIOES"])
def test_both_tag_decoders_agree(scheme):
    tags = Tags(tuple(NAMES[scheme]), scheme)
    for text in random_texts(NAMES[scheme], 8, 300):
        expected = spelled(tags, [text])[0]
        assert entities_in(text, scheme) == expected
        covered = {index for first, end, _ in expected for index in range(first, end)}
        first_wrong = [index for index, tag in enumerate(text) if tag != "O" and index not in covered]
        assert misspelled(text, scheme) == (first_wrong[0] if first_wrong else None)


@pytest.mark.full(sample=1)
@pytest.mark.parametrize("scheme", ["BIO", "BIOES", "IO"])
def test_allowed_transitions_waste_no_tags(scheme):
    """A text is allowed exactly if each of its tags is outside, or part of an entity."""
    tags = Tags(tuple(NAMES[scheme]), scheme)
    seen = Counter()
    for text in random_texts(NAMES[scheme], 3, 3000):
        numbers = [len(tags.names), *(tags.numbers[tag] for tag in text), len(tags.names)]
        allowed = all(tags.may_follow[i, j] for i, j in itertools.pairwise(numbers))
        ((*results,),) = spelled(tags, [text])
        covered = sum(end - first for first, end, _ in results)
        assert allowed == (covered + text.count("O") == len(text)), text
        seen[allowed and bool(results)] += 1
    assert min(seen.values()) > 100


def test_schemes_are_distinguished():
    assert guess_scheme(["O", "I-PER"]) == "IO"
    assert guess_scheme(["B-PER", "O"]) == "BIO"
    assert guess_scheme(["O", "S-PER", "B-PER", "I-PER"]) == "BIOES"
    assert guess_scheme(["O", "U-PER"]) == "BIOES"
    assert guess_file_scheme([["I-x", "I-x", "O"], ["I-x", "B-x"]]) == "IOB1"
    assert guess_file_scheme([["I-x", "I-x", "O"], ["O", "B-x"]]) == "BIO"  # with a tag that spells nothing
    assert guess_file_scheme([["O", "I-x"], ["I-y", "I-x"]]) == "IO"
    assert guess_file_scheme([["O", "U-x"], ["B-y", "L-y"]]) == "BIOES"
    assert guess_file_scheme([["O"], []]) == guess_file_scheme([["B-x"], ["NOUN"]]) == "plain"
    assert guess_file_scheme([["O", "B-x", "I-x"], ["x"]]) == guess_file_scheme([["O", "B-x"], ["B-x", "b-x"]]) == "BIO"
    assert guess_file_scheme([["O", "B-x", "PER"]]) == "BIO"  # PER is misspelled
    assert guess_file_scheme([["O", "B", "I", "I", "x"]]) == "plain"
    assert guess_scheme(["NOUN", "INTJ", "ADP"]) == guess_scheme(["O"]) == "plain"
    assert guess_scheme(["O", "PER"]) == "names"
    with pytest.raises(UsageError, match="'E-x' is not a tag of scheme BIO"):
        Tags(("O", "E-x"), "BIO")


@pytest.mark.parametrize("scheme", ["BIO", "BIOES"])
def test_entity_f1_equals_that_of_sets(scheme):
    names = NAMES[scheme]
    true = random_texts(names, 11, 40)
    random = np.random.default_rng(5)
    predicted = [[tag if random.random() < 0.8 else str(random.choice(names)) for tag in text] for text in true]
    tags = Tags(tuple(names), scheme)
    scores = Scores(EntityLabels(tags.types, tags))
    for start, end in ((0, 7), (7, 7), (7, 40)):
        columns = [[tags.numbers[tag] for text in texts[start:end] for tag in text] for texts in (true, predicted)]
        scores.add(*columns, np.repeat(np.arange(end - start), [len(text) for text in true[start:end]]))
    gold = {(n, *entity) for n, text in enumerate(true) for entity in seqeval_entities(text, RULES[scheme])}
    predicted_entities = {
        (n, *entity) for n, text in enumerate(predicted) for entity in seqeval_entities(text, RULES[scheme])
    }

    def prf(gold, predicted_entities):
        correct = len(gold & predicted_entities)
        precision, recall = correct / max(1, len(predicted_entities)), correct / max(1, len(gold))
        return precision, recall, 2 * precision * recall / max(1e-300, precision + recall)

    precision, recall, f1 = prf(gold, predicted_entities)
    kinds = sorted({entity[-1] for entity in gold | predicted_entities})
    by_type = [
        prf({e for e in gold if e[-1] == kind}, {e for e in predicted_entities if e[-1] == kind}) for kind in kinds
    ]
    assert scores.results() == pytest.approx(
        {
            "f1": f1,
            "precision": precision,
            "recall": recall,
            "macro_f1": sum(row[2] for row in by_type) / len(by_type),
            "accuracy": np.mean(np.concatenate(true) == np.concatenate(predicted)),
        }
    )


# The rules of the SQuAD scripts, written down a second time, plainly.


def squad_normal(text):
    text = "".join(character for character in text.lower() if character not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text, flags=re.UNICODE).split())


def squad_scores(answer, truths, version):
    best_exact = best_f1 = 0.0
    if version == 2:
        truths = [truth for truth in truths if squad_normal(truth)] or [""]
    for truth in truths:
        words, true_words = squad_normal(answer).split(), squad_normal(truth).split()
        shared = sum((Counter(words) & Counter(true_words)).values())
        f1 = 0.0
        if version == 2 and (not words or not true_words):
            f1 = float(words == true_words)
        elif shared:
            precision, recall = shared / len(words), shared / len(true_words)
            f1 = 2 * precision * recall / (precision + recall)
        best_exact = max(best_exact, float(squad_normal(answer) == squad_normal(truth)))
        best_f1 = max(best_f1, f1)
    return best_exact, best_f1


def squad_best_threshold(f1, has_answer, predicted, margins):
    """The 2.0 script's search for the threshold with the best F1; its F1."""
    score = best = sum(not has for has in has_answer)
    for number in sorted(range(len(f1)), key=margins.__getitem__):
        score += f1[number] if has_answer[number] else -1 if predicted[number] else 0
        best = max(best, score)
    return best / len(f1)


ANSWERS = st.lists(st.sampled_from(["the", "A", "an", "Theo", "cat", "cat's", "-", "19th", "İ", "  "]), max_size=4)


@settings(deadline=None, max_examples=200)
@given(ANSWERS, st.lists(ANSWERS, max_size=3))
def test_answers_equal_the_script_s_rules(answer, truths):
    answer, truths = " ".join(answer), [" ".join(truth) for truth in truths]
    for version in (1, 2) if truths else (2,):
        scores = AnswerScores(no_answer=version == 2)
        scores.add(answer, truths, 0.0)
        results = scores.results()
        exact, f1 = squad_scores(answer, truths, version)
        assert (results["exact_match"], results["f1"]) == pytest.approx((exact, f1))
        if version == 2:  # "no answer" is right for questions without answers, not for those of articles only
            assert scores.results(-1.0)["f1"] == float(not truths)


def test_answers_of_xquad_equal_the_script_s_rules(shared_data):
    content = json.loads((shared_data / "xquad" / "xquad.en.json").read_text())
    random = np.random.default_rng(2)
    scores, expected = AnswerScores(no_answer=False), []
    for article in content["data"]:
        for paragraph in article["paragraphs"]:
            words = paragraph["context"].split()
            for question in paragraph["qas"]:
                truths = [answer["text"] for answer in question["answers"]]
                start = random.integers(0, len(words))
                guess = " ".join(words[start : start + 6])
                answer = [truths[0], f"the {truths[0].upper()}!", guess, f"{guess} {truths[0]}"][random.integers(0, 4)]
                scores.add(answer, truths)
                expected.append(squad_scores(answer, truths, 1))
                assert expected[-1] == squad_scores(answer, truths, 2)
    assert len(expected) == 1190
    results = scores.results()
    assert results == pytest.approx(dict(zip(("exact_match", "f1"), np.mean(expected, axis=0), strict=True)))
    assert 0.2 < results["exact_match"] < results["f1"] < 0.9


@pytest.mark.parametrize("seed", range(6))
def test_threshold_is_the_best_there_is(seed):
    random = np.random.default_rng(seed)
    scores, rows = AnswerScores(no_answer=True), []
    margins = random.permutation(53) - 20.0
    for number in range(53):
        has_answer = bool(random.random() < 0.6)
        answer = str(random.choice(["old cat", "cat", "dog"]))
        margin = float(margins[number] - 25.5 * has_answer * (seed != 5))
        scores.add(answer, ["the cat"] if has_answer else [], margin)
        rows.append((squad_scores(answer, ["the cat"] if has_answer else [], 2)[1], has_answer, answer, margin))
    best = scores.best_threshold()
    _, has_answer, _, margins = zip(*rows, strict=True)
    tried = [scores.results(threshold)["f1"] for threshold in [-99.0, *margins]]
    assert scores.results(best)["f1"] == pytest.approx(max(tried))
    assert scores.results(best)["f1"] == pytest.approx(squad_best_threshold(*zip(*rows, strict=True)))
    at = scores.results(best)
    share = np.mean(has_answer)
    assert at["f1"] == pytest.approx(share * at["answerable_f1"] + (1 - share) * at["unanswerable_accuracy"])
    assert at["answerable_exact_match"] <= at["answerable_f1"]


@pytest.mark.parametrize("seed", range(6))
def test_threshold_is_the_best_there_is_among_equal_margins(seed):
    random = np.random.default_rng(seed)
    scores = AnswerScores(no_answer=True)
    margins = np.sort(random.choice([-0.25, 0.0, 0.5, 2.0], 7))
    for number, margin in enumerate(margins):
        scores.add("cat", ["cat"] if number == 0 or random.random() < 0.4 else [], float(margin))
    best = scores.best_threshold()
    tried = {threshold: scores.results(threshold)["f1"] for threshold in [-9.0, *margins]}
    assert scores.results(best)["f1"] == pytest.approx(max(tried.values()))
    assert best not in margins  # which rounding would put on either side


def test_thresholds_of_equal_margins_and_of_no_questions():
    scores = AnswerScores(no_answer=True)
    assert scores.best_threshold() == 0.0
    assert scores.results() == {"exact_match": 0.0, "f1": 0.0}
    for answer, truth in (("cat", ["cat"]), ("dog", []), ("dog", [])):
        scores.add(answer, truth, 1.5)  # all are answered, or none
    assert scores.best_threshold() < 1.5
    assert scores.results(scores.best_threshold())["f1"] == pytest.approx(2 / 3)
    scores.add("cat", ["cat"], 7.0)
    assert scores.best_threshold() > 7.0  # as good as none, and of equally good ones the highest


def test_small_normalization_example():
    assert normalized("  The Cat's, a\tHAT! ") == "cats hat"
    assert exact_match("The cat", "a CAT.") == 1.0 and exact_match("cats", "cat") == 0.0
    assert answer_f1("the old cat", "cat") == pytest.approx(2 / 3)
    assert answer_f1("the", "an") == 1.0 and answer_f1("the", "cat") == 0.0
