"""Fill-mask, surprise and layer lens against transformers and plain loops; pages in a real browser."""

import json

import numpy as np
import pytest
import torch
from browser import serious_faults
from random_models import our_model, published_model, save_published
from test_trace import tiny

import bertkit
from bertkit import Model
from bertkit.architectures import ARCHITECTURES
from bertkit.cli import run
from bertkit.errors import MissingHeadError, UsageError
from bertkit.inspection import inspect_fill, inspect_lens, inspect_surprise

TEXT = "the [MASK] cat walked"

pytestmark = pytest.mark.usefixtures("one_thread")


def test_lens_against_transformers(tmp_path) -> None:
    published = published_model("pretraining", 2)
    model = bertkit.load(save_published(published, tmp_path / "model"))
    view = inspect_lens(model, TEXT)
    ids = torch.from_numpy(model.trace(TEXT).input_ids)[None].long()
    with torch.no_grad():
        states = published(ids, output_hidden_states=True).hidden_states
        probs = torch.stack([published.cls.predictions(state)[0].softmax(-1) for state in states])  # (N + 1, L, V)
    np.testing.assert_allclose(view.top_probs, probs.max(-1).values, atol=1e-4)
    own = probs.gather(2, ids[0][None, :, None].expand(len(probs), -1, 1))[..., 0]
    np.testing.assert_allclose(view.own_probs, own, atol=1e-4)
    assert view.own_ranks.tolist() == (1 + (probs > own[..., None]).sum(-1)).tolist()
    divergence = (probs[-1] * (probs[-1].log() - probs.log())).sum(-1)
    np.testing.assert_allclose(view.divergence, divergence, atol=1e-3)
    winners = probs.argmax(-1)
    for position, first in enumerate(view.first_layers):
        same = (winners[:, position] == winners[-1, position]).tolist()
        assert same[first] and not any(same[:first])


@pytest.mark.parametrize(
    "model_type", [name for name, record in ARCHITECTURES.items() if not record.config().is_decoder]
)
def test_last_row_of_the_lens_is_the_prediction(model_type: str) -> None:
    model = tiny(model_type, "masked_lm")
    view = inspect_lens(model, TEXT)
    (filled,) = model.fill_mask(TEXT, top_k=1)
    position = view.tokens.index("[MASK]")
    assert view.top_tokens[-1][position] == filled.candidates[0].token
    assert view.top_probs[-1, position] == pytest.approx(filled.candidates[0].score, abs=1e-4)
    assert view.divergence[-1].max() == pytest.approx(0, abs=1e-9)


def test_surprise_against_masking_by_hand() -> None:
    model = our_model("masked_lm", 3, max_position_embeddings=40)
    view = inspect_surprise(model, "the cat walked")
    for number, token in enumerate(view.tokens):
        spelled = [*view.tokens[:number], "[MASK]", *view.tokens[number + 1 :]]
        ids = [model.tokenizer.vocabulary.id(one) for one in ["[CLS]", *spelled, "[SEP]"]]
        with torch.inference_mode():
            logits = model.network(bertkit.Batch.from_padded(torch.tensor([ids]), torch.ones(1, len(ids)))).logits
        expected = logits["masked_lm"][number + 1].log_softmax(-1)[model.tokenizer.vocabulary.id(token)]
        assert view.surprise[number] == pytest.approx(-float(expected), abs=1e-3)
    assert view.pseudo_log_likelihood == pytest.approx(model.pseudo_log_likelihood("the cat walked"))


def test_bad_input() -> None:
    model = our_model("pretraining", 3, max_position_embeddings=40)
    with pytest.raises(UsageError, match=r"no \[MASK\]"):
        inspect_fill(model, "the cat")
    with pytest.raises(UsageError, match="empty"):
        inspect_surprise(model, " ")
    untrained = Model.create(model.config, model.tokenizer, ["masked_lm"])
    for inspect in (inspect_fill, inspect_lens, inspect_surprise):
        with pytest.raises(MissingHeadError, match="never trained"):
            inspect(untrained, TEXT)
        with pytest.raises(MissingHeadError, match="no masked_lm head"):
            inspect(our_model("encoder", 3), TEXT)


@pytest.mark.parametrize("width", [320, 1440])
def test_pages_in_a_browser(width: int, opened) -> None:
    model = our_model("masked_lm", 3, max_position_embeddings=40)
    lens = inspect_lens(model, TEXT)
    with opened(lens.page(), width=width) as page:
        read = page.eval_on_selector_all(
            ".matrix tbody tr", "rows => rows.map(r => [...r.cells].map(c => c.innerText))"
        )
        assert [row[1:] for row in read] == lens.top_tokens
        assert serious_faults(page) == []
    for view in (inspect_fill(model, f"{TEXT} [MASK]"), inspect_surprise(model, "a dog </p><b>x 🙂 שלום")):
        with opened(view.page(), width=width, color_scheme="dark") as page:
            assert serious_faults(page) == []


def test_commands(tmp_path, capsys) -> None:
    our_model("pretraining", 3, max_position_embeddings=40).save(tmp_path / "model")
    options = ["--json", "--model", str(tmp_path / "model")]
    for arguments, key in (("fill", "blanks"), ("lens", "top_tokens")):
        assert run(["inspect", arguments, TEXT, *options]) == 0
        assert key in json.loads(capsys.readouterr().out)
    assert run(["inspect", "fill", "the cat", *options]) == 0
    assert "surprise" in json.loads(capsys.readouterr().out)
