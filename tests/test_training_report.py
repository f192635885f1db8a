"""The report of a training run: running, killed or resumed; each finding if and only if it applies."""

import json
import math
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from page_reader import check_geometry, labels, number_of, of_class, read, tree
from synthetic_run import ENTROPY, SETTINGS, VOCAB_SIZE, events, start, write_run
from test_pages import HOSTILE, cleaned
from test_pretraining import pretraining, write_corpus

from bertkit.cli import run as run_command
from bertkit.errors import CheckpointError, DataError, UsageError
from bertkit.finetuning import Finetuning, FinetuningSettings, Outcome
from bertkit.reports.recorded_run import read_run
from bertkit.reports.training import training_report, write_training_report
from bertkit.reports.training_findings import findings_of
from bertkit.tasks import TextExample


@pytest.fixture(scope="module")
def lines() -> list[dict]:
    return list(events(num_steps=400))


def of_kind(lines: list[dict], *kinds: str) -> list[dict]:
    return [line for line in lines if line["event"] in kinds]


def report_of(folder: Path, lines: list[dict], cut_off: str = "") -> str:
    return training_report(read_run(write_run(folder, lines, cut_off)))


def warnings_of(folder: Path, lines: list[dict]) -> list[str]:
    return [sentence for kind, sentence in findings_of(read_run(write_run(folder, lines))) if kind == "warning"]


# The page


def test_report_shows_the_run(tmp_path, lines):
    content = report_of(tmp_path / "novels", lines)
    reader = read(content)
    last, evaluation = of_kind(lines, "step")[-1], of_kind(lines, "evaluation")[-1]
    for shown in (
        "Pre-training: novels", "5.393 M", "parameters, modernbert, mini", "inputs.corpus",
        "in 400 steps", "400", "cpu-minutes",
        f"{evaluation['masked_lm_loss']:.3f}", f"{100 * evaluation['masked_lm_accuracy']:.1f} %",
        f"ln 8,192 = {math.log(VOCAB_SIZE):.2f}", f"word frequencies alone: {ENTROPY:.2f}", "clipped above 1",
        "the mean of three seeds on the same novels", "641,220", "training.learning_rate", "a processor of two cores",
        "The capital of France is [MASK].", "torch 2.13.0", f"{last['tokens']:,}",
    ):  # fmt: skip
        assert shown in reader.text, shown
    headings = reader.text_of("h3")
    assert headings == [
        "Masked LM loss", "Loss over tokens", "Next sentence loss", "Masked LM accuracy", "Next sentence accuracy",
        "Learning rate", "Mask rate",
        "Gradient norm, before it is clipped", "Throughput",
    ]  # fmt: skip
    first = next(tree(content).iter("figure"))
    assert ["".join(item.itertext()).strip() for item in first.iter("li")] == ["training", "held-out", "expected"]
    names = ["".join(name.itertext()) for name in of_class(first, "name")]
    assert [name for name in names if ":" not in name] == ["nats per masked token", "step", "tokens", "time"]
    check_geometry(content)


def test_curves_are_the_runs(tmp_path, lines):
    """The held-out dots of the first chart, converted from percent to losses."""
    first = next(tree(report_of(tmp_path / "run", lines)).iter("figure"))
    levels = {float(label): y for label, y in labels(of_class(first, "strip")[0], "y").items()}
    low, high = min(levels), max(levels)
    dots = [number_of(node, "cy") for node in of_class(first, "plot")[0].iter("circle")]
    results = [low + (levels[low] - dot) / (levels[low] - levels[high]) * (high - low) for dot in dots]
    expected = [line["masked_lm_loss"] for line in of_kind(lines, "evaluation")]
    np.testing.assert_allclose(results, expected, atol=0.01)


def test_samples_over_time(tmp_path, lines):
    content = report_of(tmp_path / "run", lines)
    (table,) = re.findall(r"<table><caption><bdi>The capital of France.*?</table>", content)
    shown = [text for tag, text in read(table).texts if tag == "bdi"][1:]
    sampled = of_kind(lines, "samples")
    first, last = (line["samples"][0]["candidates"] for line in (sampled[0], sampled[-1]))
    assert shown[:5] == [candidate["token"] for candidate in first]
    assert shown[-5:] == [candidate["token"] for candidate in last]
    steps = [line["step"] for line in sampled]
    rows = re.findall(r'<td class="number">(\d+)</td>', table)
    assert rows == [str(steps[index]) for index in (0, 1, 3, 5, 7, 12, 19)]  # of 20, closer together at the start
    assert len(shown) == len(rows) * 5
    assert f"{last[0]['score']:.3f}" in table


