"""Serving fine-tuned models: text-embeddings-inference's routes, Cohere's form, bertkit's own, InferenceClient."""

from pathlib import Path

import numpy as np
import pytest
import torch
from examples_of_tasks import model_of
from huggingface_hub import InferenceClient
from random_models import our_model
from served import Server, serving

import bertkit
from bertkit.checkpoint import SentenceSettings
from bertkit.serving import health_api
from bertkit.serving.served_models import ServedModel
from bertkit.serving.shared_model import SharedModel
from bertkit.tasks import QuestionAnswering, Regression, SequenceClassification, TokenClassification

pytestmark = pytest.mark.full

QUERY, TEXTS = "one two", ["a cat sat", "the dog ran and ran", "blue", "red mat"]
LONG = " ".join("the cat sat and one dog ran".split() * 12)


@pytest.fixture(scope="module")
def models() -> dict[str, bertkit.Model]:
    prompted = our_model("encoder", 5, max_position_embeddings=29)
    prompted.checkpoint.sentence = SentenceSettings(prompts={"query": "one ", "document": "the "})
    overflowing = model_of(SequenceClassification(("low", "high")))
    overflowing.network.heads["sequence_classification"].classifier.weight.data.fill_(3e38)
    return {
        "encoder": our_model("encoder", 3, max_position_embeddings=29),
        "masks": our_model("masked_lm", 4, max_position_embeddings=29),
        "sentiment": model_of(SequenceClassification(("blame", "praise", "neither"))),
        "inference": model_of(SequenceClassification(("contradiction", "entailment", "neutral"))),
        "ranker": model_of(Regression()),
        "tagger": model_of(TokenClassification(("B-animal", "I-animal", "O"))),
        "answers": model_of(QuestionAnswering(no_answer=True)),
        "prompted": prompted,
        "overflowing": overflowing,
    }


