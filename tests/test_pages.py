"""Pages: nothing escapes from data, nothing is fetched, charts show every extreme, and labels can be read."""

import base64
import hashlib
import itertools
import json
import math
import re
import shutil
import subprocess

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from page_reader import CHROMIUM, check_geometry, labels, number_of, of_class, read, tree

from bertkit.errors import UsageError
from bertkit.pages import (
    Line,
    Markup,
    OtherScale,
    Reference,
    Score,
    confusion_matrix,
    data,
    details,
    element,
    findings,
    format_number,
    headline,
    heat_map,
    interval_chart,
    join,
    line_chart,
    page,
    paragraph,
    reliability_diagram,
    running_mean,
    section,
    share_bar,
    table,
    text,
    write_page,
)
from bertkit.pages.frame import Scale
from bertkit.pages.matrix import most_confused
from bertkit.pages.page import _own_file
from bertkit.pages.series import evenly, thin
from bertkit.pages.ticks import integer_ticks, linear_ticks, log_labels, log_ticks, tick_labels, time_labels, time_ticks

HOSTILE = [
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</style><style>*{display:none}</style>",
    "<!-- -->]]><![CDATA[",
    "&lt;b&gt; &amp;amp; &#x3c;script&#x3e;",
    "javascript:alert(1)",
    "\x00\x07\x1b[31m\x7f\x85 \ud800 \udfff \ufffe",
    "\u202egnp.exe \u2066\u2067",
    "a\r\nb\tc",
    "𝒳 é\u0301\u0301 日本語 🏳️\u200d🌈",
    "x" * 3_000,
    "",
]
LEFT_BY_NOTHING_ELSE = {"style", "script", "html", "head", "title", "meta", "body"}
ALLOWED = {
    *LEFT_BY_NOTHING_ELSE, "main", "h1", "h2", "h3", "p", "ul", "li", "span", "bdi", "dl", "div", "dt", "dd", "section",
    "figure", "figcaption", "details", "summary", "output", "table", "caption", "thead", "tbody", "tr", "th", "td",
    "code",
    "svg", "path", "circle", "rect", "line", "text", "polygon", "tfoot",
}  # fmt: skip
ALLOWED_ATTRIBUTES = re.compile(
    r"class|role|aria-(label|hidden)|tabindex|scope|lang|charset|content|name|http-equiv|"
    r"viewbox|preserveaspectratio|width|height|[cxyr]|c[xy]|dy|title|"
    r"[xy][12]|d|points|text-anchor|data-x"
)


def cleaned(value: str) -> str:
    """What a page shows of a string, computed character by character."""

    def allowed(code: int) -> bool:
        is_character = not (0xD800 <= code < 0xE000 or 0xFDD0 <= code < 0xFDF0 or code & 0xFFFE == 0xFFFE)
        return is_character and code >= 32 and not 127 <= code < 160

    return "".join(c if c in "\t\n\r" or allowed(ord(c)) else "\ufffd" for c in value)


def everything(name: str) -> list:
    """Every part a page can have, with a string of data wherever one fits."""
    x = np.arange(7.0)
    return [
        paragraph(name, data(name)),
        headline([(name, name, name)]),
        findings([("good", name), ("warning", data(name))]),
        section(name, details(name, name)),
        table([name, 2], [[name, 1.5], [share_bar(0.3), None]], caption=name),
        line_chart(
            name,
            [Line(name, x, x * x), Line(name, x, x, 2, "dots", x - 1, x + 1), Line(name, x[:3], x[:3], 3, "dashed")],
            x_name=name, y_name=name, references=[Reference(name, 3.0)], scales=[OtherScale(name, x, 2 * x)], note=name,
        ),
        interval_chart(name, [Score(name, 0.5, 0.4, 0.6), Score("b", 0.2)], x_name=name,
                       references=[Reference(name, 0.1)], note=name),
        heat_map(name, np.eye(2), [name, "b"], ["c", name], row_name=name, column_name=name),
        confusion_matrix(name, np.array([[3, 1], [0, 4]]), [name, "other"]),
        reliability_diagram(name, x / 7, x / 8, x, low=x / 9, high=x / 7.5, note=name),
    ]  # fmt: skip


# Escaping


@pytest.mark.parametrize("hostile", HOSTILE, ids=range(len(HOSTILE)))
def test_data_is_never_interpreted_as_markup(hostile):
    content = page(hostile, everything(hostile))
    content.encode("utf-8")
    reader = read(content)
    assert {tag for tag, _ in reader.elements} - ALLOWED == set()
    for tag, attributes in reader.elements:
        for name, value in attributes.items():
            assert ALLOWED_ATTRIBUTES.fullmatch(name) or (tag, name) == ("meta", "http-equiv"), (tag, name)
            assert name != "class" or re.fullmatch(r"[a-z0-9 -]+", value)
    assert outline(reader) == outline(read(page("x", everything("x"))))  # data adds no element and removes none
    assert reader.text_of("title")[:1] == [cleaned(hostile)] or not hostile
    assert reader.text.count(cleaned(hostile)) >= (15 if hostile else 0)


