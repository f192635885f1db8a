"""`bertkit plan`: what a pre-training run will take."""

import json
from pathlib import Path

import pytest
from test_pretraining import TINY, write_corpus

from bertkit.architectures import Network
from bertkit.cli import run as run_command
from bertkit.corpus.documents import Reading, read_sentences
from bertkit.errors import DataError, UsageError
from bertkit.pretraining import Inputs, Pretraining, plan, read_recipe, with_length
from bertkit.pretraining.network import new_network, size_for


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("text") / "corpus.txt")


@pytest.mark.full
@pytest.mark.parametrize("objective", ["masked-lm", "next-sentence", "replaced-tokens"])
def test_a_plan_counts_what_the_run_counts(corpus: Path, tmp_path: Path, objective: str) -> None:
    electra = ["model.architecture=electra"] if objective == "replaced-tokens" else []
    recipe = read_recipe("cpu-minutes", [*TINY, *electra, f"objective.name={objective}"])
    planned = plan(recipe, Inputs((corpus,)), device="cpu", seconds=2)
    run = Pretraining(tmp_path / "run", recipe, Inputs((corpus,)), log_line=lambda line: None, device="cpu")
    run.start(resume=False)
    events = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    start = next(event for event in events if event["event"] == "start")
    shards = [json.loads(path.read_text()) for path in (tmp_path / "run" / "shard").rglob("manifest.json")]
    assert planned.num_characters == sum(len(one.text) + 1 for one in read_sentences(corpus, Reading()))
    assert planned.num_tokens == pytest.approx(sum(shard["num_tokens"] for shard in shards), rel=0.03)
    assert planned.num_parameters == start["num_parameters"]
    assert planned.tokens_per_step == pytest.approx(run.state.num_tokens / run.state.step, rel=0.1)
    assert planned.num_steps == recipe.training.num_steps
    last = [event for event in events if event["event"] == "step"][-1]  # whose epoch is that before the step
    assert planned.epochs == pytest.approx(last["epoch"] * last["step"] / (last["step"] - 1), rel=0.1)
    saved = sum(path.stat().st_size for path in sorted((tmp_path / "run/checkpoints").iterdir())[-1].rglob("*.*"))
    assert planned.checkpoint_bytes == pytest.approx(saved, rel=0.05)
    assert 0 <= planned.padding_saved < 1 and planned.tokens_per_second > 0 and planned.memory_bytes > 2**20


@pytest.mark.full
def test_hours_and_steps_follow_from_the_speed(corpus: Path) -> None:
    recipe = with_length(read_recipe("cpu-minutes", TINY), minutes=30)
    planned = plan(recipe, Inputs((corpus,)), device="cpu", seconds=1)
    assert planned.hours == 0.5
    trained = planned.num_steps * planned.tokens_per_step / planned.tokens_per_second
    assert 0.5 * 1_800 < trained <= 1_800


@pytest.mark.full
def test_a_short_corpus_with_held_out_files(tmp_path: Path) -> None:
    for name, animal in (("corpus.txt", "cat"), ("other.txt", "dog")):
        (tmp_path / name).write_text(f"The {animal} sat on the mat. It saw another {animal}.\n" * 40)
    inputs = Inputs((tmp_path / "corpus.txt",), (tmp_path / "other.txt",))  # one document, which is one block
    assert plan(read_recipe("cpu-minutes", TINY), inputs, device="cpu", seconds=1).num_tokens > 100
    with pytest.raises(DataError, match="held"):
        plan(read_recipe("cpu-minutes", TINY), Inputs((tmp_path / "corpus.txt",)), device="cpu", seconds=1)


@pytest.mark.full
def test_a_stage_of_longer_sequences_is_tried_too(corpus: Path) -> None:
    recipe = read_recipe("cpu-minutes", [*TINY, "data.final_max_seqlen=48", "data.final_share=0.5"])
    short = plan(read_recipe("cpu-minutes", TINY), Inputs((corpus,)), device="cpu", seconds=1)
    assert plan(recipe, Inputs((corpus,)), device="cpu", seconds=1).tokens_per_step > short.tokens_per_step


def test_the_size_grows_with_the_time() -> None:
    sizes = [size_for(minutes) for minutes in (0.1, 1e3, 1e6)]
    assert sizes[0] == "tiny" and sizes[-1] == "base"
    assert isinstance(new_network(read_recipe("bert-2018"), None), Network)


def test_rejects_what_a_run_rejects(corpus: Path, tmp_path: Path, capsys) -> None:
    with pytest.raises(DataError, match="no-such"):
        plan(read_recipe("cpu-minutes"), Inputs((tmp_path / "no-such.txt",)))
    with pytest.raises(UsageError, match="--model"):
        plan(read_recipe("domain-adapt"), Inputs((corpus,)))
    assert run_command(["plan", "--corpus", str(corpus), "--held-out", str(corpus)]) == 2
    assert "is training text, which held-out text must not be" in capsys.readouterr().err
    (tmp_path / "empty.txt").write_text("\n")
    with pytest.raises(DataError, match="no readable text"):
        plan(read_recipe("cpu-minutes"), Inputs((tmp_path / "empty.txt",)))
