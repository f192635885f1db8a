"""Every view of `bertkit inspect` as a page in a real browser, and as a command."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from browser import serious_faults
from examples_of_tasks import model_of
from random_models import our_model
from test_inspection import CONLLU, TEXTS, random_trees
from test_trace import tiny

from bertkit import Model
from bertkit.architectures import ARCHITECTURES
from bertkit.cli import run
from bertkit.cli.inspect import VIEWS
from bertkit.errors import UsageError
from bertkit.inspection import (
    SideBySideView,
    View,
    inspect_all,
    inspect_contexts,
    inspect_difference,
    inspect_heads,
    inspect_input,
    inspect_map,
    inspect_next_sentence,
    inspect_probes,
    inspect_similarity,
    inspect_structure,
    inspect_why,
)
from bertkit.tasks import SequenceClassification

HOSTILE = "</script><script>alert(1)</script> <img src=x onerror=alert(1)> cat שלום 🙂 \u2028 &lt;"
SIX = [*TEXTS, HOSTILE, "a cat"]
MAKERS: dict[str, Callable[[Model], View]] = {
    "contexts": lambda model: inspect_contexts(model, "cat", SIX, senses=list("ababab")),
    "heads": lambda model: inspect_heads(model, random_trees(8)),
    "probe": lambda model: inspect_probes(
        model, *2 * [[tree.labeled("tags") for tree in random_trees(4)]], label="tags"
    ),
    "structure": lambda model: inspect_structure(model, random_trees(4), random_trees(3), epochs=1),
    "why": lambda model: inspect_why(model_of(SequenceClassification(("<b>", "praise"))), "the cat"),
    "similar": lambda model: inspect_similarity(model, TEXTS[0], HOSTILE),
    "input": lambda model: inspect_input(model, HOSTILE, "a dog"),
    "map": lambda model: inspect_map(model, SIX, num_clusters=2),
    "next": lambda model: inspect_next_sentence(model, SIX[2:5]),
    "two": lambda model: SideBySideView(("A", "B"), (inspect_heads(model, random_trees(8)),) * 2),
    "two static": lambda model: SideBySideView(("a" * 90, "B"), (inspect_input(model, HOSTILE),) * 2),
    "difference": lambda model: inspect_difference(model, model, SIX),
    "all": lambda model: inspect_all(model, "the [MASK] sat"),
}
INTERACTIVE = {"contexts", "heads", "map", "two", "two static"}
ANY_PRECISION = {"fill", "next-sentence", "map"}  # the others record inner values

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def model() -> Model:
    return our_model("pretraining", 3, max_position_embeddings=300)


@pytest.fixture(scope="module")
def views(model: Model) -> dict[str, View]:
    return {name: make(model) for name, make in MAKERS.items()}


@pytest.mark.full(sample=1)
@pytest.mark.parametrize("width", [320, 1440])
@pytest.mark.parametrize("name", MAKERS)
def test_pages_have_no_layout_faults(name: str, width: int, views, opened) -> None:
    scheme = "dark" if width == 320 else "light"
    with opened(views[name].page(), width=width, color_scheme=scheme, is_interactive=name in INTERACTIVE) as page:
        assert serious_faults(page) == []
    json.dumps(views[name].to_dict(), allow_nan=False)


def test_map_by_keyboard(views, opened) -> None:
    view = views["contexts"]
    with opened(view.page(), is_interactive=True) as page:
        page.focus("#map input[type=range]")
        page.keyboard.press("Home")
        assert page.evaluate("scatter.shown()") == "layer 0"
        page.focus("#map path[tabindex='0']")
        page.keyboard.press("ArrowRight")
        assert page.evaluate("scatter.chosen()") == 1 and "[cat]" in page.inner_text("#map .says")
        page.fill("#map input[type=search]", "onerror")
        assert page.locator("#map svg.cloud .dim").count() == len(view.texts) - 1


def test_both_models_can_be_used(views, opened) -> None:
    with opened(views["two"].page(), is_interactive=True) as page:
        for number, frame in enumerate(page.frames[1:]):
            inner = frame.evaluate("document.documentElement.scrollHeight")
            page.wait_for_function(f"document.querySelectorAll('iframe')[{number}].clientHeight >= {inner}")
            frame.focus(".matrix td[tabindex='0']")
            frame.page.keyboard.press("ArrowRight")
            frame.page.keyboard.press("Enter")
            assert frame.evaluate("[attention.state.layer, attention.state.head]") == [0, 1]
    numbers = views["two"].to_dict()["models"]
    assert list(numbers) == ["A", "B"] and numbers["A"] == views["heads"].to_dict()
    with pytest.raises(UsageError, match="expected two models and one kind"):
        SideBySideView(("A", "B"), (views["heads"], views["input"]))


def test_cell_of_heads_page_opens_attention(views, opened) -> None:
    with opened(views["heads"].page(), is_interactive=True) as page:
        page.focus(".matrix td[tabindex='0']")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Enter")
        assert page.evaluate("[attention.state.layer, attention.state.head]") == [0, 1]


@pytest.mark.full(sample=3)
@pytest.mark.parametrize("model_type", ARCHITECTURES)
def test_every_architecture_has_every_page(model_type: str) -> None:
    heads = {"masked_lm"} & ARCHITECTURES[model_type].heads.keys()
    small = tiny(model_type, *heads, max_position_embeddings=100)
    for name in ("contexts", "heads", "input", "map", "difference", "all", "similar"):
        assert MAKERS[name](small).page().startswith("<!DOCTYPE html>")


def test_long_texts_are_refused_with_advice_that_can_be_followed(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = our_model("pretraining", 3, max_position_embeddings=20)
    model.save("model")
    long = "cat " * 19
    Path("texts.txt").write_text("\n".join(["the cat", "a cat", "cat sat", long]))
    for given, message in (
        (["fill", long], "text 0 has 21 tokens, 1 more than max_length 20: shorten it"),
        (["contexts", "cat", "texts.txt"], "text 3 has 21 tokens, 1 more than max_length 20: shorten it"),
        (
            ["next-sentence", "texts.txt"],
            "sentences 1 and 4 together have more tokens than the model accepts: shorten them",
        ),
    ):
        assert run(["inspect", *given, "--model", "model", "--json"]) == 2
        assert capsys.readouterr().err == f"bertkit: {message}\n"
    assert run(["fill", f"[MASK] {long}", "--model", "model"]) == 2
    assert "choose --on-long truncate or" in capsys.readouterr().err


@pytest.mark.full
def test_commands(model: Model, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("bertkit.inspection.probes._LEAST_STEPS", 10)
    model.save("model")
    our_model("pretraining", 4, max_position_embeddings=300).save("other")
    model_of(SequenceClassification(("blame", "praise"))).save("praise")
    Path("texts.txt").write_text("\n".join(TEXTS))
    Path("x.conllu").write_text(CONLLU)
    Path("many.txt").write_text("the cat sat\n" * 501)
    Path("table.csv").write_text("note,remark\n" + "".join(f'"{text}",x\n' for text in TEXTS))
    arguments = {
        "all": ["the [MASK] sat"], "input": ["the cat"], "attention": ["the cat"], "fill": ["the [MASK]"],
        "lens": ["the cat"], "contexts": ["cat", "texts.txt"], "heads": ["texts.txt"],
        "probe": ["x.conllu", "x.conllu"], "structure": ["x.conllu", "x.conllu"], "why": ["a cat"],
        "map": ["texts.txt"], "next-sentence": ["texts.txt"], "difference": ["texts.txt", "--against", "other"],
        "contrast": ["the cat sat", "a cat", "--word", "cat", "--baseline", "texts.txt"],
    }  # fmt: skip
    assert arguments.keys() == VIEWS.keys()
    Path("pages").mkdir()
    for name, given in arguments.items():
        out = "everything" if name == "all" else f"pages/{name}.html"
        chosen = "praise" if name == "why" else "model"
        assert run(["inspect", name, *given, "--model", chosen, "--out", out]) == 0, capsys.readouterr().err
        if name != "all":
            assert run(["inspect", name, *given, "--model", chosen, "--json"]) == 0
            capsys.readouterr()
            is_picture = name in ("input", "attention", "map")
            assert run(["inspect", name, *given, "--model", chosen]) == (2 if is_picture else 0)
            printed = capsys.readouterr()
            assert is_picture == ("nothing to write" in printed.err)
            assert all(len(json.loads(line)) > 1 for line in printed.out.splitlines())
            assert is_picture == (not printed.out)
        if name in ("attention", "fill", "probe"):
            capsys.readouterr()
            assert run(["inspect", name, *given, "--model", "model", "--against", "other", "--json"]) == 0
            assert list(json.loads(capsys.readouterr().out)["models"]) == ["model", "other"]
    assert run(["inspect", "why", "a cat", "--similar", "the dog", "--model", "model", "--json"]) == 0
    capsys.readouterr()
    assert run(["inspect", "pages"]) == 0
    assert json.loads(capsys.readouterr().out) == {"page": "pages/index.html", "pages": len(arguments) - 1}
    assert "Two models" in Path("pages/index.html").read_text()
    assert {path.name for path in Path("everything").iterdir()} == {
        "index.html", "steps.html", "input.html", "attention.html", "lens.html",
    }  # fmt: skip
    Path("pages/lens.html").rename("pages/50% a#b.html")
    assert run(["inspect", "pages"]) == 0
    assert 'href="50%25%20a%23b.html"' in Path("pages/index.html").read_text()
    capsys.readouterr()
    assert run(["inspect", "all", "the cat", "--model", "model", "--out", "texts.txt"]) == 2
    assert "texts.txt is not a folder; choose another path" in capsys.readouterr().err
    Path("site").mkdir()
    Path("site/index.html").write_text("<title>My site</title>")
    Path("site/one.html").write_text("<title>One</title>")
    for wrong in (["site"], ["all", "the cat", "--model", "model", "--out", "site"]):
        assert run(["inspect", *wrong]) == 2
        assert "site/index.html is not an index that bertkit wrote: choose another folder" in capsys.readouterr().err
    assert {path.name for path in Path("site").iterdir()} == {"index.html", "one.html"}
    assert Path("site/index.html").read_text() == "<title>My site</title>"
    for given in (["heads"], ["map"], ["next-sentence"], ["contexts", "cat"], ["difference", "--against", "other"]):
        assert run(["inspect", *given, "table.csv", "--model", "model", "--json"]) == 2
        assert "it has note, remark: choose one with --column" in capsys.readouterr().err
        assert run(["inspect", *given, "table.csv", "--column", "note", "--model", "model", "--json"]) == 0
        capsys.readouterr()
    assert run(["inspect", "heads", "x.conllu", "--column", "note", "--model", "model", "--json"]) == 2
    assert "CoNLL-U files have no named columns" in capsys.readouterr().err
    Path("X.CONLLU").write_text(CONLLU)
    for given in (["heads", "X.CONLLU"], ["probe", "X.CONLLU", "X.CONLLU", "--label", "relations"]):
        assert run(["inspect", *given, "--model", "model", "--json"]) == 0, capsys.readouterr().err
    for given, option in (
        (["fill", "the cat", "--top-k", "3"], "--top-k is for a text with [MASK]"),
        (["fill", "the [MASK]", "--method", "plain"], "--method is for a text without [MASK]"),
        (["why", "a cat", "--similar", "the dog", "--steps", "9"], "a pair, --label or --steps"),
    ):
        capsys.readouterr()
        assert run(["inspect", *given, "--model", "model", "--json"]) == 2
        assert option in capsys.readouterr().err
    for wrong in (
        ["nothing"],
        *(
            [*rest, "--limit", "-1", "--json", "--model", "model"]
            for rest in (
                ["probe", "x.conllu", "x.conllu"],
                ["structure", "x.conllu", "x.conllu"],
                ["heads", "texts.txt"],
                ["map", "texts.txt"],
                ["difference", "texts.txt", "--against", "other"],
            )
        ),
        ["contexts", "horse", "texts.txt", "--json", "--model", "model"],
        ["heads", "no.txt", "--json"],
        ["next-sentence", "texts.txt", "--json", "--model", "praise"],
        ["next-sentence", "many.txt", "--out", "many.html", "--model", "model"],
        ["why", "a cat", "--json", "--model", "model"],
        ["difference", "texts.txt", "--json", "--model", "model"],
        ["input", "a cat", "--json", "--model", "model", "--against", "model"],
        *(
            [name, *arguments[name], "--json", "--precision", "int8"]
            for name in arguments.keys() - {"all", *ANY_PRECISION}
        ),
    ):
        assert run(["inspect", *wrong]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "--limit" not in wrong or "--limit -1: expected an int of at least 1" in line


def test_command_without_a_view_names_the_views(capsys: pytest.CaptureFixture[str]) -> None:
    for given, message in (([], "nothing is given"), (["maps"], "no view or folder is named maps")):
        assert run(["inspect", *given]) == 2
        assert f"{message}: expected a view (all, input, attention, " in capsys.readouterr().err
