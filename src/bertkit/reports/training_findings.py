"""Findings on a training run, as sentences.

Each rule takes a run and returns a finding or None. Thresholds are published experience from papers and issue threads,
cited where they are used.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from bertkit.advice import Finding, few_held_out, good, note, warning
from bertkit.pages import format_number, format_seconds, format_short, running_mean
from bertkit.reports.parts import readable
from bertkit.reports.recorded_run import Series, TrainingRun

PLATEAU_MARGIN = 0.2  # nats below the corpus' unigram entropy at which a run has left the plateau
_NOISE = 0.01  # relative increase of a held-out loss that does not count as a rise


def findings_of(run: TrainingRun) -> list[Finding]:
    """Findings of all rules for this kind of run, and irregularities in its files."""
    of_rules = [rule(run) for rule in (FINETUNING_RULES if run.is_finetuning else RULES)]
    return [*(finding for finding in of_rules if finding), *(note(remark) for remark in run.remarks)]


def smoothed(series: Series, name: str) -> np.ndarray:
    """(n,) running means over neighboring steps."""
    return running_mean(series[name], smoothing_window(series))


def smoothing_window(series: Series) -> int:
    """Window of a smoothed curve in lines of metrics: a fiftieth of the run, at least 5."""
    return max(5, len(series) // 50) | 1


def setting(settings: dict[str, Any], name: str) -> Any:
    """The value of a setting in any table of the recipe; None if it is absent."""
    if name in settings:
        return settings[name]
    inner = (setting(value, name) for value in settings.values() if isinstance(value, dict))
    return next((value for value in inner if value is not None), None)


def share_done(run: TrainingRun, step: float) -> float:
    """Progress at a step, 0 to 1, relative to the planned run, or to the steps so far if no plan is known."""
    steps, minutes = setting(run.settings, "num_steps"), setting(run.settings, "minutes")
    if isinstance(steps, int) and steps > 0:
        return step / steps
    if isinstance(minutes, int | float) and minutes > 0 and run.steps.has("seconds"):
        return min(1.0, float(np.interp(step, run.steps["step"], run.steps["seconds"])) / (60 * minutes))
    epochs = setting(run.settings, "num_epochs")
    if isinstance(epochs, int | float) and epochs > 0 and run.steps.has("epoch"):
        return float(np.interp(step, run.steps["step"], run.steps["epoch"])) / epochs
    return step / max(1.0, float(run.steps["step"][-1]))


def _ending(run: TrainingRun) -> Finding:
    step = int(run.end["step"] if run.end else run.steps["step"][-1])
    reason = run.end.get("reason") if run.end else None
    seconds = run.steps["seconds"][-1]
    after = f"after {step:,} steps" + (f" and {format_seconds(seconds)}" if np.isfinite(seconds) else "")
    if reason == "finished":
        return good(f"The run finished {after}.")
    if reason == "stopped early":
        return good(f"The run stopped early {after}: {setting(run.settings, 'patience')} evaluations did not improve.")
    if reason == "stopped":
        return note(
            f"The run was stopped {after}, {_percent(share_done(run, step))} of it; it can be resumed from there."
        )
    if reason is None:
        share = f"{_percent(share_done(run, step))} of it"
        return note(f"The run is unfinished: it is in progress, or was killed, {after}, {share}.")
    if reason == "non-finite loss":
        return warning(
            f"The run stopped {after} because its loss was not a finite number. The usual causes: a learning rate that "
            "is too high or a warm-up that is too short; ids beyond the embedding (google-research/bert, README); "
            "sequences without one masked token (AnswerDotAI/ModernBERT#163)."
        )
    return warning(f"The run ended {after}: {reason}.")


def _percent(share: float, decimals: int = 0) -> str:
    return f"{100 * share:.{decimals}f} %"


def _text_not_read(run: TrainingRun) -> Finding | None:
    """Input text that was not tokenized."""
    lost = []
    for name, title, folder in (
        ("corpus", "of the corpus", "shard"),
        ("held_out", "of the held-out files", "held-out"),
    ):
        set_aside, left_out = run.number(name, "num_set_aside"), run.number(name, "num_left_out")
        if set_aside > 0:
            lost.append(f"{title} {set_aside:,.0f} rows and sentences were skipped ({folder}/set_aside.jsonl)")
        if left_out > 0:
            lost.append(f"{title} {left_out:,.0f} files were skipped for their extension ({folder}/manifest.json)")
    return note(f"Not all of the text was read: {'; '.join(lost)}.") if lost else None


def _few_held_out(run: TrainingRun) -> Finding | None:
    return few_held_out(run.number("held_out", "num_tokens"))


def _first_loss(run: TrainingRun) -> Finding | None:
    """Check the first loss: an untrained model gives every entry the same probability."""
    fresh, first, step = math.log(max(1.0, run.number("vocab_size"))), _first_known(run), run.steps["step"][0]
    if not np.isfinite(fresh) or fresh == 0 or not np.isfinite(first) or step > 100:
        return None
    facts = f"The first loss logged is {first:.2f}; a fresh model starts at ln(vocabulary size) = {fresh:.2f}."
    if first > fresh + 1:
        return warning(f"{facts} This is far above it: the initial values or the learning rate are too large.")
    if first < fresh - 2:
        return note(f"{facts} The weights were already trained, or learned much before the first logged step.")
    return None


def _first_known(run: TrainingRun) -> float:
    known = run.steps["masked_lm_loss"][np.isfinite(run.steps["masked_lm_loss"])]
    return float(known[0]) if len(known) else float("nan")


def _plateau(run: TrainingRun) -> Finding | None:
    """Check for the plateau: a model first learns word frequencies, then context; many runs never reach the second
    phase."""
    entropy = run.number("corpus", "unigram_entropy")
    steps, loss = best_known_loss(run)
    if not np.isfinite(entropy) or not len(loss) or _first_known(run) < entropy - PLATEAU_MARGIN:
        return None
    left = np.flatnonzero(loss < entropy - PLATEAU_MARGIN)
    plateau = f"the unigram plateau ({entropy:.2f} nats, the loss from word frequencies alone)"
    if not len(left):
        share = share_done(run, run.steps["step"][-1])
        if share < 0.1:
            return note(f"Still at {plateau} after {_percent(share)} of the run; this is usual in the first tenth.")
        return warning(
            f"Still at {plateau} after {_percent(share)} of the run: too few steps, a learning rate that is too low or "
            "too high, batches that are too small, or duplicated lines in the corpus are the usual causes "
            "(facebookresearch/XLM#154, google-research/bert#746, huggingface/transformers#4449)."
        )
    step = steps[left[0]]
    share = share_done(run, step)
    when = f"at step {int(step):,}, {_percent(share, 1)} of the run"
    if share > 0.1:
        usual = "usual is within the first tenth. A higher learning rate may be better."
        return note(f"It left {plateau} only {when}; {usual}")
    return good(f"It left {plateau} {when}.")


def best_known_loss(run: TrainingRun) -> tuple[np.ndarray, np.ndarray]:
    """(n,) steps and losses: held-out loss if evaluated, or else smoothed training loss."""
    series = run.evaluations if run.evaluations.has("masked_lm_loss") else run.steps
    loss = series["masked_lm_loss"] if series is run.evaluations else smoothed(series, "masked_lm_loss")
    known = np.isfinite(loss)
    return series["step"][known], loss[known]


def _rising(run: TrainingRun) -> Finding | None:
    """Check for a rising loss: the best one was long before the end."""
    steps, loss = best_known_loss(run)
    if len(loss) < 5:
        return None
    best = int(np.argmin(loss))
    rise = loss[-1] - loss[best]
    held_out = run.evaluations.has("masked_lm_loss")
    if len(loss) - 1 - best < 2 or rise <= (_NOISE if held_out else 5 * _NOISE) * loss[best]:
        return None
    what = "Held-out loss" if held_out else "Training loss"
    fact = (
        f"{what} rose for {int(steps[-1] - steps[best]):,} steps: it was best at step {int(steps[best]):,} with "
        f"{loss[best]:.3f} and ended at {loss[-1]:.3f}."
    )
    training = smoothed(run.steps, "masked_lm_loss")
    at_best = np.interp(steps[best], run.steps["step"], training)
    if held_out and training[-1] < at_best - _NOISE * at_best:
        return warning(
            f"{fact} Training loss fell meanwhile: the text is being memorized. More text, fewer epochs or dropout "
            "help; the best checkpoint is kept."
        )
    return warning(
        f"{fact} Training loss did not fall either: the run is diverging. A lower learning rate, a longer warm-up, or "
        "resuming from an earlier checkpoint at a lower rate, as for ModernBERT (arXiv:2412.13663), can help."
    )


def _memorized(run: TrainingRun) -> Finding | None:
    """Check for memorization: training loss much lower than held-out loss at the same mask rate."""
    if not run.evaluations.has("masked_lm_loss") or _few_held_out(run):
        return None
    steps, loss = best_known_loss(run)
    rates = run.steps["mask_rate"]
    at_end = np.interp(steps[-1], run.steps["step"], smoothed(run.steps, "masked_lm_loss"))
    if not 0.14 < rates[-1] < 0.16 or not loss[-1] - at_end > 0.3:
        return None
    return note(
        f"Held-out loss is {loss[-1] - at_end:.2f} nats above training loss: part of the text is memorized, or the "
        "held-out text is different in kind."
    )


def _against_expected(run: TrainingRun) -> Finding | None:
    curve = expected_curve(run)
    if not run.evaluations.has("masked_lm_loss"):  # training loss has another mask rate
        return None
    steps, loss = best_known_loss(run)
    tokens = np.interp(steps[-1:], run.steps["step"], run.steps["tokens"])
    if curve is None or not len(loss) or not curve[0][0] <= tokens[0] <= curve[0][-1]:
        return None
    expected = float(np.interp(np.log(tokens[0]), np.log(curve[0]), curve[1]))
    difference = loss[-1] - expected
    at = f"At {format_short(float(tokens[0]))} tokens"
    fact = f"{at} the recipe's expected loss is {expected:.2f}; this run has {loss[-1]:.2f}"
    if difference > 0.15:
        return warning(f"{fact}, {difference:.2f} nats worse.")
    return good(f"{fact}.")


def expected_curve(run: TrainingRun) -> tuple[np.ndarray, np.ndarray] | None:
    """(n,) tokens, ascending and above 0, and the expected held-out loss after them; None if the recipe has none."""
    points = setting(run.settings, "expected")
    if not isinstance(points, list):
        return None
    known = [
        (float(point["tokens"]), float(point["masked_lm_loss"]))
        for point in points
        if isinstance(point, dict)
        and all(isinstance(point.get(key), int | float) for key in ("tokens", "masked_lm_loss"))
    ]
    known = sorted(point for point in known if point[0] > 0 and all(map(math.isfinite, point)))
    return (np.array([point[0] for point in known]), np.array([point[1] for point in known])) if known else None


def expected_origin(run: TrainingRun) -> str | None:
    """Source of the expected curve: the first "origin" of its points."""
    points = setting(run.settings, "expected")
    origins = [point.get("origin") for point in points if isinstance(point, dict)] if isinstance(points, list) else []
    return next((str(origin) for origin in origins if origin), None)


def _next_sentence(run: TrainingRun) -> Finding | None:
    series = run.evaluations if run.evaluations.has("next_sentence_accuracy") else run.steps
    if not series.has("next_sentence_accuracy") or share_done(run, run.steps["step"][-1]) < 0.25:
        return None
    accuracy = series["next_sentence_accuracy"]
    accuracy = accuracy[np.isfinite(accuracy)]
    last = float(np.mean(accuracy[-max(1, len(accuracy) // 10) :]))
    if last > 0.6:
        return None
    return warning(
        f"Next sentence prediction is right in {_percent(last)} of pairs, hardly more than chance (the BERT "
        "paper reports 97 to 98 %): check the learning rate, and for documents of single or unrelated sentences."
    )


def _gradients(run: TrainingRun) -> Finding | None:
    norms = run.steps["gradient_norm"]
    bad = int(np.sum(np.isinf(norms)))
    if not bad:
        return None
    return warning(f"The gradient norm was infinite at {bad:,} of {len(norms):,} logged steps.")


def best_evaluation(run: TrainingRun) -> tuple[int, float, bool] | None:
    """Step and value of the best dev score of a fine-tuning run, and whether a higher score is better; None without
    dev examples. The baselines are compared in the same direction."""
    if run.best_by is None:
        return None
    from bertkit.tasks import metric_of  # which imports tokenizers, for runs of tasks only

    values, is_higher = run.evaluations[run.best_by], metric_of(run.best_by).higher_is_better
    known = np.flatnonzero(np.isfinite(values))
    if not len(known):
        return None
    best = known[np.argmax(values[known] if is_higher else -values[known])]
    return int(run.evaluations["step"][best]), float(values[best]), is_higher


def _best_dev_score(run: TrainingRun) -> Finding | None:
    best = best_evaluation(run)
    if best is None:
        return note("There were no dev examples: the last weights were kept, and nothing says how good they are.")
    step, value, _ = best
    later = int(np.sum(run.evaluations["step"] > step))
    fact = f"Dev {readable(run.best_by or '')} was best at step {step:,}, {_percent(share_done(run, step))} of the run"
    if later == 0 and len(run.evaluations) > 1:
        advice = ": more epochs may improve it" if _is_above_baselines(run) else ""
        return note(f"{fact}, at the last evaluation{advice}.")
    return good(f"{fact}, with {format_number(value)}; {later:,} later evaluations were not better.")


def _above_baselines(run: TrainingRun) -> Finding | None:
    """Compare fine-tuning with the baselines without it."""
    best, strongest = best_evaluation(run), _strongest_baseline(run)
    if best is None or strongest is None:
        return None
    name, score = strongest
    fact = f"{format_number(best[1])} on dev, {format_number(score)} without fine-tuning ({name})"
    if _is_above_baselines(run):
        return good(f"Fine-tuning improves {readable(run.best_by or '')}: {fact}.")
    return warning(f"Fine-tuning does not improve {readable(run.best_by or '')}: {fact}.")


def _strongest_baseline(run: TrainingRun) -> tuple[str, float] | None:
    best = best_evaluation(run)
    if best is None or not run.baselines:
        return None
    return (max if best[2] else min)(run.baselines.items(), key=lambda baseline: baseline[1])


def _is_above_baselines(run: TrainingRun) -> bool:
    """True if the best dev score is better than all baselines, or there are none."""
    best, strongest = best_evaluation(run), _strongest_baseline(run)
    if best is None or strongest is None:
        return True
    return best[1] > strongest[1] if best[2] else best[1] < strongest[1]


def _throughput(run: TrainingRun) -> Finding | None:
    speed = run.steps["tokens_per_second"]
    speed = speed[np.isfinite(speed)]
    if len(speed) < 20:
        return None
    before, last = float(np.median(speed[: len(speed) // 2])), float(np.median(speed[-len(speed) // 10 :]))
    if last > 0.7 * before:
        return None
    return note(
        f"Speed fell from {before:,.0f} to {last:,.0f} tokens per second: possible causes are another program, heat, "
        "or longer sequences."
    )


RULES: tuple[Callable[[TrainingRun], Finding | None], ...] = (
    _ending,
    _text_not_read,
    _few_held_out,
    _plateau,
    _rising,
    _against_expected,
    _first_loss,
    _memorized,
    _next_sentence,
    _gradients,
    _throughput,
)
FINETUNING_RULES: tuple[Callable[[TrainingRun], Finding | None], ...] = (
    _ending,
    _above_baselines,
    _best_dev_score,
    _gradients,
    _throughput,
)
