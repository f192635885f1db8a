"""The report of a pre-training run: one page with its curves against what was expected, its samples and settings."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bertkit.pages import (
    Line,
    Markup,
    OtherScale,
    Reference,
    data,
    element,
    findings,
    format_number,
    format_seconds,
    format_short,
    headline,
    join,
    line_chart,
    page,
    paragraph,
    section,
    share_bar,
    table,
    write_page,
)
from bertkit.pages.series import evenly
from bertkit.reports.recorded_run import Series, TrainingRun
from bertkit.reports.training_findings import (
    best_known_loss,
    expected_curve,
    expected_origin,
    findings_of,
    setting,
    smoothed,
    smoothing_window,
)

_TRAINING, _HELD_OUT, _EXPECTED = 1, 2, 6  # colors
_SMALL = 130  # pixels of height of the minor charts
_MOST_EVALUATIONS, _MOST_SAMPLES, _MOST_CANDIDATES = 100, 8, 5


def write_training_report(run: TrainingRun, out: Path) -> None:
    """Write the page, whole or not at all.

    Raises:
        UsageError: the folder of ``out`` does not exist, or ``out`` is a folder.
    """
    write_page(out, _title(run), _parts(run))


def training_report(run: TrainingRun) -> str:
    """The page as a string."""
    return page(_title(run), _parts(run))


def _title(run: TrainingRun) -> str:
    return f"Pre-training: {run.folder.resolve().name}"


def _parts(run: TrainingRun) -> list[Markup]:
    inputs = {"inputs": run.start["inputs"]} if isinstance(run.start.get("inputs"), dict) else {}
    return [
        paragraph(_subtitle(run)),
        headline(list(_headline(run))),
        findings([(kind, data(sentence)) for kind, sentence in findings_of(run)]),
        section("Loss", *_loss_charts(run)),
        section("Accuracy", *_accuracy_charts(run)),
        section("Optimization and speed", *_driving_charts(run)),
        *([section("What it fills in", _samples_note(), *_samples(run))] if run.samples else []),
        *([section("Every evaluation", _evaluations(run.evaluations))] if len(run.evaluations) else []),
        *([section("Corpus", table(["fact", "value"], corpus))] if (corpus := list(_corpus(run))) else []),
        section("Settings", table(["setting", "value"], [*_flat(inputs), *_flat(run.settings)])),
    ]


def _subtitle(run: TrainingRun) -> Markup:
    started = run.starts[0].get("time") if run.starts else None
    parts = [f"Started {started}" if started else None, run.start.get("processor")]
    versions = run.start.get("versions")
    if isinstance(versions, dict):
        parts.append(", ".join(f"{name} {version}" for name, version in versions.items()))
    return element("span", data(" · ".join(str(part) for part in parts if part)), class_="note")


def _headline(run: TrainingRun) -> Iterator[tuple[str, object, object]]:
    steps = run.steps
    num_parameters = run.number("num_parameters")
    if np.isfinite(num_parameters):
        named = [setting(run.settings, name) for name in ("architecture", "size")]
        yield (
            "Model",
            format_short(num_parameters),
            join(["parameters", [[", ", data(name)] for name in named if name]]),
        )
    tokens, seconds = steps["tokens"][-1], steps["seconds"][-1]
    if np.isfinite(tokens):
        corpus = run.number("corpus", "num_tokens")
        passes = f", {tokens / corpus:.3g} times the corpus" if corpus > 0 else ""
        yield "Tokens read", format_short(tokens), f"in {int(steps['step'][-1]):,} steps{passes}"
    if np.isfinite(seconds):
        speed = (
            f"{format_short(float(f'{tokens / seconds:.3g}'))} tokens per second" if tokens > 0 and seconds > 0 else ""
        )
        yield "Time", format_seconds(float(seconds)), speed
    known_at, loss = best_known_loss(run)
    if not len(loss):
        return
    if not run.evaluations.has("masked_lm_loss"):
        yield "Training loss", f"{loss[-1]:.3f}", "masked LM, in nats; nothing was evaluated"
        return
    best = int(np.argmin(loss))
    remark = "the best of the run" if best == len(loss) - 1 else f"best {loss[best]:.3f}, step {int(known_at[best]):,}"
    yield "Held-out loss", f"{loss[-1]:.3f}", f"masked LM, in nats; {remark}"
    yield "Perplexity", format_number(math.exp(min(loss[-1], 700.0)), 3), "of held-out masked tokens"
    for name, title in (("masked_lm_accuracy", "Accuracy"), ("next_sentence_accuracy", "Next sentence")):
        values = run.evaluations[name][np.isfinite(run.evaluations[name])]
        if len(values):
            yield title, f"{100 * values[-1]:.1f} %", f"held-out; best {100 * values.max():.1f} %"


def _loss_charts(run: TrainingRun) -> Iterator[Markup]:
    steps = run.steps
    references = _references(run)
    window = smoothing_window(steps)
    note = (
        f"Faint: as logged. Training is the mean of {window} lines of the log; it is measured at the mask rate of "
        "the step, held-out text always at 15 % with the same masks, so the two need not meet."
    )
    mean = smoothed(steps, "masked_lm_loss")
    expected_at, expected = _expected(run)
    yield line_chart(
        "Masked LM loss",
        [
            Line("training, each step", steps["step"], steps["masked_lm_loss"], _TRAINING, "faint"),
            Line("training", steps["step"], mean, _TRAINING),
            Line("held-out", run.evaluations["step"], run.evaluations["masked_lm_loss"], _HELD_OUT, "dots"),
            Line("expected", steps["step"][expected_at], expected, _EXPECTED, "dashed"),
        ],
        x_name="step",
        x_kind="integer",
        y_name="nats per masked token",
        references=references,
        scales=_scales(run),
        note=note,
    )
    if not steps.has("tokens"):
        return
    origin = expected_origin(run)
    tokens = _tokens(run, steps)
    yield line_chart(
        "The same over tokens read",
        [
            Line("training", tokens, mean, _TRAINING),
            Line("held-out", _tokens(run, run.evaluations), run.evaluations["masked_lm_loss"], _HELD_OUT, "dots"),
            Line("expected", tokens[expected_at], expected, _EXPECTED, "dashed"),
        ],
        x_name="tokens",
        y_name="nats per masked token",
        x_kind="log",
        references=references,
        note=join(
            ["Each doubling of the text takes as much width. ", ["Expected: ", data(origin), "."] if origin else []]
        ),
    )


def _expected(run: TrainingRun) -> tuple[np.ndarray, np.ndarray]:
    """Which steps lie within the recipe's expected curve, (n,) bool, and the loss expected at these."""
    curve = expected_curve(run)
    if curve is None or not run.steps.has("tokens"):
        return np.zeros(len(run.steps), bool), np.empty(0)
    tokens = _tokens(run, run.steps)
    inside = (tokens >= curve[0][0]) & (tokens <= curve[0][-1])
    return inside, np.interp(np.log(tokens[inside]), np.log(curve[0]), curve[1])


