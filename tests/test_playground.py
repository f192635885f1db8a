"""The playground in a real browser: every panel by mouse and by keyboard, accessible, without requests elsewhere."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import serious_faults
from examples_of_tasks import model_of
from gliner_reference import STORED, write_model
from random_models import our_model
from served import Server, serving
from test_generation import gpt2, marian

import bertkit
from bertkit.pages import page as written_page
from bertkit.pages import paragraph, section
from bertkit.tasks import QuestionAnswering, Regression, SequenceClassification, TokenClassification

PANELS = "Tokens Similarity Masks Classes Labels Ranking Entities Extraction Redaction Answers Writing Search".split()
SIZES = {"max_position_embeddings": 64}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with a model of every kind and a store."""
    folder = tmp_path_factory.mktemp("served")
    models = {
        "encoder": our_model("encoder", 3, **SIZES),
        "masks": our_model("masked_lm", 4, **SIZES),
        "sentiment": model_of(SequenceClassification(("blame", "praise"))),
        "inference": model_of(SequenceClassification(("contradiction", "entailment", "neutral"))),
        "ranker": model_of(Regression()),
        "tagger": model_of(TokenClassification(("B-animal", "I-animal", "O"))),
        "answers": model_of(QuestionAnswering(no_answer=True)),
    }
    for name, model in models.items():
        model.save(folder / name)
    gpt2(folder / "storyteller")
    marian(folder / "translator")
    write_model(json.loads(STORED.read_text())["span-bert"], folder / "extractor")
    with bertkit.Index.open(folder / "store", folder / "encoder") as index:
        index.add([bertkit.Document("mat.md", "The cat sat on the mat."), bertkit.Document("rain.md", "Rain fell.")])
    names = [*models, "storyteller", "translator", "extractor"]
    words = [word for name in names for word in ("--model", folder / name)]
    with serving("--store", folder / "store", *words) as running:
        yield running


@pytest.fixture
def opened(browser: Any, server: Server) -> Iterator[Callable[..., Any]]:
    """Opens the page; nothing but the server may be asked, and nothing may be complained about."""
    complaints: list[str] = []
    contexts = []

    def open_page(width: int, **options: Any) -> Any:
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("request", lambda request: request.url.startswith(server.url) or complaints.append(request.url))
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(server.url)
        page.wait_for_selector("section")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not complaints


def outputs(page: Any) -> dict[str, str]:
    """The text of every panel's output by its title."""
    return {
        section.query_selector("h2").inner_text(): section.query_selector("output").inner_text()
        for section in page.query_selector_all("section")
    }


def is_answered(page: Any, title: str) -> str:
    """The output of a panel, once it has one without an error."""
    section = page.locator("section", has=page.locator(f"h2:text-is('{title}')"))
    section.locator("output > *").first.wait_for(timeout=20_000)
    assert section.locator(".error").count() == 0, section.locator(".error").inner_text()
    return section.locator("output").inner_text()


@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (768, "light"), (1440, "light")])
def test_every_panel_by_mouse(opened: Callable[..., Any], width: int, scheme: str, tmp_path: Path) -> None:
    page = opened(width, color_scheme=scheme)
    assert list(outputs(page)) == PANELS
    for title in PANELS:
        section = page.locator("section", has=page.locator(f"h2:text-is('{title}')"))
        section.get_by_text("Show", exact=True).click()
        assert is_answered(page, title).strip(), title
    assert page.evaluate("document.documentElement.scrollWidth") <= width, "the page scrolls sideways"
    page.screenshot(path=tmp_path / f"playground-{width}.png", full_page=True)
    assert serious_faults(page) == []
    numbers = page.locator("td.number, .token small")
    heights = [number.evaluate("one => one.getClientRects().length") for number in numbers.all()]
    assert len(heights) > 20 and set(heights) == {1}, "a number is broken over lines"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_style_of_all_pages_in_light_and_dark(opened: Callable[..., Any], scheme: str) -> None:
    page, report = opened(360, color_scheme=scheme), opened(360, color_scheme=scheme)
    report.set_content(written_page("Report", [section("Scores", paragraph("None."))]))
    for name, elements in {"color": "h2", "font-family": "h2", "background-color": "html"}.items():
        styles = [
            each.locator(elements).first.evaluate(f"one => getComputedStyle(one).getPropertyValue('{name}')")
            for each in (page, report)
        ]
        assert styles[0] == styles[1], name
    background = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    brightness = sum(map(int, re.findall(r"\d+", background)))
    assert brightness < 150 if scheme == "dark" else brightness > 700


