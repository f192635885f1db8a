"""Words, heads, probes, structure, attributions, input, maps and comparisons against independent computations."""

import json
from typing import Any

import numpy as np
import pytest
import scipy.spatial.distance
import scipy.stats
import torch
from examples_of_tasks import model_of
from random_models import our_model, published_model, save_published
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from test_trace import tiny

import bertkit
from bertkit.architectures import ARCHITECTURES
from bertkit.checkpoint import SentenceSettings
from bertkit.checkpoint.checkpoint import TrainedTask
from bertkit.cli import run
from bertkit.errors import BertkitError, DataError, OverLengthError, UsageError
from bertkit.heads import UnitLength
from bertkit.inspection import (
    LabeledWords,
    Tree,
    inspect_contexts,
    inspect_difference,
    inspect_heads,
    inspect_input,
    inspect_lens,
    inspect_map,
    inspect_next_sentence,
    inspect_probes,
    inspect_similarity,
    inspect_structure,
    inspect_surprise,
    inspect_why,
    read_trees,
)
from bertkit.inspection.contextual import first_occurrence, word_spans, word_vectors
from bertkit.inspection.difference import jensen_shannon, linear_cka
from bertkit.inspection.heads import ablation, relation_scores, word_attention
from bertkit.inspection.inputs import sinusoidal
from bertkit.inspection.pieces import Pieces
from bertkit.inspection.probes import mixed_probe, probe
from bertkit.inspection.scatter import projections
from bertkit.inspection.structure import TreeScore, gold_edges, spanning_tree, structural_probe, tree_scores
from bertkit.tasks import MultiLabelClassification, MultipleChoice, Regression, SequenceClassification
from bertkit.tokenizer.layout import Layout

TEXTS = ["the cat sat on the mat", "a red cat walked", "one blue dog and a cat", "the dog talked , unable"]
CONLLU = """# text = It's red
1-2\tIt's\t_\t_\t_\t_\t_\t_\t_\t_
1\tIt\tit\tPRON\t_\t_\t3\tnsubj:pass\t_\t_
2\t's\tbe\tAUX\t_\t_\t3\tcop\t_\t_
3\tred\tred\tADJ\t_\t_\t0\troot\t_\t_
3.1\tx\tx\tX\t_\t_\t_\t_\t_\t_
4\t.\t.\tPUNCT\t_\t_\t3\tpunct\t_\t_

1\tcat\tcat\tNOUN\t_\t_\t0\troot\t_\t_
"""

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def model() -> bertkit.Model:
    return our_model("pretraining", 3, max_position_embeddings=60)


@pytest.fixture
def trees(tmp_path) -> list[Tree]:
    (tmp_path / "x.conllu").write_text(CONLLU)
    return read_trees(tmp_path / "x.conllu")


def random_trees(number: int, seed: int = 0) -> list[Tree]:
    draw, words = np.random.default_rng(seed), "the cat sat on a red mat and dog walked".split()
    trees = []
    for _ in range(number):
        size = int(draw.integers(6, 10))
        heads = (-1, *(int(draw.integers(0, word)) for word in range(1, size)))
        chosen = draw.choice(len(words), size)
        tags = tuple("NOUN" if words[index] in ("cat", "mat", "dog") else "X" for index in chosen)
        trees.append(Tree(tuple(words[index] for index in chosen), heads, ("root", *["obj"] * (size - 1)), tags))
    return trees


def test_conllu_without_multiword_tokens_and_empty_nodes(trees) -> None:
    assert [tree.words for tree in trees] == [("It", "'s", "red", "."), ("cat",)]
    assert trees[0].heads == (2, 2, -1, 2) and trees[0].relations == ("nsubj", "cop", "root", "punct")
    assert [trees[0].text[start:end] for start, end in trees[0].spans] == list(trees[0].words)
    assert gold_edges(trees[0]) == {(0, 2), (1, 2)}


@pytest.mark.parametrize("content", ["1\tx\n", "1\tx\tx\tX\t_\t_\t9\troot\t_\t_\n\n", "# nothing\n"])
def test_bad_conllu_raises(content: str, tmp_path) -> None:
    (tmp_path / "x.conllu").write_text(content)
    with pytest.raises(DataError):
        read_trees(tmp_path / "x.conllu")


