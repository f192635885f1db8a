"""Learned sparse vectors in an index: scores equal products of the vectors, kept up to date in the same commits."""

from pathlib import Path

import numpy as np
import pytest
from examples_of_tasks import WORDS
from random_models import our_model

import bertkit
from bertkit.checkpoint import SparseSettings
from bertkit.cli import run
from bertkit.errors import CheckpointError, MissingHeadError, UsageError
from bertkit.search import Equal, impacts
from bertkit.search.index import Index


@pytest.fixture
def splade(tmp_path: Path) -> Path:
    our_model("masked_lm", 3).save(tmp_path / "splade")
    return tmp_path / "splade"


def documents(number: int, first: int = 0) -> list[bertkit.Document]:
    draw = np.random.default_rng(first)
    texts = [" ".join(draw.choice(WORDS, int(draw.integers(3, 9)))) for _ in range(number)]
    return [bertkit.Document(f"d{first + n}", text, metadata={"odd": bool(n % 2)}) for n, text in enumerate(texts)]


def scores_of(index: Index, query: str, **options) -> dict[str, float]:
    return {one.document_id: one.score for one in index.search(query, 1000, mode="sparse", **options)}


def test_sums_of_weights_are_not_cut(tmp_path: Path, encoder: Path) -> None:
    model = our_model("masked_lm", 3)
    model.checkpoint.sparse = SparseSettings(pooling="sum")
    model.save(tmp_path / "splade")
    texts = ["the cat sat on the mat " * 3, "the dog ran"]
    vectors, query = model.embed_sparse(texts), model.embed_sparse(["the cat"])
    assert vectors.weights.max() > 8
    with Index.open(tmp_path / "store", encoder, sparse=tmp_path / "splade") as index:
        index.add([bertkit.Document(str(number), text) for number, text in enumerate(texts)])
        found = scores_of(index, "the cat")
    assert [found["0"], found["1"]] == pytest.approx(vectors.scores(query)[0].tolist(), rel=0.01)
    with Index.open(tmp_path / "store") as index:
        assert scores_of(index, "the cat") == found  # the scale is stored


@pytest.mark.full
def test_scores_are_products_of_sparse_vectors(
    tmp_path: Path, encoder: Path, splade: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, every = bertkit.load(splade), documents(60) + documents(9, first=60)
    query = " ".join(WORDS[3:7])
    expected = model.embed_sparse([one.text for one in every]).scores(model.embed_sparse([query]))[0]
    with Index.open(tmp_path / "store", encoder, sparse=splade) as index:
        index.add(every[:60])
        monkeypatch.setattr(impacts, "_MOST_LATER", 10)
        index.add(every[60:65])
        assert list((tmp_path / "store").glob("sparse.*"))  # most postings are in arrays, those of later texts are not
        index.add(every[65:])
        found = scores_of(index, query)
        assert found.keys() == {one.id for one, score in zip(every, expected, strict=True) if score > 0.01}
        for one, score in zip(every, expected, strict=True):
            assert found.get(one.id, 0.0) == pytest.approx(score, rel=2e-3, abs=2e-3)
        odd = {one.id for one in every if one.metadata["odd"]}
        assert scores_of(index, query, where=Equal("odd", True)) == {k: v for k, v in found.items() if k in odd}
        index.store.delete([record.id for record in index.store.records(Equal("odd", True))])
        assert scores_of(index, query) == {k: v for k, v in found.items() if k not in odd}
        assert index.store.verify() == []
    with Index.open(tmp_path / "store") as index:  # the model is known
        assert scores_of(index, query) == {k: v for k, v in found.items() if k not in odd}
        index.add(documents(1, first=90))
        assert index.store.verify() == []
        rankings = [index.search(query, 100, mode=mode) for mode in ("dense", "lexical", "sparse")]
        fused = {one.id: one.score for one in index.search(query, 5)}
        for id, score in fused.items():
            ranks = [one.rank for ranking in rankings for one in ranking if one.id == id]
            assert score == pytest.approx(sum(1 / (60 + rank) for rank in ranks))


def test_damage_is_found_and_repaired(tmp_path: Path, encoder: Path, splade: Path) -> None:
    with Index.open(tmp_path / "store", encoder, sparse=splade) as index:
        index.add(documents(5))
        before = scores_of(index, WORDS[4])
        with index.store.transaction() as connection:
            connection.execute("UPDATE sparse_bag SET counts = zeroblob(length(counts)) WHERE number = 2")
            connection.execute("DELETE FROM sparse_bag WHERE number = 4")
        assert len(index.store.verify()) == 2
        index.store.repair(index.encoder.embed_document)
        assert index.store.verify() == [] and scores_of(index, WORDS[4]) == before


def test_wrong_models_raise(tmp_path: Path, encoder: Path, splade: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MissingHeadError):
        Index.open(tmp_path / "store", encoder, sparse=encoder)
    assert not (tmp_path / "store").exists()
    with Index.open(tmp_path / "plain", encoder) as index:
        index.add(documents(2))
        with pytest.raises(UsageError, match="this index has no sparse model"):
            index.search("a", mode="sparse")
    with pytest.raises(UsageError, match="plain has no sparse model, not"):
        Index.open(tmp_path / "plain", encoder, sparse=splade)
    Index.open(tmp_path / "store", encoder, sparse=splade).close()
    Index.open(tmp_path / "store", encoder, sparse=splade).close()
    our_model("masked_lm", 4).save(tmp_path / "other")
    with pytest.raises(UsageError, match=r"store has the sparse model .*splade, not .*other"):
        Index.open(tmp_path / "store", sparse=tmp_path / "other")
    (splade / "config.json").write_text((splade / "config.json").read_text() + " ")
    with (
        Index.open(tmp_path / "store") as index,
        pytest.raises(UsageError, match="has changed since the index was created"),
    ):
        index.add(documents(2))


def test_a_moved_sparse_model_is_found_again(tmp_path: Path, encoder: Path, splade: Path) -> None:
    moved = tmp_path / "moved"
    with Index.open(tmp_path / "store", encoder, sparse=splade) as index:
        index.add(documents(3))
        before = scores_of(index, WORDS[4])
    splade.rename(moved)
    with Index.open(tmp_path / "store") as index, pytest.raises(CheckpointError, match="bertkit index FILES --sparse"):
        scores_of(index, WORDS[4])
    with Index.open(tmp_path / "store", sparse=moved) as index:
        assert scores_of(index, WORDS[4]) == before
        index.add(documents(3))
    with Index.open(tmp_path / "store") as index:
        assert scores_of(index, WORDS[4]) == before


def test_commands(
    tmp_path: Path, encoder: Path, splade: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("docs").mkdir()
    Path("docs/one.txt").write_text(" ".join(WORDS[:8]) + ".\n")
    assert run(["index", "docs", "--store", "s", "--model", str(encoder), "--sparse", str(splade)]) == 0
    assert run(["search", WORDS[2], "--store", "s", "--mode", "sparse"]) == 0
    assert '"document": "docs/one.txt"' in capsys.readouterr().out
