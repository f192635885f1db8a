"""Shared fixtures: no network, one thread for tiny models, the data next to the repository."""

import ctypes
import gc
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from browser import browser, opened  # noqa: F401  (fixtures)
from declared_packages import hide_other_extras

os.environ["HF_HUB_OFFLINE"] = "1"  # read when huggingface_hub is first imported
os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in the background: what tests start would ignore it too
    signal.signal(signal.SIGINT, signal.default_int_handler)

PASSED = "bertkit/passed"
"""Key in pytest's cache of the ids of the tests that passed in the last run with --quick."""

_passed: list[str] = []

LONG_FILES = {
    "test_documented_commands.py", "test_inspection_pages.py", "test_processors.py", "test_serving_simulation.py",
    "test_simulated_gpu.py", "test_site.py", "test_training.py", "test_tutorials.py",
}  # fmt: skip
"""Files to begin with: at the end of a run, one worker would wait for another that has a long file."""

ONLY_FULL = re.compile(r"^pytestmark = \[?pytest\.mark\.full\b", re.MULTILINE)


os.fsync = os.fstat  # checks a handle without waiting for the disk: tests end processes, not machines
gc.disable()  # while modules are imported: what they make stays, and searching it took half of the time


def pytest_collection_finish() -> None:
    gc.freeze()  # its searches leave out what is here already
    gc.enable()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="leave out tests marked `full`, except for their samples")
    parser.addoption("--rest", action="store_true", help="leave out tests that passed in the last run with --quick")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--quick"):
        hide_other_extras("bertkit", "test", besides="bench")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Whether a file holds only `full` tests. It is not imported: it may need packages that `make test` does not
    install."""
    is_test = config.getoption("--quick") and collection_path.suffix == ".py"
    return True if is_test and ONLY_FULL.search(collection_path.read_text(encoding="utf-8")) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests marked `full`, and those of a browser, but for evenly spaced samples of their cases; long files
    come first."""
    items.sort(key=lambda item: item.path.name not in LONG_FILES)
    if config.getoption("--rest"):
        passed = set(config.cache.get(PASSED, []))
        _leave_out({item for item in items if item.nodeid in passed}, config, items)
    if not config.getoption("--quick"):
        return
    cases: dict[str, list[pytest.Item]] = {}
    left_out = {item for item in items if "browser" in getattr(item, "fixturenames", ())}
    for item in items:
        if item.get_closest_marker("full"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for group in cases.values():
        sample = group[0].get_closest_marker("full").kwargs.get("sample", 0)
        left_out |= {*group} - {group[number * len(group) // sample] for number in range(sample)}
    _leave_out(left_out, config, items)


def _leave_out(left_out: set[pytest.Item], config: pytest.Config, items: list[pytest.Item]) -> None:
    config.hook.pytest_deselected(items=[*left_out])
    items[:] = [item for item in items if item not in left_out]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" and report.passed:
        _passed.append(report.nodeid)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.config.getoption("--quick") and not hasattr(session.config, "workerinput"):
        session.config.cache.set(PASSED, _passed)


SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
TEST_MODULES = [path.stem for path in Path(__file__).parent.glob("*.py")]


@pytest.fixture(scope="module", autouse=True)
def _no_memory_of_earlier_files(request: pytest.FixtureRequest) -> Iterator[None]:
    """Empty the caches of a file after its tests, and the large ones of its helpers, and return free memory to the
    system: a worker runs a hundred files."""
    yield
    for module in filter(None, map(sys.modules.get, TEST_MODULES)):
        for value in vars(module).values():
            if hasattr(value, "cache_clear") and (module is request.module or value.cache_info().currsize > 1_000):
                value.cache_clear()
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # a C library other than glibc
            ctypes.CDLL("libc.so.6").malloc_trim(0)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data, which is not part of the repository."""
    if not SHARED_DATA.is_dir():
        pytest.skip(f"no data at {SHARED_DATA}")
    return SHARED_DATA


@pytest.fixture(scope="session")
def documentation() -> list:
    """Passages of Python's documentation; reading them takes some seconds."""
    from bertkit.corpus import python_docs

    return list(python_docs())


@pytest.fixture(scope="module")
def one_thread():
    """Tiny models run faster on one thread."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory) -> Path:
    """The folder of a tiny encoder with initial weights and without dropout, for tasks to be trained on."""
    from random_models import vocabulary_tokens

    from bertkit import BertConfig, Model, Tokenizer

    folder = tmp_path_factory.mktemp("encoder") / "model"
    config = BertConfig(
        vocab_size=99, hidden_size=20, num_attention_heads=4, intermediate_size=44, num_hidden_layers=1,
        max_position_embeddings=24, initializer_range=0.1, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    Model.create(config, Tokenizer.from_vocab(vocabulary_tokens(99)), seed=3).save(folder)
    return folder