def test_conllu_in_another_encoding_names_the_line(tmp_path) -> None:
    (tmp_path / "x.conllu").write_bytes((CONLLU + "# café\n").encode("latin1"))
    with pytest.raises(DataError, match=rf"x.conllu, line {CONLLU.count(chr(10)) + 1}.*iconv"):
        read_trees(tmp_path / "x.conllu")
    (tmp_path / "marked.conllu").write_bytes(b"\xef\xbb\xbf" + CONLLU.encode())
    assert [tree.words[0] for tree in read_trees(tmp_path / "marked.conllu")] == ["It", "cat"]


def test_word_vectors_are_the_mean_of_the_pieces(model) -> None:
    spans = [[(4, 7), (0, 3)], [(10, 16)]]
    vectors = word_vectors(model, TEXTS[:2], spans)
    for index, (text, start, end) in enumerate([(0, 4, 7), (0, 0, 3), (1, 10, 16)]):
        trace = model.trace(TEXTS[text], layers=[])
        pieces = [n for n, (first, last) in enumerate(trace.offsets) if first >= start and first < last <= end]
        np.testing.assert_allclose(vectors[:, index], trace.hidden_states[:, pieces].mean(axis=1), atol=3e-5)


def test_words_against_loops(model) -> None:
    view = inspect_contexts(model, "CAT", [*TEXTS, TEXTS[0]], senses=["a", "b", "a", "b", "a"], top_k=2)
    assert len(view.texts) == 4 and view.senses == ["a", "b", "a", "a"]
    vectors = word_vectors(model, view.texts, [[span] for span in view.spans])
    for layer, own in enumerate(vectors):
        similar = 1 - scipy.spatial.distance.cdist(own, own, "cosine")
        pairs = [similar[i, j] for i in range(4) for j in range(4) if i != j]
        assert view.self_similarity[layer] == pytest.approx(np.mean(pairs), abs=1e-5)
        for i in range(4):
            order = sorted((j for j in range(4) if j != i), key=lambda j: -similar[i, j])
            np.testing.assert_allclose(view.similarities[layer, i], similar[i, order[:2]], atol=1e-5)
    assert view.neighbors[-1, 0, 0] == 3 and view.similarities[-1, 0, 0] == pytest.approx(1)  # the same text twice
    with pytest.raises(UsageError, match="0 of 4 texts contain the word 'horse'"):
        inspect_contexts(model, "horse", TEXTS)


@pytest.mark.parametrize(
    ("word", "text", "span"),
    [
        ("caf\xe9", "Cafe\u0301, caf\xe9", (0, 5)),
        ("Cafe\u0301", "a caf\xe9", (2, 6)),
        ("cafe", "cafe\u0301, cafe", (7, 11)),  # an accent after its letter
        ("न", "हिन्दी न", (7, 8)),  # vowel signs and a virama
        ("हिन्दी", "यह हिन्दी, है", (3, 9)),
        ("a a", "ba a a", (3, 6)),
        ("Ärger", "kein ärger", (5, 10)),
        ("cat", "cats concat cat_ 2cat", None),
        (" ", "a b", None),
    ],
)
def test_words_are_found_as_wholes(word: str, text: str, span: tuple[int, int] | None) -> None:
    assert first_occurrence(word, text) == span


def test_words_have_their_marks() -> None:
    assert word_spans("हिन्दी is cafe\u0301, 2_3!") == [(0, 6), (7, 9), (10, 15), (17, 20)]


def test_words_need_a_neighbor(model) -> None:
    with pytest.raises(UsageError, match="top_k=0: expected an int of at least 1"):
        inspect_contexts(model, "cat", TEXTS, top_k=0)


def test_projections_against_scikit_learn() -> None:
    vectors = np.random.default_rng(0).normal(size=(3, 20, 6))
    points, shares = projections(vectors)
    fitted = PCA(6).fit(vectors[2])
    np.testing.assert_allclose(np.abs(points[2]), np.abs(fitted.transform(vectors[2])[:, :2]), atol=1e-9)
    np.testing.assert_allclose(shares[2], fitted.explained_variance_ratio_, atol=1e-9)
    for own, cloud in zip(points, vectors, strict=True):  # turned, not distorted
        plain = PCA(2).fit_transform(cloud)
        np.testing.assert_allclose(scipy.spatial.distance.pdist(own), scipy.spatial.distance.pdist(plain), atol=1e-9)


