"""Training report: one page with the curves, findings, samples and settings of a pre-training or fine-tuning run."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from bertkit.reports.parts import readable
from bertkit.reports.recorded_run import Series, TrainingRun
from bertkit.reports.training_findings import (
    best_evaluation,
    best_known_loss,
    expected_curve,
    expected_origin,
    findings_of,
    setting,
    smoothed,
    smoothing_window,
)

_TRAINING, _HELD_OUT, _EXPECTED = 1, 2, 6  # colors
_SMALL = 130  # height of minor charts in pixels
_MOST_EVALUATIONS, _MOST_SAMPLES, _MOST_CANDIDATES = 100, 8, 5
_TITLES = {
    "masked_lm_loss": "loss", "masked_lm_accuracy": "accuracy", "masked_lm_perplexity": "perplexity", "seconds": "time",
}  # fmt: skip
_CORPUS = {
    "num_documents": "documents",
    "num_sentences": "sentences",
    "num_tokens": "tokens",
    "num_duplicates": "duplicate lines",
    "num_forgotten": "lines not checked for duplicates",
    "num_set_aside": "rows skipped",
    "num_invalid": "byte sequences that are not UTF-8",
    "num_left_out": "files skipped for their extension",
    "unigram_entropy": "entropy of word frequencies, in nats",
    "random_pair_share": "share of sentence pairs that are random",
}


def write_training_report(run: TrainingRun, out: Path) -> None:
    """Write the page atomically.

    Raises:
        UsageError: the folder of ``out`` does not exist, or ``out`` is a folder.
    """
    write_page(out, _title(run), _parts(run))


def training_report(run: TrainingRun) -> str:
    """The page as a string."""
    return page(_title(run), _parts(run))


def _title(run: TrainingRun) -> str:
    return f"{'Fine-tuning' if run.is_finetuning else 'Pre-training'}: {run.folder.resolve().name}"


def _parts(run: TrainingRun) -> list[Markup]:
    facts = {name: run.start[name] for name in ("inputs", "model", "task") if name in run.start}
    charts = _finetuning_charts if run.is_finetuning else _pretraining_charts
    sections: Sequence[tuple[str, Iterable[Markup]]] = [
        *charts(run),
        ("Optimization and speed", _optimization_charts(run)),
        ("Predicted tokens", _samples(run)),
        ("Every evaluation", _evaluations(run.evaluations)),
        ("Corpus", _corpus(run)),
        ("Settings", [table(["setting", "value"], [*_flat(facts), *_flat(run.settings)])]),
    ]
    return [
        paragraph(_subtitle(run)),
        headline(list(_headline(run))),
        findings([(kind, data(sentence)) for kind, sentence in findings_of(run)]),
        *(section(title, *made) for title, parts in sections if (made := list(parts))),
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
        if run.is_finetuning:
            named = [run.start.get("model"), run.start.get("task")]
        about = join(["parameters", [[", ", data(name)] for name in named if name]])
        yield "Model", format_short(num_parameters), about
    tokens, seconds = steps["tokens"][-1], steps["seconds"][-1]
    if np.isfinite(tokens):
        corpus = run.number("corpus", "num_tokens")
        passes = f", {tokens / corpus:.3g} times the corpus" if corpus > 0 else ""
        yield "Tokens processed", format_short(tokens), f"in {int(steps['step'][-1]):,} steps{passes}"
    if np.isfinite(seconds):
        has_speed = tokens > 0 and seconds > 0
        speed = f"{format_short(float(f'{tokens / seconds:.3g}'))} tokens per second" if has_speed else ""
        yield "Time", format_seconds(float(seconds)), speed
    yield from _finetuning_scores(run) if run.is_finetuning else _pretraining_scores(run)


def _pretraining_scores(run: TrainingRun) -> Iterator[tuple[str, object, object]]:
    known_at, loss = best_known_loss(run)
    if len(loss) and not run.evaluations.has("masked_lm_loss"):
        yield "Training loss", f"{loss[-1]:.3f}", "masked LM, in nats; nothing was evaluated"
    elif len(loss):
        best = int(np.argmin(loss))
        is_last = best == len(loss) - 1
        remark = "the best of the run" if is_last else f"best {loss[best]:.3f}, step {int(known_at[best]):,}"
        yield "Held-out loss", f"{loss[-1]:.3f}", f"masked LM, in nats; {remark}"
        yield "Perplexity", format_number(math.exp(min(loss[-1], 700.0)), 3), "of held-out masked tokens"
    for name in _names(run, "_accuracy"):
        values = run.evaluations[name][np.isfinite(run.evaluations[name])]
        if len(values):
            yield _metric_title(name), f"{100 * values[-1]:.1f} %", f"held-out; best {100 * values.max():.1f} %"


def _finetuning_scores(run: TrainingRun) -> Iterator[tuple[str, object, object]]:
    best = best_evaluation(run)
    if best is None:
        yield "Dev score", "none", "no dev examples"
        return
    step, value, _ = best
    yield (
        f"Dev {readable(run.best_by or '')}",
        format_number(value),
        f"the best, at step {step:,}; its weights are kept",
    )
    for name, baseline in run.baselines.items():
        yield "Baseline", format_number(baseline), data(name)


def _pretraining_charts(run: TrainingRun) -> list[tuple[str, Iterable[Markup]]]:
    return [("Loss", _loss_charts(run)), ("Accuracy", _accuracy_charts(run))]


def _finetuning_charts(run: TrainingRun) -> list[tuple[str, Iterable[Markup]]]:
    """The selecting metric and the loss, over steps and epochs."""
    charts = []
    if run.best_by is not None and run.best_by != "loss":
        references = [Reference(f"{name}: {format_number(value, 3)}", value) for name, value in run.baselines.items()]
        charts.append(_chart(run, f"Dev {readable(run.best_by)}", run.best_by, y_name=readable(run.best_by),
                             references=references, held_out="dev"))  # fmt: skip
    return [("Scores", charts), ("Loss", [_chart(run, "Loss", "loss", y_name="loss", held_out="dev")])]


def _chart(
    run: TrainingRun,
    title: str,
    name: str,
    *,
    y_name: str,
    factor: float = 1,
    more: Sequence[Line] = (),
    held_out: str = "held-out",
    **options: Any,
) -> Markup:
    """A value over the steps: as logged, smoothed, and on held-out data."""
    steps, evaluations = run.steps, run.evaluations
    lines = [
        Line("training, each step", steps["step"], factor * steps[name], _TRAINING, "faint"),
        Line("training", steps["step"], factor * smoothed(steps, name), _TRAINING),
        Line(held_out, evaluations["step"], factor * evaluations[name], _HELD_OUT, "dots"),
        *more,
    ]
    lines = [line for line in lines if not np.all(np.isnan(line.y))]
    return line_chart(title, lines, x_name="step", x_kind="integer", y_name=y_name, scales=_scales(run), **options)


def _loss_charts(run: TrainingRun) -> Iterator[Markup]:
    names = _names(run, "_loss")
    if not names or "masked_lm_loss" in names:
        yield from _masked_lm_charts(run)
    for name in names:
        if name != "masked_lm_loss":
            yield _chart(run, _metric_title(name), name, y_name="nats", height=200)


def _masked_lm_charts(run: TrainingRun) -> Iterator[Markup]:
    steps, references = run.steps, _references(run)
    note = (
        f"Faint: as logged. Training is the mean of {smoothing_window(steps)} lines of the log, at the mask rate of "
        "the step; in held-out text always the same 15 % of tokens are masked, so the two can differ."
    )
    expected_at, expected = _expected(run)
    more = [Line("expected", steps["step"][expected_at], expected, _EXPECTED, "dashed")]
    y_name = "nats per masked token"
    yield _chart(run, "Masked LM loss", "masked_lm_loss", y_name=y_name, more=more, references=references, note=note)
    if not steps.has("tokens"):
        return
    origin, tokens, held_out = expected_origin(run), _tokens(run, steps), run.evaluations["masked_lm_loss"]
    yield line_chart(
        "Loss over tokens",
        [
            Line("training", tokens, smoothed(steps, "masked_lm_loss"), _TRAINING),
            Line("held-out", _tokens(run, run.evaluations), held_out, _HELD_OUT, "dots"),
            Line("expected", tokens[expected_at], expected, _EXPECTED, "dashed"),
        ],
        x_name="tokens",
        y_name=y_name,
        x_kind="log",
        references=references,
        note=join(["Logarithmic scale of tokens. ", ["Expected: ", data(origin), "."] if origin else []]),
    )


def _expected(run: TrainingRun) -> tuple[np.ndarray, np.ndarray]:
    """(n,) bool, steps within the recipe's expected curve; and the expected loss at these."""
    curve = expected_curve(run)
    if curve is None or not run.steps.has("tokens"):
        return np.zeros(len(run.steps), bool), np.empty(0)
    tokens = _tokens(run, run.steps)
    inside = (tokens >= curve[0][0]) & (tokens <= curve[0][-1])
    return inside, np.interp(np.log(tokens[inside]), np.log(curve[0]), curve[1])


