"""The attention view: its numbers against loops, and its page in a real browser."""

import json

import numpy as np
import pytest
from browser import serious_faults
from random_models import our_model
from test_trace import TEXT, tiny

from bertkit import Model
from bertkit.architectures import ARCHITECTURES
from bertkit.cli import run
from bertkit.errors import UsageError
from bertkit.inspection import AttentionView, inspect_all, inspect_attention

PAIR = "a red dog talked"
HOSTILE = "</script><script>alert(1)</script> <img src=x onerror=alert(1)> \u2028 שלום עולם 🙂 &amp; ]]>"

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def model() -> Model:
    return our_model("pretraining", 3, max_position_embeddings=600)


@pytest.mark.full
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("words", [False, True])
def test_matrices_against_loops(model: Model, weighted: bool, hidden: bool, words: bool) -> None:
    view = inspect_attention(model, TEXT, PAIR)
    trace, head = view.trace, 2
    probs, norms = trace.layers[2].attention_probs[head - 1], trace.layers[2].value_norms[head - 1]
    groups = trace.word_groups() if words else [[i] for i in range(len(trace))]
    groups = [group for group in groups if not (hidden and trace.special_tokens_mask[group[0]])]
    kept = [index for group in groups for index in group]
    shown = view.matrix(2, head, weighted=weighted, hide_special=hidden, words=words, source="A", target="B")
    for i, rows in enumerate(groups):
        for j, columns in enumerate(groups):
            expected = 0.0
            for row in rows:
                total = sum(probs[row, k] for k in kept) if hidden and not weighted else 1.0
                expected += sum(probs[row, c] * (norms[c] if weighted else 1) for c in columns) / total / len(rows)
            outside = trace.second_text[rows[0]] or not trace.second_text[columns[0]]
            assert shown.weights[i, j] == pytest.approx(float("nan") if outside else expected, rel=1e-4, nan_ok=True)
    mean = view.matrix(2, weighted=weighted, hide_special=hidden, words=words).weights
    heads = range(1, len(trace.layers[2].attention_probs) + 1)
    every = [view.matrix(2, h, weighted=weighted, hide_special=hidden, words=words).weights for h in heads]
    np.testing.assert_allclose(mean, np.mean(every, axis=0), rtol=1e-6)
    if not weighted:
        np.testing.assert_allclose(mean.sum(axis=1), 1, atol=1e-5)


@pytest.mark.full(sample=2)
@pytest.mark.parametrize("model_type", ["bert", "modernbert", "mpnet", "deberta-v2"])
def test_query_times_key_is_called_a_score_only_if_it_is_one(model_type: str) -> None:
    model = tiny(model_type)
    view = inspect_attention(model, TEXT)
    layer = next(iter(view.trace.layers.values()))
    sums = layer.query @ layer.key.swapaxes(1, 2) / layer.query.shape[-1] ** 0.5
    seen = np.isfinite(layer.attention_scores)
    are_scores = np.allclose(sums[seen], layer.attention_scores[seen], atol=1e-3)
    assert are_scores == (model_type in ("bert", "modernbert"))
    assert view.program().data["sum_name"] == ("score" if are_scores else "sum / root")
    for page in (view.page(), inspect_all(model, "a red dog").page()):
        assert ("adds terms for the distance" in page) != are_scores


def test_bad_input(model: Model) -> None:
    view = inspect_attention(model, TEXT, layers=[2])
    for arguments in ((1, 1), (2, 99)):
        with pytest.raises(UsageError, match="expected"):
            view.matrix(*arguments)
    with pytest.raises(UsageError, match="target='C': expected one of all, A, B"):
        view.matrix(2, 1, target="C")
    with pytest.raises(UsageError, match="no layer chosen"):
        inspect_attention(model, TEXT, layers=[])


def test_oversized_page_error_names_the_remedy(model: Model, monkeypatch) -> None:
    monkeypatch.setattr("bertkit.inspection.view.MAX_PAGE_BYTES", 20_000)
    with pytest.raises(UsageError, match="choose fewer layers"):
        inspect_attention(model, TEXT).page()


@pytest.mark.full
def test_base_model_with_128_tokens_fits_the_budget() -> None:
    draw = np.random.default_rng(0)
    scores = draw.normal(size=(12, 12, 128, 128)) * 3
    probs = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    trace = tiny("bert").trace("a")
    layers = {
        number + 1: type(trace.layers[1])(
            *([draw.normal(size=(12, 128, 64)).astype("f4")] * 3), probs[number], probs[number],
            draw.normal(size=(12, 128)), *([np.zeros((128, 2))] * 2),
        )
        for number in range(12)
    }  # fmt: skip
    whole = type(trace)(**(vars(trace) | {
        "layers": layers, "tokens": ("a",) * 128, "special_tokens_mask": np.zeros(128, bool),
        "word_ids": np.arange(128), "hidden_states": np.zeros((13, 128, 2)),
    }))  # fmt: skip
    view = AttentionView(whole)
    assert view.program().data["query"] is None and len(view.page()) < 5_000_000


