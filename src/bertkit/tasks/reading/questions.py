"""Reader of questions with answers: SQuAD 1.1 and 2.0 json, jsonl, and tables with a column for the answer.

Answers are given as character spans. An answer without a position is located at its first occurrence in the
text between the borders of words, or else at its first occurrence.
"""

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bertkit.errors import DataError
from bertkit.files import BadRow, BadRows, extension, location
from bertkit.files.labeled_tables import Table, check_roles, id_of, needed_text, open_table, text_of
from bertkit.files.lines import what_it_is
from bertkit.files.tables import Row
from bertkit.tasks.examples import Question
from bertkit.tasks.reading.formats.format import Sample
from bertkit.tokenizer.encoding import Span

QUESTION_ROLES = ("question", "context", "answer", "answer_start", "id")

_KNOWN: Mapping[str, tuple[str, ...]] = {
    "question": ("question", "sentiment"),
    "context": ("context", "text"),
    "answer": ("answers", "answer", "selected_text"),
    "answer_start": ("answer_start",),
    "id": ("id", "textID"),
}
_NO_ANSWER = " is_impossible is false, but there is no answer: add one, or set it"
_MISSING = {"nan", "<na>"}
_UNSEEN = {"Zs", "Zl", "Zp", "Cc", "Cf"}  # white space and control characters, which have no tokens
_SQUAD = {"question": "question", "context": "context", "answer": "answers", "id": "id"}


def read_questions(
    path: str | Path, *, labeled: bool = True, columns: Mapping[str, str] = {}, bad_rows: BadRows | None = None
) -> Iterator[Question]:
    """Read the questions of a file, one at a time.

    Args:
        path: .json: SQuAD 1.1 or 2.0, read as a whole; .jsonl: an object for each question, "answers" as in SQuAD, or
            as {"text": [...], "answer_start": [...]}, or one answer as text; parquet likewise; csv and tsv files.
        labeled: False: answers are not read.
        columns: names by role, "question", "context", "answer", "answer_start" and "id", if they are not recognized
            from the names. An empty answer means no answer.
        bad_rows: receives unusable questions; None: such a question is an error.

    Raises:
        DataError: no such file, no column for question, context or answer, a bad question, no question at all.
        UsageError: an unknown role.
    """
    bad_rows = bad_rows or BadRows()
    check_roles(columns, QUESTION_ROLES)
    occurrences = _Occurrences()

    def questions(rows: Iterable[Row], chosen: Mapping[str, str], *, is_squad: bool = False) -> Iterator[Question]:
        def question(row: Row) -> Question:
            result, name = _question(row.values, chosen, labeled, occurrences), id_of(row.values, chosen["id"])
            if is_squad and labeled:
                _check_impossible(row.values, result)
            for what in ("question", "context") if labeled else ():
                if not getattr(result, what).strip():
                    raise BadRow(f" has an empty {what}: fill it in, or remove the question")
            where = location(path, row.line) + (f", question {name}" if is_squad else "")
            return replace(result, id=name, location=where)

        return bad_rows.usable(path, rows, question, lambda row: text_of(row.values, chosen["question"])[0])

    sample = Sample(Path(path))
    is_table = sample.text.lstrip().startswith("[") or (sample.row and "data" not in sample.row)
    if extension(path) == ".json" and not is_table:
        yield from questions(_squad_rows(path), _SQUAD, is_squad=True)
    else:
        known = [name for names in _KNOWN.values() for name in names]
        with open_table(path, columns.values(), known) as table:
            yield from questions(table.rows, _choose(table, labeled, columns))
    if occurrences.num_several:
        bad_rows.note(
            path, "answers without answer_start occur several times: the first was taken", occurrences.num_several
        )
    if occurrences.num_inside:
        bad_rows.note(path, "answers without answer_start occur only inside other words", occurrences.num_inside)


@dataclass
class _Occurrences:
    """Answers without a position: how many occur several times, or only inside a word."""

    num_several: int = 0
    num_inside: int = 0

    def first(self, text: str, context: str) -> int:
        """The start of the first occurrence between the borders of words, or else of the first; -1 without one."""
        first = context.find(text)
        if first < 0:
            return first
        before = r"(?<!\w)" if _IS_LETTER.match(text[0]) else ""
        after = r"(?!\w)" if _IS_LETTER.match(text[-1]) else ""
        whole = [match.start() for match in re.finditer(f"{before}(?={re.escape(text)}{after})", context)]
        self.num_several += len(whole) > 1
        self.num_inside += not whole
        return whole[0] if whole else first


_IS_LETTER = re.compile(r"\w")
_WHOLE = re.compile(r"(\d+)(?:\.0+)?")  # 4.0 is how tables have 4 in a column with gaps