def test_example_is_shown_at_once_with_pieces_and_unknown_words(opened: Callable[..., Any]) -> None:
    page = opened(1440)
    assert "[CLS]" in is_answered(page, "Tokens"), "the first panel answers without a click"
    tokens = page.locator("section", has=page.locator("h2:text-is('Tokens')"))
    tokens.locator("textarea").fill("cats 🐈 sat")
    tokens.get_by_text("Show", exact=True).click()
    page.locator(".token.unknown").wait_for()
    shown = [token.inner_text().split("\n")[0] for token in tokens.locator(".token").all()]
    assert shown[0] == "[CLS]" and shown[-1] == "[SEP]" and "[UNK]" in shown
    assert "🐈" in page.locator(".token.unknown").first.inner_text()
    assert any(token.startswith("##") for token in shown), shown
    assert tokens.locator(".token.special").count() == 2


def test_sign_of_a_request_in_progress(opened: Callable[..., Any]) -> None:
    page = opened(1440)
    is_answered(page, "Tokens")
    section = page.locator("section", has=page.locator("h2:text-is('Similarity')"))
    waiting: list[Any] = []
    page.route("**/embed", lambda route: waiting.append(route))
    section.get_by_text("Show", exact=True).click()
    busy = section.locator("output[aria-busy='true']")
    busy.wait_for(state="attached")
    assert "Computing" in busy.evaluate("one => getComputedStyle(one, '::before').content")
    while not waiting:
        page.evaluate("0")  # lets events arrive
    waiting.pop().continue_()
    assert is_answered(page, "Similarity").strip() and busy.count() == 0


def test_every_panel_by_keyboard(opened: Callable[..., Any]) -> None:
    page = opened(1440)
    answered: list[str] = []
    titles: list[str] = []  # of the pages about the inside of the model
    for _ in range(80):
        page.keyboard.press("Tab")
        focused = "const one = document.activeElement, own = one.closest('section');"
        title = "own ? own.querySelector('h2').innerText : ''"
        outline = "getComputedStyle(one).outlineStyle"
        tag, kind, title, outline = page.evaluate(
            f"(() => {{ {focused} return [one.tagName, one.type, {title}, {outline}]; }})()"
        )
        if tag == "BODY":
            break
        assert outline != "none", f"the focus on a {tag} of {title} cannot be seen"
        if tag == "BUTTON" and kind == "button":
            with page.context.expect_page() as opening:
                page.keyboard.press("Enter")
            titles.append(opening.value.title())
        elif tag == "BUTTON":
            page.keyboard.press("Enter")
            assert is_answered(page, title).strip(), title
            answered.append(title)
    assert answered == PANELS
    assert titles == ["Input", "Attention"]


def test_pages_of_the_inside_of_a_model(opened: Callable[..., Any]) -> None:
    page = opened(1440)
    tokens = page.locator("section", has=page.locator("h2:text-is('Tokens')"))
    tokens.locator("select").select_option("masks")
    tokens.locator("textarea").fill("the [MASK] sat")
    tokens.get_by_text("Show").click()
    for name, shown in [("embeddings", "Position"), ("attention", "head"), ("layers", "[MASK]")]:
        with page.context.expect_page() as opening:
            tokens.get_by_role("button", name=name, exact=True).click()
        view = opening.value
        view.wait_for_load_state()
        assert shown in view.inner_text("body"), name
        if name == "attention":
            view.wait_for_selector("html[data-ready]")  # its program is allowed to run