def _tokens(run: TrainingRun, series: Series) -> np.ndarray:
    """(n,) tokens read at each line of a series, ascending; between what the steps logged where the line has none."""
    known = np.isfinite(run.steps["tokens"])
    between = np.interp(series["step"], run.steps["step"][known], run.steps["tokens"][known])
    return np.maximum.accumulate(np.where(np.isfinite(series["tokens"]), series["tokens"], between))


def _references(run: TrainingRun) -> list[Reference]:
    """What a model without knowledge and one that knows word frequencies reach."""
    vocab_size, entropy = run.number("vocab_size"), run.number("corpus", "unigram_entropy")
    found = []
    if vocab_size > 1:
        fresh = math.log(vocab_size)
        found.append(Reference(f"a fresh model: ln {vocab_size:,.0f} = {fresh:.2f}", fresh))
    if np.isfinite(entropy):
        found.append(Reference(f"word frequencies alone: {entropy:.2f}", entropy))
    return found


def _scales(run: TrainingRun) -> list[OtherScale]:
    """Tokens and time along the steps, where they were logged at every step and only grow."""
    steps = run.steps
    return [
        OtherScale(title, steps["step"], steps[name], kind)
        for name, title, kind in (("tokens", "tokens", "integer"), ("seconds", "time", "time"))
        if bool(np.all(np.isfinite(steps[name])) and np.all(np.diff(steps[name]) >= 0))
    ]


def _accuracy_charts(run: TrainingRun) -> Iterator[Markup]:
    for name, title in (
        ("masked_lm_accuracy", "Masked LM accuracy"),
        ("next_sentence_accuracy", "Next sentence accuracy"),
    ):
        steps, evaluations = run.steps, run.evaluations
        if not steps.has(name) and not evaluations.has(name):
            continue
        lines = [
            Line("training, each step", steps["step"], 100 * steps[name], _TRAINING, "faint"),
            Line("training", steps["step"], 100 * smoothed(steps, name), _TRAINING),
            Line("held-out", evaluations["step"], 100 * evaluations[name], _HELD_OUT, "dots"),
        ]
        lines = [line for line in lines if not np.all(np.isnan(line.y))]
        guessing = [Reference("guessing", 50.0)] if name == "next_sentence_accuracy" else []
        yield line_chart(title, lines, x_name="step", x_kind="integer", y_name="%", references=guessing, height=200)