@pytest.fixture(scope="module")
def server(models, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    for name, model in models.items():
        model.save(folder / name)
    with serving(*[word for name in models for word in ("--model", folder / name)]) as running:
        yield running


def client(server: Server, name: str) -> InferenceClient:
    return InferenceClient(model=f"{server.url}/models/{name}", token="none")


def test_described_dimensions_are_those_of_the_vectors():
    model = our_model("encoder", 5, max_position_embeddings=29)
    model.checkpoint.sentence = SentenceSettings(truncate_dim=7)
    served = ServedModel("short", "float32", SharedModel(model))
    assert health_api._described(served)["dimensions"] == model.embed("a", normalize=True).shape[-1] == 7


def test_info_describes_every_model(server, models):
    info = server.request("/info")[1]
    assert info["model_id"] == "encoder" and info["model_type"] == {"embedding": {"pooling": "mean"}}
    kinds = {each["model_id"]: each["kinds"] for each in info["models"]}
    assert list(kinds) == list(models)
    assert kinds["masks"] == ["feature-extraction", "fill-mask"] and kinds["ranker"] == ["text-ranking"]
    assert info["models"][2]["model_type"]["classifier"]["label2id"] == {"blame": 0, "praise": 1, "neither": 2}


def test_a_literal_mask_is_text_except_where_a_masked_place_is_the_question(server, models):
    text, mask = "the [MASK] sat", models["masks"].tokenizer.vocabulary.special.mask
    ask = {"model": "masks", "inputs": text}
    (as_text,), (as_token,) = (
        server.post("/tokenize", ask | {"special_tokens_in_text": choice}) for choice in (False, True)
    )
    assert server.post("/tokenize", ask) == [as_text]
    assert mask not in [each["token"] for each in as_text] and len(as_text) > len(as_token) == 5
    (at,) = [each for each in as_token if each["token"] == mask]
    (filled,) = server.post("/fill", ask)
    assert (at["start"], at["stop"], at["special"]) == (filled["start"], filled["end"], False)
    assert text[at["start"] : at["stop"]] == at["text"] == mask
    vector = models["masks"].embed(text, normalize=True)
    assert (np.float32(server.post("/embed", ask)[0]) == vector).all()


@pytest.mark.cpu_only
def test_predict_has_the_probabilities_of_the_library(server, models):
    expected = models["sentiment"].predict(TEXTS)
    rows = server.post("/predict", {"inputs": [[text] for text in TEXTS]})
    for row, prediction in zip(rows, expected, strict=True):
        assert {each["label"]: each["score"] for each in row} == prediction.probabilities
        assert row[0]["label"] == prediction.label and [each["score"] for each in row] == sorted(
            (each["score"] for each in row), reverse=True
        )
    assert server.post("/predict", {"inputs": TEXTS[0]}) == rows[0]
    pair = models["sentiment"].predict([("a cat", "blue")])[0].probabilities
    two = {each["label"]: each["score"] for each in server.post("/predict", {"inputs": ["a cat", "blue"]})}
    assert two == pair  # two plain strings are a pair
    raw = server.post("/predict", {"inputs": TEXTS[0], "raw_scores": True})
    softmax = torch.tensor([each["score"] for each in raw], dtype=torch.float64).softmax(-1)
    assert softmax.tolist() == pytest.approx([each["score"] for each in rows[0]], abs=1e-6)


@pytest.mark.cpu_only
def test_rerank_in_both_forms(server, models):
    scores = np.array([each.score for each in models["ranker"].predict([(QUERY, text) for text in TEXTS])], np.float32)
    order = np.argsort(-scores, kind="stable").tolist()
    raw = server.post("/rerank", {"query": QUERY, "texts": TEXTS, "raw_scores": True, "return_text": True})
    assert [(each["index"], each["text"]) for each in raw] == [(index, TEXTS[index]) for index in order]
    assert (np.array([each["score"] for each in raw], np.float32) == scores[order]).all()
    plain = server.post("/rerank", {"query": QUERY, "texts": TEXTS})
    sigmoid = models["ranker"].score_pairs(QUERY, TEXTS)[order]
    assert (np.array([each["score"] for each in plain], np.float32) == sigmoid).all() and "text" not in plain[0]
    documents = [TEXTS[0], {"text": TEXTS[1]}, *TEXTS[2:]]
    for path in ("/rerank", "/v1/rerank", "/v2/rerank"):
        body = {"model": "ranker", "query": QUERY, "documents": documents, "top_n": 2, "return_documents": True}
        answer = server.post(path, body)
        assert [each["index"] for each in answer["results"]] == order[:2] and answer["model"] == "ranker"
        assert answer["results"][0]["document"] == {"text": TEXTS[order[0]]}
        assert np.float32(answer["results"][0]["relevance_score"]) == sigmoid[0]
    assert server.request("/rerank", {"query": QUERY, "texts": TEXTS, "documents": TEXTS})[0] == 422
    assert server.request("/rerank", {"query": QUERY, "texts": []})[:2] == (
        400,
        {"error": "`texts` cannot be empty", "error_type": "Empty"},
    )


@pytest.mark.cpu_only
def test_entities_answers_and_masks_equal_those_of_the_library(server, models):
    entities = models["tagger"].predict([LONG])[0].entities
    answer = server.post("/entities", {"inputs": LONG})
    assert [(each["start"], each["end"], each["label"]) for each in answer] == [
        (each.start, each.end, each.label) for each in entities
    ]
    assert all(LONG[each["start"] : each["end"]] == each["text"] for each in answer)
    expected = models["answers"].predict([("one dog", LONG)])[0]
    reply = server.post("/answer", {"question": "one dog", "context": LONG, "top_k": 3})
    assert [each["start"] for each in reply["candidates"]] == [each.start for each in expected.candidates[:3]]
    assert reply["no_answer_probability"] == expected.no_answer_probability
    assert (reply["answer"] is None) == (expected.answer is None)
    filled = models["masks"].fill_mask("the [MASK] sat", top_k=4)
    (mask,) = server.post("/fill", {"inputs": "the [MASK] sat", "top_k": 4})
    assert (mask["start"], mask["end"]) == filled[0].offsets == (4, 10)
    assert [(each["token"], each["score"]) for each in mask["candidates"]] == [
        (each.token, each.score) for each in filled[0].candidates
    ]


def test_zero_shot_labels_are_scored_by_entailment(server, models):
    body = {"inputs": "a cat sat", "candidate_labels": ["dog", "cat", "blue"], "hypothesis_template": "the {}"}
    pairs = [("a cat sat", f"the {label}") for label in body["candidate_labels"]]
    rows = dict(zip(body["candidate_labels"], models["inference"].predict(pairs), strict=True))
    both = server.post("/classify", body | {"multi_label": True})
    for each in both:
        probabilities = rows[each["label"]].probabilities
        share = probabilities["entailment"] / (probabilities["entailment"] + probabilities["contradiction"])
        assert each["score"] == pytest.approx(share, abs=1e-6)
    among = server.post("/classify", body)
    assert sum(each["score"] for each in among) == pytest.approx(1, abs=1e-6)


@pytest.mark.cpu_only
def test_vectors_tokens_and_similarities(server, models):
    encoder = models["encoder"]
    vectors = encoder.embed(TEXTS, normalize=True)
    scores = server.post("/similarity", {"inputs": {"source_sentence": TEXTS[0], "sentences": TEXTS[1:]}})
    assert scores == pytest.approx((vectors[1:] @ vectors[0]).tolist(), abs=1e-6)
    plain = server.post("/embed", {"inputs": TEXTS, "normalize": False, "model": "masks"})
    assert (np.array(plain, np.float32) == models["masks"].embed(TEXTS, normalize=False)).all()
    rows = server.post("/embed_all", {"inputs": ["a cat", LONG]})
    hidden = [np.array(row, np.float32) for row in rows]
    assert [len(row) for row in hidden] == [4, 29]
    encoding = encoder.tokenizer.encode("a cat")
    with torch.inference_mode():
        expected = encoder.encoder(bertkit.collate([encoding])).last_hidden_state.numpy()
    np.testing.assert_allclose(hidden[0], expected, atol=1e-5)
    (tokens,) = server.post("/tokenize", {"inputs": "é cat"})
    assert [(each["text"], each["start"], each["stop"]) for each in tokens if not each["special"]][-1] == ("cat", 3, 6)
    assert server.post("/decode", {"ids": [each["id"] for each in tokens]}) == ["e cat"]
    ids = encoder.tokenizer.encode("a cat").input_ids.tolist()
    assert server.post("/embed", {"inputs": ids}) == server.post("/embed", {"inputs": "a cat"})
    status, answer, _ = server.request("/embed", {"inputs": [ids[0], 98, 3, 7]})
    assert status == 422 and "send the text itself" in answer["error"]


@pytest.mark.cpu_only
def test_inference_client_gets_what_the_library_gives(server, models, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)  # it would refuse this machine, too
    vectors = client(server, "encoder").feature_extraction(TEXTS[0], normalize=True)
    assert (vectors == models["encoder"].embed(TEXTS[:1], normalize=True)).all()
    assert len(client(server, "encoder").sentence_similarity(TEXTS[0], TEXTS[1:])) == 3
    (best, *_) = client(server, "sentiment").text_classification(TEXTS[0], top_k=2)
    prediction = models["sentiment"].predict(TEXTS[:1])[0]
    assert (best.label, best.score) == (prediction.label, prediction.probabilities[prediction.label])
    spans = client(server, "tagger").token_classification(LONG)
    assert [(each.start, each.end) for each in spans] == [
        (each.start, each.end) for each in models["tagger"].predict([LONG])[0].entities
    ]
    reply = client(server, "answers").question_answering(question="one dog", context=LONG)
    assert reply.answer == models["answers"].predict([("one dog", LONG)])[0].candidates[0].text
    masks = client(server, "masks").fill_mask("the [MASK] sat", top_k=3)
    assert [each.token_str for each in masks] == [
        each.token for each in models["masks"].fill_mask("the [MASK] sat", top_k=3)[0].candidates
    ]
    labels = client(server, "inference").zero_shot_classification("a cat", ["dog", "cat"])
    assert {each.label for each in labels} == {"dog", "cat"}


@pytest.mark.cpu_only
def test_model_names_input_types_and_prompt_names_choose_the_prompt(server, models):
    def vectors(**body):
        return np.array(server.post("/embed", {"inputs": TEXTS, **body}), np.float32)

    prompted = models["prompted"]
    expected = {name: prompted.embed(TEXTS, prompt_name=name, normalize=True) for name in ("query", "document")}
    assert not np.allclose(expected["query"], expected["document"], atol=1e-3)
    for name, input_type in (("query", "search_query"), ("document", "passage")):
        for body in ({"model": f"prompted-{name}"}, {"model": "prompted", "input_type": input_type},
                     {"model": "prompted", "prompt_name": name}):  # fmt: skip
            assert (vectors(**body) == expected[name]).all(), body
    assert (vectors(model="prompted") == prompted.embed(TEXTS, normalize=True)).all()


@pytest.mark.cpu_only
def test_sparse_vectors_are_those_of_the_library(server, models):
    vectors = server.post("/embed_sparse", {"inputs": TEXTS})
    expected = models["masks"].embed_sparse(TEXTS).dense()
    dense = np.zeros_like(expected)
    for row, weights in zip(dense, vectors, strict=True):
        for each in weights:
            row[each["index"]] = each["value"]
    assert (dense == expected).all() and expected.any(axis=1).all()


@pytest.mark.parametrize(
    ("path", "body", "status", "kind"),
    [
        ("/embed", {"inputs": []}, 400, "Empty"),
        ("/embed", {"inputs": ""}, 400, "Empty"),
        ("/embed", {"inputs": "a", "dimensions": 10_000}, 422, "Validation"),
        ("/embed", {"inputs": LONG, "truncate": False}, 422, "Validation"),
        ("/embed", {"inputs": "a" * 100_000, "truncate": False}, 422, "Validation"),
        ("/embed", {"inputs": "a", "truncation_direction": "left"}, 422, "Validation"),
        ("/embed", {"inputs": "a", "model": "ranker"}, 424, "Backend"),
        ("/embed", {"inputs": "a", "model": "no such"}, 404, "Validation"),
        ("/embed_sparse", {"inputs": "a", "model": "encoder"}, 424, "Backend"),
        ("/embed_sparse", {"inputs": ""}, 400, "Empty"),
        ("/rerank", {"query": "a", "texts": ["b"], "model": "encoder"}, 424, "Backend"),
        ("/predict", {"inputs": "a", "model": "answers"}, 424, "Backend"),
        ("/predict", {"inputs": "the cat", "model": "overflowing"}, 424, "Backend"),
        ("/models/overflowing", {"inputs": "the cat"}, 424, "Backend"),
        ("/predict", {"inputs": ["a", "b", "c"]}, 422, "Validation"),
        ("/predict", {"inputs": []}, 400, "Empty"),
        (
            "/classify",
            {"inputs": "a", "candidate_labels": ["a" * 20_000], "hypothesis_template": "{} " * 60},
            422,
            "Validation",
        ),
        ("/entities", {"inputs": 3}, 422, "Validation"),
        ("/fill", {"inputs": "no mask"}, 422, "Validation"),
        ("/answer", {"question": "a"}, 422, "Validation"),
        ("/models/answers", {"inputs": "a"}, 422, "Validation"),
        ("/models/encoder", {"inputs": {"source_sentence": "a", "sentences": []}}, 400, "Empty"),
        ("/models/none", {"inputs": "a"}, 404, "Validation"),
        ("/models/encoder", {"inputs": "a", "truncation_direction": "left"}, 422, "Validation"),
        ("/models/masks", {"inputs": "a [MASK]", "parameters": {"targets": ["cat"]}}, 422, "Validation"),
        ("/models/sentiment", {"inputs": "a", "parameters": {"function_to_apply": "sigmoid"}}, 422, "Validation"),
        ("/models/tagger", {"inputs": "a", "parameters": {"aggregation_strategy": "none"}}, 422, "Validation"),
        ("/no-such-route", {}, 404, "Validation"),
        ("/embed", b"{", 400, "Validation"),
        ("/decode", {"ids": [10**9]}, 422, "Validation"),
        ("/decode", {"ids": [10**30]}, 422, "Validation"),
        ("/tokenize", {"inputs": []}, 400, "Empty"),
        ("/inspect/lens", {"inputs": "a", "model": "encoder"}, 424, "Backend"),
        ("/inspect/attention", {"inputs": " "}, 422, "Validation"),
        ("/inspect/nothing", {"inputs": "a"}, 404, "Validation"),
    ],
    ids=str,
)
def test_refusals_have_the_status_and_the_form_of_text_embeddings_inference(server, path, body, status, kind):
    received, answer, _ = server.request(path, body)
    assert (received, answer["error_type"]) == (status, kind), answer
    assert isinstance(answer["error"], str) and answer["error"]


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        ("/rerank", {"query": "a", "documents": [{"title": "x"}]}, "documents.0: expected a text, or an object with a"),
        ("/entities", {"inputs": [3]}, "inputs: expected a text or a list of texts"),
        ("/tokenize", {"inputs": {}}, "inputs: expected a text or a list of texts"),
        ("/predict", {"inputs": 3}, "inputs: expected a text, a pair of texts, or a list of lists of one text or two"),
        ("/decode", {"ids": "1"}, "ids: expected a list of token ids, or a list of such lists"),
        ("/embed", [], "the body: expected a JSON object"),
        ("/embed", b"", "the body: expected a JSON object"),
        (
            "/models/inference",
            {"inputs": ["a"], "parameters": {"candidate_labels": ["b"]}},
            "inputs: expected a valid string",
        ),
    ],
    ids=str,
)
def test_errors_of_several_types_say_what_is_accepted(server, path, body, says):
    status, answer, _ = server.request(path, body)
    assert status == 422 and answer["error"].startswith(says), answer


