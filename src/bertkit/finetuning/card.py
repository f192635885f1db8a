"""The model card: what a fine-tuned model is, how it came about and how good it is, as README.md of its directory.

Its first lines are those of a card on the Hugging Face hub (huggingface.co/docs/hub/model-cards).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from bertkit.checkpoint.checkpoint import TrainedTask
from bertkit.checkpoint.content_hash import file_sha256
from bertkit.evidence import Evidence, Measured
from bertkit.finetuning.evidence_parts import evidence_facts, evidence_parts
from bertkit.finetuning.markdown import interval, table
from bertkit.locate import hub_name
from bertkit.tasks import TextTask, task_settings

_LONG = {
    "truncate": "what is beyond it is not read",
    "window": "longer ones are read in windows",
    "error": "longer ones are refused",
}


@dataclass(frozen=True)
class DataFacts:
    """What is known of the training or the dev examples."""

    num_examples: int
    num_cut: int  # examples longer than the model reads, and cut there
    num_tokens_cut: int
    file: Path | None = None


def model_card(
    source: str,
    trained: TrainedTask,
    data: Mapping[str, DataFacts],
    *,
    settings: Mapping[str, Any],
    steps: Mapping[str, Any],
    intervals: Mapping[str, Measured],
    num_set_aside: int = 0,
    example: Any,
) -> str:
    """The card of a model.

    Args:
        source: the model that training started from, by name.
        data: of "training", and of "dev" where there are dev examples.
        settings: how it was trained.
        steps: what happened then, by name.
        intervals: of the metrics on the dev examples.
        num_set_aside: rows of the files that could not be used.
    """
    task, layout = trained.task, trained.layout
    base = hub_name(source) or Path(source).name
    about = {
        "task": task.name,
        "labels": ", ".join(f"`{name}`" for name in task.known_labels or ()),
        **_other_settings(task),
        "base model": base,
        "longest sequence": f"{layout.max_length} tokens; {_LONG[layout.on_long]}",
    }
    chosen_by = "" if "dev" not in data else (
        "\nThe scores are those of the dev examples, by which the weights kept"
        f"{_tuned(task)} were chosen: on new texts expect a little less.\n"
    )  # fmt: skip
    parts = [
        _front_matter(task.pipeline, hub_name(source)),
        f"# {base}, fine-tuned for {task.name}\n",
        table(("", ""), about.items()),
        "## Use\n\nIn this folder; transformers opens it too.\n\n```python\nimport bertkit\n\n"
        f'model = bertkit.load(".")\nprint(model.predict([{task.card_example(example)}]))\n```\n',
        "## Data\n\n" + _data_table(data) + (f"\n{num_set_aside} rows could not be used.\n" if num_set_aside else ""),
        "## Training\n\n" + table(("", ""), {**steps, **settings}.items()),
    ]
    if trained.metrics:
        parts.append("## Scores\n\n" + _score_table(trained.metrics, intervals) + chosen_by)
    parts.append("## Limits\n\n" + "".join(f"- {limit}\n" for limit in _limits(trained)))
    return "\n".join(parts)


def with_section(card: str, heading: str, body: str) -> str:
    """A card with a section of that heading at its end, in place of an older one; all else stays as it is.

    >>> with_section("# A\\n\\n## B\\n\\nold\\n\\n## C\\n\\nc\\n", "B", "new")
    '# A\\n\\n## C\\n\\nc\\n\\n## B\\n\\nnew\\n'
    """
    kept, is_old = [], False
    for line in card.splitlines():
        if line.startswith(("# ", "## ")):
            is_old = line == f"## {heading}"
        if not is_old:
            kept.append(line)
    text = "\n".join(kept).rstrip()
    return (f"{text}\n\n" if text else "") + f"## {heading}\n\n{body.strip()}\n"


def scores_section(
    data: Path,
    num_examples: int,
    num_set_aside: int,
    metrics: Mapping[str, float],
    evidence: Evidence | None = None,
) -> tuple[str, str]:
    """Heading and body of what an evaluation adds to a card; of a classifier or a tagger all evidence."""
    facts = {"file": data.name, "sha256": file_sha256(data), "examples": num_examples, "rows not used": num_set_aside}
    if evidence is None:
        return f"Scores on {data.name}", table(("", ""), facts.items()) + "\n" + _score_table(metrics, {})
    return f"Scores on {data.name}", "\n".join([
        table(("", ""), (facts | evidence_facts(evidence)).items()),
        _score_table(metrics, evidence.scores),
        *evidence_parts(evidence),
    ])  # fmt: skip


def _front_matter(pipeline: str, base: str | None) -> str:
    """YAML, of which JSON's strings are a part."""
    lines = {"library_name": "transformers", "pipeline_tag": pipeline}
    if base:
        lines["base_model"] = base
    return (
        "---\n" + "".join(f"{key}: {json.dumps(value)}\n" for key, value in lines.items()) + "tags:\n- bertkit\n---\n"
    )


def _data_table(data: Mapping[str, DataFacts]) -> str:
    rows: dict[str, list[Any]] = {
        "file": [facts.file and facts.file.name for facts in data.values()],
        "sha256": [facts.file and file_sha256(facts.file) for facts in data.values()],
        "examples": [facts.num_examples for facts in data.values()],
        "texts cut": [facts.num_cut for facts in data.values()],
        "tokens cut": [facts.num_tokens_cut for facts in data.values()],
    }
    return table(
        ("", *data), ([name, *values] for name, values in rows.items() if any(value is not None for value in values))
    )


def _score_table(metrics: Mapping[str, float], intervals: Mapping[str, Measured]) -> str:
    if not intervals:
        return table(("metric", "value"), metrics.items())
    rows = []
    for name, value in metrics.items():
        found = intervals.get(name)
        rows.append((name, value, "" if found is None else interval(found.low, found.high)))
    return table(("metric", "value", "95 % interval"), rows)


def _other_settings(task: TextTask) -> dict[str, Any]:
    """The settings of a task that are not as usual, by name."""
    usual = {part.name: part.default for part in fields(task)}  # pyrefly: ignore
    return {name.replace("_", " "): value for name, value in task_settings(task).items() if value != usual[name]}


def _tuned(task: TextTask) -> str:
    return " and the thresholds" if task.has_thresholds else ""


def _limits(trained: TrainedTask) -> list[str]:
    labels, found = trained.task.known_labels, []
    if labels:
        found.append("It knows the labels above and no others, whatever the text.")
    if trained.layout.on_long == "truncate":
        found.append(f"Of a text it reads the first {trained.layout.max_length} tokens.")
    found.append("What the training data hold, in which languages, and whom they misrepresent was not looked into.")
    found.append("No license is stated here: see those of the base model and of the training data.")
    return found
