"""Extraction from long texts, and independence of batches, streams and the order of labels: equal bits."""

import json
from typing import Any

import numpy as np
import pytest
from gliner_reference import LABELS, STORED, write_model

from bertkit.extraction import ExtractionReport, Extractor, open_extractor
from bertkit.extraction.candidates import Candidates
from bertkit.extraction.decoding import best_spans
from bertkit.extraction.windows import Words, windows_of

PUBLISHED = json.loads(STORED.read_text())
WORDS = "Ann Bern zoo river old near was in the a of well-known years, (e-mail) 12 bernann".split()


@pytest.fixture(scope="module")
def extractors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Extractor]:
    folder = tmp_path_factory.mktemp("published")
    return {name: open_extractor(write_model(model, folder / name)) for name, model in PUBLISHED.items()}


def random_text(random: np.random.Generator, most_words: int) -> str:
    return " ".join(random.choice(WORDS, random.integers(0, most_words)))


def logits_and_entities(extractor: Extractor, text: str, labels: list[str]) -> tuple[list[np.ndarray], Any]:
    seen, candidates = list[np.ndarray](), extractor._scorer.candidates

    def record(logits: np.ndarray, *rest: Any) -> Any:
        seen.append(logits)
        return candidates(logits, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(extractor._scorer, "candidates", record)
        (entities,) = extractor.extract([text], labels)
    return seen, entities


@pytest.mark.parametrize("name", ["span-bert", "token-bert", "bi-span"])
def test_a_long_text_has_the_bits_of_its_windows(extractors, name):
    extractor = extractors[name]
    text = " ".join(np.random.default_rng(1).choice(WORDS, 300))
    (words,) = extractor._splitter.split([text])
    plan = extractor._plan(LABELS)
    windows = windows_of(words, plan.window_tokens, extractor.settings.max_words, extractor._context)
    assert len(windows) > 10
    report = ExtractionReport()
    entities = extractor.extract([text], LABELS, report=report)[0]
    assert (report.num_characters, report.num_windows) == (len(text), len(windows))
    assert report.num_words == len(words.starts) >= 300
    of_windows = {(int(words.starts[each.first]), int(words.ends[each.end - 1])): each for each in windows}
    parts = list[Candidates]()
    for (start, end), window in of_windows.items():
        ((part,), _) = logits_and_entities(extractor, text[start:end], LABELS)
        num_starts, own = window.end_owned - window.first_owned, part[window.first_owned - window.first :]
        own = own if extractor.settings.of_tokens else own[:num_starts]
        found = extractor._scorer.candidates(own, num_starts, 0.5)
        parts.append(found._replace(start=found.start + window.first_owned, end=found.end + window.first_owned))
    candidates = Candidates(*map(np.concatenate, zip(*parts, strict=True)))
    expected = [
        (words.starts[candidates.start[i]], words.ends[candidates.end[i]], plan.labels[candidates.label[i]],
         candidates.score[i])
        for i in best_spans(candidates, nested=False)
    ]  # fmt: skip
    assert [(each.start, each.end, each.label, each.score) for each in entities] == expected
    assert all(each.window in of_windows and text[each.start : each.end] == each.text for each in entities)
    assert len({each.window for each in entities}) > 5


@pytest.mark.parametrize("num_cases", [2, pytest.param(300, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", PUBLISHED)
def test_entities_have_equal_bits_in_any_batch_stream_and_order_of_labels(extractors, name, num_cases):
    extractor, random = extractors[name], np.random.default_rng(5)
    for _ in range(num_cases):
        texts = [random_text(random, 60) for _ in range(9)]
        options = {"threshold": 0.4, "nested": bool(random.integers(2))}
        expected = [extractor.extract([text], LABELS, **options)[0] for text in texts]
        assert any(expected)
        order = random.permutation(len(texts))
        mixed = extractor.extract([texts[i] for i in order], list(random.permutation(LABELS)), **options)
        assert mixed == [expected[i] for i in order]
        cut = int(random.integers(1, len(texts)))
        assert extractor.extract(texts[:cut], LABELS, **options) == expected[:cut]
        assert list(extractor.extract_stream(iter(texts), LABELS, **options)) == expected


@pytest.mark.parametrize("seed", range(20))
def test_each_word_is_owned_by_one_window_with_context(seed):
    random = np.random.default_rng(seed)
    most_tokens, most_words, context = 80, 30, int(random.integers(1, 10))
    first_tokens = np.cumsum([0, *random.integers(1, random.integers(2, 12), 200)])
    windows = windows_of(Words(*(np.empty(0),) * 3, first_tokens=first_tokens), most_tokens, most_words, context)
    owned = [word for each in windows for word in range(each.first_owned, each.end_owned)]
    assert owned == list(range(200))
    for before, each in zip([None, *windows], [*windows, None], strict=True):
        if each is None:
            continue
        assert first_tokens[each.end] - first_tokens[each.first] <= most_tokens and each.end - each.first <= most_words
        assert each.first <= each.first_owned < each.end_owned <= each.end
        right = first_tokens[each.end] - first_tokens[each.end_owned - 1]
        assert each.end in (200, each.end_owned + context) or right > most_tokens // 4
        left = first_tokens[each.first_owned] - first_tokens[max(each.first - 1, 0)]
        assert before is None or each.first == each.first_owned - context or left > most_tokens // 4


@pytest.mark.parametrize("nested", [False, True])
def test_best_spans_are_those_of_a_comparison_with_all(nested):
    random = np.random.default_rng(3)
    for _ in range(50):
        start = random.integers(0, 12, 40)
        end, label = start + random.integers(0, 5, 40), random.integers(0, 3, 40)
        score = random.choice([0.6, 0.7, 0.8], 40)
        kept: list[int] = []
        for index in sorted(range(40), key=lambda i: (-score[i], start[i], end[i], label[i])):
            for other in kept:
                apart = end[index] < start[other] or end[other] < start[index]
                inside = start[index] <= start[other] and end[other] <= end[index]
                around = start[other] <= start[index] and end[index] <= end[other]
                is_same = (start[index], end[index]) == (start[other], end[other])
                if is_same or not (apart or (nested and (inside or around))):
                    break
            else:
                kept.append(index)
        result = best_spans(Candidates(start, end, label, score), nested=nested)
        assert sorted(result.tolist()) == sorted(kept)
        assert [(start[i], end[i]) for i in result] == sorted((start[i], end[i]) for i in kept)


def test_labels_that_do_not_fit_together_are_read_in_groups(extractors):
    labels = [f"{first} {second}" for first in WORDS[:8] for second in WORDS[:8]]
    for name in ("span-bert", "bi-span"):
        extractor, reports = extractors[name], (ExtractionReport(), ExtractionReport())
        text = "Ann was in the old zoo of Bern"
        for order, report in zip((labels, labels[::-1]), reports, strict=True):
            assert extractor.extract([text], order, report=report) == extractor.extract([text], labels)
        groups = reports[0].label_groups
        assert [label for group in groups for label in group] == sorted(labels)
        assert groups == reports[1].label_groups
        assert (len(groups) > 3) == (name == "span-bert")


def test_words_without_spaces_are_read_whole(extractors):
    extractor, report = extractors["span-bert"], ExtractionReport()
    text = "-".join(["ann"] * 400)
    (entities,) = extractor.extract([text], LABELS, threshold=0.0, report=report)
    assert report.num_windows > 1
    assert entities[0].start == 0 and entities[-1].end == len(text)
    covered = [end for each in entities for end in (each.start, each.end)]
    assert covered == sorted(covered)


def test_texts_without_words_have_no_entities(extractors):
    report = ExtractionReport()
    assert extractors["span-bert"].extract(["", " \n", "\u200b"], LABELS, threshold=0, report=report) == [(), (), ()]
    assert (report.num_texts, report.num_characters, report.num_windows) == (3, 3, 0)


def test_many_labels_have_the_scores_of_few(extractors, monkeypatch):
    extractor, seen = extractors["bi-span"], list[Candidates]()
    labels = sorted(f"{first} {second}" for first in WORDS[:9] for second in WORDS[:9])
    text, spans = "Ann was in the old zoo", extractor._scorer.spans
    monkeypatch.setattr(extractor._scorer, "spans", lambda *given: seen.extend(spans(*given)) or seen[-1:])
    extractor.extract([text], labels, threshold=0.3)
    for first in range(0, len(labels), 27):
        extractor.extract([text], labels[first : first + 27], threshold=0.3)
        seen[-1] = seen[-1]._replace(label=seen[-1].label + first)
    many, few = Candidates(*map(np.array, seen[0])), Candidates(*map(np.concatenate, zip(*seen[1:], strict=True)))
    few = few.chosen(np.lexsort((few.label, few.end, few.start)))
    assert len(few.score) > 100
    for own, other in zip(many[:3], few[:3], strict=True):
        np.testing.assert_array_equal(own, other)
    np.testing.assert_allclose(many.score, few.score, atol=1e-5)
