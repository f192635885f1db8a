"""Model cards: README.md of a fine-tuned model, with its use, data, training and scores.

The front matter is that of a card on the Hugging Face hub (huggingface.co/docs/hub/model-cards).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from bertkit.checkpoint.checkpoint import TrainedTask
from bertkit.checkpoint.content_hash import file_sha256
from bertkit.evidence import Evidence, Measured
from bertkit.locate import hub_name
from bertkit.reports.evidence import evidence_sections, findings_of
from bertkit.reports.parts import Interval, Label, markdown_of, markdown_table
from bertkit.tasks import TextTask, task_settings
from bertkit.tasks.sentence_vectors import VECTOR_HEAD

_LONG = {
    "truncate": "longer ones are cut",
    "window": "longer ones are processed in windows",
    "error": "longer ones are refused",
}

_OPENED_BY = {
    "": ("sentence-transformers", "In this folder; sentence-transformers opens it, too."),
    VECTOR_HEAD: (
        "bertkit",
        "In this folder. sentence-transformers opens the encoder, but only bertkit reads the head: transformers would "
        "replace it by a random one. Train with `--head published` for a model that transformers opens.",
    ),
}
"""By head, the library that opens the model, and a sentence on it; transformers opens those with other heads."""


@dataclass(frozen=True)
class DataFacts:
    """Facts about the training or the dev examples."""

    num_examples: int
    num_cut: int  # examples longer than the model accepts, and cut
    num_tokens_cut: int
    files: Sequence[Path] = ()


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
    """The card of a fine-tuned model.

    Args:
        source: the model that training started from, by name.
        data: facts on "training", and on "dev" examples if there are any.
        settings: training settings.
        steps: outcome of the run, by name.
        intervals: confidence intervals of the metrics on the dev examples.
        num_set_aside: number of skipped rows of the files.
    """
    task, layout = trained.task, trained.layout
    base = hub_name(source) or Path(source).name
    about = {
        "task": task.name,
        "labels": [Label(name) for name in task.known_labels or ()],
        **task.card_facts(),
        **_other_settings(task),
        "base model": base,
        "longest sequence": f"{layout.max_length} tokens; {_LONG[layout.on_long]}",
    }
    chosen_by = "" if "dev" not in data else (
        "\nThe scores are those of the dev examples, which selected the weights"
        f"{_tuned(task)}: expect slightly lower scores on new texts.\n"
    )  # fmt: skip
    library, usage = _OPENED_BY.get(task.head, ("transformers", "In this folder; transformers opens it, too."))
    parts = [
        _front_matter(library, task.pipeline, hub_name(source)),
        f"# {base}, fine-tuned for {task.name}\n",
        markdown_table(("", ""), about.items()),
        f"## Use\n\n{usage}\n\n```python\nimport bertkit\n\n"
        f'model = bertkit.load(".")\nprint(model.predict([{example.typical_input}]))\n```\n',
        "## Data\n\n" + _data_table(data) + (f"\n{num_set_aside} rows could not be used.\n" if num_set_aside else ""),
        "## Training\n\n" + markdown_table(("", ""), {**steps, **settings}.items()),
    ]
    if trained.metrics:
        parts.append("## Scores\n\n" + _score_table(trained.metrics, intervals) + chosen_by)
    parts.append("## Limits\n\n" + "".join(f"- {limit}\n" for limit in _limits(trained)))
    return "\n".join(parts)


def with_section(card: str, heading: str, body: str) -> str:
    """A card with a section at its end, which replaces a section with the same heading; the rest is unchanged.

    >>> with_section("# A\\n\\n## B\\n\\nold\\n\\n## C\\n\\nc\\n", "B", "new")
    '# A\\n\\n## C\\n\\nc\\n\\n## B\\n\\nnew\\n'
    """
    kept, is_old = [], False
    for line in card.split("\n"):
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
    """Heading and body of the section that an evaluation adds to a card, with all available evidence."""
    facts = {"file": data.name, "sha256": file_sha256(data), "examples": num_examples, "rows not used": num_set_aside}
    parts = [_score_table(metrics, {} if evidence is None else evidence.scores)]
    if evidence is not None:
        facts |= _evidence_facts(evidence)
        parts += _evidence_parts(evidence)
    return f"Scores on {data.name}", "\n".join([markdown_table(("", ""), facts.items()), *parts])


def _evidence_facts(evidence: Evidence) -> dict[str, Any]:
    """Counts of the examples, by name; None for what does not apply to the task."""
    errors, lengths = evidence.label_errors, evidence.lengths
    judged = "" if errors.num_judged == evidence.num_examples else f" of {errors.num_judged} labels"
    return {
        "words": evidence.num_words,
        "words not processed": evidence.num_unread_words,
        "texts cut": lengths.num_cut,
        "tokens cut": lengths.num_tokens_cut,
        "texts in several windows": lengths.num_in_windows or None,
        "likely label errors": None if errors.num_likely is None else f"{errors.num_likely}{judged}",
    }


def _evidence_parts(evidence: Evidence) -> Iterator[str]:
    """The sections of a report, tables only, without charts, texts or single examples."""
    if sentences := [f"- {sentence}\n" for _, sentence in findings_of(evidence)]:
        yield "".join(sentences)
    for heading, parts in evidence_sections(evidence):
        if made := [markdown for part in parts if (markdown := markdown_of(part))]:
            yield f"### {heading}\n\n" + "\n".join(made)


def _front_matter(library: str, pipeline: str, base: str | None) -> str:
    from huggingface_hub import ModelCardData

    facts = ModelCardData(library_name=library, pipeline_tag=pipeline, base_model=base, tags=["bertkit"])
    return f"---\n{facts.to_yaml()}\n---\n"


def _data_table(data: Mapping[str, DataFacts]) -> str:
    rows: dict[str, list[Any]] = {
        "file": [", ".join(path.name for path in facts.files) or None for facts in data.values()],
        "sha256": [", ".join(map(file_sha256, facts.files)) or None for facts in data.values()],
        "examples": [facts.num_examples for facts in data.values()],
        "texts cut": [facts.num_cut for facts in data.values()],
        "tokens cut": [facts.num_tokens_cut for facts in data.values()],
    }
    return markdown_table(
        ("", *data), ([name, *values] for name, values in rows.items() if any(value is not None for value in values))
    )


def _score_table(metrics: Mapping[str, float], intervals: Mapping[str, Measured]) -> str:
    if not intervals:
        return markdown_table(("metric", "value"), metrics.items())
    rows = []
    for name, value in metrics.items():
        measured = intervals.get(name)
        rows.append((name, value, None if measured is None else Interval(measured.low, measured.high)))
    return markdown_table(("metric", "value", "95 % interval"), rows)


def _other_settings(task: TextTask) -> dict[str, Any]:
    """The settings of a task that differ from the defaults, by name."""
    defaults = {part.name: part.default for part in fields(task)}  # pyrefly: ignore
    return {name.replace("_", " "): value for name, value in task_settings(task).items() if value != defaults[name]}


def _tuned(task: TextTask) -> str:
    return " and the thresholds" if task.has_thresholds else ""


def _limits(trained: TrainedTask) -> list[str]:
    labels, limits = trained.task.known_labels, []
    if labels:
        limits.append("It predicts the labels above and no others, for any text.")
    if trained.layout.on_long == "truncate":
        limits.append(f"It processes the first {trained.layout.max_length} tokens of a text.")
    limits.append("Contents, languages and biases of the training data were not examined.")
    limits.append("No license is stated here: see those of the base model and of the training data.")
    return limits
