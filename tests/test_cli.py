"""The command line: results, bad input, atomic files."""

import csv
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from tqdm import tqdm

from bertkit import BertConfig, Model, Tokenizer, load
from bertkit.checkpoint.checkpoint import Provenance
from bertkit.cli import COMMANDS, run
from bertkit.cli.output import emit, note
from bertkit.errors import DataError
from bertkit.tokenizer import train_vocabulary

WORDS = ["the", "quick", "brown", "fox", "jump", "##s", "over", "a", "lazy", "dog", "i", "am", "your", "father", "."]


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory) -> str:
    """A saved model of odd sizes with the pre-training heads, marked as trained."""
    tokenizer = Tokenizer.from_vocab(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS])
    config = BertConfig(
        vocab_size=23, hidden_size=20, num_hidden_layers=2, num_attention_heads=4, intermediate_size=37,
        max_position_embeddings=16,
    )  # fmt: skip
    model = Model.create(config, tokenizer, ["masked_lm", "next_sentence"], seed=7)
    folder = tmp_path_factory.mktemp("model") / "tiny"
    model.checkpoint.provenance = dict.fromkeys(model.checkpoint.provenance, Provenance("trained"))
    model.save(folder)
    return str(folder)


@pytest.fixture
def rows(capsys):
    """Run a command line that must succeed; returns its output as parsed JSON lines."""

    def run_and_parse(*arguments: str) -> list[dict]:
        code = run(list(arguments))
        captured = capsys.readouterr()
        assert code == 0, captured.err
        return [json.loads(line) for line in captured.out.splitlines()]

    return run_and_parse


@pytest.fixture
def complaint(capsys):
    """Run a command line that must fail with exit code 2; returns its one line."""

    def run_and_read(*arguments: str) -> str:
        code = run(list(arguments))
        captured = capsys.readouterr()
        assert code == 2
        assert captured.out == ""
        (line,) = captured.err.splitlines()
        assert line.startswith("bertkit: ")
        return line

    return run_and_read


def test_options_that_may_be_none_are_omitted(complaint, tiny_model) -> None:
    said = complaint("generate", "the fox", "--model", tiny_model, "--temperature", "0")
    assert said == "bertkit: --temperature 0.0: expected a number above 0, or omit it"


@pytest.mark.parametrize(("value", "message"), [("2.5", "--top-k 2.5: expected an integer"), ("2.0", "no [MASK]")])
def test_fractions_are_not_rounded_to_integers(value: str, message: str, complaint, tiny_model) -> None:
    assert message in complaint("fill", "the fox", "--model", tiny_model, "--top-k", value)


def test_tokenize(rows, tiny_model):
    (row,) = rows("tokenize", "The fox jumps", "--model", tiny_model)
    assert row["tokens"] == ["[CLS]", "the", "fox", "jump", "##s", "[SEP]"]
    assert row["input_ids"] == [2, 5, 8, 9, 10, 3]
    assert row["token_type_ids"] == [0] * 6
    assert row["offsets"] == [[0, 0], [0, 3], [4, 7], [8, 12], [12, 13], [0, 0]]
    assert row["word_ids"] == [-1, 0, 1, 2, 2, -1]
    assert row["special_tokens_mask"] == [1, 0, 0, 0, 0, 1]


def test_tokenize_pads_on_request_and_shows_the_attention_mask(rows, tiny_model):
    (row,) = rows("tokenize", "a dog", "--pair", "fox", "--model", tiny_model, "--pad-to", "8")
    assert row["tokens"] == ["[CLS]", "a", "dog", "[SEP]", "fox", "[SEP]", "[PAD]", "[PAD]"]
    assert row["attention_mask"] == [1, 1, 1, 1, 1, 1, 0, 0]
    assert row["token_type_ids"] == [0, 0, 0, 0, 1, 1, 0, 0]
    assert {len(values) for values in row.values() if isinstance(values, list)} == {8, 2}  # cut_spans: one a text


