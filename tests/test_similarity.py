"""Training of sentence encoders: losses equal to sentence-transformers', masks, files, commands, estimators."""

import json
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from examples_of_tasks import WORDS, call
from random_models import our_model
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import losses as theirs
from torch import Tensor

import bertkit
from bertkit import Model, TextSet
from bertkit.batch import LabelColumns, change_labels
from bertkit.checkpoint import SentenceSettings
from bertkit.errors import DataError, UsageError
from bertkit.finetuning.teaching import taught
from bertkit.tasks import CrossEncoding, Similarity
from bertkit.tasks.example_file import ExampleFile
from bertkit.tasks.feed import LabeledFeed
from bertkit.tasks.loss import Loss
from bertkit.tasks.losses.in_batch import InBatch, Masked
from bertkit.tasks.losses.options import losses_of
from bertkit.tasks.reading.text_sets import read_text_sets
from bertkit.tasks.row_feed import RowFeed
from bertkit.tasks.similarity.rows import Roles
from bertkit.tasks.similarity.scorer import ComparedVectors, SimilarityScorer
from bertkit.tasks.text_sets import OfTextSets
from bertkit.tasks.thresholds import average_precision, best_threshold
from bertkit.tokenizer.layout import Layout
from bertkit.training import compute_gradients_of_vectors, outputs_of

pytestmark = pytest.mark.usefixtures("one_thread")

STEPS, BATCH = 20, 6


def sentences(number: int, seed: int = 0) -> list[str]:
    """Different texts."""
    draw = np.random.default_rng(seed)
    texts: dict[str, None] = {}
    while len(texts) < number:
        texts[" ".join(draw.choice(WORDS, int(draw.integers(2, 9))))] = None
    return list(texts)


def rows(kind: str, number: int = BATCH) -> list[TextSet]:
    texts, draw = sentences(4 * number), np.random.default_rng(1)
    width = {"triplets": 3, "guided": 3, "tuples": 4, "taught": 4}.get(kind, 2)
    results = []
    for query, positive, *negatives in zip(*[iter(texts)] * width, strict=False):
        score = {"scores": round(float(draw.random()), 1), "binary": float(len(results) % 2)}.get(kind)
        scores = tuple(draw.normal(size=3).round(2).tolist()) if kind == "taught" else ()
        results.append(TextSet(query, (positive,), tuple(negatives), score, scores=scores))
    return results[:number]


def tiny(**changes: Any) -> Model:
    return our_model("encoder", 5, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **changes)


def step_of(model: Model, task: Similarity, data: Any, num_parts: int) -> Callable[[], float]:
    """Sets gradients of one whole batch, in parts, and gives its loss."""
    parameters = [parameter for parameter in model.network.parameters() if parameter.requires_grad]
    batch = data.take(np.arange(len(data)))

    def loss(vectors: Tensor) -> tuple[Loss, Tensor]:
        vectors.requires_grad_()
        result = task.loss(vectors, batch, task.totals(batch))
        (slopes,) = torch.autograd.grad(result.value, vectors)
        return Loss(result.value.detach(), result.sums), slopes

    def step() -> float:
        parts = batch.split(num_parts)
        result = compute_gradients_of_vectors(
            parameters, parts, lambda part: task.vectors(outputs_of(model.network, part)), loss
        )
        return float(result.value)

    return step


SHARED = {  # name -> rows, our task, their loss
    "in-batch": ("pairs", {}, lambda model: theirs.MultipleNegativesRankingLoss(model)),
    "hard-negatives": (
        "tuples",
        {"loss_parameters": {"temperature": 0.1}},
        lambda model: theirs.MultipleNegativesRankingLoss(model, 10.0),
    ),
    "both": (
        "triplets",
        {"loss_parameters": {"directions": "both"}},
        lambda model: theirs.MultipleNegativesRankingLoss(
            model, directions=("query_to_doc", "doc_to_query"), partition_mode="per_direction"
        ),
    ),
    "all": (
        "triplets",
        {"loss_parameters": {"directions": "all"}},
        lambda model: theirs.MultipleNegativesRankingLoss(
            model, directions=("query_to_doc", "query_to_query", "doc_to_query", "doc_to_doc")
        ),
    ),
    "triplet": (
        "triplets",
        {"objective": "triplet", "loss_parameters": {"margin": 1.5}},
        lambda model: theirs.TripletLoss(model, triplet_margin=1.5),
    ),
    "cosent": ("scores", {"objective": "cosent", "kind": "scores"}, lambda model: theirs.CoSENTLoss(model)),
    "cosine": ("scores", {"objective": "cosine", "kind": "scores"}, lambda model: theirs.CosineSimilarityLoss(model)),
    "contrastive": (
        "binary",
        {"objective": "contrastive", "kind": "binary"},
        lambda model: theirs.OnlineContrastiveLoss(model),
    ),
    "margin": ("taught", {"objective": "margin"}, lambda model: theirs.MarginMSELoss(model)),
    "divergence": (
        "taught",
        {"objective": "divergence", "loss_parameters": {"temperature": 2.0}},
        lambda model: theirs.DistillKLDivLoss(model, temperature=2.0),
    ),
    "guide": (
        "guided",
        {"loss_parameters": {"temperature": 0.1}},
        lambda model: theirs.GISTEmbedLoss(
            model, deepcopy(model).eval(), 0.1, contrast_anchors=False, contrast_positives=False
        ),
    ),
    "guide-two-pass": (
        "guided",
        {"loss_parameters": {"temperature": 0.1}},
        lambda model: theirs.CachedGISTEmbedLoss(
            model, deepcopy(model).eval(), 0.1, mini_batch_size=4, contrast_anchors=False, contrast_positives=False
        ),
    ),
    "nested": (
        "triplets",
        {"dimensions": (18, 7, 3)},
        lambda model: theirs.MatryoshkaLoss(model, theirs.MultipleNegativesRankingLoss(model), [18, 7, 3]),
    ),
}