def test_head_statistics_against_loops(model) -> None:
    view = inspect_heads(model, TEXTS[2:])
    sums = dict.fromkeys(view.statistics, 0.0)
    layer, head, number = 1, 2, 0
    for text in TEXTS[2:]:
        trace = model.trace(text)
        probs = trace.layers[layer + 1].attention_probs[head].astype(np.float64)
        last = len(trace) - 1
        for i, row in enumerate(probs):
            number += 1
            sums["self"] += row[i]
            sums["previous"] += row[i - 1] if i else 0
            sums["next"] += row[i + 1] if i < last else 0
            sums["cls"] += row[0]
            sums["sep"] += row[last]
            sums["punctuation"] += sum(row[j] for j in range(len(trace)) if trace.text_of(j) == ",")
            sums["entropy"] += scipy.stats.entropy(row)
            sums["distance"] += sum(weight * abs(i - j) for j, weight in enumerate(row))
    for name, total in sums.items():
        assert view.statistics[name][layer, head] == pytest.approx(total / number, abs=1e-5), name


@pytest.mark.full(sample=4)
@pytest.mark.parametrize("model_type", ARCHITECTURES)
def test_ablation_against_zero_weights(model_type: str) -> None:
    model = tiny(model_type)
    view = inspect_heads(model, TEXTS[:2])
    if len(model.encoder.layers) < 3:
        return  # the layers share weights: those of one cannot be zero without the others'
    before = [model.trace(text, layers=[]).hidden_states[-1] for text in TEXTS[:2]]
    width = model.encoder.layers[1].config.head_dim
    with torch.no_grad():
        model.encoder.layers[1].attention.output.weight[:, width : 2 * width] = 0  # head 2 of four
    after = [model.trace(text, layers=[]).hidden_states[-1] for text in TEXTS[:2]]
    states = zip(np.concatenate(before), np.concatenate(after), strict=True)
    rows = [scipy.spatial.distance.cosine(a, b) for a, b in states]
    assert view.importance[1, 1] == pytest.approx(np.mean(rows), abs=1e-4)
    assert view.importance.shape == (3, 4) and view.importance.min() >= 0


def test_heads_over_texts_beside_trees_are_refused(model, trees) -> None:
    with pytest.raises(UsageError, match="2 of 3 texts are trees: expected all of them, or none"):
        inspect_heads(model, [trees[0], "the cat", trees[1]])


def test_relations_against_loops(model) -> None:
    trees = random_trees(12)
    matrices = [np.random.default_rng(n).random((2, 3, len(t.words), len(t.words))) for n, t in enumerate(trees)]
    (score,) = relation_scores(matrices, trees, least=5)
    best = 0.0
    for layer in range(2):
        for head in range(3):
            for way in (False, True):
                hits = [
                    (matrix[layer, head].argmax(0) if way else matrix[layer, head].argmax(1))[word] == tree.heads[word]
                    for matrix, tree in zip(matrices, trees, strict=True)
                    for word in range(1, len(tree.words))
                ]
                best = max(best, float(np.mean(hits)))
    assert score.name == "obj" and score.accuracy == best and score.count == len(hits)
    offsets = [tree.heads[word] - word for tree in trees for word in range(1, len(tree.words))]
    assert score.baseline == max(float(np.mean(np.array(offsets) == o)) for o in (-3, -2, -1, 1, 2, 3))
    trace, tree = model.trace(trees[0].text), trees[0]
    probs = np.stack([layer.attention_probs for layer in trace.layers.values()])
    words = word_attention(trace, probs, tree)
    groups = [group for group in trace.word_groups() if not trace.special_tokens_mask[group[0]]]
    expected = probs[1, 2][np.ix_(groups[1], groups[2])].sum(1).mean()
    assert words[1, 2, 1, 2] == pytest.approx(expected, rel=1e-5) and words[0, 0, 3, 3] == 0


