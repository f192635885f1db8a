"""The published weights in each peer's own format, made once and kept in the temporary folder."""

import hashlib
import multiprocessing
import shutil
import tempfile
import warnings
from importlib.metadata import version
from pathlib import Path

from peers import System


def model_folder(system: System, published: Path) -> Path:
    """Where ``system`` finds the model: the published folder, or one converted from it.

    Raises:
        RuntimeError: the conversion fails; why is on stderr.
    """
    peer = system.peer()
    if not hasattr(peer, "convert"):
        return published
    key = hashlib.sha256((published / "model.safetensors").read_bytes())
    key.update(Path(peer.__file__).read_bytes())
    name = f"{system.module}-{version(system.package)}-{key.hexdigest()[:12]}"
    folder = Path(tempfile.gettempdir()) / "bertkit-benchmarks" / name
    if not folder.is_dir():
        folder.parent.mkdir(exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(prefix=name, dir=folder.parent))
        # In a process of its own: what converting needs shall not count as what running needs.
        process = multiprocessing.get_context("spawn").Process(target=_convert, args=(system, published, unfinished))
        process.start()
        process.join()
        if process.exitcode:
            shutil.rmtree(unfinished)
            raise RuntimeError("its conversion of the model failed")
        unfinished.rename(folder)
    return folder


def _convert(system: System, published: Path, folder: Path) -> None:
    warnings.simplefilter("ignore")  # tracing warns of every branch it takes
    system.peer().convert(published, folder)