def test_rerank_says_which_text_is_empty(server):
    assert server.request("/rerank", {"query": "", "texts": ["a"]})[1]["error"] == "`query` cannot be empty"
    body = {"query": "a", "documents": []}
    assert server.request("/v1/rerank", body)[1]["error"]["message"] == "`documents` cannot be empty"


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("encoder", LONG),
        ("encoder", {"source_sentence": "a", "sentences": [LONG]}),
        ("sentiment", LONG),
        ("ranker", {"query": "a", "texts": [LONG]}),
    ],
)
def test_options_of_inference_client_are_applied_or_refused(server, name, inputs):
    path = f"/models/{name}"
    assert server.request(path, {"inputs": inputs})[0] == 200
    for body in ({"truncate": False}, {"parameters": {"truncate": False}}, {"parameters": {"on_long": "error"}}):
        status, answer, _ = server.request(path, {"inputs": inputs} | body)
        assert status == 422 and "more than max_length" in answer["error"], answer
    unknown = [] if name == "ranker" else [("raw_scores", True)]  # it has all fields of /rerank
    for option, value in (("truncate", "false"), *unknown, ("on_long", "cut"), ("colour", "red")):
        status, answer, _ = server.request(path, {"inputs": inputs, "parameters": {option: value}})
        assert status == 422 and answer["error"].startswith(f"{option} is {value!r}: "), answer