def test_tokenize_windows_and_truncation(rows, tiny_model):
    text = "a dog over a fox"
    (row,) = rows("tokenize", text, "--model", tiny_model, "--max-length", "5", "--on-long", "truncate")
    assert (row["num_tokens_cut"], row["cut_spans"]) == (2, [[11, 16]])
    windows = rows("tokenize", text, "--model", tiny_model, "--max-length", "5", "--on-long", "window", "--stride", "2")
    assert [window["tokens"][1:-1] for window in windows] == [["a", "dog", "over"], ["over", "a", "fox"]]


def test_tokenize_counts_texts_from_the_first(tiny_model, capsys):
    texts = ["a"] * 1_200 + ["a fox over a dog"]
    assert run(["tokenize", *texts, "--max-length", "5", "--model", tiny_model]) == 2
    assert "text 1200 has 7 tokens" in capsys.readouterr().err


@pytest.mark.full
def test_tokenize_reads_lines_from_standard_input(tiny_model):
    result = subprocess.run(
        [sys.executable, "-m", "bertkit", "tokenize", "--model", tiny_model],
        input="a\n\nfox dog\n", capture_output=True, text=True,
    )  # fmt: skip
    assert [len(json.loads(line)["tokens"]) for line in result.stdout.splitlines()] == [3, 2, 4]


def test_vocab_train_inspect_export(rows, tmp_path):
    (tmp_path / "a.txt").write_text("low lower lowest\n" * 5)
    with open(tmp_path / "b.csv", "w", newline="") as file:
        csv.writer(file).writerows([["id", "text"], ["1", "newer newest wider\nwidest"], ["2", "low new wide"]])
    out = tmp_path / "vocab.txt"
    files = [str(tmp_path / "a.txt"), str(tmp_path / "b.csv")]
    (trained,) = rows("vocab", "train", *files, "--out", str(out), "--vocab-size", "40")
    assert trained["num_entries"] == len(out.read_text().splitlines()) <= 40
    assert out.read_text().startswith("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n")
    (statistics,) = rows("vocab", "show", "--model", str(out), "--text", files[0])
    assert (statistics["num_texts"], statistics["num_words"], statistics["num_unknown"]) == (5, 15, 0)
    assert statistics["pieces_per_word"] == statistics["num_pieces"] / 15
    by_token, by_id, unknown = rows("vocab", "show", "low", "4", "zzz", "--model", str(out))
    assert by_token["token_id"] == out.read_text().splitlines().index("low")
    assert by_id["token"] == "[MASK]"
    assert (unknown["token_id"], unknown["pieces"]) == (None, ["[UNK]"])
    rows("vocab", "show", "--model", str(out), "--export", str(tmp_path / "again.txt"))
    assert (tmp_path / "again.txt").read_text() == out.read_text()


def test_tokens_of_ids(tiny_model):
    tokenizer = load(tiny_model).tokenizer
    encoding = tokenizer.encode("I am your fox")
    assert tokenizer.tokens(encoding) == tokenizer.tokens(encoding.input_ids.tolist())
    assert [tokenizer.vocabulary.id(token) for token in tokenizer.tokens([4, 2])] == [4, 2]
    with pytest.raises(DataError, match="id 99 is outside"):
        tokenizer.tokens([99])


def test_describe(rows, tiny_model):
    (row,) = rows("describe", "--model", tiny_model)
    stored = load_file(Path(tiny_model) / "model.safetensors")
    assert row["architectures"] == ["BertForPreTraining"]
    assert row["num_parameters"] == sum(tensor.size for tensor in stored.values())
    assert {parameter["name"]: tuple(parameter["shape"]) for parameter in row["parameters"]} == {
        name: tensor.shape for name, tensor in stored.items()
    }
    embedding = {
        "name": "bert.embeddings.word_embeddings.weight", "dtype": "F32", "shape": [23, 20], "num_parameters": 460,
    }  # fmt: skip
    assert embedding in row["parameters"]


