"""The adapter of mteb: a retrieval task and an STS task of local data, with mteb's scores equal to ours."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from random_models import our_model
from test_retrieval_scores import write_collection
from test_similarity import sentences

import bertkit
from bertkit import TextSet
from bertkit.checkpoint import SentenceSettings
from bertkit.errors import UsageError
from bertkit.evidence.collections import Collection, read_collection
from bertkit.evidence.pair_scores import measured_pairs, scores_of_pairs
from bertkit.evidence.retrieval import rerank, retrieval_scores, retrieve

pytest.importorskip("mteb", reason="mteb is not installed: pip install 'bertkit[eval]'")
import mteb
from datasets import Dataset
from mteb.abstasks import AbsTaskRetrieval, AbsTaskSTS
from mteb.abstasks.task_metadata import TaskMetadata

from bertkit.integrations.mteb import BertkitCrossEncoder, BertkitEncoder

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("one_thread"), pytest.mark.filterwarnings("ignore")]


def metadata(name: str, kind: str, main_score: str) -> TaskMetadata:
    return TaskMetadata(
        name=name, description="Local.", type=kind, dataset={"path": "local", "revision": "1"},
        eval_langs=["eng-Latn"], main_score=main_score,
    )  # fmt: skip


def local_retrieval(collection: Collection, top_ranked: dict[str, list[str]] | None = None) -> Any:
    class LocalRetrieval(AbsTaskRetrieval):
        metadata = metadata("LocalRetrieval", "Retrieval", "ndcg_at_10")

        def load_data(self, **options: Any) -> None:
            queries, documents = (
                Dataset.from_list([{"id": name, "text": text} for name, text in texts.items()])
                for texts in (collection.queries, collection.documents)
            )
            judged = {name: dict(grades) for name, grades in collection.judgments.items()}
            split = {"queries": queries, "corpus": documents, "relevant_docs": judged, "top_ranked": top_ranked}
            self.dataset, self.data_loaded = {"default": {"test": split}}, True

    return LocalRetrieval()


def local_sts(rows: list[TextSet]) -> Any:
    class LocalSTS(AbsTaskSTS):
        metadata = metadata("LocalSTS", "STS", "spearman")
        min_score, max_score = 0, 5

        def load_data(self, **options: Any) -> None:
            columns = {"sentence1": [row.query for row in rows], "sentence2": [row.positives[0] for row in rows],
                       "score": [row.score for row in rows]}  # fmt: skip
            self.dataset, self.data_loaded = {"test": Dataset.from_dict(columns)}, True

    return LocalSTS()


def scores_of(model: Any, task: Any) -> dict[str, float]:
    results = mteb.evaluate(model, task, cache=None, show_progress_bar=False)
    return results.task_results[0].scores["test"][0]


@pytest.fixture
def encoder(tmp_path: Path) -> Path:
    model = our_model("encoder", 6)
    model.checkpoint.sentence = SentenceSettings(prompts={"query": "the ", "document": "a "})
    model.save(tmp_path / "encoder")
    return tmp_path / "encoder"


def test_retrieval_with_prompts_equals_ours(encoder: Path, tmp_path: Path) -> None:
    collection = read_collection(write_collection(tmp_path / "made"))
    made = BertkitEncoder(encoder)
    scores = scores_of(made, local_retrieval(collection))
    ours = retrieval_scores(collection.judgments, retrieve(made.encoder, collection))
    for name, theirs in {"ndcg_at_10": "ndcg_at_10", "recall_at_10": "recall_at_10", "map": "map_at_1000"}.items():
        assert scores[theirs] == pytest.approx(ours[name].mean(), abs=1e-4), name
    without = retrieval_scores(collection.judgments, retrieve(our_model("encoder", 6), collection))
    assert not np.allclose(without["map"], ours["map"])  # the prompts matter here
    assert made.mteb_model_meta.name == "bertkit/encoder"


@pytest.mark.parametrize("batch", ["the cat", {"image": ["the cat"]}, {"text": "the cat"}])
def test_what_is_no_batch_of_texts_is_refused(encoder: Path, batch: Any) -> None:
    with pytest.raises(UsageError, match=r"texts under the key text|text is a str"):
        BertkitEncoder(encoder).encode([batch])


def test_scored_pairs_equal_ours(encoder: Path) -> None:
    texts, draw = sentences(60, seed=2), np.random.default_rng(2)
    rows = [TextSet(texts[2 * i], (texts[2 * i + 1],), (), float(draw.integers(0, 6))) for i in range(30)]
    made = BertkitEncoder(encoder)
    scores = scores_of(made, local_sts(rows))
    ours = measured_pairs(rows, scores_of_pairs(made.encoder, rows))
    for name in ("pearson", "spearman"):
        assert scores[name] == pytest.approx(ours[name].value, abs=1e-4)


def test_cross_encoder_ranks_again(encoder: Path, tmp_path: Path) -> None:
    our_model("sequence_classification", 4, 1).save(tmp_path / "judge")
    collection = read_collection(write_collection(tmp_path / "made"))
    judge = BertkitCrossEncoder(tmp_path / "judge")
    nearest = retrieve(BertkitEncoder(encoder).encoder, collection, depth=7)
    scores = scores_of(judge, local_retrieval(collection, {query: list(found) for query, found in nearest.items()}))
    ours = retrieval_scores(collection.judgments, rerank(judge.model, collection, nearest))
    assert scores["ndcg_at_10"] == pytest.approx(ours["ndcg_at_10"].mean(), abs=1e-4)


def test_results_are_kept_for_the_same_files_and_settings_alone(tmp_path: Path) -> None:
    for number in (1, 2):
        model = our_model("encoder", number)
        model.checkpoint.sentence = SentenceSettings(prompts={"query": "q: "}, default_prompt_name="query")
        model.save(tmp_path / str(number) / "model")
    first, second = (tmp_path / str(number) / "model" for number in (1, 2))
    revisions = [
        BertkitEncoder(*given, **settings).mteb_model_meta.revision
        for given, settings in [((first,), {}), ((second,), {}), ((first,), {"precision": "bfloat16"}),
                                ((first,), {"no_prompt": True}), ((first,), {})]
    ]  # fmt: skip
    assert len({*revisions}) == 4 and revisions[0] == revisions[-1]
    (tmp_path / "words.vec").write_text("3 2\ncat 1 0\ndog 0 1\nsat 0.5 0.5\n")
    assert BertkitEncoder(tmp_path / "words.vec").mteb_model_meta.revision not in revisions
    batches = [{"text": ["the cat sat"]}]
    plain, prompted = BertkitEncoder(first, no_prompt=True).encode(batches), BertkitEncoder(first).encode(batches)
    assert not np.allclose(plain, prompted)
    assert np.allclose(plain, bertkit.load(first).embed(["the cat sat"], prompt="", normalize=True), atol=1e-6)