def _tokens(run: TrainingRun, series: Series) -> np.ndarray:
    """(n,) tokens processed at each line of a series, ascending; interpolated where a line lacks the number."""
    known = np.isfinite(run.steps["tokens"])
    between = np.interp(series["step"], run.steps["step"][known], run.steps["tokens"][known])
    return np.maximum.accumulate(np.where(np.isfinite(series["tokens"]), series["tokens"], between))


def _references(run: TrainingRun) -> list[Reference]:
    """The losses of an untrained model and of one that predicts word frequencies."""
    vocab_size, entropy = run.number("vocab_size"), run.number("corpus", "unigram_entropy")
    references = []
    if vocab_size > 1:
        fresh = math.log(vocab_size)
        references.append(Reference(f"untrained: ln {vocab_size:,.0f} = {fresh:.2f}", fresh))
    if np.isfinite(entropy):
        references.append(Reference(f"word frequencies alone: {entropy:.2f}", entropy))
    return references


def _scales(run: TrainingRun) -> list[OtherScale]:
    """Tokens or epochs, and time, as further scales, if logged at every step and increasing."""
    steps, first = run.steps, ("epoch", "epochs", "linear") if run.is_finetuning else ("tokens", "tokens", "integer")
    return [
        OtherScale(title, steps["step"], steps[name], kind)
        for name, title, kind in (first, ("seconds", "time", "time"))
        if bool(np.all(np.isfinite(steps[name])) and np.all(np.diff(steps[name]) >= 0))
    ]