@pytest.mark.full
def test_probe_against_scikit_learn() -> None:
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 4, 1_500)
    vectors = (draw.normal(size=(4, 12))[labels] * 1.2 + draw.normal(size=(1_500, 12))).astype(np.float32)
    ours = probe(vectors[:1_000], labels[:1_000], vectors[1_000:], labels[1_000:], 4)
    theirs = LogisticRegression().fit(vectors[:1_000], labels[:1_000]).score(vectors[1_000:], labels[1_000:])
    assert ours == pytest.approx(theirs, abs=0.03) and 0.5 < ours < 1
    noise = draw.normal(size=vectors.shape).astype(np.float32)
    score, mix = mixed_probe([np.stack([noise[:1_000], vectors[:1_000]]), np.stack([noise[1_000:], vectors[1_000:]])],
                             [labels[:1_000], labels[1_000:]], 4)  # fmt: skip
    assert mix.sum() == pytest.approx(1, abs=1e-6) and mix[1] > 0.6 and score > 0.5


@pytest.mark.full
def test_probes_of_words(model, monkeypatch) -> None:
    monkeypatch.setattr("bertkit.inspection.probes._LEAST_STEPS", 100)
    train, test = ([tree.labeled("tags") for tree in random_trees(40, seed)] for seed in (0, 1))
    view = inspect_probes(model, train, test[:20], label="parts of speech")
    assert view.num_labels == 2 and view.accuracy[0] > view.majority  # the tag of a word follows from its embedding
    assert view.selectivity.shape == (len(view.mix),) and view.mix.sum() == pytest.approx(1)
    assert 0 <= view.center_of_gravity <= len(view.mix) - 1 and view.majority > 0.5
    assert view.num_train == sum(len(each.labels) for each in train)
    spans = LabeledWords("cat \ufe0f sat", [(0, 3), (4, 5), (6, 9)], ["NOUN", "X", "X"])
    assert inspect_probes(model, [*train, spans], test, label="").num_omitted == 1
    with pytest.raises(UsageError, match="no labeled words"):
        inspect_probes(model, train, [LabeledWords("a cat", [], [])], label="senses")


@pytest.mark.full
def test_probes_of_entities_and_senses(model, tmp_path, monkeypatch, capsys) -> None:
    """Words of a tagging file; only some of them labeled."""
    monkeypatch.setattr("bertkit.inspection.probes._LEAST_STEPS", 100)
    model.save(tmp_path / "model")
    rows = [("the", "O"), ("cat", "B-ANIMAL"), ("sat", "O"), ("blue", "B-COLOR"), ("red", "I-COLOR"), ("mat", "_")]
    (tmp_path / "x.conll").write_text("\n".join(["\n".join(" ".join(row) for row in rows), ""] * 30))
    path = str(tmp_path / "x.conll")
    assert run(["inspect", "probe", path, path, "--model", str(tmp_path / "model"), "--json", "--limit", "20"]) == 0
    numbers = json.loads(capsys.readouterr().out)
    assert (numbers["num_labels"], numbers["num_train"], numbers["label"]) == (3, 100, "tags")
    assert numbers["accuracy"][0] > 0.95 and numbers["majority"] == 0.4
    assert run(["inspect", "probe", path, path, "--label", "relations", "--json"]) == 2
    assert "need a CoNLL-U file" in capsys.readouterr().err


def test_trees_against_networkx_and_scipy() -> None:
    networkx = pytest.importorskip("networkx", reason="networkx is not installed")
    trees = random_trees(8)
    draw = np.random.default_rng(0)
    predicted = [(matrix := draw.random((len(t.words),) * 2)) + matrix.T for t in trees]
    right = total = 0
    rows: dict[int, list[float]] = {}
    for tree, guess in zip(trees, predicted, strict=True):
        graph = networkx.Graph([(word, head) for word, head in enumerate(tree.heads) if head >= 0])
        lengths = dict(networkx.all_pairs_shortest_path_length(graph))
        size = len(tree.words)
        distances = np.array([[lengths[i][j] for j in range(size)] for i in range(size)])
        assert np.array_equal(tree.distances(), distances)
        whole = networkx.Graph()
        whole.add_weighted_edges_from((i, j, guess[i, j]) for i in range(size) for j in range(i))
        expected = {tuple(sorted(edge)) for edge in networkx.minimum_spanning_edges(whole, data=False)}
        assert set(spanning_tree(guess, range(size))) == expected
        right += len(expected & {tuple(sorted(edge)) for edge in graph.edges})
        total += size - 1
        rows.setdefault(size, []).extend(scipy.stats.spearmanr(distances[i], guess[i])[0] for i in range(size))
    score = tree_scores(trees, [tree.distances() for tree in trees], predicted)
    assert score.uuas == pytest.approx(right / total)
    assert score.spearman == pytest.approx(np.mean([np.mean(row) for row in rows.values()]))


