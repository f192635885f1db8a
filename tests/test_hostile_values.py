"""Every value of every JSON file of a model replaced by hostile ones: the model works, or one clear error is raised.

A sample of the replacements in `make test`; all of them, some tens of thousands, in `make test-slow`.
"""

import contextlib
import copy
import json
import random
import resource
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import random_modern
from examples_of_tasks import COLOURS, SHAPE, TASKS, model_of
from random_models import our_model, randomize
from safetensors.torch import load_file, save_file
from test_library_tokenizer import saved

import bertkit
from bertkit import BertConfig, Model, Tokenizer
from bertkit.checkpoint import SentenceSettings
from bertkit.checkpoint.checkpoint import TrainedTask
from bertkit.errors import BertkitError, CheckpointError, UsageError
from bertkit.tasks import FewShotClassification
from bertkit.tokenizer.layout import Layout

pytestmark = pytest.mark.usefixtures("one_thread")

MISSING = object()
NESTED: Any = 0
for _ in range(300):
    NESTED = [NESTED]
HOSTILE: list[Any] = [
    MISSING, None, True, False, 0, 1, 2, -1, 1_000, 10**9, 2**31, 2**63, -(2**63), 2**64, 10**39, -(10**39), 10**400,
    0.5, -0.5, 1e-320, 1e308, -1e308, float("nan"), float("inf"), float("-inf"),
    "", "x", "a" * 5_000 + ".safetensors", "é" * 200, "../..", "/etc/passwd", "\x00", "\ud800", "[MASK]", "1e999",
    "__class__",
    [], [None], [0, 1, 2], ["x", "x"], [[]], [10**39] * 3, ["a"] * 1_000, NESTED,
    {}, {"a": 1}, {"content": "x"}, {"0": "x", "1": "y"},
]  # fmt: skip
LONG = "the unable cat walked and talked " * 12
TEXTS = ["the cat sat", "", LONG]
NUM_SAMPLED = 30
"""Replacements of each model in `make test`."""
MEMORY_LIMIT = 500_000_000
"""Bytes that all replacements of a model may add to the peak of this process."""


def task_model(name: str, _: pytest.TempPathFactory) -> Model:
    model = model_of(TASKS[name])
    model.checkpoint.trained = replace(model.trained, metrics={"loss": 0.5})
    return model


def few_shot_model(_: pytest.TempPathFactory) -> Model:
    model = our_model("vector_classification", 3, len(COLOURS), **SHAPE)
    task = FewShotClassification(COLOURS)
    model.checkpoint.label_names, model.checkpoint.problem_type = COLOURS, task.problem_type
    model.checkpoint.sentence = SentenceSettings(pooling="mean", normalize=True)
    model.checkpoint.trained = TrainedTask(task, Layout(24, task.on_long))
    return model


def sentence_encoder(_: pytest.TempPathFactory) -> Model:
    model = our_model("encoder", 3, **SHAPE)
    model.checkpoint.sentence = SentenceSettings("mean", True, 20, {"query": "walk: "}, "query", False)
    return model


def modern_model(_: pytest.TempPathFactory) -> Model:
    model = random_modern.our_model("token_classification", 4)
    model.checkpoint.label_names = ("O", "B-PER")
    return model