def _driving_charts(run: TrainingRun) -> Iterator[Markup]:
    steps = run.steps
    for name, title, unit, kind, factor in (
        ("learning_rate", "Learning rate", "", "linear", 1),
        ("mask_rate", "Mask rate", "% of tokens", "linear", 100),
        ("gradient_norm", "Gradient norm, before it is clipped", "", "log", 1),
        ("tokens_per_second", "Throughput", "tokens per second", "linear", 1),
    ):
        if not steps.has(name):
            continue
        values = factor * steps[name]
        noisy = name in ("gradient_norm", "tokens_per_second")
        lines = [Line("each step", steps["step"], values, _TRAINING, "faint" if noisy else "line")]
        if noisy:
            lines.append(Line("mean", steps["step"], factor * smoothed(steps, name), _TRAINING))
        clip = setting(run.settings, "clip_norm") if name == "gradient_norm" else None
        references = [Reference(f"clipped above {clip:g}", clip)] if isinstance(clip, int | float) and clip > 0 else []
        yield line_chart(
            title,
            lines,
            x_name="step",
            x_kind="integer",
            y_name=unit,
            y_kind=kind,
            references=references,
            height=_SMALL,
        )


def _samples_note() -> Markup:
    return element(
        "p",
        "The likeliest tokens for [MASK], with their probabilities, from the first samples to the last.",
        class_="note",
    )


def _samples(run: TrainingRun) -> Iterator[Markup]:
    """One table for each text: a row for each of some steps, closer together at the start, where more changes."""
    for text, mask in dict.fromkeys(key for samples in run.samples for key in samples.fillings):
        with_text = [samples for samples in run.samples if (text, mask) in samples.fillings]
        last = len(with_text)
        places = np.unique(np.geomspace(1, last, min(last, _MOST_SAMPLES)).round().astype(int)) - 1
        rows = []
        for samples in (with_text[place] for place in places):
            candidates = samples.fillings[text, mask][:_MOST_CANDIDATES]
            rows.append([samples.step, *(join([data(one.token), share_bar(one.score)]) for one in candidates)])
        widest = max(len(row) for row in rows)
        several = any((text, 2) in samples.fillings for samples in with_text)
        yield table(
            ["step", *(f"{place}." for place in range(1, widest))],
            [row + [None] * (widest - len(row)) for row in rows],
            caption=join([data(text), f" ([MASK] number {mask})" if several else ""]),
        )


def _evaluations(evaluations: Series) -> Markup:
    """All columns of the evaluations, of very many evenly chosen ones."""
    titles = {
        "step": "step", "tokens": "tokens", "seconds": "time", "masked_lm_loss": "loss",
        "masked_lm_accuracy": "accuracy", "masked_lm_perplexity": "perplexity",
        "next_sentence_loss": "next sentence loss", "next_sentence_accuracy": "next sentence accuracy",
    }  # fmt: skip
    names = [name for name in titles if evaluations.has(name)]
    rows = []
    for place in evenly(len(evaluations), _MOST_EVALUATIONS):
        values = [float(evaluations[name][place]) for name in names]
        rows.append([
            None if math.isnan(value) else data(format_seconds(value)) if name == "seconds" else value
            for name, value in zip(names, values, strict=True)
        ])  # fmt: skip
    left_out = len(evaluations) - len(rows)
    caption = f"{len(rows)} of {len(evaluations):,} evaluations; all are in metrics.jsonl." if left_out else None
    return table([titles[name] for name in names], rows, caption=caption)


def _corpus(run: TrainingRun) -> Iterator[list[object]]:
    for text, of in (("corpus", ""), ("held_out", "held out: ")):
        for name, title in (
            ("num_documents", "documents"),
            ("num_sentences", "sentences"),
            ("num_tokens", "tokens"),
            ("num_duplicates", "duplicate lines"),
            ("num_forgotten", "lines whose duplicates are not found"),
            ("num_set_aside", "rows set aside"),
            ("num_invalid", "stretches of bytes that are not UTF-8"),
            ("num_left_out", "files left out for their extension"),
            ("unigram_entropy", "entropy of word frequencies, in nats"),
            ("random_pair_share", "share of the sentence pairs that is random"),
        ):
            value = run.number(text, name)
            if np.isfinite(value):
                yield [of + title, value]
    if np.isfinite(run.number("vocab_size")):
        yield ["entries of the vocabulary", run.number("vocab_size")]


def _flat(settings: dict[str, Any], prefix: str = "") -> Iterator[list[object]]:
    """Nested settings as dotted names with their values as JSON; the expected curve is in the chart."""
    for name, value in settings.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{name}.")
        elif name != "expected":
            written = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            yield [data(f"{prefix}{name}"), element("code", data(written))]
