"""bertkit convert"""

from os.path import expanduser
from pathlib import Path

from bertkit.cli.output import OutPath, Values, note


def command(
    folder: Path,
    /,
    *,
    out: OutPath | None = None,
    prefix: str = "",
    ignore_tensors: Values = None,
    ignore_config_keys: Values = None,
) -> None:
    """Write a model's pickled weights as safetensors, which all commands open; the file is read without running code.

    Heads, tokenizer and settings stay as they are. With --out, also a folder that has safetensors is copied, without a
    prefix, tensors or config keys that keep it from being opened.

    Parameters
    ----------
    folder
        The folder of the model.
    out
        A new folder for the weights and all other files; by default model.safetensors is written into the folder.
    prefix
        Prefix to take off the names of tensors, such as module. or _orig_mod. of a wrapped model.
    ignore_tensors
        Tensors to leave out: names, or patterns such as 'cls.extra.*'.
    ignore_config_keys
        Keys of config.json to leave out.
    """
    from bertkit.checkpoint.conversion import convert_folder

    written = convert_folder(
        Path(expanduser(folder)),
        None if out is None else Path(expanduser(out)),
        prefix=prefix,
        ignore_tensors=ignore_tensors or (),
        ignore_config_keys=ignore_config_keys or (),
    )
    for file, num_tensors in written.items():
        note(f"{file}: {num_tensors} tensors")
