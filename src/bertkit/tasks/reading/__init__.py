"""Readers of labeled data files: examples, one at a time, each with its file and line."""

from bertkit.files import BadRows
from bertkit.tasks.reading.choices import read_choices
from bertkit.tasks.reading.labels import LabelKind
from bertkit.tasks.reading.questions import read_questions
from bertkit.tasks.reading.tagged import read_tagged
from bertkit.tasks.reading.texts import read_labeled_texts

__all__ = ["BadRows", "LabelKind", "read_choices", "read_labeled_texts", "read_questions", "read_tagged"]
