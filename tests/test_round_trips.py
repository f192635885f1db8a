"""Files that other tools write have equal entities and labels here, and files that bertkit writes have them there."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bertkit.tasks.reading import read_labeled_texts, read_questions, read_tagged
from bertkit.tasks.tags import entities_in, spell

TEXTS = [
    ("Ada Lovelace met Charles Babbage in London.", [(0, 12, "PER"), (17, 32, "PER"), (36, 42, "LOC")]),
    ("Dr 😀 Ada flew to Paris 🇫🇷 today", [(5, 8, "PER"), (17, 22, "LOC")]),
    ("Nothing here, really.", []),
    ('A "quoted", part; of\tBath', [(21, 25, "LOC")]),
]


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    """The texts as bertkit data writes them."""
    source, path = tmp_path / "source.jsonl", tmp_path / "ours.jsonl"
    source.write_text("".join(json.dumps({"text": text, "labels": spans}) + "\n" for text, spans in TEXTS))
    path.write_text("".join(json.dumps(example.row()) + "\n" for example in read_tagged(source)))
    return path


def spans_of(row: Mapping[str, Any]) -> tuple[str, list[tuple[int, int, str]]]:
    """A text and its spans, from a row of bertkit's own format."""
    return row["text"], [(span["start"], span["end"], span["label"]) for span in row["spans"]]


def spans_in(path: Path) -> list[tuple[str, list[tuple[int, int, str]]]]:
    """The texts of a file with their spans."""
    return [spans_of(example.row()) for example in read_tagged(path)]


def test_our_rows_are_read_as_they_were(ours: Path) -> None:
    assert spans_in(ours) == TEXTS


@pytest.mark.parametrize("scheme", ["BIO", "BIOES", "IOB1"])
def test_seqeval_finds_equal_entities(ours: Path, scheme: str) -> None:
    metrics = pytest.importorskip("seqeval.scheme", reason="seqeval is not installed")
    kind = {"BIO": metrics.IOB2, "BIOES": metrics.IOBES, "IOB1": metrics.IOB1}[scheme]
    for example in read_tagged(ours):
        entities = entities_in(example.tags or (), "BIO")
        tags = spell(entities, len(example.words or ()), scheme)
        theirs = [one for of_text in metrics.Entities([tags], kind).entities for one in of_text]
        assert [(one.start, one.end, one.tag) for one in theirs] == entities


def test_spacy(ours: Path, tmp_path: Path) -> None:
    spacy = pytest.importorskip("spacy", reason="spaCy is not installed")
    from spacy.tokens import DocBin

    nlp, docs = spacy.blank("en"), []
    for row in map(json.loads, ours.read_text().splitlines()):
        doc = nlp(row["text"])
        doc.ents = [doc.char_span(*span) for span in spans_of(row)[1]]
        docs.append(doc)
    assert [(one.text, [(e.start_char, e.end_char, e.label_) for e in one.ents]) for one in docs] == TEXTS
    DocBin(docs=docs).to_disk(tmp_path / "a.spacy")
    assert spans_in(tmp_path / "a.spacy") == TEXTS


def test_label_studio(tmp_path: Path) -> None:
    converter = pytest.importorskip("label_studio_converter", reason="label-studio-converter is not installed")
    tasks = []
    for number, (text, spans) in enumerate(TEXTS):
        results = [
            {
                "id": f"{number}-{start}", "from_name": "label", "to_name": "text", "type": "labels",
                "value": {"start": start, "end": end, "text": text[start:end], "labels": [label]},
            }
            for start, end, label in spans
        ]  # fmt: skip
        dates = dict.fromkeys(("created_at", "updated_at"), "2024-01-01T00:00:00Z")
        annotation = {
            "id": number,
            "completed_by": 1,
            "was_cancelled": False,
            "lead_time": 1.0,
            "result": results,
        } | dates
        tasks.append({"id": number, "data": {"text": text}, "annotations": [annotation], "predictions": []})
    (tmp_path / "tasks.json").write_text(json.dumps(tasks))
    labels = '<Labels name="label" toName="text"><Label value="PER"/><Label value="LOC"/></Labels>'
    convert = converter.Converter(f'<View>{labels}<Text name="text" value="$text"/></View>', str(tmp_path)).convert
    for form in ("JSON", "JSON_MIN", "CSV", "TSV"):
        convert(str(tmp_path / "tasks.json"), str(tmp_path / form), form, is_dir=False)
        (path,) = (tmp_path / form).iterdir()
        assert spans_in(path) == TEXTS, form
    convert(str(tmp_path / "tasks.json"), str(tmp_path / "CONLL"), "CONLL2003", is_dir=False)
    (path,) = (tmp_path / "CONLL").iterdir()
    assert [[label for _, _, label in spans] for _, spans in spans_in(path)] == [
        [label for _, _, label in spans] for _, spans in TEXTS
    ]


def test_datasets(ours: Path, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    rows = datasets.load_dataset("json", data_files=str(ours), split="train", cache_dir=str(tmp_path / "cache"))
    assert list(map(spans_of, rows)) == TEXTS
    rows.to_json(tmp_path / "again.jsonl")
    rows.to_parquet(tmp_path / "again.parquet")
    assert spans_in(tmp_path / "again.jsonl") == spans_in(tmp_path / "again.parquet") == TEXTS
    several = datasets.Dataset.from_dict({"text": ["a", "b"], "labels": [["x", "y"], []]})
    squad = datasets.Dataset.from_dict(
        {"id": ["1"], "question": ["who?"], "context": ["the cat"],
         "answers": [{"text": ["cat"], "answer_start": [4]}]}
    )  # fmt: skip
    for end in ("csv", "parquet", "jsonl"):
        getattr(several, {"jsonl": "to_json"}.get(end, f"to_{end}"))(tmp_path / f"several.{end}")
        labels = [one.label for one in read_labeled_texts(tmp_path / f"several.{end}", "set")]
        assert labels == [("x", "y"), ()], end
    for end in ("parquet", "jsonl"):
        getattr(squad, {"jsonl": "to_json"}.get(end, f"to_{end}"))(tmp_path / f"squad.{end}")
        assert [one.answers for one in read_questions(tmp_path / f"squad.{end}")] == [((4, 7),)]