@pytest.mark.full(sample=1)
@pytest.mark.parametrize("num_parts", [1, 5])
@pytest.mark.parametrize("name", SHARED)
def test_twenty_losses_equal_those_of_sentence_transformers(tmp_path: Path, name: str, num_parts: int) -> None:
    """In one part, and in five with the two-pass step."""
    if num_parts > 1 and name not in ("all", "cosent", "nested", "guide-two-pass"):
        pytest.skip("the step of parts is the same for every loss")
    kind, settings, make = SHARED[name]
    model, task, data = tiny(hidden_size=18, num_attention_heads=3), Similarity(**settings), rows(kind)
    model.checkpoint.sentence = bertkit.checkpoint.SentenceSettings()
    model.save(tmp_path / "model")
    if kind == "guided":
        data = [replace(row, guide=model.embed(list(row.texts))) for row in data]
    step = step_of(
        model, task, task.labeled(data, task.encode(model.tokenizer, data, Layout(23, "truncate"))), num_parts
    )
    reference = SentenceTransformer(str(tmp_path / "model"), device="cpu").train()
    for module in reference.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    columns = [[row.query for row in data], [row.positives[0] for row in data]]
    columns += [[row.negatives[number] for row in data] for number in range(len(data[0].negatives))]
    features = [reference.tokenize(column) for column in columns]
    labels = torch.tensor([row.scores or (row.score or 0.0) for row in data])
    loss = make(reference)
    optimizers = [torch.optim.AdamW(network.parameters(), lr=3e-4) for network in (model.network, reference)]
    actual, expected = [], []
    for _ in range(STEPS):
        actual.append(step())
        optimizers[0].step()
        optimizers[1].zero_grad()
        value = loss([dict(part) for part in features], labels)
        value.backward()
        optimizers[1].step()
        expected.append(value.item())
    assert expected[-1] < 0.9 * expected[0]
    np.testing.assert_allclose(actual[:1], expected[:1], rtol=0, atol=1e-5)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=2e-4)  # rounding grows with the steps


@pytest.mark.slow
def test_twenty_losses_of_a_batch_of_1024_in_parts_of_32(tmp_path: Path) -> None:
    """The two-pass step, against sentence-transformers' own; with its parts of 32 rows."""
    number, texts = 1_024, sentences(2_048, seed=5)
    data = [TextSet(query, (positive,)) for query, positive in zip(texts[:number], texts[number:], strict=True)]
    model, task = tiny(hidden_size=18, num_attention_heads=3), Similarity()
    model.checkpoint.sentence = bertkit.checkpoint.SentenceSettings()
    model.save(tmp_path / "model")
    step = step_of(model, task, task.labeled(data, task.encode(model.tokenizer, data, Layout(23, "truncate"))), 32)
    reference = SentenceTransformer(str(tmp_path / "model"), device="cpu").train()
    for module in reference.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    features = [reference.tokenize(column) for column in (texts[:number], texts[number:])]
    loss = theirs.CachedMultipleNegativesRankingLoss(reference, mini_batch_size=32)
    optimizers = [torch.optim.AdamW(network.parameters(), lr=1e-3) for network in (model.network, reference)]
    actual, expected = [], []
    for _ in range(STEPS):
        actual.append(step())
        optimizers[0].step()
        optimizers[1].zero_grad()
        value = loss([dict(part) for part in features], torch.zeros(number))
        value.backward()
        optimizers[1].step()
        expected.append(value.item())
    assert expected[-1] < 0.98 * expected[0]
    np.testing.assert_allclose(actual, expected, rtol=0, atol=2e-4)


# --- duplicates and several positives ---------------------------------------------------------------------------------


def roles_and_vectors(data: Sequence[TextSet], seed: int = 0) -> tuple[Roles, Tensor, list[str]]:
    """Random vectors, the same for equal texts but for a little noise, as dropout gives."""
    model, task = tiny(), Similarity()
    labeled = task.labeled(data, task.encode(model.tokenizer, data, Layout(23, "truncate")))
    texts = [text for row in data for text in row.texts]
    generator = torch.Generator().manual_seed(seed)
    vectors = torch.randn(len(texts), 9, generator=generator, dtype=torch.float64)
    return Roles.of(change_labels(labeled.labels, torch.from_numpy)), vectors, texts