def test_structural_probe_recovers_planted_tree() -> None:
    trees = random_trees(40)
    states = []
    for tree in trees:  # one coordinate for each edge on the way to the root: squared distances are tree distances
        rows = np.zeros((len(tree.words), 12), np.float32)
        for word, head in enumerate(tree.heads):
            rows[word] = rows[head] if head >= 0 else 0
            rows[word, word] = 1 if head >= 0 else 0
        states.append(rows)
    weight = structural_probe(states, [tree.distances() for tree in trees], 12, 150, seed=0).numpy()
    projected = [rows @ weight.T for rows in states]
    predicted = [scipy.spatial.distance.cdist(rows, rows, "sqeuclidean") for rows in projected]
    assert tree_scores(trees, [tree.distances() for tree in trees], predicted).uuas > 0.95


def test_punctuation_counts_in_the_correlation_only() -> None:
    tree = Tree(tuple("abcde."), (-1, 0, 1, 2, 3, 0), ("x",) * 5 + ("punct",), ("NOUN",) * 5 + ("PUNCT",))
    gold = tree.distances()
    guess = gold.astype(np.float64)
    guess[5] = guess[:, 5] = gold[5][::-1]
    score = tree_scores([tree], [gold], [guess])
    assert score.uuas == 1
    rows = [scipy.stats.spearmanr(*pair).statistic for pair in zip(gold, guess, strict=True)]
    assert score.spearman == pytest.approx(np.mean(rows)) and score.spearman < 1


def test_structure_of_a_model(model) -> None:
    view = inspect_structure(model, random_trees(20), random_trees(10, seed=1), layers=[1, 2], epochs=1, rank=500)
    assert view.rank == model.config.hidden_size and view.best_layer in (1, 2)
    assert np.isnan(view.scores[0].uuas) and 0 < view.linear.uuas < 1 and view.examples