def test_describe_gives_the_published_parameter_table(rows):
    (row,) = rows("describe", "--size", "base", "--heads", "sequence_classification")
    assert (row["num_tensors"], row["num_parameters"]) == (201, 109_483_778)
    assert row["parameters"][0]["name"] == "bert.embeddings.word_embeddings.weight"
    assert row["parameters"][0]["shape"] == [30_522, 768]
    assert row["parameters"][-1] == {"name": "classifier.bias", "dtype": "F32", "shape": [2], "num_parameters": 2}
    (row,) = rows("describe", "--size", "base")
    assert (row["num_parameters"], row["mib"]) == (109_482_240, 417.6)
    (row,) = rows("describe", "--size", "large")
    assert row["num_parameters"] == 335_141_888
    (row,) = rows("describe", "--size", "base", "--architecture", "modernbert", "--heads", "masked_lm")
    assert (row["model_type"], row["num_parameters"]) == ("modernbert", 149_655_232)
    assert row["parameters"][2]["name"] == "model.layers.0.attn.Wqkv.weight"


def test_fill_and_next_sentence(rows, tiny_model):
    filled = rows("fill", "I am your [MASK].", "--model", tiny_model, "--top-k", "3")
    expected = load(tiny_model).fill_mask("I am your [MASK].", top_k=3)[0]
    assert [row["token"] for row in filled] == [candidate.token for candidate in expected.candidates]
    assert [row["offsets"] for row in filled] == [[10, 16]] * 3
    (row,) = rows("next-sentence", "a fox", "a dog", "--model", tiny_model)
    assert row["score"] == pytest.approx(load(tiny_model).next_sentence_probability("a fox", "a dog"))


def test_fill_and_next_sentence_use_the_model_that_was_made_here(
    rows, complaint, tiny_model, tmp_path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    for words in (["fill", "a [MASK]"], ["next-sentence", "a fox", "a dog"]):
        said = complaint(*words)
        assert ".demo/bert/model" in said and "make demo-bert" in said and "--model bert-base-uncased" in said
        named = rows(*words, "--model", tiny_model)
        shutil.copytree(tiny_model, ".demo/bert/model")
        assert rows(*words) == named
        shutil.rmtree(".demo")


def test_similarity(rows, tiny_model):
    results = rows("similarity", "a fox", "a fox", "lazy dog", "--model", tiny_model)
    assert [(row["text_a"], row["text_b"]) for row in results] == [
        ("a fox", "a fox"), ("a fox", "lazy dog"), ("a fox", "lazy dog"),
    ]  # fmt: skip
    assert results[0]["score"] == pytest.approx(1, abs=1e-6)
    assert results[1]["score"] < 0.999
    (result,) = rows(
        "similarity", "a fox", "lazy dog", "--pooling", "cls", "--layers", "concat:0,-1", "--model", tiny_model
    )
    first, second = load(tiny_model).embed(["a fox", "lazy dog"], pooling="cls", layers="concat:0,-1", normalize=True)
    assert result["score"] == pytest.approx(float(first @ second)) != results[1]["score"]


TEXTS = ["a quick fox", "", 'the "lazy", dog', "i am\tyour father."]


def write_texts(path: Path) -> str:
    if path.suffix == ".txt":
        path.write_text("".join(text + "\r\n" for text in TEXTS), newline="")
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps({"id": 1, "text": text}) + "\n" for text in TEXTS))
    elif path.suffix == ".tsv":  # quotes in it are text
        path.write_text("id\ttext\n" + "".join(f"1\t{text.replace(chr(9), ' ')}\n" for text in TEXTS))
    elif path.suffix == ".csv":
        with open(path, "w", newline="") as file:
            csv.writer(file).writerows([["id", "text"], *[["1", text] for text in TEXTS]])
    else:
        parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
        import pyarrow

        parquet.write_table(pyarrow.table({"id": [1] * len(TEXTS), "text": TEXTS}), path)
    return str(path)


@pytest.mark.parametrize("extension", [".txt", ".jsonl", ".csv", ".tsv", ".parquet"])
def test_embed_reads_every_format(extension, tiny_model, tmp_path, capsys):
    source = write_texts(tmp_path / f"texts{extension}")
    out = tmp_path / "vectors.npy"
    assert run(["embed", "-i", source, "-o", str(out), "--model", tiny_model]) == 0
    assert "1 texts were empty" in capsys.readouterr().err
    np.testing.assert_array_equal(np.load(out), load(tiny_model).embed(TEXTS))