def library_model(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Model:
    tokenizer = Tokenizer.load(saved(kind, tmp_path_factory))
    model = Model.create(BertConfig(**SHAPE | {"vocab_size": len(tokenizer.vocabulary)}), tokenizer)
    randomize(model.network, 3)
    return model


MODELS: dict[str, Callable[[pytest.TempPathFactory], Model]] = {
    **{name: lambda factory, name=name: task_model(name, factory) for name in TASKS},
    "few-shot-classification": few_shot_model,
    "sentence encoder": sentence_encoder,
    "modern": modern_model,
    **{kind: lambda factory, kind=kind: library_model(kind, factory) for kind in ("byte-level", "unigram")},
}


OWN_TOKENIZER = ("question-answering", "byte-level", "unigram")
"""The others have the same tokenizer files as question answering, which uses most of them."""


def in_two_files(folder: Path) -> None:
    """Put the weights of a folder into two files with an index."""
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    weight_map = {name: f"model-{1 + number % 2}.safetensors" for number, name in enumerate(names)}
    for shard in set(weight_map.values()):
        held = {name: tensors[name] for name in names if weight_map[name] == shard}
        save_file(held, folder / shard, metadata={"format": "pt"})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


def use(model: Model, name: str) -> None:
    """Predict where the model was saved with a task, else embed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _use(model, name)


def _use(model: Model, name: str) -> None:
    if name in ("sentence encoder", "byte-level", "unigram"):
        model.embed(TEXTS)
        model.embed(LONG, on_long="window")
    elif name in ("modern", "token-classification"):
        model.predict(TEXTS)
    elif name == "question-answering":
        model.predict([(text, LONG) for text in ("the cat", "mat")])
    elif name == "multiple-choice":
        model.predict([(LONG, ("cat", "dog", "mat")), ("the", ("mat", LONG))])
    else:
        model.predict(TEXTS)


def key_paths(content: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Keys and indices of each value in a JSON value; of long lists and objects only the first and last three
    members."""
    yield before
    keys: list[Any] = []
    if isinstance(content, dict | list):
        keys = list(content) if isinstance(content, dict) else list(range(len(content)))
    for key in keys if len(keys) <= 8 or not before else [*keys[:3], *keys[-3:]]:
        yield from key_paths(content[key], (*before, key))


def replaced(content: Any, key_path: tuple[Any, ...], value: Any) -> Any:
    """A copy of a JSON value with another value at a path of keys; null replaces a missing whole."""
    if not key_path:
        return None if value is MISSING else value
    content = copy.deepcopy(content)
    inside = content
    for key in key_path[:-1]:
        inside = inside[key]
    if value is MISSING:
        del inside[key_path[-1]]
    else:
        inside[key_path[-1]] = value
    return content


class Attack:
    """The saved folder of a model, and every replacement in its JSON files."""

    def __init__(self, name: str, folder: Path, factory: pytest.TempPathFactory) -> None:
        self.name, self.folder = name, folder
        MODELS[name](factory).save(folder)
        if name == "sentence encoder":
            in_two_files(folder)
        use(bertkit.load(folder), name)
        files = [path for path in sorted(folder.rglob("*.json")) if "token" not in path.name or name in OWN_TOKENIZER]
        self.contents = {path: json.loads(path.read_text()) for path in files}
        self.replacements = [
            (path, index, value)
            for path, content in self.contents.items()
            for index in key_paths(content)
            for value in range(len(HOSTILE))
        ]

    def run(self, path: Path, key_path: tuple[Any, ...], value: int) -> str | None:
        """The fault, or None if the model works or a BertkitError is raised within a second.

        A case that takes longer is run again: threads of a library that wait for a busy core use processor time too.
        """
        before = path.read_bytes()
        path.write_text(json.dumps(replaced(self.contents[path], key_path, HOSTILE[value])))
        seconds = []
        try:
            while not seconds or (seconds[-1] > 1 and len(seconds) < 3):
                start = time.process_time()
                with contextlib.suppress(BertkitError):
                    use(bertkit.load(self.folder), self.name)
                seconds.append(time.process_time() - start)
        except BaseException as error:
            return f"{type(error).__name__}: {error!s:.200}"
        finally:
            path.write_bytes(before)
        return f"took {min(seconds):.1f} s" if min(seconds) > 1 else None

    def failures(self, replacements: list[tuple[Path, tuple[Any, ...], int]]) -> list[str]:
        results = []
        for path, index, value in replacements:
            problem = self.run(path, index, value)
            if problem is not None:
                shown = "missing" if HOSTILE[value] is MISSING else f"{HOSTILE[value]!r:.40}"
                results.append(f"{path.relative_to(self.folder)} {index} = {shown}: {problem}")
        return results


@pytest.fixture(scope="module", params=list(MODELS))
def attack(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Attack:
    folder = tmp_path_factory.mktemp("attacked") / "model"
    return Attack(request.param, folder, tmp_path_factory)


@pytest.mark.full(sample=2)
def test_sample_of_hostile_values_gives_a_working_model_or_a_clear_error(attack: Attack) -> None:
    draw = random.Random(attack.name)
    assert attack.failures(draw.sample(attack.replacements, NUM_SAMPLED)) == []


@pytest.mark.slow
@pytest.mark.timeout(7_200)
def test_every_hostile_value_gives_a_working_model_or_a_clear_error(attack: Attack) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert attack.failures(attack.replacements) == []
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1_024 < MEMORY_LIMIT


@pytest.mark.full(sample=1)
@pytest.mark.parametrize(
    ("task", "settings", "message"),
    [
        ("ordinal-regression", {"levels": None}, "levels=None: expected a list, each item a string"),
        ("ordinal-regression", {"levels": 3}, "levels=3: expected a list"),
        ("ordinal-regression", {"levels": "good"}, "levels='good': expected a list"),
        ("ordinal-regression", {"levels": {}}, "levels={}: expected a list"),
        ("ordinal-regression", {"levels": [1, 2]}, r"levels=\[1, 2\]: expected a list, each item a string"),
        ("ordinal-regression", {"levels": ["low", "low"]}, "levels=.*expected one or more, each once"),
        ("ordinal-regression", {}, r"levels=\(\): expected one or more"),
        ("ordinal-regression", None, r"levels=\(\): expected one or more"),
        ("regression", {"center": "high"}, "center='high': expected a finite number"),
        ("regression", {"center": None}, "center=None: expected a finite number"),
        ("regression", {"center": float("nan")}, "center=nan: expected a finite number"),
        ("regression", {"center": 10**39}, "center=1000.*: expected a finite number"),
        ("regression", {"scale": [1.0]}, r"scale=\[1.0\]: expected a finite number"),
        ("regression", {"scale": True}, "scale=True: expected a finite number"),
        ("regression", {"scale": 0}, "scale=0: expected a number above 0"),
        ("regression", {"slope": 2}, "has 'slope': regression has center, num_vectors, scale"),
        ("multi-label-classification", {"thresholds": "0.5"}, "thresholds='0.5': expected a list, each item a finite"),
        ("multi-label-classification", {"thresholds": {}}, "thresholds={}: expected a list"),
        ("multi-label-classification", {"thresholds": [0.5, 0.5, 1.5]}, "expected probabilities from 0 to 1"),
        ("multi-label-classification", {"class_weights": [1, -1, 1]}, "class_weights=.*expected numbers above 0"),
        ("sequence-classification", {"label_smoothing": "0"}, "label_smoothing='0': expected a finite number"),
        ("token-classification", {"scheme": ["BIO"]}, r"scheme=\['BIO'\]: expected one of 'BIO', 'BIOES'"),
        ("question-answering", {"num_candidates": 10**39}, "num_candidates=1000.*: expected an integer from 1 to 1,"),
        ("question-answering", {"max_answer_length": 10**39}, "max_answer_length=1000.*: expected an integer"),
        ("question-answering", {"max_answer_length": 3.0}, "max_answer_length=3.0: expected an integer"),
        ("question-answering", {"no_answer": 1}, "no_answer=1: expected True or False"),
    ],
)  # fmt: skip
def test_settings_of_a_task_are_checked_when_its_model_is_opened(
    tmp_path: Path, task: str, settings: Any, message: str
) -> None:
    model_of(TASKS[task]).save(tmp_path / "model")
    file = tmp_path / "model" / "bertkit.json"
    content = json.loads(file.read_text())
    content["task"]["settings"] = settings
    file.write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match=f"bertkit.json: task.settings.*{message}"):
        bertkit.load(tmp_path / "model")


@pytest.mark.parametrize(
    ("name", "key_path", "value", "message"),
    [
        ("bertkit.json", ("task", "metrics", "accuracy"), 10**400, "bertkit.json: accuracy is 1000.*expected at most"),
        ("config.json", ("layer_norm_eps",), 10**400, "config.json: layer_norm_eps is 1000.*expected at most"),
        ("tokenizer.json", ("model", "vocab", "cat"), None, "the id of 'cat' is None, expected an integer"),
        ("tokenizer_config.json", ("model_max_length",), float("-inf"), "model_max_length is -inf, expected a number"),
        ("tokenizer_config.json", ("model_max_length",), 2, "model_max_length is 2, expected .* at least 3"),
        ("config.json", ("classifier_dropout",), 24, "classifier_dropout is 24, expected a probability from 0 to 1"),
        ("modules.json", (), [{"type": "x.Transformer", "path": "a" * 5_000}], "at most 60 characters"),
    ],
)
def test_invalid_config_values_raise(tmp_path: Path, name: str, key_path: Any, value: Any, message: str) -> None:
    folder = tmp_path / "model"
    model_of(TASKS["sequence-classification"]).save(folder)
    file = folder / name
    content = json.loads(file.read_text()) if file.exists() else []
    file.write_text(json.dumps(replaced(content, key_path, value)))
    with pytest.raises(CheckpointError, match=message) as caught:
        bertkit.load(folder)
    assert name in str(caught.value) and len(str(caught.value)) < 1_000


def test_settings_that_are_changed_are_checked_too() -> None:
    model = model_of(TASKS["multi-label-classification"])
    model.change_task(thresholds=[0.25, 0.5, 1])
    assert model.trained.task.thresholds == (0.25, 0.5, 1)
    with pytest.raises(UsageError, match="expected a list, each item a finite number"):
        model.change_task(thresholds="0.5")
    assert model.trained.task.thresholds == (0.25, 0.5, 1)