def test_another_model_another_text_and_what_is_refused(browser: Any, server: Server) -> None:
    page = browser.new_page()
    page.goto(server.url)
    tokens = page.locator("section", has=page.locator("h2:text-is('Tokens')"))
    tokens.locator("textarea").fill("the cat")
    tokens.locator("select").select_option("masks")
    tokens.get_by_text("Show").click()
    assert "the" in is_answered(page, "Tokens")
    tokens.locator("textarea").fill("cat " * 200)
    tokens.get_by_text("Show").click()
    tokens.get_by_role("button", name="embeddings").click()
    tokens.locator(".error").wait_for()
    assert "shorten it" in tokens.locator(".error").inner_text()
    masks = page.locator("section", has=page.locator("h2:text-is('Masks')"))
    masks.locator("textarea").fill("no mask")
    masks.locator("button").click()
    masks.locator(".error").wait_for()
    assert "[MASK]" in masks.locator(".error").inner_text()
    page.close()


def test_what_no_model_can_do_is_said(browser: Any, encoder: Path) -> None:
    with serving("--model", encoder) as server:
        page = browser.new_page()
        page.goto(server.url)
        page.wait_for_selector("section")
        about = page.locator("#about").inner_text()
        page.close()
    missing = ", ".join(PANELS[2:]).lower()
    assert f"No served model has {missing}." in about


def test_answers_of_what_stands_before_the_server_are_said(browser: Any, server: Server) -> None:
    page = browser.new_page()
    page.goto(server.url)
    similarity = page.locator("section", has=page.locator("h2:text-is('Similarity')"))
    replies = [
        (lambda route: route.abort(), "The server does not answer"),
        (lambda route: route.fulfill(status=502, body="<html>"), "Status 502, without a reason"),
        (lambda route: route.fulfill(status=500, body="{}"), "Status 500."),
        (lambda route: route.fulfill(status=404, body='{"error": {"message": "gone"}}'), "gone"),
    ]
    for reply, said in replies:
        page.route("**/embed", reply)
        similarity.get_by_text("Show", exact=True).click()
        similarity.locator(f".error:text('{said}')").wait_for()
        page.unroute("**/embed")
    page.close()


def test_long_words_stay_in_their_panels(opened: Callable[..., Any]) -> None:
    page = opened(360)
    is_answered(page, "Tokens")
    tokens = page.locator("section", has=page.locator("h2:text-is('Tokens')"))
    tokens.locator("textarea").fill("🐈" * 200)
    tokens.get_by_text("Show", exact=True).click()
    page.locator(".token.unknown").wait_for()
    assert tokens.locator("output").evaluate("one => one.scrollWidth <= one.clientWidth")
    similarity = page.locator("section", has=page.locator("h2:text-is('Similarity')"))
    similarity.locator("textarea").fill("\n".join(["x" * 300, "the cat " * 40]))
    similarity.get_by_text("Show", exact=True).click()
    is_answered(page, "Similarity")
    heights = similarity.locator("tbody tr").evaluate_all("rows => rows.map((row) => row.clientHeight)")
    assert max(heights) < 90, heights


def test_words_that_are_not_compared_are_said(opened: Callable[..., Any]) -> None:
    page = opened(1440)
    for title, field, text, said in (
        ("Similarity", "texts", "🐈\n🐕", "2 tokens are unknown to the model ([UNK])."),
        ("Search", "query", "cat axolotl", "No passage has: axolotl"),
    ):
        section = page.locator("section", has=page.locator(f"h2:text-is('{title}')"))
        section.locator(f"[name={field}]").fill(text)
        section.get_by_text("Show", exact=True).click()
        section.get_by_text(said, exact=True).wait_for()