def expected_loss(data: Sequence[TextSet], vectors: Tensor, texts: list[str], temperature: float) -> float:
    """Cross-entropy of each positive among the documents that are not known to belong to its query, in loops."""
    positives: dict[str, set[str]] = {}
    for row in data:
        positives.setdefault(row.query, set()).update(row.positives)
    documents, queries, start = [], [], 0
    for row in data:
        queries.append(start)
        documents += range(start + 1, start + len(row.texts))
        start += len(row.texts)
    unit = vectors / vectors.norm(dim=1, keepdim=True)
    losses = []
    for row, query in zip(data, queries, strict=True):
        for own in range(query + 1, query + 1 + len(row.positives)):
            kept = [
                index
                for index in documents
                if index == own or (texts[index] not in positives[row.query] and texts[index] != row.query)
            ]
            scores = unit[kept] @ unit[query] / temperature
            losses.append(float(scores.logsumexp(0) - unit[own] @ unit[query] / temperature))
    return float(np.mean(losses))


def test_duplicates_and_several_positives_are_no_negatives() -> None:
    a, b, c, d, e, f, g = sentences(7, seed=3)
    data = [
        TextSet(a, (b, c), (d,)),
        TextSet(a, (e,)),  # the same query with another positive
        TextSet(f, (b,), (a, g)),  # the same positive for another query; a query as a negative
        TextSet(f, (b,)),  # the same row again
        TextSet(g, (d,), (f,)),  # a negative that is a positive elsewhere
    ]
    roles, vectors, texts = roles_and_vectors(data)
    loss = InBatch(0.3)(vectors, roles)
    assert float(loss.value) == pytest.approx(expected_loss(data, vectors, texts, 0.3), abs=1e-9)
    assert loss.sums["masked_per_row"] > 8
    for directions in ("both", "all"):
        assert torch.isfinite(InBatch(0.3, directions=directions)(vectors, roles).value)


@pytest.mark.parametrize("seed", range(5))
def test_masks_of_many_duplicates_equal_loops(seed: int) -> None:
    """Of a whole data set, and of a batch, whose queries have further positives in the rows outside it."""
    draw, texts = np.random.default_rng(seed), sentences(9, seed=3)
    data, positives = [], dict[str, set[str]]()
    for _ in range(30):
        query, *others = draw.choice(texts, 1 + int(draw.integers(1, 4)), replace=False).tolist()
        data.append(TextSet(query, tuple(others[:2]), tuple(others[2:])))
        positives.setdefault(query, set()).update(others[:2])
    roles, vectors, spelled = roles_and_vectors(data)
    loss = InBatch(0.3)(vectors, roles)
    assert float(loss.value) == pytest.approx(expected_loss(data, vectors, spelled, 0.3), abs=1e-9)
    model = tiny()
    for task in (Similarity(), Similarity(query_prompt="the ", document_prompt="a dog ")):
        labeled = task.labeled(data, task.encode(model.tokenizer, data, Layout(23, "truncate")))
        batch = RowFeed(labeled, batch_size=7, seed=seed).batch(0, 0.0)
        masked, roles = Masked.of(Roles.of(batch.labels)).documents, Roles.of(batch.labels)
        chosen = [data[row] for row in roles.rows[roles.roles == 0].tolist()]
        spelled = [text for row in chosen for text in row.texts]
        for instance, query in enumerate(roles.queries.tolist()):
            known = positives[spelled[query]] | {spelled[query]}
            expected = [spelled[one] in known and one != roles.positives[instance] for one in roles.documents.tolist()]
            assert masked[instance].tolist() == expected


def test_texts_are_the_same_through_others() -> None:
    """Lowercased tokens, and prompts of queries and of documents."""
    model, task = tiny(), Similarity(query_prompt="the ", document_prompt="a dog ")
    data = [TextSet("Cat", ("dog",)), TextSet("mat", ("CAT",)), TextSet("cat", ("Mat",)), TextSet("CAT", ("ran",))]
    labeled = task.labeled(data, task.encode(model.tokenizer, data, Layout(23, "truncate")))
    texts = labeled.labels.text.tolist()
    assert len(set(texts)) == 5 and texts[0] == texts[3] == texts[4] == texts[6]


def test_labels_do_not_grow_with_the_positives_of_a_query() -> None:
    model, task = tiny(), Similarity()
    data = [TextSet("the cat", (text,)) for text in sentences(50)] + [TextSet("a dog", ("the cat", "sat"))]
    labeled = task.labeled(data, task.encode(model.tokenizer, data, Layout(23, "truncate")))
    assert len(labeled.labels) == 103 and labeled.labels.known.shape == (103, 0)
    roles = Roles.of(change_labels(labeled.labels, torch.from_numpy))
    assert int(Masked.of(roles).documents.sum()) == 50 * 49 + 50 + 2  # "the cat" itself; "a dog" has two positives