def outline(reader) -> list[str]:
    """The elements in their order."""
    return [tag for tag, _ in reader.elements]


@given(st.text())
@example("\ufdcf\ufdd0\ufdef\ufdf0\ufffd\ufffe\uffff\U0001fffd\U0001fffe\U0010ffff")
@settings(max_examples=200, deadline=None)
def test_text_comes_back_as_it_was(value):
    (part,) = [data for _, data in read(element("p", value, title=value)).texts] or [""]
    assert part == cleaned(value)


def test_elements():
    assert text("<&>\"'") == "&lt;&amp;&gt;&quot;&#x27;"
    assert element("p", ["a", element("b", "<"), None, 3], class_="x", data_y=None) == '<p class="x">a<b>&lt;</b>3</p>'
    assert element("line", x1=1.0, x2=2.345, y1=0.1 + 0.2) == '<line x1="1" x2="2.35" y1="0.3"></line>'
    assert element("meta", content='"') == '<meta content="&quot;">'
    assert element("p", (str(n) for n in range(3))) == "<p>012</p>"
    assert element("td", data("a<b")) == "<td><bdi>a&lt;b</bdi></td>"


# The page


def test_page_forbids_all_but_its_own_style_and_script(tmp_path):
    out = tmp_path / "page.html"
    write_page(out, "title", everything("name"))
    raw = out.read_bytes()
    content = raw.decode()
    assert content.startswith("<!DOCTYPE html>\n<html lang=") and b"\r" not in raw
    reader = read(content)
    (policy,) = [attributes["content"] for tag, attributes in reader.elements if attributes.get("http-equiv")]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    for kind in ("style", "script"):
        (inside,) = re.findall(rf"<{kind}>(.*?)</{kind}>", content, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert rules[f"{kind}-src"] == f"'sha256-{digest}'"
        assert len(inside) > 500
    assert {name: rules[name] for name in ("default-src", "base-uri", "form-action")} == dict.fromkeys(
        ("default-src", "base-uri", "form-action"), "'none'"
    )
    assert not re.search(r"url\(|@import|https?:|src=|href=|innerHTML|eval|fetch|import\b", content)
    order = [next(iter(attributes)) for tag, attributes in reader.elements if tag == "meta"]
    assert order[:2] == ["charset", "http-equiv"]  # the policy stands before what it governs


def test_page_is_written_atomically(tmp_path):
    out = tmp_path / "page.html"
    out.write_text("old")
    with pytest.raises(ZeroDivisionError):
        write_page(out, "title", (1 / 0 for _ in range(1)))
    assert out.read_text() == "old" and list(tmp_path.iterdir()) == [out]
    with pytest.raises(UsageError, match="does not exist"):
        write_page(tmp_path / "nowhere" / "page.html", "title", [])


def test_tables_set_numbers_to_the_right_and_keep_them_exact():
    reader = read(table(["name", "count", "share"], [["a", 4_393_342, 0.25], ["b", None, np.float32(0.5)]]))
    cells = [attributes.get("class") for tag, attributes in reader.elements if tag == "td"]
    assert cells == [None, "number", "number"] * 2
    assert reader.text == "namecountsharea4,393,3420.2500b0.5000"
    assert "number" not in table(["mixed"], [[1], ["one"]])


# Numbers and ticks


@given(
    st.floats(-1e9, 1e9), st.floats(1e-6, 1e9), st.integers(2, 12),
)  # fmt: skip
@settings(max_examples=300, deadline=None)
def test_linear_ticks_are_round_even_and_within(low, width, most):
    high = low + width
    if high - low < 1e-9 * max(abs(low), abs(high)):
        return
    ticks = linear_ticks(low, high, most)
    assert len(ticks) <= most
    slack = 1e-6 * (high - low)
    assert all(low - slack <= tick <= high + slack for tick in ticks)
    if most >= 5:
        assert len(ticks) >= 2
    if len(ticks) >= 2:
        step = ticks[1] - ticks[0]
        np.testing.assert_allclose(np.diff(ticks), step, rtol=1e-4)  # they are large numbers that differ little
        mantissa = step / 10 ** math.floor(math.log10(step) + 1e-9)
        assert min(abs(mantissa - factor) for factor in (1, 2, 5, 10)) < 1e-3
        assert len(set(tick_labels(ticks))) == len(ticks)


@given(st.integers(0, 10**6), st.integers(1, 10**6), st.integers(2, 12))
@settings(max_examples=300, deadline=None)
def test_integer_ticks_are_integers_and_fit(low, width, most):
    ticks = integer_ticks(float(low), float(low + width), most)
    assert 1 <= len(ticks) <= most and all(tick.is_integer() and low <= tick <= low + width for tick in ticks)
    if width < most:
        assert ticks == [float(number) for number in range(low, low + width + 1)]
    assert not any("." in label for label in tick_labels(ticks) if not label.endswith("M"))


def test_step_axis_has_integer_ticks():
    x = np.array([10.0, 11.0])
    content = line_chart("t", [Line("a", x, x)], x_name="step", x_kind="integer", y_name="loss")
    (axis,) = of_class(tree(content), "strip")[1:]
    assert labels(axis, "x") == {"10": 0, "11": 100}


@given(st.floats(1e-12, 1e12), st.floats(1.01, 1e9), st.integers(3, 10))
@settings(max_examples=300, deadline=None)
def test_log_ticks_are_in_range_and_distinct(low, ratio, most):
    ticks = log_ticks(low, low * ratio, most)
    assert len(ticks) <= most and ticks == sorted(set(ticks))
    assert all(low * (1 - 1e-6) <= tick <= low * ratio * (1 + 1e-6) for tick in ticks)
    assert len(set(log_labels(ticks))) == len(ticks)
    if most >= 6:
        assert len(ticks) >= 2


@given(st.floats(0, 1e6), st.floats(0.1, 1e7), st.integers(3, 10))
@settings(max_examples=300, deadline=None)
def test_time_ticks_are_in_range_and_distinct(low, width, most):
    ticks = time_ticks(low, low + width, most)
    assert len(ticks) <= most
    assert all(low - 1e-6 * width <= tick <= low + width * (1 + 1e-6) for tick in ticks)
    assert len(set(time_labels(ticks))) == len(ticks)


def test_labels_say_the_numbers():
    def said(label: str) -> float:
        number, _, unit = label.partition(" ")
        number = number.translate(str.maketrans("−⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "--0123456789")).replace(",", "")
        number = (
            re.sub(r"^(-?)10(-?\d+)$", r"\g<1>1e\2", re.sub(r"×10(-?\d+)$", r"e\1", number))
            if re.search("[⁰-⁹¹²³]", label)
            else number
        )
        return float(number) * {"": 1, "M": 1e6, "B": 1e9, "T": 1e12, "s": 1, "min": 60, "h": 3_600, "d": 86_400}[unit]

    generator = np.random.default_rng(5)
    for _ in range(300):
        low = generator.normal() * 10 ** generator.uniform(-6, 9)
        ticks = linear_ticks(low, low + 10 ** generator.uniform(-1, 2) * abs(low), 7)
        np.testing.assert_allclose([said(label) for label in tick_labels(ticks)], ticks, rtol=1e-6, atol=1e-12)
        ticks = log_ticks(abs(low), abs(low) * 10 ** generator.uniform(0.2, 9), 6)
        np.testing.assert_allclose([said(label) for label in log_labels(ticks)], ticks, rtol=1e-6)
        ticks = time_ticks(0, 10 ** generator.uniform(0, 6), 7)
        np.testing.assert_allclose([said(label) for label in time_labels(ticks)], ticks, rtol=1e-6)


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0, "0"), (-3, "−3"), (1234.5, "1,234"), (0.00123456, "0.001235"), (9.9999, "10.000"), (2e-5, "2×10⁻⁵"),
        (-1e-4, "−10⁻⁴"), (1e15, "10¹⁵"), (2**53, "9.007×10¹⁵"), (math.inf, "infinite"), (-math.inf, "−infinite"),
    ],
)  # fmt: skip
def test_numbers(value, written):
    assert format_number(value) == written


