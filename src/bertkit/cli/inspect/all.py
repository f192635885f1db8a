"""bertkit inspect all"""

from bertkit.cli.inspect.shown import RECORDED, Recorded, Text
from bertkit.cli.models import EMBEDDING_MODEL, open_model
from bertkit.cli.output import ModelName, OutPath, emit
from bertkit.files.whole_files import check_folder_writable


def command(text: Text, /, *, out: OutPath, model: ModelName = EMBEDDING_MODEL, compute: Recorded = RECORDED) -> None:
    """Trace a text through the whole model, step by step, as a folder of pages.

    Parameters
    ----------
    out
        The folder to write, created if missing.
    """
    from bertkit.inspection import write_folder

    check_folder_writable(out)
    emit(
        {"page": str(path), "bytes": path.stat().st_size}
        for path in write_folder(open_model(model, compute), text, out)
    )