def test_with_different_texts_nothing_is_masked() -> None:
    data = rows("tuples")
    roles, vectors, texts = roles_and_vectors(data)
    for directions in ("query-to-document", "both", "all"):
        assert InBatch(directions=directions)(vectors, roles).sums["masked_per_row"] == 0
    loss = InBatch(0.3)(vectors, roles)
    assert float(loss.value) == pytest.approx(expected_loss(data, vectors, texts, 0.3), abs=1e-9)


def test_loss_is_invariant_to_row_order() -> None:
    data = rows("tuples")
    order = np.random.default_rng(4).permutation(len(data))
    roles, vectors, _ = roles_and_vectors(data)
    shuffled, _, _ = roles_and_vectors([data[index] for index in order])
    moved = vectors.view(len(data), 4, -1)[torch.from_numpy(order)].flatten(0, 1)
    for directions in ("both", "all"):
        loss = InBatch(directions=directions)
        assert float(loss(vectors, roles).value) == pytest.approx(float(loss(moved, shuffled).value), abs=1e-9)


@pytest.mark.parametrize("objective", losses_of("similarity"))
def test_no_loss_of_vectors_of_length_zero_is_nan(objective: str) -> None:
    kinds = {"in-batch": "pairs", "triplet": "triplets", "contrastive": "binary"}
    kind = (kinds | dict.fromkeys(("margin", "divergence"), "taught")).get(objective, "scores")
    roles, vectors, _ = roles_and_vectors(rows(kind))
    zeros = torch.zeros_like(vectors).requires_grad_()
    loss = Similarity(objective=objective).batch_loss(zeros, roles).value
    (slopes,) = torch.autograd.grad(loss, zeros)
    assert torch.isfinite(loss) and torch.isfinite(slopes).all()


def test_dropout_pairs_of_texts_alone() -> None:
    row = TextSet("the cat")
    assert row.texts == ("the cat", "the cat")
    roles, vectors, _ = roles_and_vectors([row, TextSet("a dog"), TextSet("the cat")])
    assert InBatch()(vectors, roles).sums["masked_per_row"] == 2  # the other "the cat" of each


@pytest.mark.parametrize("name", [name for name, (kind, *_) in SHARED.items() if kind != "guided" and name != "nested"])
def test_loss_of_the_same_vectors_equals_that_of_sentence_transformers(name: str) -> None:
    """Of distinct texts, in float64."""
    kind, settings, make = SHARED[name]
    data, task = rows(kind), Similarity(**settings)
    roles, vectors, _ = roles_and_vectors(data)
    columns = list(vectors.view(len(data), -1, vectors.shape[1]).unbind(1))
    labels = torch.tensor([row.scores or (row.score or 0.0) for row in data], dtype=torch.float64)
    expected = make(torch.nn.Identity()).compute_loss_from_embeddings(columns, labels)
    loss = task.batch_loss(vectors, roles)
    assert float(loss.value) == pytest.approx(float(expected), abs=1e-6) and loss.sums.get("masked_per_row", 0) == 0


# --- the feed ---------------------------------------------------------------------------------------------------------


def test_feed_yields_every_row_once_and_no_single_row_batches() -> None:
    model, task = tiny(), Similarity()
    data = [TextSet(text, (f"{text} cat",), ("dog",) * (number % 3)) for number, text in enumerate(sentences(9))]
    labeled = task.labeled(data, task.encode(model.tokenizer, data, Layout(23, "truncate")))
    feed = RowFeed(labeled, batch_size=4, seed=3)
    assert isinstance(feed, LabeledFeed) and feed.batches_per_epoch == 2
    batches = [feed.batch(position, 0.0).labels.row.tolist() for position in range(2)]
    assert [len(set(batch)) for batch in batches] == [4, 5]
    assert sorted(batches[0] + batches[1]) == sorted(labeled.labels.row.tolist())
    halves = [RowFeed(labeled, 4, 3, rank, 2).batch(0, 0.0).labels.row.tolist() for rank in (0, 1)]
    assert sorted(halves[0] + halves[1]) == sorted(batches[0])


# --- files, options, metrics ------------------------------------------------------------------------------------------


def read(path: Path, content: str, **columns: str) -> list[TextSet]:
    path.write_text(content)
    return list(read_text_sets(ExampleFile(path, columns=columns)))