# Series


def test_thinning_keeps_the_ends_and_extremes_of_every_column():
    generator = np.random.default_rng(3)
    y = generator.normal(size=100_000)
    y[70_001] = 99.0
    columns = np.floor(np.linspace(0, 640, len(y)))
    kept = thin(columns, y)
    assert len(kept) <= 4 * 641
    for column in np.unique(columns):
        of_column = np.flatnonzero(columns == column)
        of_kept = kept[(kept >= of_column[0]) & (kept <= of_column[-1])]
        assert y[of_kept].min() == y[of_column].min() and y[of_kept].max() == y[of_column].max()
        assert of_kept[0] == of_column[0] and of_kept[-1] == of_column[-1]
    assert 70_001 in kept
    assert thin(np.arange(5.0), np.ones(5)).tolist() == [0, 1, 2, 3, 4]
    assert thin(np.empty(0), np.empty(0)).tolist() == []


def test_running_mean_equals_the_plain_loop():
    generator = np.random.default_rng(4)
    y = generator.normal(size=53)
    y[[7, 8, 9, 30]] = np.nan
    y[31] = np.inf
    for window in (1, 3, 6, 101):
        expected = []
        for index in range(len(y)):
            half = min(window // 2, index)
            around = [value for value in y[index - half : index + half + 1] if math.isfinite(value)]
            expected.append(sum(around) / len(around) if around else math.nan)
        np.testing.assert_allclose(running_mean(y, window), expected, atol=1e-12)
    assert len(running_mean(np.empty(0), 5)) == 0


def test_evenly():
    assert evenly(0, 5).tolist() == [] and evenly(1, 5).tolist() == [0] and evenly(3, 5).tolist() == [0, 1, 2]
    assert evenly(101, 5).tolist() == [0, 25, 50, 75, 100]


# Line charts


def path_points(content: str, class_: str) -> list[tuple[str, float, float]]:
    path = of_class(of_class(tree(content), "plot")[0], class_)[0]
    return [(m, float(a), float(b)) for m, a, b in re.findall(r"([ML])([-\d.]+) ([-\d.]+)", path.attrib["d"])]


def test_points_lie_where_the_axes_say():
    x, y = np.array([0.0, 5.0, 10.0]), np.array([1.0, 3.0, 2.0])
    content = line_chart("t", [Line("a", x, y)], x_name="step", y_name="loss")
    points = path_points(content, "line")
    y_labels, x_labels = (
        labels(strip, axis) for strip, axis in zip(of_class(tree(content), "strip"), "yx", strict=True)
    )
    assert {"0", "2", "10"} <= set(x_labels) and {"1.0", "2.0", "3.0"} <= set(y_labels)
    for label, position in x_labels.items():
        assert position == pytest.approx(10 * float(label), abs=0.01)
    assert [move for move, *_ in points] == ["M", "L", "L"]
    for (_, across, up), a, b in zip(points, x, y, strict=True):
        assert (across, up) == (pytest.approx(10 * a, abs=0.01), pytest.approx(y_labels[f"{b:.1f}"], abs=0.01))
    assert re.findall(r'data-x="([^"]+)"', content) == ["0", "50", "100"]
    logarithmic = line_chart("t", [Line("a", x + 1, y)], x_name="step", y_name="loss", x_kind="log", y_kind="log")
    expected = [(100 * math.log(a) / math.log(11), math.log(b)) for a, b in zip(x + 1, y, strict=True)]
    points = path_points(logarithmic, "line")
    assert [a for _, a, _ in points] == [pytest.approx(a, abs=0.01) for a, _ in expected]
    share = (points[0][2] - points[2][2]) / (points[0][2] - points[1][2])
    assert share == pytest.approx(math.log(2) / math.log(3), abs=0.001)


def test_gaps_are_kept_and_undrawable_points_counted():
    y = np.array([1.0, np.nan, 2.0, 3.0, np.inf, 1e200, 2.5])
    content = line_chart("t", [Line("a", np.arange(7.0), y)], x_name="step", y_name="loss")
    assert [move for move, *_ in path_points(content, "line")] == ["M", "M", "L", "M"]
    assert "Not shown: 2 points without a finite value; 1 point beyond 10¹⁰⁰." in content
    assert re.search(r'd="M[^"ML]+h0M', content)  # a point alone is a dot
    logarithmic = line_chart(
        "t", [Line("a", np.arange(3.0), np.array([0.0, 1.0, 10.0]))], x_name="s", y_name="", y_kind="log"
    )
    assert "Not shown: 1 point at or below 0, as the axis is logarithmic." in logarithmic


def test_hundred_thousand_points_are_drawn_by_their_extremes():
    generator = np.random.default_rng(8)
    x, y = np.arange(100_000.0), generator.normal(size=100_000)
    y[54_321], y[12_345] = 9.0, -9.0
    content = line_chart(
        "t", [Line("a", x, y, look="faint"), Line("b", x, running_mean(y, 999))], x_name="step", y_name="loss"
    )
    assert len(content) < 250_000
    heights = [b for _, _, b in path_points(content, "faint")]
    indices = labels(of_class(tree(content), "strip")[0], "y")
    zero, five = indices["0"], indices["5"]
    assert min(heights) == pytest.approx(zero + 9 * (five - zero) / 5, abs=0.1)
    assert max(heights) == pytest.approx(zero - 9 * (five - zero) / 5, abs=0.1)
    assert "200 of 100,000 points" in content


def test_chart_table_has_its_numbers():
    lines = [
        Line("a", np.array([1.0, 2.0, 4.0]), np.array([1.5, 2.5, np.nan])),
        Line("b", np.array([2.0, 3.0]), np.array([7.0, 8.0])),
    ]
    scales = [OtherScale("time", np.array([1.0, 4.0]), np.array([0.0, 90.0]), "time")]
    content = line_chart("t", lines, x_name="step", y_name="loss", scales=scales)
    rows = [["".join(cell.itertext()) for cell in row] for row in tree(content).iter("tr")]
    assert rows == [
        ["step", "time", "a", "b"],
        ["1", "0 s", "1.5000", ""],
        ["2", "30 s", "2.5000", "7"],
        ["3", "1 min", "", "8"],
        ["4", "1 min 30 s", "not a number", ""],
    ]
    assert re.findall(r'data-x="([^"]+)"', content) == ["0", "33.33", "66.67", "100"]


def test_other_scales_have_their_marks_where_the_values_are():
    """Tokens that grow with the square of the step: the marks lie at square roots."""
    steps = np.arange(101.0)
    content = line_chart(
        "t", [Line("a", steps, steps)], x_name="step", y_name="", scales=[OtherScale("tokens", steps, steps**2)]
    )
    positions = labels(of_class(tree(content), "strip")[-1], "x")
    for label, position in positions.items():
        assert position == pytest.approx(math.sqrt(float(label.replace(",", ""))), abs=0.01)
    assert len(positions) >= 3


ODD = {
    "none": None,
    "empty": (np.empty(0), np.empty(0)),
    "one point": (np.array([3.0]), np.array([2.0])),
    "constant": (np.arange(5.0), np.full(5, 7.0)),
    "all missing": (np.arange(5.0), np.full(5, np.nan)),
    "tiny": (np.arange(5.0), np.arange(5.0) * 1e-12),
    "huge": (np.arange(5.0), np.arange(5.0) * 1e90),
    "close": (np.arange(5.0), 1e6 + np.arange(5.0) * 1e-3),
    "same x": (np.zeros(5), np.arange(5.0)),
}


def test_odd_series_make_a_chart_with_numbers_only():
    contents = []
    for (name, series), kind in itertools.product(ODD.items(), ("linear", "log", "time")):
        lines = [] if series is None else [Line(name, *series)]
        content = line_chart(
            f"{name}, {kind}", lines, x_name="step", y_name="loss", x_kind=kind, y_kind=kind,
            references=[Reference("r", 3.0)],
        )  # fmt: skip
        read(content)
        assert "nan" not in content and not re.search(r'="[^"]*\binf\b', content)
        contents.append(content)
    check_geometry("".join(contents))


def test_series_that_are_not_series_raise():
    with pytest.raises(AssertionError, match="ascending"):
        line_chart("t", [Line("a", np.array([2.0, 1.0]), np.ones(2))], x_name="", y_name="")
    with pytest.raises(AssertionError, match="lengths"):
        line_chart("t", [Line("a", np.array([1.0, 2.0]), np.ones(3))], x_name="", y_name="")


# Geometry


NAMES = [
    "loss",
    "training, smoothed",
    "held-out",
    "a name that is much too long to stand beside a line",
    "日本語の名前",
    "W" * 9,
]


def random_line_chart(seed: int) -> Markup:
    generator = np.random.default_rng(seed)
    x_kind, y_kind = generator.choice(["linear", "integer", "log", "time"], 2)
    scale = 10.0 ** generator.uniform(-6, 8)
    lines = []
    for number in range(generator.integers(1, 6)):
        x = np.sort(generator.uniform(0.1, 10 ** generator.uniform(0, 7), generator.integers(2, 50)))
        y = scale * (generator.uniform(0.5, 3) + 0.1 * np.abs(generator.normal(size=len(x))))
        look = str(generator.choice(["line", "dots", "dashed"]))
        lines.append(Line(NAMES[generator.integers(len(NAMES))], x, y, number + 1, look))
    longest = max(line.x[-1] for line in lines)
    lines = [Line(line.name, line.x * longest / line.x[-1], line.y, line.color, line.look) for line in lines]
    along = np.linspace(0, longest, 20)
    scales = [
        OtherScale("tokens", along, np.cumsum(generator.uniform(0, 1e7, 20))),
        OtherScale("time", along, along**1.5, "time"),
    ]
    levels = [Reference(NAMES[3], lines[0].y[0]), Reference("a level", lines[-1].y[-1] * 1.01)]
    return line_chart(
        f"seed {seed}", lines, x_name="step", references=levels[: generator.integers(3)],
        y_name="nats per token", x_kind=str(x_kind), y_kind=str(y_kind),
        scales=scales[: generator.integers(3)], height=int(generator.choice([130, 280])),
    )  # fmt: skip


def random_other_charts(seed: int) -> Markup:
    generator = np.random.default_rng(100 + seed)
    count = int(generator.integers(1, 9))
    values = generator.normal(size=count) * 10.0 ** generator.uniform(-3, 6)
    errors = np.abs(generator.normal(size=count)) * np.abs(values)
    scores = [
        Score(NAMES[generator.integers(len(NAMES))], float(v), float(v - e), float(v + e))
        for v, e in zip(values, errors, strict=True)
    ]
    names = [f"{NAMES[generator.integers(len(NAMES))]} {number}" for number in range(count)]
    short = [str(number) for number in range(3 * count)]
    return join([
        interval_chart(f"{seed}: scores", scores, x_name="macro F1", references=[Reference("baseline", values[0])]),
        confusion_matrix(f"{seed}: c", generator.integers(0, 10 ** generator.integers(1, 6), (count, count)), names),
        heat_map(f"{seed}: h", generator.uniform(size=(count, 3 * count)), names, short, row_name="query",
                 column_name="key"),
        reliability_diagram(f"{seed}: reliability", generator.uniform(size=10), generator.uniform(size=10),
                            generator.integers(0, 99, 10)),
    ])  # fmt: skip


@pytest.mark.full(sample=1)
@pytest.mark.parametrize("made", [random_line_chart, random_other_charts])
def test_chart_labels_do_not_overlap(made):
    if CHROMIUM is None:
        pytest.skip("no browser is installed")
    check_geometry(join(made(seed) for seed in range(40)))


def test_scales():
    assert Scale(0, 10, 100, 200)(5) == 150
    np.testing.assert_allclose(Scale(1, 100, 0, 200, "log")([1, 10, 100]), [0, 100, 200])
    assert Scale(0, 7200, 0, 600, "time").ticks(5)[1] == ["0", "30 min", "60 min", "90 min", "120 min"]


# Bars, matrices, calibration


def test_intervals_lie_where_the_axis_says_and_are_written_out():
    scores = [Score("a", 2.0, 1.5, 3.0), Score("b", -1.0), Score("c", math.nan)]
    content = interval_chart("t", scores, x_name="score", references=[Reference("level", 0.5)])
    names, *rows, axis = of_class(tree(content), "strip")
    positions = {float(label.replace("−", "-")): x for label, x in labels(axis, "x").items()}
    slope, start = np.polyfit(list(positions), list(positions.values()), 1)

    def at(value: float):
        return pytest.approx(start + slope * value, abs=0.02)

    assert labels(names, "x") == {"level": at(0.5)}
    for row in rows:
        (level,) = of_class(row, "reference")
        assert number_of(level, "x1") == number_of(level, "x2") == at(0.5)
    (interval,) = of_class(tree(content), "interval")
    assert (number_of(interval, "x1"), number_of(interval, "x2")) == (at(1.5), at(3))
    assert [number_of(dot, "cx") for row in rows for dot in row.iter("circle")] == [at(2), at(-1)]
    texts = ["".join(row.itertext()) for row in tree(content).iter("tr")][1:-1]
    assert texts == ["a2 1.50 to 3", "b−1 ", "cnot a number "]


def test_references_that_are_not_finite_are_not_drawn_beside_intervals():
    references = [Reference(str(value), value) for value in (math.nan, math.inf, -math.inf, 1e200)]
    plain = interval_chart("t", [Score("a", 2.0, 1.5, 3.0)], x_name="score")
    assert str(interval_chart("t", [Score("a", 2.0, 1.5, 3.0)], x_name="score", references=references)) == str(plain)


def shades_of(matrix) -> dict[str, float]:
    """The shares of all shaded cells, by what is said of each."""
    cells = [cell for cell in matrix.iter("td") if "class" in cell.attrib]
    return {cell.attrib["title"]: int(cell.attrib["class"].split()[0][1:]) / 100 for cell in cells}


def test_squares_are_shaded_by_share_of_the_row():
    counts = np.array([[30, 10, 0], [0, 0, 0], [5, 5, 90]])
    content = confusion_matrix("t", counts, ["x", "y", "z"])
    (matrix,) = of_class(tree(content), "matrix")
    assert shades_of(matrix) == {
        "true x, predicted x: 30": 0.75, "true x, predicted y: 10": 0.25,
        "true z, predicted x: 5": 0.05, "true z, predicted y: 5": 0.05, "true z, predicted z: 90": 0.9,
    }  # fmt: skip
    rows = [["".join(cell.itertext()) for cell in row] for row in matrix.iter("tr")]
    assert rows == [
        ["true \\ predicted", "x", "y", "z"],
        ["x", "30", "10", ""],
        ["y", "", "", ""],
        ["z", "5", "5", "90"],
    ]
    assert [cell.attrib["scope"] for cell in matrix.iter("th") if "scope" in cell.attrib] == ["col"] * 3 + ["row"] * 3
    shaded = page("x", [content])
    assert all(f".s{number}{{--shade:{number}%}}" in shaded for number in (1, 5, 75, 100))


def test_large_matrices_stay_small_files():
    generator = np.random.default_rng(2)
    counts = np.diag(generator.integers(1, 40, 77))
    counts[generator.integers(0, 77, 200), generator.integers(0, 77, 200)] += 1
    content = confusion_matrix("t", counts, [f"label {index}" for index in range(77)])
    assert len(content) < 400_000
    check_geometry(content)


def test_confusion_matrix_of_many_labels_shows_the_most_confused():
    generator = np.random.default_rng(3)
    counts, labels = np.diag(generator.integers(15, 30, 150)), [f"label {index}" for index in range(150)]
    for true, predicted in generator.integers(0, 150, (60, 2)):
        counts[true, predicted] += 1
    planted = [7, 40, 41, 99, 148]
    counts[np.ix_(planted, planted)] += 6
    content = confusion_matrix("Confusions", counts, labels, note="By share.")
    shown, _, rest = content.partition("<details>")
    block, whole = map(shades_of, of_class(tree(content), "matrix"))
    for true in planted:  # the shares are of the whole row
        (share,) = [share for name, share in block.items() if name.startswith(
            f"true label {true}, predicted label {true}:"
        )]  # fmt: skip
        assert share == pytest.approx(counts[true, true] / counts[true].sum(), abs=0.005)
        for predicted in planted:
            assert f"true label {true}, predicted label {predicted}: {counts[true, predicted]}" in block
    chosen = most_confused(counts, 20)
    block_counts = counts[np.ix_(chosen, chosen)]
    inside, wrong = block_counts.sum() - block_counts.trace(), counts.sum() - counts.trace()
    assert (
        f"The {len(chosen)} of 150 labels with the most confusions among them: {inside} of {wrong}. By share." in shown
    )
    assert len(whole) == (counts > 0).sum()
    assert "All 150 labels" in rest and "All 150 labels" not in shown
    check_geometry(content)


def test_most_confused_labels():
    counts = np.zeros((30, 30), np.int64)
    counts[3, 5], counts[5, 3], counts[9, 3], counts[20, 21] = 4, 1, 2, 1
    before = counts.copy()
    assert most_confused(counts, 2).tolist() == [3, 5]
    assert most_confused(counts, 3).tolist() == [3, 5, 9]
    assert most_confused(counts, 20).tolist() == [3, 5, 9, 20, 21]  # none that is confused with no other
    assert most_confused(np.diag([4, 2]), 2).tolist() == [] and (counts == before).all()
    content = confusion_matrix("t", np.diag([2] * 30), [f"label {index}" for index in range(30)])
    assert "No label was confused with another." in content and "All 30 labels" in content
    assert "All" not in confusion_matrix("t", np.diag([2] * 20), [f"label {index}" for index in range(20)])


def test_reliability_points_lie_at_confidence_and_accuracy():
    confidence, accuracy = np.array([0.25, math.nan, 0.75]), np.array([0.5, math.nan, 0.75])
    content = reliability_diagram("t", confidence, accuracy, np.array([10, 0, 40]))
    (plot,) = of_class(tree(content), "plot")
    points = [(number_of(dot, "cx"), number_of(dot, "cy")) for dot in plot.iter("circle")]
    (diagonal,) = of_class(plot, "reference")
    x1, y1, x2, y2 = (number_of(diagonal, name) for name in ("x1", "y1", "x2", "y2"))
    assert points == [
        (pytest.approx(x1 + 0.25 * (x2 - x1), abs=0.02), pytest.approx(y1 + 0.5 * (y2 - y1), abs=0.02)),
        (pytest.approx(x1 + 0.75 * (x2 - x1), abs=0.02), pytest.approx(y1 + 0.75 * (y2 - y1), abs=0.02)),
    ]
    heights = [number_of(bar, "height") for bar in of_class(tree(content), "bar")]
    assert heights[1] == pytest.approx(4 * heights[0], rel=0.01)
    up, across = (labels(strip, axis) for strip, axis in zip(of_class(tree(content), "strip"), "yx", strict=False))
    assert (up["0"], up["1.0"], across["0"], across["1.0"]) == (100, 0, 0, 100)


# Colors


def themes() -> dict[str, dict[str, str]]:
    css = _own_file("page.css")
    light, dark = (
        dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", block)) for block in re.findall(r":root \{(.*?)\}", css, re.DOTALL)
    )
    return {"light": light, "dark": dark}


def linear_rgb(color: str) -> np.ndarray:
    rgb = np.array([int(color[index : index + 2], 16) / 255 for index in (1, 3, 5)])
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def luminance_of(color: str) -> float:
    return float(np.array([0.2126, 0.7152, 0.0722]) @ linear_rgb(color))


def lab(rgb: np.ndarray) -> np.ndarray:
    """CIE L*a*b* of linear sRGB."""
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ rgb
    f = np.cbrt(np.maximum(xyz / [0.9505, 1.0, 1.089], 1e-4))
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


SIGHTS = {  # Machado, Oliveira & Fernandes 2009, severity 1
    "common": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_colors_have_contrast_and_are_distinguishable(theme):
    colors = themes()[theme]
    luminance = {name: luminance_of(color) for name, color in colors.items()}

    def contrast(one: str, other: str) -> float:
        high, low = sorted((luminance[one], luminance[other]), reverse=True)
        return (high + 0.05) / (low + 0.05)

    for name in ("ink", "soft", "c1", "c2", "c3", "c4", "c5", "c6"):  # WCAG 2.2, 1.4.3
        assert contrast(name, "paper") >= 4.5, name
        assert contrast(name, "sheet") >= 4.5, name
    for mask, matrix in SIGHTS.items():
        seen = {
            name: lab(np.clip(matrix @ linear_rgb(colors[name]), 0, 1)) for name in ("c1", "c2", "c3", "c4", "c5", "c6")
        }
        for one in seen:
            for other in seen:
                if one < other:
                    assert np.linalg.norm(seen[one] - seen[other]) > 15, (mask, one, other)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_numbers_on_shaded_cells_have_contrast(theme):
    colors = themes()[theme]

    def rgb(color: str) -> np.ndarray:
        return np.array([int(color[index : index + 2], 16) for index in (1, 3, 5)])

    rules = re.findall(r"\.(s\d+)\{--over:#(\w)\w\w\}", page("x", []))
    over = {name: "#" + 6 * digit for name, digit in (rules[:100] if theme == "light" else rules[100:])}
    assert len(over) == 100
    shares = np.linspace(0, 1, 101)
    counts = np.stack([1_000 * shares, 1_000 - 1_000 * shares], axis=1).round().astype(int)
    for index in range(len(shares)):
        (matrix,) = of_class(tree(confusion_matrix("t", np.stack([counts[index], [1, 0]]), ["x", "y"])), "matrix")
        for cell in [cell for cell in matrix.iter("td") if "class" in cell.attrib]:
            shade_class = cell.attrib["class"]
            share = int(shade_class[1:]) / 100
            shade = np.round(share * rgb(colors["c1"]) + (1 - share) * rgb(colors["sheet"])).astype(int)
            letters = over[shade_class]
            high, low = sorted((luminance_of("#" + bytes(shade.tolist()).hex()), luminance_of(letters)), reverse=True)
            assert (high + 0.05) / (low + 0.05) >= 4.5, share  # the least that WCAG asks


def test_every_class_of_a_drawing_has_a_style():
    css = _own_file("page.css")
    used = {
        name
        for _, attributes in read(page("x", everything("x"))).elements
        for name in (attributes.get("class") or "").split()
    }
    styled = set(re.findall(r"\.([a-z][a-z0-9-]*)", css))
    unstyled = {name for name in used - styled if not re.fullmatch(r"s\d+", name)}  # shades are generated
    assert unstyled <= {"page", "good", "note", "dots"}


# The script


def test_pointing_at_a_chart_reads_its_table(tmp_path):
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    x = np.array([1.0, 10.0, 100.0, 1000.0])
    content = line_chart(
        "t", [Line("a", x, x / 4), Line("b", x[:2], x[:2])], x_name="step", y_name="loss", x_kind="log"
    )
    head, *rows = list(tree(content).iter("tr"))
    page_facts = {
        "head": ["".join(cell.itertext()) for cell in head],
        "rows": [{"x": row.attrib["data-x"], "cells": ["".join(cell.itertext()) for cell in row]} for row in rows],
    }
    program = tmp_path / "program.js"
    program.write_text(_STUB % json.dumps(page_facts) + _own_file("hover.js") + _POINT)
    done = subprocess.run(["node", str(program)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    readouts = json.loads(done.stdout)
    assert readouts["middle"] == ["step 10  ·  a 2.5000  ·  b 10", "33.33%", True]
    assert readouts["beyond"] == ["step 1,000  ·  a 250", "100%", True]
    assert readouts["left"][0] == "" and readouts["left"][2] is False
    assert readouts["key"][0] == "step 1  ·  a 0.25000  ·  b 1"
    assert readouts["next key"][0].startswith("step 10 ")


_STUB = """
const facts = %s;
const cell = (text) => ({ textContent: text });
const row = (cells, x) => ({ cells: cells.map(cell), dataset: { x } });
const table = { tHead: { rows: [row(facts.head)] }, tBodies: [{ rows: facts.rows.map((r) => row(r.cells, r.x)) }] };
const readout = { textContent: "" }, at = {}, classes = new Set(), listeners = {};
const cursor = { setAttribute: (name, value) => { at[name] = value; } };
const plot = {
  querySelector: () => cursor, setAttribute() {},
  classList: { add: (name) => classes.add(name), remove: (name) => classes.delete(name) },
  addEventListener: (name, listener) => { listeners[name] = listener; },
  getBoundingClientRect: () => ({ left: 50, width: 200 }),
};
const figure = { querySelector: (what) => ({ table, ".readout": readout, ".plot": plot })[what] };
const document = { querySelectorAll: () => [figure] };
"""
_POINT = """
const readouts = {};
const record = (name) => { readouts[name] = [readout.textContent, at.x1, classes.has("reading")]; };
listeners.pointermove({ clientX: 50 + 0.4 * 200 }); record("middle");
listeners.pointermove({ clientX: 50 + 210 }); record("beyond");
listeners.pointerleave({}); record("left");
const press = (key) => listeners.keydown({ key, preventDefault() {} });
press("ArrowRight"); record("key");
press("ArrowRight"); record("next key");
console.log(JSON.stringify(readouts));
"""