def _check_impossible(values: Mapping[str, Any], question: Question) -> None:
    has_answer = bool(question.answers)
    if values.get("is_impossible") is has_answer:  # SQuAD 1.1 has no is_impossible
        raise BadRow(" has is_impossible although it has an answer: correct one of them" if has_answer else _NO_ANSWER)


def _squad_rows(path: str | Path) -> Iterator[Row]:
    """The questions of a SQuAD file, each with its line and context."""
    if not Path(path).is_file():
        raise DataError(f"{path}{what_it_is(path)}")
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
        articles = json.loads(text)["data"]
        if articles and all("paragraphs" not in article and "question" in article for article in articles):
            paragraphs = [(article["context"], [article]) for article in articles]  # without nesting, as on the hub
        else:
            paragraphs = [(part["context"], part["qas"]) for article in articles for part in article["paragraphs"]]
        questions = [(context, question) for context, results in paragraphs for question in results]
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not JSON: {error}") from None
    except (KeyError, TypeError) as error:
        raise DataError(
            f"{path} is not in SQuAD's format, data / paragraphs / context, qas: {type(error).__name__} {error}"
        ) from None
    position, line = 0, 1
    for context, content in questions:
        values = {**content, "context": context} if isinstance(content, dict) else {}
        name = id_of(values)
        at = text.find(json.dumps(name, ensure_ascii=False), position) if name else -1
        if at >= 0:
            line, position = line + text.count("\n", position, at), at
        yield Row(line, values)


def _choose(table: Table, labeled: bool, columns: Mapping[str, str]) -> dict[str, str]:
    chosen = {}
    for role in QUESTION_ROLES:
        if role.startswith("answer") and not labeled:
            continue
        if role in ("answer_start", "id"):  # a later object may have them even if the first lacks them
            chosen[role] = table.column(role, columns.get(role), _KNOWN[role]) or _KNOWN[role][0]
        else:
            chosen[role] = table.require(role, columns.get(role), _KNOWN[role])
    return chosen


def _question(
    values: Mapping[str, Any], chosen: Mapping[str, str], labeled: bool, occurrences: _Occurrences
) -> Question:
    question, context = needed_text(values, chosen["question"]), needed_text(values, chosen["context"])
    if not labeled:
        return Question(question, context)
    answers: list[Span] = []
    for text, given in _given_answers(values, chosen):
        start = _start_of(text, given, context, occurrences)
        answers.append((start, start + len(text)))
    return Question(question, context, tuple(answers))


def _given_answers(values: Mapping[str, Any], chosen: Mapping[str, str]) -> list[tuple[str, Any]]:
    """Texts and starts of the answers, None for a missing start."""
    key = chosen["answer"]
    value = values.get(key)
    if isinstance(value, str):
        start = values.get(chosen.get("answer_start", ""))
        if isinstance(start, str) and (number := _WHOLE.fullmatch(start.strip())):
            start = int(number[1])
        return [(value, None if start == "" else start)] if value else []
    if isinstance(value, dict):
        texts, starts = value.get("text"), value.get("answer_start")
        value = None
        if isinstance(texts, list) and isinstance(starts, list) and len(texts) == len(starts):
            value = [{"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)]
    if not isinstance(value, list) or not all(
        isinstance(answer, dict) and isinstance(answer.get("text"), str) and answer["text"] for answer in value
    ):
        raise BadRow(f": {key!r} is {values.get(key)!r:.60}, expected answers as in SQuAD, or [] for no answer")
    return [(answer["text"], answer.get("answer_start")) for answer in value]


def _start_of(text: str, start: Any, context: str, occurrences: _Occurrences) -> int:
    """Start of an answer in its context."""
    if isinstance(start, float) and start.is_integer():
        start = int(start)
    if start is not None and (type(start) is not int or start < 0):
        raise BadRow(f": answer_start is {start!r:.40}, expected a character index")
    if all(unicodedata.category(character) in _UNSEEN for character in text):
        raise BadRow(f": the answer {text!r:.60} has no visible characters: correct it, or remove the question")
    if start is not None and context.startswith(text, start):
        return start
    if start is None and text.strip().lower() in _MISSING:
        missing = "as tables have it for a missing value: leave it empty, or give answer_start"
        raise BadRow(f": the answer is {text!r}, {missing}")
    first = occurrences.first(text, context) if start is None else context.find(text)
    if first < 0:
        raise BadRow(f": the answer {text!r:.60} is not in its context: correct it, or remove the question")
    if start is None:
        return first
    raise BadRow(f": the answer {text!r:.60} is not at {start} in its context but at {first}: correct answer_start")