def test_files_of_every_form(tmp_path: Path) -> None:
    (pair,) = read(tmp_path / "a.csv", "anchor,positive\nA,B\n")
    assert (pair.query, pair.positives, pair.negatives, pair.score) == ("A", ("B",), (), None)
    (triplet,) = read(tmp_path / "b.csv", "query,passage,negative_1,negative_2\nA,B,C,D\n")
    assert triplet.negatives == ("C", "D")
    (scored,) = read(tmp_path / "c.tsv", "sentence1\tsentence2\tscore\nA\tB\t3.5\n")
    assert scored.score == 3.5 and scored.location.endswith("c.tsv, line 2")
    (listed,) = read(tmp_path / "d.jsonl", json.dumps({"query": "A", "positives": ["B", "C"], "negatives": ["D"]}))
    assert listed.positives == ("B", "C") and listed.negatives == ("D",)
    assert [row.texts for row in read(tmp_path / "e.txt", "A\nB\n")] == [("A", "A"), ("B", "B")]
    (named,) = read(tmp_path / "f.csv", "q,yes,no\nA,B,C\n", query="q", positive="yes", negative="no")
    assert named.texts == ("A", "B", "C")
    (headerless,) = read(tmp_path / "g.tsv", "0.2\tA\tB\n")
    assert (headerless.query, headerless.positives, headerless.score) == ("A", ("B",), 0.2)


def test_objects_that_differ_from_the_first(tmp_path: Path) -> None:
    first = '{"anchor": "A", "positive": "B"}\n'
    rows = read(tmp_path / "a.jsonl", first + '{"anchor": "C", "positive": "D", "negative": "E", "negative_2": "F"}\n')
    assert [row.negatives for row in rows] == [(), ("E", "F")]
    for further, message in (('"score": 0', "has 'score'"), ('"scores": [1]', "has 'scores'")):
        with pytest.raises(DataError, match=f"line 2 {message}, but the first row has no score"):
            read(tmp_path / "b.jsonl", first + f'{{"anchor": "C", "positive": "D", {further}}}\n')
    with pytest.raises(DataError, match="line 2 has text and pair, but the first row has no pair"):
        read(tmp_path / "c.jsonl", '{"text": "A"}\n{"text": "B", "pair": "C"}\n')
    again = '{"anchor": "A", "positive": "B", "score": 1}\n{"anchor": "A", "positive": "B", "label": "x", "score": 0}\n'
    assert [row.score for row in read(tmp_path / "d.jsonl", again)] == [1, 0]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("anchor,positive\nA,\n", "line 2 has an empty text in 'positive'"),
        ("sentence1,sentence2,score\nA,B,high\n", "has the score 'high' in 'score': expected a number"),
        ("query,negative\nA,B\n", "no column with a name known for the query"),
        ("anchor,positive,score,negative\nA,B,1,C\n", "has a score and 2 other texts: expected a pair"),
    ],
)
def test_bad_files(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(tmp_path / "bad.csv", content)


@pytest.mark.parametrize("key", ["score", "scores"])
def test_integers_that_are_too_large_for_a_score(tmp_path: Path, key: str) -> None:
    with pytest.raises(DataError, match=rf"line 1 has the score 1000.* in '{key}': expected a number"):
        read(tmp_path / "bad.jsonl", f'{{"query": "A", "positive": "B", "{key}": 1{"0" * 400}}}')


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (rows("pairs")[:1], {}, "1 rows: expected at least two"),
        (rows("pairs"), {"objective": "cosent"}, "objective=cosent needs a score for each pair"),
        (rows("scores"), {"objective": "in-batch"}, "takes rows without scores"),
        (rows("pairs"), {"objective": "triplet"}, "needs a negative in every row"),
        ([*rows("triplets"), TextSet("a", ("b",))], {"objective": "triplet"}, "'a': has no negative, as 1 of 7 rows"),
        ([TextSet("a", ("b",), (), 4.0), TextSet("c", ("d",), (), 1.0)], {"objective": "cosine"}, "expects -1 to 1"),
        ([TextSet("a", ("b",), (), 0.5), TextSet("c", ("d",), (), 1.0)], {"objective": "contrastive"}, "0 and 1"),
        ([TextSet("a", ("b",), (), 1.0), TextSet("c", ("d",), (), 1.0)], {}, "every pair has the score 1"),
        ([TextSet("a", ("a",)), TextSet("a", ("a",))], {}, "every text is the same"),
        ([TextSet("a", ("b",)), TextSet("a", ("c",), ("b",))], {}, "'b' is a negative here and a positive"),
        ([TextSet("a", ("b",), (), float(n)) for n in (1, 1, 0)], {}, "the pair has the score 0 here and 1 in a row"),
        ([TextSet("a", ("b",)), TextSet("c", ("d",), (), 1.0)], {}, "some rows have a score"),
        (rows("pairs"), {"objective": "best"}, "objective='best': expected one of in-batch"),
        (rows("pairs"), {"directions": "up"}, "directions='up': expected one of"),
        (rows("scores"), {"directions": "both"}, "directions has no effect on objective=cosent, only on in-batch"),
        (rows("scores"), {"margin": 0.3}, "margin has no effect on objective=cosent, only on triplet, contrastive"),
        (rows("triplets"), {"guide": "x", "objective": "triplet"}, "guide has no effect on objective=triplet"),
        (rows("pairs"), {"turns": True}, "turns has no effect on one data set"),
        (rows("pairs"), {"temperature": 0.0}, "temperature=0.0"),
        (rows("pairs"), {"dimensions": [4, 4]}, "expected different widths"),
        (rows("pairs"), {"levels": 3}, "similarity has no levels"),
    ],
)
def test_rows_and_options_that_cannot_be_learned(data: list[TextSet], options: dict, message: str) -> None:
    with pytest.raises((DataError, UsageError), match=message):
        Similarity.of_examples(data, options)