@pytest.mark.cpu_only
def test_similarities_of_inference_client_are_of_the_dimensions_that_it_asks_for(server, models):
    inputs = {"source_sentence": TEXTS[0], "sentences": TEXTS[1:]}
    vectors = models["encoder"].embed(TEXTS, normalize=True, dimensions=3)
    answer = server.post("/models/encoder", {"inputs": inputs, "parameters": {"dimensions": 3, "normalize": False}})
    assert (np.array(answer, np.float32) == vectors[1:] @ vectors[0]).all()
    status, answer, _ = server.request("/models/encoder", {"inputs": "a", "parameters": {"normalize": "false"}})
    assert (status, answer["error"]) == (422, "normalize is 'false': expected true or false")


def test_fields_to_rank_by_are_refused_unless_they_are_the_text(server):
    body = {"query": "a", "documents": [{"text": "b", "title": "c"}], "model": "ranker"}
    assert server.post("/v1/rerank", body | {"rank_fields": ["text"]}) == server.post("/v1/rerank", body)
    status, answer, _ = server.request("/v1/rerank", body | {"rank_fields": ["title", "text"]})
    assert status == 400
    assert answer["error"]["message"] == "rank_fields title, text: documents are scored by their text only"


def test_every_field_of_a_body_is_described(server):
    schemas = server.request("/openapi.json")[1]["components"]["schemas"]
    bare = [(name, field) for name, one in schemas.items() for field, form in one["properties"].items()
            if not form.get("description")]  # fmt: skip
    assert len(schemas) > 10 and not bare


def test_openapi_document_names_every_route(server):
    document = server.request("/openapi.json")[1]
    for path in "/embed /embed_all /predict /rerank /v2/rerank /similarity /tokenize /decode /entities /answer".split():
        assert document["paths"][path]["post"]["requestBody"]["required"], path
    for path in ("/info", "/health", "/ready", "/metrics", "/v1/models"):
        assert "get" in document["paths"][path], path
    assert Path(document["info"]["title"]).name == "bertkit"
