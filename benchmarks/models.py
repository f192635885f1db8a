"""The measured models, each as a folder in the published format, and converted to the format of each other library.

Created and converted models are cached in the temporary folder.
"""

import hashlib
import multiprocessing
import shutil
import tempfile
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from peers import System
from peers.batching import MAX_LENGTH

from bertkit.locate import locate

MINILM = "all-MiniLM-L6-v2"
BERT_BASE, ROBERTA_BASE, MPNET_BASE, DEBERTA_BASE, MODERNBERT_BASE = (
    f"{name}, random weights"
    for name in ("BERT-base", "RoBERTa-base", "MPNet-base", "DeBERTa-v3-base", "ModernBERT-base")
)
_MODEL_TYPES = {  # others: BERT
    ROBERTA_BASE: "roberta",
    MPNET_BASE: "mpnet",
    DEBERTA_BASE: "deberta-v2",
    MODERNBERT_BASE: "modernbert",
}
SHAPES = {  # name -> how its configuration differs from BERT-base's
    "BERT-base": {},
    "MiniLM-L6 shape": {"hidden_size": 384, "num_hidden_layers": 6, "intermediate_size": 1_536},
    "4 layers x 256": {
        "hidden_size": 256,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "intermediate_size": 1_024,
    },
}


def published_folder(model: str) -> Path:
    """The folder of MINILM, or of a base-sized sentence encoder with random weights."""
    return locate(MINILM) if model == MINILM else _random_model("BERT-base", (), _MODEL_TYPES.get(model, "bert"))


def masked_lm_folder(shape: str) -> Path:
    """The folder of a masked language model of one of the SHAPES, with initial weights."""
    return _random_model(shape, ("masked_lm",))


def converted_folder(system: System, published: Path) -> Path:
    """The folder of the model for ``system``: the published folder, or one converted from it.

    Raises:
        RuntimeError: the conversion fails; the reason is on stderr.
    """
    peer = system.peer()
    function = "convert_int8" if system.precision == "int8" and hasattr(peer, "convert_int8") else "convert"
    if not hasattr(peer, function):
        return published
    key = hashlib.sha256((published / "model.safetensors").read_bytes())
    key.update(Path(peer.__file__).read_bytes())
    versions = "-".join(f"{package}-{version(package)}" for package in system.packages)

    def convert(folder: Path) -> None:
        # In a separate process, so that the libraries for conversion are not loaded with the measured ones.
        arguments = (system, function, published, folder)
        process = multiprocessing.get_context("spawn").Process(target=_convert, args=arguments)
        process.start()
        process.join()
        if process.exitcode:
            raise RuntimeError("its conversion of the model failed")

    return _made_once(f"{versions}-{function}-{key.hexdigest()[:12]}", convert)


def _made_once(name: str, make: Callable[[Path], None]) -> Path:
    folder = Path(tempfile.gettempdir()) / "bertkit-benchmarks" / name
    if not folder.is_dir():
        folder.parent.mkdir(exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(prefix=name, dir=folder.parent))
        try:
            make(unfinished)
        except BaseException:
            shutil.rmtree(unfinished)
            raise
        unfinished.rename(folder)
    return folder


def _random_model(shape: str, heads: tuple[str, ...], model_type: str = "bert") -> Path:
    """Initial weights, all-MiniLM-L6-v2's vocabulary; without heads, a sentence encoder."""
    key = hashlib.sha256(repr((SHAPES[shape], heads, MAX_LENGTH, model_type)).encode())
    return _made_once(f"random-{key.hexdigest()[:12]}", lambda folder: _write_random(shape, heads, model_type, folder))


def _write_random(shape: str, heads: tuple[str, ...], model_type: str, folder: Path) -> None:
    from bertkit import Model, Tokenizer
    from bertkit.architectures import ARCHITECTURES
    from bertkit.checkpoint import SentenceSettings

    tokenizer = Tokenizer.load(locate(MINILM))
    config = ARCHITECTURES[model_type].config.of_size("base", vocab_size=len(tokenizer.vocabulary), **SHAPES[shape])
    model = Model.create(config, tokenizer, heads)
    if not heads:
        model.checkpoint.sentence = SentenceSettings(normalize=True, max_seq_length=MAX_LENGTH)
    model.save(folder)


def _convert(system: System, function: str, published: Path, folder: Path) -> None:
    warnings.simplefilter("ignore")  # tracing warns of every branch it takes
    getattr(system.peer(), function)(published, folder)