def test_contradictions_can_be_skipped() -> None:
    kept = [TextSet("a", ("b",), (), 1.0), TextSet("b", ("a",), (), 0.0), TextSet("c", ("d",), (), 0.0)]
    skipped = TextSet("a", ("b",), (), 0.0)
    assert Similarity.unusable_examples([*kept, skipped]) == [(skipped, "the pair has the score 0 here and 1 in a row")]
    assert not Similarity.unusable_examples(kept)
    graded = [TextSet("a", ("b",), (), score) for score in (0.0, 1.0, 0.5)]  # such as two judges
    assert not Similarity.unusable_examples(graded)


@pytest.mark.full
def test_thresholds_equal_those_of_scikit_learn() -> None:
    from sklearn.metrics import average_precision_score, f1_score

    draw = np.random.default_rng(3)
    for _ in range(20):
        targets, scores = draw.integers(0, 2, 23), np.round(draw.random(23), 1)
        if not targets.any():
            continue
        assert average_precision(targets, scores) == pytest.approx(average_precision_score(targets, scores))
        actual = best_threshold(targets, scores)
        assert actual["f1"] == pytest.approx(f1_score(targets, scores >= actual["threshold"]))
        every = [f1_score(targets, scores >= level) for level in np.unique(scores)]
        accuracies = [((scores >= level) == targets).mean() for level in [*np.unique(scores), 2]]
        assert actual["f1"] == pytest.approx(max(every)) and actual["accuracy"] == pytest.approx(max(accuracies))


def test_other_positives_of_a_query_are_no_wrong_answers() -> None:
    data = [TextSet("q1", ("a", "b")), TextSet("q2", ("b",))]
    near, far = (np.array([cosine, (1 - cosine**2) ** 0.5], np.float32) for cosine in (0.99, 0.8))
    query = np.array([1, 0], np.float32)
    vectors = [np.stack([query, far, near]), np.stack([near, near])]
    scorer = SimilarityScorer("pairs")
    scorer.add(data, [ComparedVectors.of(each, np.zeros(len(each) - 1, np.bool_)) for each in vectors])
    assert scorer.values() == {"mrr": [1.0, 1.0], "recall_at_1": [1.0, 1.0]}


# --- commands and estimators ------------------------------------------------------------------------------------------


def write(path: Path, data: Sequence[TextSet]) -> str:
    path.write_text(
        "".join(
            json.dumps(
                {"query": row.query, "positives": list(row.positives), "negatives": list(row.negatives)}
                | ({} if row.score is None else {"score": row.score})
            )
            + "\n"
            for row in data
        )
    )
    return str(path)


def topics(number: int, seed: int) -> list[TextSet]:
    """Texts of a color belong together."""
    draw, results = np.random.default_rng(seed), []
    for _ in range(number):
        color = draw.choice(["red", "blue", "green"])
        query, positive = (" ".join(draw.permutation([*draw.choice(WORDS[:9], 3), color])) for _ in range(2))
        results.append(TextSet(str(query), (str(positive),)))
    return results