def test_embed_writes_every_format(rows, tiny_model, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    source = write_texts(tmp_path / "texts.csv")
    expected = load(tiny_model).embed(TEXTS, pooling="max", layers="sum-all")
    options = ["--model", tiny_model, "--pooling", "max", "--layers", "sum-all"]
    printed = rows("embed", "-i", source, *options)
    assert [row["text"] for row in printed] == TEXTS
    np.testing.assert_array_equal(np.array([row["embedding"] for row in printed], np.float32), expected)
    for name in ("vectors.jsonl", "vectors.parquet"):
        rows("embed", "-i", source, "-o", str(tmp_path / name), *options)
    written = [json.loads(line) for line in (tmp_path / "vectors.jsonl").read_text().splitlines()]
    assert written == printed
    table = parquet.read_table(tmp_path / "vectors.parquet").to_pydict()
    assert table["text"] == TEXTS
    np.testing.assert_array_equal(np.array(table["embedding"], np.float32), expected)


def test_embed_reports_truncation(tiny_model, tmp_path, capsys):
    (tmp_path / "long.txt").write_text("a dog " * 20 + "\nfox\n")
    assert run(["embed", "-i", str(tmp_path / "long.txt"), "-o", str(tmp_path / "v.npy"), "--model", tiny_model]) == 0
    assert "1 texts were cut to the maximum length and lost 26 tokens" in capsys.readouterr().err


# Bad input


@pytest.mark.full
def test_bad_files_give_one_line_and_leave_nothing_behind(complaint, tiny_model, tmp_path):
    files = tmp_path / "in"
    files.mkdir()
    (files / "latin1.txt").write_bytes("good\ncaf\xe9\n".encode("latin1"))
    (files / "empty.txt").write_bytes(b"")
    (files / "empty.csv").write_bytes(b"")
    (files / "header_only.csv").write_text("text,b\n")
    (files / "twice.csv").write_text("text,text\na,b\n")
    (files / "gap.jsonl").write_text('"a"\n\n"b"\n')
    (files / "gap.csv").write_text("text,b\nfox,1\n\ncat,2\n")
    (files / "no_column.csv").write_text("a,b\n1,2\n")
    (files / "ragged.csv").write_text("text,b\n1,2\n3\n")
    (files / "broken.jsonl").write_text('{"text": "a"}\n{"text": \n')
    (files / "null.jsonl").write_text('{"text": "a"}\n{"text": null}\n')
    (files / "bad.parquet").write_bytes(b"PAR1 this is not parquet")
    (files / "table.xlsx").write_bytes(b"")
    expected = {
        "latin1.txt": "line 2: byte 3 is not UTF-8",
        "empty.txt": "holds no texts",
        "empty.csv": "is empty: expected column names",
        "header_only.csv": "holds no texts",
        "twice.csv": "names the column 'text' twice",
        "gap.jsonl": "line 2 is empty: remove it",
        "gap.csv": "line 3 is empty: remove it",
        "no_column.csv": "has no column 'text', it has a, b",
        "ragged.csv": "line 3 has 1 fields, but the header has 2",
        "broken.jsonl": "line 2 is not JSON",
        "null.jsonl": "line 2: 'text' is NoneType",
        "bad.parquet": "cannot be read as parquet",
        "table.xlsx": "unknown extension '.xlsx'",
        "absent.txt": "no such file",
    }
    out = tmp_path / "out"
    out.mkdir()
    for name, message in expected.items():
        for output in ("v.npy", "v.jsonl", "v.parquet"):
            line = complaint("embed", "-i", str(files / name), "-o", str(out / output), "--model", tiny_model)
            assert message in line, line
    assert list(out.iterdir()) == []


def test_bad_arguments(complaint, tiny_model, tmp_path):
    (tmp_path / "a.txt").write_text("a\n")
    source = str(tmp_path / "a.txt")
    assert "unknown extension '.xyz'" in complaint("embed", "-i", source, "-o", "v.xyz", "--model", tiny_model)
    assert "does not exist" in complaint("embed", "-i", source, "-o", "nowhere/v.npy", "--model", tiny_model)
    assert "--pooling best" in complaint("embed", "-i", source, "--pooling", "best", "--model", tiny_model)
    assert "--layers first" in complaint("embed", "-i", source, "--layers", "first", "--model", tiny_model)
    assert "--precision float8" in complaint("embed", "-i", source, "--precision", "float8", "--model", tiny_model)
    assert "--device gpu" in complaint("embed", "-i", source, "--device", "gpu", "--model", tiny_model)
    assert "at least two" in complaint("similarity", "one", "--model", tiny_model)
    assert "no [MASK]" in complaint("fill", "nothing to fill", "--model", tiny_model)
    long = complaint("fill", "[MASK] " + "a " * 14, "--model", tiny_model)
    assert "17 tokens, 1 more than max_length 16" in long and "choose --on-long truncate or --on-long window" in long
    assert "--on-long" in complaint("next-sentence", "a", "b", "--on-long", "window", "--model", tiny_model)
    said = complaint("next-sentence", "a " * 999, "b", "--model", tiny_model)
    assert "pair 0 has " in said and said.rstrip().endswith("shorten the two texts, or choose --on-long truncate")
    assert "--frobnicate. (see bertkit tokenize --help)" in complaint("tokenize", "a", "--frobnicate")
    assert "id 99 is outside" in complaint("vocab", "show", "99", "--model", tiny_model)


def test_ignored_options_raise(complaint, tiny_model):
    assert "cannot be combined with words to look up" in complaint("vocab", "show", "a", "--text", "b.txt")
    assert "--column requires --text" in complaint("vocab", "show", "--column", "b")
    assert "cannot be used with --model" in complaint("describe", "--size", "tiny", "--model", tiny_model)
    for architecture in ("modernbert", "bert"):
        assert "require --size" in complaint("describe", "--architecture", architecture, "--model", tiny_model)
    assert "requires a vocab.txt" in complaint("tokenize", "a", "--lowercase", "--model", tiny_model)
    assert "requires --on-long window" in complaint("tokenize", "a", "--stride", "2", "--model", tiny_model)
    unlimited = complaint("tokenize", "a", "--on-long", "truncate", "--model", tiny_model)
    assert "--on-long truncate requires --max-length or --pad-to" in unlimited
    assert "has no column" in complaint("embed", "-i", "-", "--column", "a", "--model", tiny_model)


def test_learning_a_vocabulary_shows_how_far_it_is(monkeypatch):
    shown = io.StringIO()
    monkeypatch.setattr(
        "tqdm.tqdm",
        lambda *arguments, **options: tqdm(*arguments, **options | {"disable": False, "delay": 0, "file": shown}),
    )
    train_vocabulary(["low lower", "lowest", "new\nnewer"] * 7, vocab_size=40)
    assert "reading texts: 100%" in shown.getvalue()
    assert "learning words: 100%" in shown.getvalue() and "21.0/21.0" in shown.getvalue()


def test_stop_signal_interrupts_vocabulary_training(monkeypatch):
    num_learned = 0

    def interrupted(texts, desc, **_):
        def lines():
            nonlocal num_learned
            for text in texts:
                if desc == "learning words":
                    num_learned += 1
                    if num_learned == 100:
                        os.kill(os.getpid(), signal.SIGINT)
                    time.sleep(0.001 if num_learned > 100 else 0)
                yield text

        return tqdm(lines(), disable=True)

    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "true")
    monkeypatch.setattr("tqdm.tqdm", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train_vocabulary(["low lower"] * 20_000, vocab_size=40)
    assert 100 <= num_learned < 20_000


def test_texts_of_a_vocabulary_are_named_and_all_read(rows, complaint, tiny_model, tmp_path):
    out = str(tmp_path / "vocab.txt")
    assert "train requires at least one file or folder" in complaint("vocab", "train", "--out", out)
    assert "extend requires at least one file" in complaint("vocab", "extend", "--out", out, "--model", tiny_model)
    (tmp_path / "texts").mkdir()
    for name in ("a.txt", "notes.md"):
        (tmp_path / "texts" / name).write_text("the fox sat\n" * 5)
    with pytest.warns(UserWarning, match=r"files skipped because of their extension: 1 \(.*notes\.md\)"):
        rows("vocab", "train", str(tmp_path / "texts"), "--out", out)


def test_cased_vocabulary(rows, tmp_path):
    (tmp_path / "a.txt").write_text("Hello World\n" * 5)
    vocabulary = str(tmp_path / "vocab.txt")
    rows("vocab", "train", str(tmp_path / "a.txt"), "--out", vocabulary, "--no-lowercase")
    (row,) = rows("tokenize", "Hello", "--model", vocabulary, "--no-lowercase")
    assert row["tokens"] == ["[CLS]", "Hello", "[SEP]"]


def test_blank_lines_at_the_end_of_a_table(tiny_model, tmp_path):
    for name, content in {"a.csv": "text,b\nfox,1\n\n\n", "a.jsonl": '"fox"\n\n'}.items():
        (tmp_path / name).write_text(content)
        assert run(["embed", "-i", str(tmp_path / name), "-o", str(tmp_path / "v.npy"), "--model", tiny_model]) == 0
        assert len(np.load(tmp_path / "v.npy")) == 1


@pytest.mark.full
def test_any_text_prints_on_any_terminal(tiny_model):
    result = subprocess.run(
        [sys.executable, "-m", "bertkit", "vocab", "show", "日本", "--model", tiny_model],
        capture_output=True, env={**os.environ, "PYTHONIOENCODING": "latin-1"},
    )  # fmt: skip
    assert result.returncode == 0
    assert json.loads(result.stdout.decode("utf-8"))["token"] == "日本"


@pytest.mark.full
def test_similarity_reports_truncation(tiny_model):
    result = subprocess.run(
        [sys.executable, "-m", "bertkit", "similarity", "a " * 30, "fox", "--model", tiny_model],
        capture_output=True, text=True,
    )  # fmt: skip
    assert result.returncode == 0
    (line,) = result.stderr.splitlines()
    assert line.startswith("bertkit: 1 of 2 texts exceeded the model's maximum length and lost 16 tokens")


def test_wrong_kind_of_model(complaint, tiny_model, tmp_path):
    encoder = Model.create(
        BertConfig(vocab_size=23, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=9),
        load(tiny_model).tokenizer,
    )
    encoder.save(tmp_path / "encoder")
    assert "has no masked_lm head" in complaint("fill", "[MASK]", "--model", str(tmp_path / "encoder"))
    assert "has no next_sentence head" in complaint("next-sentence", "a", "b", "--model", str(tmp_path / "encoder"))


def test_truncated_weights(complaint, tiny_model, tmp_path):
    folder = tmp_path / "cut"
    folder.mkdir()
    for file in Path(tiny_model).iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    assert "is truncated" in complaint("fill", "[MASK]", "--model", str(folder))


def test_unknown_model_offline(complaint, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    line = complaint("tokenize", "a", "--model", "nobody/nothing")
    assert "no such folder or file, installed model package or cached download" in line


def test_ctrl_c_while_modules_are_imported_is_one_line(monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("builtins.__import__", interrupted)
        code = run(["tokenize", "a"])
    assert (code, capsys.readouterr().err) == (130, "bertkit: stopped\n")


@pytest.mark.full
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_stop_signal_leaves_no_partial_files(number, code, tiny_model, tmp_path):
    command = [sys.executable, "-m", "bertkit", "embed", "-i", "-", "-o", str(tmp_path / "v.jsonl")]
    process = subprocess.Popen(
        [*command, "--model", tiny_model], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # which nohup ignores
    )  # fmt: skip
    while not list(tmp_path.iterdir()):  # it has begun to write, and waits for more texts
        time.sleep(0.05)
    process.send_signal(number)
    _, message = process.communicate(timeout=60)
    assert process.returncode == code
    assert "Traceback" not in message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.full
def test_every_command_has_help(capsys):
    for name in COMMANDS:
        assert run([name, "--help"]) == 0
        shown = capsys.readouterr().out
        assert "Usage: bertkit" in shown and "--no-no-" not in shown  # the opposite of an option such as --no-prompt


@pytest.mark.parametrize(
    ("command", "part"),
    [
        ("compare-directions", "trained on the same corpus. Every model is trained on"),
        ("compare-directions", "Ctrl-C saves; --resume continues. Parameters:"),
        ("inspect contexts", "a map for each layer, static and contextual similarity. Arguments:"),
        ("inspect", "or write an index page for a folder of pages. Commands:"),
        ("vocab", "Train, extend or show a WordPiece vocabulary. Commands:"),
        (
            "",
            "Research: compare-directions: Compare BERT with unidirectional and shallow bidirectional models.",
        ),
    ],
)
def test_help_of_a_command_is_its_docstring(command, part, capsys):
    """In full; lists of commands show a summary."""
    assert run([*command.split(), "--help"]) == 0
    assert part in " ".join(capsys.readouterr().out.split())


@pytest.mark.full
def test_help_is_wrapped_once_at_80_columns(capsys, monkeypatch):
    """No line is wider, and none ends where the next word would still have had room."""
    monkeypatch.setenv("COLUMNS", "80")
    num_wrapped = 0
    for name in ["", *COMMANDS, "vocab train", "vocab extend", "vocab show"]:
        assert run([*name.split(), "--help"]) == 0
        for line, following in pairwise(capsys.readouterr().out.splitlines()):
            assert len(line) <= 80
            if following.startswith("      "):
                num_wrapped += 1
                assert len(f"{line} {following.split()[0]}") > 80, (line, following)
    assert num_wrapped > 50


@pytest.mark.full
def test_closed_pipe_is_not_an_error(tiny_model):
    command = f"{sys.executable} -m bertkit tokenize --model {tiny_model} {'a ' * 3000}| head -1"
    result = subprocess.run(["bash", "-c", f"set -o pipefail; {command}"], capture_output=True, text=True)
    assert (result.stderr, result.returncode) == ("", 0)
    assert len(result.stdout.splitlines()) == 1


def test_json_lines_have_no_nan(capsys: pytest.CaptureFixture) -> None:
    emit([{"pearson": float("nan"), "scores": [1.5, float("inf")], "text": "NaN"}])
    assert capsys.readouterr().out == '{"pearson": null, "scores": [1.5, null], "text": "NaN"}\n'


def test_texts_cannot_control_a_terminal(capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    emit([{"text": "a\x1b[2J b\nc", "score": 0.5}])
    assert capsys.readouterr().out == "text      score\na[2J b c  0.5000\n"
    note("skipped \x1b]0;title\x07.pdf")
    assert run(["embed", "\x1b[2J.txt"]) == 2
    assert capsys.readouterr().err == "skipped ]0;title.pdf\nbertkit: [2J.txt: no such file or folder\n"


def test_home_folder_in_an_option(tiny_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "texts.txt").write_text("the fox\n")
    assert run(["embed", f"--input={tmp_path}/texts.txt", "--model", tiny_model, "--out=~/v.npy"]) == 0
    assert np.load(tmp_path / "v.npy").shape == (1, 20)


def test_warning_inside_a_command_of_a_group_is_one_line(tiny_model: str, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("the fox\nthe fox\nthe fox\nthe dog\n")
    arguments = ["map", "texts.txt", "--out", "map.html", "--model", tiny_model]
    command = [sys.executable, "-m", "bertkit", "inspect", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert result.returncode == 0 and (tmp_path / "map.html").is_file(), result.stderr
    assert result.stderr.startswith("bertkit: Number of distinct clusters (2) found smaller than n_clusters (4)")


@pytest.mark.full
def test_help_into_a_closed_pipe_is_not_an_error():
    command = f"set -o pipefail; {sys.executable} -m bertkit embed --help | true"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert (result.stderr, result.returncode) == ("", 0)


@pytest.mark.full
def test_ignored_hangup_stays_ignored(tiny_model, tmp_path):
    command = f"trap '' HUP; exec {sys.executable} -m bertkit embed -i - -o {tmp_path}/v.jsonl --model {tiny_model}"
    process = subprocess.Popen(["bash", "-c", command], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not list(tmp_path.iterdir()):
        time.sleep(0.05)
    process.send_signal(signal.SIGHUP)
    process.communicate("a cat\n", timeout=60)
    assert process.returncode == 0 and (tmp_path / "v.jsonl").is_file()


@pytest.mark.full
@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ("tokenize a >&-", 0, ""),
        ("tokenize <&-", 2, "bertkit: standard input is closed: pass a file, or pipe texts to this command\n"),
        ("embed -i - <&- >&-", 2, "bertkit: standard input is closed: pass a file, or pipe texts to this command\n"),
        ("embed -i missing.txt 2>&-", 2, ""),
    ],
)
def test_closed_streams(arguments, code, message, tiny_model):
    command = f"{sys.executable} -m bertkit {arguments} --model {tiny_model}"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (code, message)


@pytest.mark.parametrize(
    "command",
    [
        "vocab train {0}.txt --out {0}.txt",
        "embed --input {0}.jsonl --out {0}.jsonl",
        "cluster --input {0}.jsonl --out {0}.jsonl",
        "mine --input {0}.jsonl --out {0}.jsonl",
        "evaluate retrieval {0}.json --report {0}.html",
        "evaluate retrieval {0}.jsonl --run-file {0}.jsonl",
        "evaluate similarity {0}.json --report {0}.html",
        "check sequence-classification --train {0}.json --report {0}.html",
        "index {0}.txt --export {0}.txt --store {0}-store",
        "inspect map {0}.txt --out {0}.txt",
        "inspect heads {0}.txt --out {0}.txt",
        "vocab show --text {0}.txt --export {0}.txt",
        "generate --model none --input {0}.txt --page {0}.txt",
    ],
)
def test_inputs_are_not_replaced(complaint, command, tmp_path):
    for name in ("a.txt", "a.jsonl", "a.json"):
        (tmp_path / name).write_text("the cat")
    assert "it is the input" in complaint(*command.format(tmp_path / "a").split())
    assert {path.read_text() for path in tmp_path.iterdir()} == {"the cat"}


@pytest.mark.parametrize(
    "command",
    [
        "vocab train {0} --out {0}/vocab.txt",
        "embed --input {0} --out {0}/vectors.jsonl",
        "cluster --input {0} --out {0}/inner/../clusters.jsonl",
        "mine --input {0}/a.jsonl --corpus {0} --out {0}/mined.jsonl",
    ],
)
def test_nothing_is_written_into_an_input_folder(complaint, command, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "the cat"}')
    (tmp_path / "inner").mkdir()
    error = complaint(*command.format(tmp_path).split())
    assert f"it is in the input folder {tmp_path}; choose another folder" in error


@pytest.mark.parametrize("name", ["corpus.jsonl", "queries.jsonl", "qrels/test.tsv"])
def test_files_of_a_collection_are_not_replaced(complaint, name, tmp_path):
    (tmp_path / "qrels").mkdir()
    for file in ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv"):
        (tmp_path / file).write_text("")
    for run_file, message in ((name, "it is the input"), ("a.run", "corpus.jsonl is empty")):
        assert message in complaint("evaluate", "retrieval", str(tmp_path), "--run-file", str(tmp_path / run_file))


def test_existing_folder_is_refused_with_advice_for_the_command_line(complaint, tiny_model, tmp_path):
    (tmp_path / "words.txt").write_text("zebrafish zebrafish\n")
    arguments = ["vocab", "extend", str(tmp_path / "words.txt"), "--model", tiny_model, "--min-frequency", "1"]
    assert "choose another folder, or remove it" in complaint(*arguments, "--out", str(tmp_path))


@pytest.mark.parametrize("arguments", [["predict", "-i", "-"], ["export", "--out", "x"]])
def test_encoder_decoders_are_refused_with_the_command_to_use(complaint, arguments, tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "marian"}')
    assert "use bertkit generate" in complaint(*arguments, "--model", str(tmp_path))