@pytest.mark.parametrize("model_type", ARCHITECTURES)
def test_browser_shows_the_numbers(model_type: str, opened) -> None:
    view = inspect_attention(tiny(model_type), TEXT, PAIR)
    with opened(view.page(), is_interactive=True) as page:
        for words, hidden, weighted, side in (
            (0, 0, 0, "all all"),
            (1, 1, 0, "A B"),
            (1, 0, 1, "B A"),
            (0, 1, 0, "A A"),
        ):
            change = {"words": bool(words), "hidden": bool(hidden), "weighted": bool(weighted), "side": side}
            page.evaluate("change => { Object.assign(attention.state, change); attention.draw(); }", change)
            source, target = side.split()
            for layer, head in ((1, 1), (3, 4), (2, None)):
                shown = view.matrix(
                    layer, head, words=bool(words), hide_special=bool(hidden), weighted=bool(weighted),
                    source=source, target=target,
                )  # fmt: skip
                read = page.evaluate("([l, h]) => attention.matrix(l, h)", [layer - 1, 4 if head is None else head - 1])
                largest = max(1.0, float(np.nanmax(shown.weights)))
                expected = np.nan_to_num(shown.weights).ravel()
                np.testing.assert_allclose(read, expected, atol=0.02 * largest)
                assert page.evaluate("attention.labels()") == shown.labels
        record = view.trace.layers[2]
        read = page.evaluate("attention.product(1, 2, 3, 1)")
        np.testing.assert_allclose(read, record.query[2, 3] * record.key[2, 1], atol=2e-3)


def test_browser_by_keyboard_alone(model: Model, opened) -> None:
    view = inspect_attention(model, TEXT, PAIR)
    with opened(view.page(), is_interactive=True) as page:
        for _ in range(40):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.getAttribute('aria-label')") == "Layer 1, head 1":
                break
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowRight")
        assert page.evaluate("[attention.state.layer, attention.state.head]") == [1, 1]
        page.keyboard.press("Tab")
        for _ in range(3):
            page.keyboard.press("ArrowDown")
        assert page.evaluate("attention.state.token") == 3
        heaviest = int(view.trace.layers[2].attention_probs[1, 3].argmax())
        assert page.inner_text("aside tbody tr td") == view.trace.tokens[heaviest]
        assert page.locator("#neurons canvas").count() == min(12, len(view.trace))
        page.keyboard.press("Escape")
        assert page.evaluate("attention.state.token") == -1


@pytest.mark.parametrize("width", [320, 1440])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_browser_with_hostile_text_and_without_accessibility_faults(width, scheme, opened) -> None:
    view = inspect_attention(tiny("bert"), "the cat sat", "a dog")
    spelled = tuple([*HOSTILE.split(" "), *view.trace.tokens][: len(view.trace)])
    hostile = AttentionView(type(view.trace)(**(vars(view.trace) | {"tokens": spelled})))
    with opened(hostile.page(), width=width, color_scheme=scheme, is_interactive=True) as page:
        page.evaluate("attention.state.token = 1; attention.draw()")
        assert page.evaluate("attention.labels()") == list(spelled)
        assert page.locator("script").count() == 3
        assert serious_faults(page) == []


def test_512_tokens_open_in_two_seconds(model: Model, opened) -> None:
    view = inspect_attention(model, "cat " * 510, layers=[2])
    with opened(view.page(), is_interactive=True) as page:
        assert page.evaluate("performance.now()") < 4_000  # two seconds alone; other work may share the cores
        assert page.locator("#lines line").count() <= 5_000


def test_notebook_shows_the_page(model: Model, opened) -> None:
    with opened(f"<!DOCTYPE html>{inspect_attention(model, TEXT)._repr_html_()}") as page:
        page.frame_locator("iframe").locator("html[data-ready]").wait_for()


def test_command(model: Model, tmp_path, capsys) -> None:
    model.save(tmp_path / "model")
    options = ["--model", str(tmp_path / "model")]
    assert run(["inspect", "attention", "the cat", "--out", str(tmp_path / "x.html"), *options]) == 0
    assert json.loads(capsys.readouterr().out)["bytes"] == (tmp_path / "x.html").stat().st_size
    assert run(["inspect", "attention", "the cat", "a dog", "--layers", "2", "--json", *options]) == 0
    assert list(json.loads(capsys.readouterr().out)["layers"]) == ["2"]
    for arguments, expected in (
        (["the cat", *options], "nothing to write: give --out"),
        (["", "--json", *options], "the text is empty"),
        (["cat " * 5_000, "--json", *options], "the text has 5,002 tokens, the model accepts 600"),
        (["cat", "--out", str(tmp_path / "none" / "x.html"), *options], "does not exist"),
        (["cat", "--out", str(tmp_path / "texts.csv"), *options], "unknown extension '.csv', expected .html"),
    ):
        assert run(["inspect", "attention", *arguments]) == 2
        assert expected in capsys.readouterr().err