@pytest.mark.full
def test_finetune_evaluate_predict_and_embed(encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    train, dev = write(tmp_path / "train.jsonl", topics(60, 1)), write(tmp_path / "dev.jsonl", topics(20, 2))
    out = str(tmp_path / "out")
    code, (result,), stderr = call(
        capsys, "finetune", "similarity", "--model", str(encoder), "--train", train, "--dev", dev, "--out", out,
        "--learning-rate", "0.01", "--num-epochs", "4", "--batch-size", "16", "--query-prompt", "the ",
    )  # fmt: skip
    assert code == 0 and 0 < result["recall_at_1"] <= result["mrr"] <= 1, stderr
    logged = [json.loads(line) for line in (tmp_path / "out/run/metrics.jsonl").read_text().splitlines()]
    assert any(line["event"] == "step" and line["masked_per_row"] >= 0 for line in logged)
    losses = [line["loss"] for line in logged if line["event"] == "step"]
    assert losses[-1] < 0.9 * losses[0]
    model = bertkit.load(out)
    assert model.trained.task.query_prompt == "the " and model.sentence_settings.prompts["query"] == "the "
    reference = SentenceTransformer(out, device="cpu")
    texts = ["red cat", "a blue dog"]
    np.testing.assert_allclose(model.embed(texts), reference.encode(texts), atol=1e-5)
    np.testing.assert_allclose(
        model.embed(texts, prompt_name="query"), reference.encode(texts, prompt_name="query"), atol=1e-5
    )
    code, (again,), _ = call(capsys, "evaluate", "--model", out, "--data", dev)
    assert code == 0 and again["mrr"] == pytest.approx(result["mrr"])
    code, predictions, _ = call(capsys, "predict", "--model", out, "--input", dev)
    assert code == 0 and len(predictions) == 20 and -1 <= predictions[0]["score"] <= 1
    card = (tmp_path / "out" / "README.md").read_text()
    for fact in ("sentence-similarity", "95 % interval", "| objective | in-batch |", "| similarity | cosine |"):
        assert fact in card
    assert call(capsys, "finetune", "similarity", "--model", str(encoder), "--train", train, "--out", f"{out}2",
                "--margin", "-1")[0] == 2  # fmt: skip


@pytest.mark.parametrize("kind", ["scores", "binary"])
def test_estimator_learns_scored_pairs(encoder: Path, kind: str) -> None:
    data = [*topics(20, 3), *topics(20, 4)]
    pairs = [(row.query, row.positives[0]) for row in data[:20]]
    pairs += [(row.query, other.positives[0]) for row, other in pairwise(data[20:])]
    scores = [(1.0 if kind == "binary" else 4.5)] * 20 + [0.0] * 19
    estimator = bertkit.SentenceEncoder(encoder, num_epochs=1, learning_rate=0.003, device="cpu")
    estimator.fit(pairs, scores if kind == "binary" else [*scores[:-1], 1.5], dev=(pairs, scores))
    assert estimator.transform(["the cat", "red"]).shape == (2, 20)
    assert estimator.score_pairs(pairs[:3]).shape == (3,)
    task = estimator.model_.trained.task
    assert task.objective == {"scores": "cosent", "binary": "contrastive"}[kind]
    assert set(estimator.outcome_.metrics) >= ({"spearman"} if kind == "scores" else {"average_precision", "threshold"})


# --- several data sets ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("turns", "numbers"), [(False, (0, 1)), (True, (0, 1)), (True, (2, 5)), (False, (1, 1_000))])
def test_batches_never_mix_data_sets(turns: bool, numbers: tuple[int, int]) -> None:
    kinds = (rows("pairs", 11), rows("scores"))
    data = [replace(row, dataset=number) for kind, number in zip(kinds, numbers, strict=True) for row in kind]
    task = Similarity.of_examples(data, {"turns": turns})
    assert task.objectives == ("in-batch", "cosent") and task.kind == "pairs"
    model = tiny()
    feed = task.feed(task.labeled(data, task.encode(model.tokenizer, data, Layout(23, "truncate"))), 3, 5)
    batches = [feed.batch(position, 0.0) for position in range(feed.batches_per_epoch)]
    largest = replace(feed, seed=2**63 - 1)
    assert all(len(largest.batch(position, 0.0)) for position in range(feed.batches_per_epoch))
    of_batch = [set(batch.labels.dataset.tolist()) for batch in batches]
    assert all(len(each) == 1 for each in of_batch)
    read = [row for batch in batches for row in sorted(set(batch.labels.row.tolist()))]
    assert len(read) == len(set(read))
    if turns:
        assert of_batch == [{0}, {1}, {0}, {1}] and len(read) == 12
    else:
        assert sorted(read) == list(range(17)) and of_batch != sorted(of_batch, key=min)
    for batch in batches:
        vectors = torch.randn(len(batch.labels), 9)
        objective = task.objectives[int(batch.labels.dataset[0])]
        alone = Similarity(objective=objective)
        totals = task.totals(batch)
        assert torch.equal(task.loss(vectors, batch, totals).value, alone.loss(vectors, _in_one(batch), totals).value)


def _in_one(batch: Any) -> Any:
    labels = vars(batch.labels) | {"dataset": torch.zeros_like(batch.labels.dataset)}
    return replace(batch, labels=LabelColumns(**labels))


def test_several_files(encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    files = [write(tmp_path / "pairs.jsonl", rows("pairs", 9)), write(tmp_path / "scores.jsonl", rows("scores", 9))]
    arguments = ["finetune", "similarity", "--model", str(encoder), "--train", *files, "--batch-size", "4"]
    code, _, printed = call(capsys, *arguments, "--out", str(tmp_path / "out"), "--objectives", "in-batch", "cosine")
    assert code == 0, printed
    assert bertkit.load(tmp_path / "out").trained.task.objectives == ("in-batch", "cosine")
    code, _, printed = call(capsys, *arguments, "--out", str(tmp_path / "other"), "--objectives", "in-batch")
    assert code == 2 and "1 objectives for 2 files: give one for each" in printed


def test_refuses_a_batch_of_one(encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    train = write(tmp_path / "train.jsonl", rows("pairs"))
    arguments = ["finetune", "similarity", "--model", str(encoder), "--train", train, "--out", str(tmp_path / "out")]
    code, _, printed = call(capsys, *arguments, "--batch-size", "1")
    assert code == 2 and printed.strip().endswith("--batch-size 1: expected at least 2, as the loss compares rows")


def test_refuses_a_query_without_positives(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"query": "A", "positives": [], "negatives": ["B"]}\n')
    with pytest.raises(DataError, match="line 1 has no positive in 'positives': add one, or remove the row"):
        list(read_text_sets(ExampleFile(tmp_path / "rows.jsonl")))


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (rows("pairs"), {"objective": "margin"}, "has 0 scores of texts: objective=margin needs two or more"),
        ([TextSet("a", ("b",), ("c",), scores=(1.0,))] * 2, {}, "has 1 scores for 2 texts: give each text one"),
        ([TextSet("a", ("b",), ("c",), scores=(1.0, float("inf")))] * 2, {}, "expected finite numbers"),
    ],
)
def test_bad_scores_of_a_teacher(data: list[TextSet], options: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        Similarity.of_examples(data, options)


def test_teacher_gives_one_score(tmp_path: Path) -> None:
    our_model("sequence_classification", 3, num_labels=3).save(tmp_path / "teacher")
    options = {"teacher": str(tmp_path / "teacher")}
    with pytest.raises(UsageError, match="one score for each text, but this model has 3 labels"):
        taught(options, [rows("pairs")], tmp_path / "kept", "cpu")


@pytest.mark.parametrize("option", ["teacher", "guide"])
def test_teachers_and_guides_get_their_prompts(tmp_path: Path, option: str) -> None:
    model = our_model("encoder", 3)
    model.checkpoint.sentence = SentenceSettings(prompts={"query": "the ", "document": "a dog "})
    model.save(tmp_path / "model")
    row = TextSet("cat", ("dog",), ("mat",))
    ((learned,),) = taught({option: str(tmp_path / "model")}, [[row]], tmp_path / "kept", "cpu")
    expected = model.embed(["the cat", "a dog dog", "a dog mat"], prompt="")
    if option == "guide":
        assert np.allclose(learned.guide, expected, atol=1e-6)
    else:
        assert np.allclose(learned.scores, expected[1:] @ expected[0], atol=1e-4)


@pytest.mark.parametrize("task", [Similarity, CrossEncoding])
def test_scores_of_a_teacher_are_in_all_rows_or_in_none(task: type[OfTextSets]) -> None:
    data = [TextSet("A", ("B",), ("C",), scores=(2.0, 1.0)), TextSet("D", ("E",), ("F",))]
    with pytest.raises(DataError, match="has no scores, as 1 of 2 rows: give all rows scores, or none"):
        task.of_examples(data, {})
    task.of_examples(data, {"objective": "margin", "teacher": "a model"})


# --- a guide model ----------------------------------------------------------------------------------------------------


def test_guide_masks_nearer_texts() -> None:
    """Against loops over the texts of each instance."""
    data, draw = rows("tuples"), np.random.default_rng(8)
    guides = [draw.normal(size=(4, 5)).astype(np.float32) for _ in data]
    guided = [replace(row, guide=guide) for row, guide in zip(data, guides, strict=True)]
    roles, vectors, _ = roles_and_vectors(guided)
    loss = InBatch(0.3)(vectors, roles)
    unit = vectors / vectors.norm(dim=1, keepdim=True)
    near = np.concatenate(guides) / np.linalg.norm(np.concatenate(guides), axis=1, keepdims=True)
    documents, losses, masked = [index for index in range(24) if index % 4], [], 0
    for query in range(0, 24, 4):
        kept = [
            each for each in documents if each == query + 1 or near[each] @ near[query] <= near[query + 1] @ near[query]
        ]
        masked += len(documents) - len(kept)
        scores = unit[kept] @ unit[query] / 0.3
        losses.append(float(scores.logsumexp(0) - unit[query + 1] @ unit[query] / 0.3))
    assert float(loss.value) == pytest.approx(np.mean(losses), abs=1e-9)
    assert loss.sums["masked_per_row"] == masked > 10
    for directions in ("both", "all"):
        assert torch.isfinite(InBatch(0.3, directions=directions)(vectors, roles).value)


def test_finetune_with_a_guide(encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    train = write(tmp_path / "train.jsonl", topics(30, 1))
    code, _, printed = call(
        capsys, "finetune", "similarity", "--model", str(encoder), "--train", train, "--out", str(tmp_path / "out"),
        "--guide", str(encoder),
    )  # fmt: skip
    assert code == 0, printed
    logged = [json.loads(line) for line in (tmp_path / "out/run/metrics.jsonl").read_text().splitlines()]
    assert all(line["masked_per_row"] > 0 for line in logged if line["event"] == "step")


def test_a_run_says_what_it_learns_from(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("anchor,positive,negative1\na,b,c\nd,e,\n")
    rows = list(read_text_sets(ExampleFile(path)))
    assert [row.negatives for row in rows] == [("c",), ()]
    said = list(Similarity.of_examples(rows, {}).choices_for(rows))
    assert said == ["objective in-batch: 2 rows, 1 of them with negatives"]
    rows = [TextSet("a"), TextSet("b"), TextSet("c")]
    *_, said = Similarity.of_examples(rows, {}).choices_for(rows)
    assert said == "3 of 3 rows are single texts, each its own positive with another dropout mask"