def _accuracy_charts(run: TrainingRun) -> Iterator[Markup]:
    for name in _names(run, "_accuracy"):
        guessing = [Reference("guessing", 50.0)] if name == "next_sentence_accuracy" else []
        yield _chart(run, _metric_title(name), name, factor=100, y_name="%", references=guessing, height=200)


def _names(run: TrainingRun, ending: str) -> list[str]:
    """The metrics of the run whose name has this ending, as objectives have them."""
    series = (run.steps, run.evaluations)
    names = [name for one in series for name in one.columns if name.endswith(ending) and one.has(name)]
    return list(dict.fromkeys(names))


def _metric_title(name: str) -> str:
    """A metric in words.

    >>> _metric_title("masked_lm_accuracy")
    'Masked LM accuracy'
    """
    return name.replace("_", " ").capitalize().replace(" lm ", " LM ")


def _optimization_charts(run: TrainingRun) -> Iterator[Markup]:
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
            title, lines, x_name="step", x_kind="integer", y_name=unit, y_kind=kind, references=references,
            height=_SMALL,
        )  # fmt: skip


def _samples(run: TrainingRun) -> Iterator[Markup]:
    """One table for each text: rows for some steps, denser at the start, where more changes."""
    if run.samples:
        note = "The likeliest tokens for [MASK], with their probabilities, from the first samples to the last."
        yield element("p", note, class_="note")
    for text, mask in dict.fromkeys(key for samples in run.samples for key in samples.fillings):
        with_text = [samples for samples in run.samples if (text, mask) in samples.fillings]
        last = len(with_text)
        chosen = np.unique(np.geomspace(1, last, min(last, _MOST_SAMPLES)).round().astype(int)) - 1
        rows = []
        for samples in (with_text[index] for index in chosen):
            candidates = samples.fillings[text, mask][:_MOST_CANDIDATES]
            rows.append([samples.step, *(join([data(one.token), share_bar(one.score)]) for one in candidates)])
        widest = max(len(row) for row in rows)
        several = any((text, 2) in samples.fillings for samples in with_text)
        yield table(
            ["step", *(f"{rank}." for rank in range(1, widest))],
            [row + [None] * (widest - len(row)) for row in rows],
            caption=join([data(text), f" ([MASK] number {mask})" if several else ""]),
        )


def _evaluations(evaluations: Series) -> Iterator[Markup]:
    """All columns of the evaluations; evenly chosen rows if there are very many."""
    if not len(evaluations):
        return
    names = [name for name in evaluations.columns if evaluations.has(name)]
    rows = []
    for index in evenly(len(evaluations), _MOST_EVALUATIONS):
        values = [float(evaluations[name][index]) for name in names]
        rows.append([
            None if math.isnan(value) else data(format_seconds(value)) if name == "seconds" else value
            for name, value in zip(names, values, strict=True)
        ])  # fmt: skip
    left_out = len(evaluations) - len(rows)
    caption = f"{len(rows)} of {len(evaluations):,} evaluations; all are in metrics.jsonl." if left_out else None
    yield table([_TITLES.get(name) or readable(name) for name in names], rows, caption=caption)


def _corpus(run: TrainingRun) -> Iterator[Markup]:
    rows = [
        [of + title, value]
        for text, of in (("corpus", ""), ("held_out", "held out: "))
        for name, title in _CORPUS.items()
        if np.isfinite(value := run.number(text, name))
    ]
    if np.isfinite(run.number("vocab_size")):
        rows.append(["entries of the vocabulary", run.number("vocab_size")])
    if rows:
        yield table(["fact", "value"], rows)


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[list[object]]:
    """Nested settings as dotted names with JSON values; the expected curve is in the chart."""
    for name, value in settings.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{name}.")
        elif name != "expected":
            written = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            yield [data(f"{prefix}{name}"), element("code", data(written))]