def test_trees_are_those_of_the_best_layer_also_among_equals(model, monkeypatch) -> None:
    monkeypatch.setattr("bertkit.inspection.structure.tree_scores", lambda *arguments: TreeScore(0.5, 0.5))
    train, test = random_trees(20), random_trees(10, seed=1)
    both, first, second = (
        inspect_structure(model, train, test, layers=layers, epochs=1) for layers in ([1, 2], [1], [2])
    )
    assert both.best_layer == 1 and both.examples == first.examples != second.examples


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rank": 0}, "rank=0: expected an int of at least 1"),
        ({"epochs": 0}, "epochs=0: expected an int of at least 1"),
        ({"layers": []}, r"layers=\[\]: expected one or more of 0 to "),
        ({"layers": [1, 99]}, r"layers=\[1, 99\]: expected one or more of 0 to "),
        ({"layers": [-1]}, r"layers=\[-1\]"),
    ],
)
def test_structure_rejects_invalid_options(model, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        inspect_structure(model, random_trees(20), random_trees(10, seed=1), **options)


@pytest.mark.full
@pytest.mark.parametrize("label", [None, "label 0"])
def test_integrated_gradients_against_captum(label: str | None, tmp_path) -> None:
    captum = pytest.importorskip("captum.attr", reason="captum is not installed")
    published = published_model("sequence_classification", 2, num_labels=3)
    model = bertkit.load(save_published(published, tmp_path / "model"))
    names = tuple(f"label {number}" for number in range(3))
    model.checkpoint.trained = TrainedTask(SequenceClassification(names), Layout(None, "error"))
    view = inspect_why(model, "the red cat walked", label=label)
    ids = torch.from_numpy(model.trace("the red cat walked").input_ids)[None].long()
    baseline = torch.full_like(ids, model.tokenizer.mask_id)
    baseline[0, 0], baseline[0, -1] = ids[0, 0], ids[0, -1]
    target = names.index(view.label)
    assert label in (None, view.label)
    word = published.bert.embeddings.word_embeddings
    attribution, delta = captum.LayerIntegratedGradients(lambda chosen: published(chosen).logits, word).attribute(
        ids, baseline, target=target, n_steps=50, method="gausslegendre", return_convergence_delta=True
    )
    np.testing.assert_allclose(view.attributions, attribution[0].sum(-1).detach(), atol=2e-3)
    assert view.completeness_error == pytest.approx(abs(float(delta)), abs=2e-3)
    fine = inspect_why(model, "the red cat walked", label=label, steps=300)
    assert fine.completeness_error < 0.02 * max(1.0, abs(fine.logit - fine.baseline_logit))
    with pytest.raises(UsageError, match="label 'joy': expected one of label 0"):
        inspect_why(model, "the cat", label="joy")


def test_why_without_classifier_raises(model) -> None:
    with pytest.raises(BertkitError, match="not trained for a task"):
        inspect_why(model, "the cat")


@pytest.mark.full(sample=4)
@pytest.mark.parametrize("model_type", [name for name in ARCHITECTURES if name != "gpt2"])  # which has no such head
def test_inspection_leaves_the_model_alone(model_type: str) -> None:
    """A server may answer with a model while it is inspected."""
    model = tiny(model_type, "sequence_classification")
    model.checkpoint.trained = TrainedTask(SequenceClassification(("blame", "praise")), Layout(None, "error"))
    expected, layer = model.trace(TEXTS[0]).hidden_states, model.encoder.in_order()[0]
    seen: list[np.ndarray] = []
    nested = False

    def meanwhile(*_: object) -> None:
        nonlocal nested
        if not nested:
            nested = True
            seen.append(model.trace(TEXTS[0]).hidden_states)
            nested = False

    handle = layer.register_forward_hook(meanwhile)
    try:
        inspect_why(model, TEXTS[1], steps=2)
        ablation(model, TEXTS[1:2])
    finally:
        handle.remove()
    assert len(seen) > 3
    for states in seen:
        np.testing.assert_array_equal(states, expected)


def test_probability_is_that_of_the_task() -> None:
    for task, expected in (
        (SequenceClassification(("blame", "praise")), lambda logits: logits.softmax(-1)),
        (MultiLabelClassification(("blame", "praise")), torch.sigmoid),
    ):
        model = model_of(task)
        view = inspect_why(model, "the cat")
        (prediction,) = model.predict(["the cat"])
        assert view.probability == pytest.approx(prediction.probabilities[view.label], abs=1e-6)
        logits = model.network(bertkit.collate([model.tokenizer.encode("the cat")])).logits["sequence_classification"]
        assert view.probability == pytest.approx(float(expected(logits.detach())[0].max()), abs=1e-6)
        (prediction,) = model.predict(["the [MASK] cat [SEP]"])
        other = min(prediction.probabilities, key=lambda name: prediction.probabilities[name])
        view = inspect_why(model, "the [MASK] cat [SEP]", label=other)  # as predictions read it: text
        assert view.probability == pytest.approx(prediction.probabilities[view.label], rel=1e-4)
        model.checkpoint.trained = TrainedTask(task, Layout(6, "truncate"))
        with pytest.raises(OverLengthError, match="9 tokens, and this model is set to read at most 6: shorten it"):
            inspect_why(model, TEXTS[0])
    view = inspect_why(model_of(Regression()), "the cat")
    assert view.probability is None and "probability" not in str(view.parts()[0])


def test_path_without_points_is_refused() -> None:
    with pytest.raises(UsageError, match="steps=0: expected an int of at least 1"):
        inspect_why(model_of(SequenceClassification(("blame", "praise"))), "the cat", steps=0)


def test_similarity_is_that_of_the_model() -> None:
    model = our_model("encoder", 3, max_position_embeddings=60)
    for prompted in (True, False):
        model.checkpoint.sentence = SentenceSettings(
            prompts={"query": "blue red "}, default_prompt_name="query", include_prompt=prompted
        )
        view = inspect_similarity(model, *TEXTS[:2])
        first, second = model.embed(TEXTS[:2], normalize=True)
        assert view.similarity == pytest.approx(float(first @ second), abs=1e-5)
        assert view.contributions.sum() == pytest.approx(view.similarity)
        assert view.contributions.shape == tuple(map(len, view.tokens)) and ("blue" in view.tokens[0]) == prompted
    model.checkpoint.sentence = SentenceSettings(max_seq_length=14)
    first, second = model.embed(["a [MASK] cat", "the dog"], normalize=True)
    assert inspect_similarity(model, "a [MASK] cat", "the dog").similarity == pytest.approx(float(first @ second))
    with pytest.raises(OverLengthError, match="18 tokens, and this model is set to read at most 14: shorten it"):
        inspect_similarity(model, "the cat", "cat " * 16)
    model.checkpoint.sentence = SentenceSettings(layers=(UnitLength(),))
    with pytest.raises(UsageError, match="layers after the mean"):
        inspect_similarity(model, *TEXTS[:2])


def test_similarity_adds_up(model) -> None:
    view = inspect_similarity(model, *TEXTS[:2])
    first, second = model.embed(TEXTS[:2])
    assert view.similarity == pytest.approx(1 - scipy.spatial.distance.cosine(first, second), abs=1e-5)
    assert view.contributions.sum() == pytest.approx(view.similarity)


@pytest.mark.parametrize("model_type", ARCHITECTURES)
def test_input_adds_up(model_type: str) -> None:
    model = tiny(model_type)
    view = inspect_input(model, *TEXTS[:2])
    norm, project = model.encoder.embeddings.norm or torch.nn.Identity(), model.encoder.embeddings.project
    summed = torch.from_numpy(np.sum(list(view.parts_of_sum.values()), axis=0))
    with torch.no_grad():
        expected = norm(summed) if project is None else project(norm(summed))
    np.testing.assert_allclose(expected, view.normalized, atol=1e-5)
    np.testing.assert_allclose(np.sum(list(view.shares.values()), axis=0), 1, rtol=1e-4)
    expected = {"bert": ["token", "segment", "position"], "distilbert": ["token", "position"], "modernbert": ["token"]}
    if model_type in expected:
        assert list(view.parts_of_sum) == expected[model_type]
    angles = sinusoidal(5, 6)
    assert angles[3, 2] == pytest.approx(np.sin(3 / 10_000 ** (2 / 6))) and angles[0, 1] == 1


def test_map_and_clusters() -> None:
    model = our_model("pretraining", 3, max_position_embeddings=60)
    view = inspect_map(model, TEXTS, num_clusters=2)
    np.testing.assert_allclose(np.abs(view.points), np.abs(PCA(2).fit_transform(model.embed(TEXTS))), atol=1e-4)
    assert sorted(set(view.clusters.tolist())) == [0, 1] and len(view.names) == 2
    assert inspect_map(model, TEXTS * 3, projection="tsne").explained is None
    assert not inspect_map(model, TEXTS[:1] * 4, projection="tsne", num_clusters=1).points.any()
    with pytest.raises(UsageError, match="at least 3"):
        inspect_map(model, TEXTS[:2])


def test_next_sentence_matrix(model) -> None:
    view = inspect_next_sentence(model, TEXTS[:3])
    assert view.probabilities[0, 2] == pytest.approx(model.next_sentence_probability(TEXTS[0], TEXTS[2]), abs=1e-5)


def test_comparison_against_definitions(model) -> None:
    draw = np.random.default_rng(0)
    a, b = draw.normal(size=(40, 6)), draw.normal(size=(40, 9))
    center = np.eye(40) - 1 / 40
    grams = [center @ x @ x.T @ center for x in (a, b)]
    hsic = np.trace(grams[0] @ grams[1]) / np.sqrt(np.trace(grams[0] @ grams[0]) * np.trace(grams[1] @ grams[1]))
    assert linear_cka(a, b) == pytest.approx(hsic)
    turned = a @ np.linalg.qr(draw.normal(size=(6, 6)))[0] * 3
    assert linear_cka(a, turned) == pytest.approx(1)
    first, second = draw.dirichlet(np.ones(5), 2)
    expected = scipy.spatial.distance.jensenshannon(first, second) ** 2
    assert jensen_shannon(first, second) == pytest.approx(expected)
    same = inspect_difference(model, model, TEXTS)
    np.testing.assert_allclose(np.diag(same.cka), 1)
    np.testing.assert_allclose(same.cosine, 1, atol=1e-6)
    assert same.attention_divergence.max() == 0 and max(same.weight_change.values()) == 0
    other = our_model("encoder", 3, num_hidden_layers=2, vocab_size=model.config.vocab_size)
    shallow = inspect_difference(model, other, TEXTS)
    assert shallow.cosine is None and shallow.cka.shape == (len(same.cka), 3)


def test_classifier_trained_here_is_explained() -> None:
    view = inspect_why(model_of(SequenceClassification(("blame", "praise"))), "the cat")
    assert view.label in ("blame", "praise") and view.attributions[0] == view.attributions[-1] == 0


def test_heads_over_two_vectors_are_not_explained() -> None:
    for task, message in (
        (SequenceClassification(("blame", "praise"), num_vectors=2), "--head published"),
        (MultipleChoice(num_vectors=2, label_names=("score",)), "trained for multiple-choice"),
    ):
        model = model_of(SequenceClassification(("blame", "praise")))
        model.checkpoint.trained = TrainedTask(task, Layout(24))
        with pytest.raises(UsageError, match=message):
            inspect_why(model, "the cat", "the dog")


def test_tokens_are_shown_as_they_are_written() -> None:
    view = inspect_surprise(our_model("masked_lm", 3, max_position_embeddings=60), "The cat's running, unable éa")
    assert view.tokens == ["the", "cat", "[UNK]", "s", "run", "##n", "##ing", "[UNK]", "un", "##able", "e", "##a"]
    assert view.pieces.texts == ["The", "cat", "[UNK]", "s", "run", "n", "ing", "[UNK]", "un", "able", "é", "a"]
    assert [n for n, joined in enumerate(view.pieces.joined) if joined] == [2, 3, 5, 6, 7, 9, 11]
    offsets = np.array(
        [[0, 0], [0, 3], [3, 7], [7, 9], [0, 0], [0, 2], [0, 0]]
    )  # of bytes, with the spaces before words
    texts, tokens = ["the cats", "it"], ["<s>", "the", "Ġcat", "s", "</s>", "it", "</s>"]
    pieces = Pieces.of([texts[0]] * 5 + [texts[1]] * 2, tokens, offsets, "<unk>")
    assert pieces.texts == ["<s>", "the", "cat", "s", "</s>", "it", "</s>"]
    assert pieces.joined == [False, False, False, True, False, False, False]


def test_rows_hold_the_numbers_of_the_page() -> None:
    pretrained = our_model("pretraining", 3)
    lens = inspect_lens(pretrained, "the cat sat")
    rows = lens.rows()
    assert [row["token"] for row in rows] == lens.tokens and len(lens.top_tokens) > 1
    for layer, tokens in enumerate(lens.top_tokens):
        assert [row[f"layer {layer}"] for row in rows] == tokens
    assert [row["probability"] for row in rows] == lens.top_probs[-1].tolist()
    following = inspect_next_sentence(pretrained, TEXTS[:3])
    assert [(row["text_a"], row["text_b"], row["probability"]) for row in following.rows()] == [
        (TEXTS[n], TEXTS[n + 1], following.probabilities[n, n + 1]) for n in range(2)
    ]
    similar = inspect_similarity(pretrained, "the cat", "a dog")
    contributions = [row["contribution"] for row in similar.rows()]
    assert contributions == sorted(similar.contributions.ravel().tolist(), reverse=True)[:12]
    first = similar.rows()[0]
    index = similar.tokens[0].index(first["first"]), similar.tokens[1].index(first["second"])
    assert similar.contributions[index] == first["contribution"]
    same = inspect_difference(pretrained, pretrained, TEXTS).rows()
    assert [row["most_similar_layer"] for row in same] == [row["layer"] for row in same]
    assert [row["cosine"] for row in same] == pytest.approx([1] * len(same))
