"""bertkit classify"""

from dataclasses import asdict
from typing import Literal

from bertkit.cli.models import EXACT, Compute, open_model
from bertkit.cli.output import Column, InputFile, emit
from bertkit.corpus.texts import read_texts
from bertkit.errors import UsageError


def command(
    text: str | None = None,
    /,
    *,
    model: str,
    labels: str,
    input: InputFile | None = None,
    column: Column = None,
    multi_label: bool = False,
    template: str | None = None,
    on_long: Literal["error", "truncate"] = "truncate",
    compute: Compute = EXACT,
) -> None:
    """Zero-shot classification: choose among labels without training, by natural language inference.

    Parameters
    ----------
    text
        The text to classify: every label is printed with its probability, best first.
    model
        A natural language inference classifier, with a label named entailment: a folder, or a hub name such as
        cross-encoder/nli-deberta-v3-small.
    labels
        Names separated by commas, such as sports,politics,science.
    input
        Instead of a text a txt file (a text on each line), jsonl, csv, tsv or parquet: each text is printed with its
        label and all probabilities; "-" is standard input.
    multi_label
        Score each label by itself, entailment against contradiction, instead of choosing one.
    template
        Hypothesis that the text is compared with; {} is replaced by the label; by default "This example is {}."
    on_long
        What to do with a text longer than the model's limit: cut it, or refuse it.
    """
    from bertkit.inference.zero_shot import TEMPLATE

    if (text is None) == (input is None):
        raise UsageError("give a text, or a file of texts with --input: one of the two")
    if column is not None and input is None:
        raise UsageError("--column names a column of a file: give one with --input")
    names = [name.strip() for name in labels.split(",")]
    texts = [str(text)] if input is None else list(read_texts(input, column))
    opened = open_model(model, compute)
    predictions = opened.classify(texts, names, multi_label=multi_label, template=template or TEMPLATE, on_long=on_long)
    if text is None:
        emit({"text": each} | asdict(prediction) for each, prediction in zip(texts, predictions, strict=True))
    else:
        emit({"label": label, "score": score} for label, score in predictions[0].probabilities.items())