@pytest.mark.full(sample=1)
@pytest.mark.parametrize("hostile", HOSTILE, ids=range(len(HOSTILE)))
def test_data_of_a_run_is_escaped(tmp_path, lines, hostile):
    """Every string of every line of every kind is replaced; the page has the elements it had."""

    def replaced(value):
        if isinstance(value, dict):
            return {key: replaced(part) for key, part in value.items()}
        if isinstance(value, list):
            return [replaced(part) for part in value]
        return hostile if isinstance(value, str) else value

    changed = [{**replaced(line), "event": line["event"]} for line in lines[:60]]
    changed.append({"event": "end", "step": 400, "seconds": 1.0, "reason": hostile})
    changed[0]["settings"] = {**SETTINGS, "note": {hostile: hostile}}
    folder = write_run(tmp_path / "run", changed)
    content = training_report(read_run(folder))
    content.encode("utf-8")
    tags = {tag for tag, _ in read(content).elements}
    assert tags <= {tag for tag, _ in read(report_of(tmp_path / "plain", lines)).elements} | {"desc"}
    assert content.count("<script>") == content.count("<style>") == 1
    assert cleaned(hostile) in read(content).text


def test_page_is_written_whole(tmp_path, lines):
    run = read_run(write_run(tmp_path / "run", lines))
    write_training_report(run, tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text() == training_report(run)
    with pytest.raises(UsageError, match="does not exist"):
        write_training_report(run, tmp_path / "nowhere" / "report.html")


@pytest.mark.full
def test_page_of_a_long_run_is_small(tmp_path):
    every = [line for line in events(num_steps=30_000, next_sentence=False) if line["event"] != "samples"]
    content = report_of(tmp_path / "run", every)
    assert len(content) < 1_500_000
    assert "200 of 30,000 points" in content


def test_several_masks_in_one_text(tmp_path, lines):
    texts = ["a [MASK] and a [MASK].", "one [MASK]", "a [MASK] and a [MASK]."]
    samples = [
        {"text": text, "candidates": [{"token": f"word{index}", "score": 0.5}]} for index, text in enumerate(texts)
    ]
    content = report_of(tmp_path / "run", [*lines[:30], {"event": "samples", "step": 29, "samples": samples}])
    text = read(content).text
    for shown in (
        "a [MASK] and a [MASK]. ([MASK] number 1)step1.29word0",
        "number 2)step1.29word2",
        "one [MASK]step1.29word1",
    ):
        assert shown in text


@pytest.mark.full
def test_report_of_a_real_run(tmp_path):
    """A tiny model trained for 12 steps: what training writes is what the report reads."""
    run = pretraining(write_corpus(tmp_path / "corpus.txt"), tmp_path / "run", "objective.name=next-sentence")
    assert run.start(resume=False).reason == "finished"
    read_back = read_run(tmp_path / "run")
    assert read_back.steps["step"].tolist() == [2, 4, 6, 8, 10, 12]
    assert read_back.evaluations["step"].tolist() == [0, 6, 12]
    content = training_report(read_back)
    text = read(content).text
    for shown in (
        "parameters, bert, tiny", "in 12 steps", "Held-out loss", "Next sentence accuracy", "untrained: ln",
        "word frequencies alone", "Mask rate", "Gradient norm", "Throughput", "Predicted tokens", "rows skipped",
        "share of sentence pairs that are random",
        "training.batch_size", "The run finished after 12 steps",
    ):  # fmt: skip
        assert shown in text, shown
    check_geometry(content)


def finetuned(folder: Path, encoder: Path, num_dev: int, **settings) -> tuple[Finetuning, Outcome]:
    texts = [f"the {animal} {verb}" for animal in ("cat", "dog") for verb in ("sat", "un", "run", "walk", "talk")] * 4
    examples = [TextExample(text, None, "cats" if "cat" in text else "dogs") for text in texts]
    options = {"num_epochs": 4, "batch_size": 8, "learning_rate": 0.01, **settings}
    run = Finetuning(
        folder, encoder, "sequence-classification", FinetuningSettings.of(**options), log_line=lambda line: None
    )
    return run, run.start(examples, examples[:num_dev])


@pytest.mark.full
def test_report_of_a_finetuning_run(tmp_path, encoder, capsys):
    _, outcome = finetuned(tmp_path / "animals", encoder, 20)
    assert run_command(["report", str(tmp_path / "animals"), "--out", str(tmp_path / "report.html")]) == 0
    run, content = read_run(tmp_path / "animals"), (tmp_path / "report.html").read_text()
    assert run.is_finetuning and run.best_by == "accuracy" and run.baselines == outcome.baselines
    assert len(run.evaluations) == 5 and outcome.metrics["accuracy"] == run.evaluations["accuracy"].max()
    text = read(content).text
    for shown in (
        "Fine-tuning: animals", "sequence-classification", "in 20 steps", "Dev accuracy", "The run finished",
        f"at step {outcome.best_step}", *run.baselines, "learning_rate", "Every evaluation", "Learning rate",
    ):  # fmt: skip
        assert shown in text, shown
    first = next(tree(content).iter("figure"))
    assert ["".join(name.itertext()) for name in of_class(first, "name")][-3:] == ["step", "epochs", "time"]
    dots = [number_of(node, "cy") for node in of_class(first, "plot")[0].iter("circle")]
    scores = run.evaluations["accuracy"]
    assert np.argsort(dots, kind="stable").tolist() == np.argsort(-scores, kind="stable").tolist()
    for of_pretraining in ("plateau", "Masked", "Perplexity", "Corpus", "recipe's"):
        assert of_pretraining not in text
    kinds = [kind for kind, _ in findings_of(run)]
    assert kinds[:2] == ["good", "good" if max(run.baselines.values()) < 1 else "warning"]
    check_geometry(content)


@pytest.mark.full
def test_findings_on_finetuning_runs(tmp_path, encoder):
    _, outcome = finetuned(tmp_path / "patient", encoder, 20, num_epochs=9, patience=2)
    sentences = " ".join(sentence for _, sentence in findings_of(read_run(tmp_path / "patient")))
    assert outcome.reason == "stopped early" and "2 evaluations did not improve" in sentences
    path = tmp_path / "patient" / "run" / "outcome.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"baselines": {"guessing": 1.5, "odd": "text"}}))
    run = read_run(tmp_path / "patient")
    assert ("warning", "Fine-tuning does not improve accuracy: 1 on dev, 1.500 without fine-tuning (guessing).") in (
        findings_of(run)
    )
    finetuned(tmp_path / "no dev", encoder, 0)
    run = read_run(tmp_path / "no dev")
    assert run.best_by is None and any("no dev examples" in sentence for _, sentence in findings_of(run))
    assert "Dev score" in training_report(run)
    start = tmp_path / "no dev" / "run" / "outcome.json"
    start.unlink()  # of a run in progress
    assert read_run(tmp_path / "no dev").baselines == {}


# What may be missing


@pytest.mark.full
def test_unlogged_parts_are_omitted(tmp_path, lines):
    content = report_of(tmp_path / "run", of_kind(list(events(num_steps=100, next_sentence=False)), "start", "step"))
    text = read(content).text
    assert "Next sentence" not in text and "Predicted tokens" not in text and "Every evaluation" not in text
    assert "nothing was evaluated" in text and "is unfinished" in text
    check_geometry(content)
    bare = [{"event": "step", "step": 7, "masked_lm_loss": 5.0}]
    content = report_of(tmp_path / "bare", bare)
    assert "Corpus" not in read(content).text and "over tokens" not in read(content).text
    check_geometry(content)
    assert "nan" not in content
    report_of(tmp_path / "no loss", [{"event": "step", "step": 7}])
    report_of(tmp_path / "null", [*lines[:1], {**lines[1], "masked_lm_loss": None, "tokens": None}, *lines[2:50]])


def test_report_of_a_running_run_shows_progress(tmp_path, lines):
    run = read_run(write_run(tmp_path / "run", lines[:200]))
    assert run.end is None
    last = int(run.steps["step"][-1])
    (said,) = [sentence for _, sentence in findings_of(run) if "is unfinished" in sentence]
    assert f"{last / 2_000:.0%} of it".replace("%", " %") in said  # 2,000 steps are set


def test_time_as_the_length_of_a_run(tmp_path, lines):
    budget = {**SETTINGS, "training": {"minutes": 60.0}}
    run = read_run(write_run(tmp_path / "run", [{**lines[0], "settings": budget}, *lines[1:200]]))
    (said,) = [sentence for _, sentence in findings_of(run) if "is unfinished" in sentence]
    assert f"{run.steps['seconds'][-1] / 3_600:.0%} of it".replace("%", " %") in said


# Reading


def test_columns_are_the_lines(tmp_path, lines):
    run = read_run(write_run(tmp_path / "run", lines))
    assert run.settings == SETTINGS and len(run.starts) == 1 and run.end["reason"] == "finished" and not run.remarks
    for series, kind in ((run.steps, "step"), (run.evaluations, "evaluation")):
        of = of_kind(lines, kind)
        for name in of[0]:
            if name != "event":
                np.testing.assert_array_equal(series[name], [line[name] for line in of])
    assert [samples.step for samples in run.samples] == [line["step"] for line in of_kind(lines, "samples")]
    assert np.isnan(run.steps["no such name"]).all() and not run.steps.has("no such name")


@pytest.mark.parametrize("where", ["middle", "one letter", "before the newline"])
def test_truncated_last_line(tmp_path, lines, where):
    whole = json.dumps(lines[90])
    cut_off = {"middle": whole[: len(whole) // 2], "one letter": "{", "before the newline": whole}[where]
    run = read_run(write_run(tmp_path / "run", lines[:90], cut_off))
    expected = of_kind(lines[: 91 if where == "before the newline" else 90], "step")
    assert run.steps["step"].tolist() == [line["step"] for line in expected]
    assert len(run.remarks) == (0 if where == "before the newline" else 1)
    assert training_report(run)


def test_letter_of_many_bytes_cut_in_half(tmp_path, lines):
    folder = write_run(tmp_path / "run", lines[:50])
    with open(folder / "metrics.jsonl", "ab") as handle:
        handle.write('{"event": "samples", "step": 3, "samples": [{"text": "日'.encode()[:-1])
    assert len(read_run(folder).steps) == len(of_kind(lines[:50], "step"))


def test_resumed_run_replaces_repeated_lines(tmp_path, lines):
    """Killed at step 130 in the middle of a line, resumed from 100, and now at 120."""
    first = [line for line in lines if line["step"] <= 130]
    second = [dict(line) for line in lines if 100 < line["step"] <= 120]
    for line in of_kind(second, "step"):
        line["masked_lm_loss"] += 10
    folder = write_run(tmp_path / "run", first, '{"event": "step", "step": 131, "lo\n')
    with open(folder / "metrics.jsonl", "a") as handle:
        for line in [start(100, resumed=True), *second]:
            handle.write(json.dumps(line) + "\n")
    run = read_run(folder)
    assert run.steps["step"].tolist() == [float(step) for step in range(1, 121)]
    expected = [line["masked_lm_loss"] for line in of_kind(first, "step")[:100]]
    expected += [line["masked_lm_loss"] for line in of_kind(second, "step")]
    np.testing.assert_array_equal(run.steps["masked_lm_loss"], expected)
    assert run.evaluations["step"].tolist() == [20, 40, 60, 80, 100, 120]
    assert [samples.step for samples in run.samples] == [20, 40, 60, 80, 100, 120]
    assert [remark.split(" when")[0] for remark in run.remarks] == [
        f"Line {len(first) + 1} of metrics.jsonl was cut off", "Resumed from step 100, after it had reached step 130."
    ]  # fmt: skip
    assert len(run.starts) == 2


def test_later_start_overrides_end(tmp_path, lines):
    stopped = [*lines[:60], {"event": "end", "step": 40, "seconds": 9.0, "reason": "stopped"}]
    step = of_kind(lines[:60], "step")[-1]["step"]
    run = read_run(write_run(tmp_path / "run", [*stopped, start(step, resumed=True)]))
    assert run.end is None and run.steps["step"][-1] == step


def test_repeated_step_keeps_its_later_line(tmp_path):
    twice = [{"event": "step", "step": step, "masked_lm_loss": loss} for step, loss in ((1, 9.0), (2, 8.0), (1, 7.0))]
    run = read_run(write_run(tmp_path / "run", [start(0), *twice]))
    assert run.steps["step"].tolist() == [1, 2] and run.steps["masked_lm_loss"].tolist() == [7, 8]


def test_non_finite_numbers(tmp_path, lines):
    folder = write_run(tmp_path / "run", lines[:50])
    with open(folder / "metrics.jsonl", "a") as handle:
        handle.write('{"event": "step", "step": 60, "masked_lm_loss": NaN, "gradient_norm": Infinity}\n')
        handle.write('{"event": "step", "step": 61, "masked_lm_loss": 1%s, "gradient_norm": null}\n' % ("0" * 400))
        handle.write('{"event": "end", "step": 61, "seconds": 70.0, "reason": "non-finite loss"}\n')
    run = read_run(folder)
    assert math.isnan(run.steps["masked_lm_loss"][-2]) and math.isinf(run.steps["masked_lm_loss"][-1])
    content = training_report(run)
    assert "Not shown: 2 points without a finite value." in content
    said = " ".join(sentence for kind, sentence in findings_of(run) if kind == "warning")
    assert "not a finite number" in said and "infinite at 1 of" in said
    check_geometry(content)


# What is refused


def test_rejects_folders_that_are_not_runs(tmp_path, lines):
    with pytest.raises(UsageError, match="no such run"):
        read_run(tmp_path / "nowhere")
    file = tmp_path / "file"
    file.write_text("x")
    with pytest.raises(UsageError, match="no such run"):
        read_run(file)
    for missing in ("recipe.json", "metrics.jsonl"):
        folder = write_run(tmp_path / missing, lines[:5])
        (folder / missing).unlink()
        with pytest.raises(UsageError, match=f"is not a run: it has no {missing}"):
            read_run(folder)
    (tmp_path / "recipe.json").mkdir(exist_ok=True)
    for content in ([], lines[:1]):
        shutil.rmtree(tmp_path / "empty", ignore_errors=True)
        with pytest.raises(UsageError, match="has no step yet"):
            read_run(write_run(tmp_path / "empty", content))
    run = tmp_path / "frozen" / "run"
    run.mkdir(parents=True)
    for name, content in (("settings.json", "{}"), ("metrics.jsonl", lines[0]), ("outcome.json", '{"step": 0}')):
        (run / name).write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(UsageError, match="frozen features were kept, so no step was trained"):
        read_run(tmp_path / "frozen")
    folder = write_run(tmp_path / "bad recipe", lines[:5])
    (folder / "recipe.json").write_text("[1, 2")
    with pytest.raises(CheckpointError, match="not readable JSON"):
        read_run(folder)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("not JSON", "line 3: is not JSON"),
        ("[" * 100_000, "line 3: is not JSON"),
        ("[1, 2]", 'line 3: is not an object with an "event"'),
        ('{"step": 3}', 'line 3: is not an object with an "event"'),
        ('{"event": "step"}', "line 3: has step None"),
        ('{"event": "step", "step": -1}', "line 3: has step -1"),
        ('{"event": "step", "step": true}', "line 3: has step True"),
        ('{"event": "step", "step": 1.5}', "line 3: has step 1.5"),
        ('{"event": "step", "step": 1%s}' % ("0" * 300), "line 3: has step 1000"),
        ('{"event": "step", "step": 9, "masked_lm_loss": "low"}', "line 3: has masked_lm_loss 'low'"),
        ('{"event": "evaluation", "step": 3, "tokens": false}', "line 3: has tokens False"),
        ('{"event": "samples", "step": 3}', "line 3: has samples that are not a list"),
        ('{"event": "samples", "step": 3, "samples": [{"text": "a", "candidates": [{"token": 2}]}]}', "line 3: has"),
        ('{"event": "samples", "step": 3, "samples": 5}', "line 3: has samples"),
    ],
)  # fmt: skip
def test_rejects_malformed_metrics_lines(tmp_path, lines, line, complaint):
    folder = write_run(tmp_path / "run", lines[:2])
    with open(folder / "metrics.jsonl", "a") as handle:
        handle.write(line + "\n" + json.dumps(lines[3]) + "\n")
    with pytest.raises(DataError, match=re.escape(complaint)):
        read_run(folder)


# Findings


def changed(lines: list[dict], kind: str, **changes) -> list[dict]:
    """The lines with values of one kind replaced: by a number, or by a function of the old value and the share done."""
    last = max(line["step"] for line in lines)

    def new(line: dict, name: str, value):
        return value(line[name], line["step"] / last) if callable(value) else value

    return [
        {**line, **{name: new(line, name, value) for name, value in changes.items()}} if line["event"] == kind else line
        for line in lines
    ]


def with_settings(lines: list[dict], **settings) -> list[dict]:
    return [{**line, "settings": {**SETTINGS, **settings}} if line["event"] == "start" else line for line in lines]


def test_healthy_run_has_no_warning(tmp_path, lines):
    run = read_run(write_run(tmp_path / "run", lines))
    kinds = [kind for kind, _ in findings_of(run)]
    assert kinds == ["good", "good", "good"]
    said = " ".join(sentence for _, sentence in findings_of(run))
    assert "finished after 400 steps" in said and "left the unigram plateau (6.62 nats" in said
    assert "M tokens the recipe's expected loss is" in said


def stuck(lines: list[dict]) -> list[dict]:
    lines = changed(lines, "step", masked_lm_loss=lambda loss, done: max(loss, ENTROPY + 0.05))
    return changed(lines, "evaluation", masked_lm_loss=lambda loss, done: max(loss, ENTROPY + 0.03))


def test_finding_of_plateau(tmp_path, lines):
    lines = with_settings(stuck(lines), training={"num_steps": 400}, expected=None)
    (said,) = warnings_of(tmp_path / "run", lines)
    assert "Still at the unigram plateau (6.62 nats" in said and "after 100 % of the run" in said
    assert "duplicated lines" in said and "XLM#154" in said
    only_training = [line for line in lines if line["event"] != "evaluation"]
    assert "Still at the unigram plateau" in warnings_of(tmp_path / "training", only_training)[0]
    early = [line for line in lines if line["step"] <= 30]
    assert warnings_of(tmp_path / "early", early) == []
    assert any("this is usual" in said for _, said in findings_of(read_run(tmp_path / "early")))


def test_finding_of_late_plateau_exit(tmp_path, lines):
    late = [
        {**line, "masked_lm_loss": max(line["masked_lm_loss"], ENTROPY)}
        if line["event"] == "evaluation" and line["step"] <= 200
        else line
        for line in with_settings(lines, training={"num_steps": 400})
    ]
    results = findings_of(read_run(write_run(tmp_path / "run", late)))
    assert [kind for kind, said in results if "only at step 220, 55.0 % of the run" in said] == ["note"]


def test_finding_of_memorization(tmp_path, lines):
    rising = changed(lines, "evaluation", masked_lm_loss=lambda loss, done: loss + max(0, done - 0.5))
    said = warnings_of(tmp_path / "run", with_settings(rising, expected=None))
    assert len(said) == 1 and "Held-out loss rose for" in said[0] and "being memorized" in said[0]
    apart = changed(with_settings(lines, expected=None), "evaluation", masked_lm_loss=lambda loss, done: loss + 0.5)
    results = findings_of(read_run(write_run(tmp_path / "apart", changed(apart, "step", mask_rate=0.15))))
    assert any("nats above training loss" in said for _, said in results)
    results = findings_of(read_run(write_run(tmp_path / "higher rate", changed(apart, "step", mask_rate=0.3))))
    assert not any("nats above training loss" in said for _, said in results)


def test_nothing_is_concluded_from_a_few_held_out_tokens(tmp_path, lines):
    apart = changed(with_settings(lines, expected=None), "evaluation", masked_lm_loss=lambda loss, done: loss + 0.5)
    apart = changed(apart, "step", mask_rate=0.15)
    for number, warned in ((11, True), (500, False)):
        few = [{**line, "held_out": {"num_tokens": number}} if line["event"] == "start" else line for line in apart]
        said = [said for _, said in findings_of(read_run(write_run(tmp_path / str(number), few)))]
        assert any("Only 11 tokens are held out" in one for one in said) == warned
        assert any("nats above training loss" in one for one in said) != warned


def test_diverging(tmp_path, lines):
    rising = with_settings(lines, expected=None)
    for kind in ("step", "evaluation"):
        rising = changed(rising, kind, masked_lm_loss=lambda loss, done: loss + 4 * max(0, done - 0.6))
    (said,) = warnings_of(tmp_path / "run", rising)
    assert "Held-out loss rose" in said and "diverging" in said
    (said,) = warnings_of(tmp_path / "training", [line for line in rising if line["event"] != "evaluation"])
    assert "Training loss rose" in said and "diverging" in said


def test_against_the_expected_curve(tmp_path, lines):
    worse = changed(lines, "evaluation", masked_lm_loss=lambda loss, done: loss + 0.6)
    said = warnings_of(tmp_path / "run", worse)
    assert len(said) == 1 and "nats worse" in said[0]
    training = [line for line in lines if line["event"] != "evaluation"]
    assert not any("expected loss" in said for _, said in findings_of(read_run(write_run(tmp_path / "none", training))))
    for odd in (None, [], "text", [{"tokens": "many"}], [{"tokens": 0, "masked_lm_loss": 1}], [5], [{"tokens": 1e300}]):
        assert training_report(read_run(write_run(tmp_path / "odd", with_settings(lines[:40], expected=odd))))


def test_finding_of_first_loss(tmp_path, lines):
    high = changed(lines, "step", masked_lm_loss=lambda loss, done: loss + 5 * (done < 0.1))
    assert any("far above it" in said for said in warnings_of(tmp_path / "run", high))
    trained = [line for line in changed(lines, "step", masked_lm_loss=3.0) if line["event"] != "evaluation"]
    results = findings_of(read_run(write_run(tmp_path / "trained", trained)))
    assert any("were already trained" in said for _, said in results)
    assert not any("plateau" in said for _, said in results)


def test_finding_of_next_sentence_chance_level(tmp_path, lines):
    guessing = with_settings(changed(lines, "evaluation", next_sentence_accuracy=0.52), training={"num_steps": 400})
    (said,) = warnings_of(tmp_path / "run", guessing)
    assert "right in 52 % of pairs" in said


def test_finding_of_decreasing_speed(tmp_path, lines):
    slow = changed(lines, "step", tokens_per_second=lambda speed, done: speed / (1 + (done > 0.8)))
    assert any("Speed fell" in said for _, said in findings_of(read_run(write_run(tmp_path / "run", slow))))


@pytest.mark.parametrize("reason", ["stopped", "non-finite loss", "something else"])
def test_ends(tmp_path, lines, reason):
    ended = changed(lines, "end", reason=reason)
    kind, said = findings_of(read_run(write_run(tmp_path / "run", ended)))[0]
    assert (kind, "after 400 steps" in said) == ("note" if reason == "stopped" else "warning", True)


# The command


@pytest.mark.full
def test_report_does_not_import_torch(tmp_path, lines):
    folder = write_run(tmp_path / "run", lines[:90])
    program = (
        "import sys\nfrom bertkit.cli import run\n"
        f"assert run(['report', {str(folder)!r}, '--out', {str(tmp_path / 'report.html')!r}]) == 0\n"
        "assert not {'torch', 'numba', 'tokenizers'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_command(tmp_path, lines, capsys):
    folder, out = write_run(tmp_path / "run", stuck(lines)), tmp_path / "report.html"
    assert run_command(["report", str(folder), "--out", str(out)]) == 0
    (row,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert row["report"] == str(out) and row["step"] == 400
    assert any("unigram plateau" in warning for warning in row["warnings"])
    assert out.read_text().startswith("<!DOCTYPE html>")
    wrong = (
        (["report", str(tmp_path / "nowhere"), "--out", str(out)], "no such run"),
        (["report", str(tmp_path), "--out", str(out)], "is not a run"),
        (["report", str(folder), "--out", str(tmp_path / "no" / "x.html")], "does not exist"),
        (["report", str(folder), "--out", str(folder / "metrics.jsonl")], "unknown extension '.jsonl', expected .html"),
        (["report", str(folder)], "--out"),
    )
    for arguments, complaint in wrong:
        assert run_command(arguments) == 2
        captured = capsys.readouterr()
        assert complaint in captured.err and len(captured.err.splitlines()) == 1 and not captured.out
