"""Examples as rows of bertkit's jsonl files, which readers turn into equal examples."""

from typing import Any

from bertkit.tasks.alignment import TaughtText
from bertkit.tasks.examples import ChoiceQuestion, Question, TaggedText, TextExample, TextSet
from bertkit.tasks.tags import entities_in, guess_scheme, notation_of, spell
from bertkit.tasks.words import words_of


def own_row(example: TextExample | TaggedText | Question | ChoiceQuestion | TextSet | TaughtText) -> dict[str, Any]:
    """A labeled example as a JSON object; its location is not written.

    Tags that spell entities become spans. Words other than those of the rule "punctuation" are in "word_spans".
    """
    if isinstance(example, TaughtText):
        return {"text": example.text}
    if isinstance(example, TextSet):
        names = ("query", "positives", "negatives", "score", "scores")
        return {name: value for name in names if (value := getattr(example, name)) not in (None, ())}
    row = {"id": example.id} if example.id else {}
    if isinstance(example, TaggedText):
        return row | _tagged(example)
    if isinstance(example, Question):
        answers = [{"text": example.context[start:end], "answer_start": start} for start, end in example.answers or ()]
        return row | {"question": example.question, "context": example.context, "answers": answers}
    if isinstance(example, ChoiceQuestion):
        return row | {"context": example.context, "choices": list(example.choices), "label": example.label}
    label = list(example.label) if isinstance(example.label, tuple) else example.label
    row |= {"text": example.text} | ({} if example.pair is None else {"pair": example.pair})
    return row | {"labels" if isinstance(label, list) else "label": label}


def _tagged(example: TaggedText) -> dict[str, Any]:
    words, tags = example.words or (), example.tags or ()
    row: dict[str, Any] = {"text": example.text}
    scheme = guess_scheme({*tags, "O"})
    entities = entities_in(tags, scheme, notation_of({*tags, "O"}, scheme))
    if spell(entities, len(words), "BIO") == list(tags):
        row["spans"] = [
            {"start": words[first][0], "end": words[end - 1][1], "label": label} for first, end, label in entities
        ]
    else:
        row["tags"] = list(tags)
    if "tags" in row or words != words_of(example.text, "punctuation"):
        row["word_spans"] = [list(word) for word in words]
    return row
