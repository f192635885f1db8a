"""The command line: one file per command, imported when it runs.

Takes: arguments.
Gives: results on stdout (JSON lines when piped, tables on a terminal), one clear line on stderr and exit code 2 on
bad input.
May import: every room.
"""

import os
import re
import signal
import sys
import threading
import warnings
from io import StringIO, TextIOWrapper
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from cyclopts import App

COMMANDS = {  # name -> (file, summary)
    "tokenize": ("tokenize", "Tokenize texts: ids, types, offsets, word ids."),
    "vocab": ("vocab", "Train, extend or inspect a WordPiece vocabulary."),
    "describe": ("describe", "Show a model's architecture and every parameter's name and shape."),
    "pretrain": ("pretrain", "Pre-train a model from raw text."),
    "plan": ("plan", "Estimate hours, memory and files of a pre-training run."),
    "compare": ("compare", "Compare BERT with unidirectional and shallow bidirectional models."),
    "verify-resume": ("verify_resume", "Kill a short run, resume it, and compare the weights bit by bit."),
    "data": ("data", "Show what a file of labeled examples holds and how it would be read."),
    "check": ("check", "Check training data before training: imbalance, repeated texts, likely label errors."),
    "finetune": ("finetune", "Fine-tune a model for a task on labeled examples."),
    "distill": ("distill", "Distill a larger model into a smaller one."),
    "predict": ("predict", "Predict the rows of a file with a fine-tuned model."),
    "classify": ("classify", "Classify texts by labels it was not trained on (zero-shot)."),
    "fill": ("fill", "Predict the token at each [MASK] of a text."),
    "generate": ("generate", "Generate text: continue prompts, or transform source texts."),
    "next-sentence": ("next_sentence", "Probability that text B follows text A."),
    "embed": ("embed", "Embed the texts of a file as vectors."),
    "similarity": ("similarity", "Cosine similarity of texts."),
    "contrast": ("contrast", "Compare static and contextual vectors of a word in two texts, by layer."),
    "words": ("words", "Word vectors: nearest words, analogies, odd one out, benchmarks, training."),
    "index": ("index", "Index files and folders for search."),
    "search": ("search", "Search an index by words and meaning, or for answers."),
    "mcp": ("mcp", "Serve an index to AI assistants over the Model Context Protocol."),
    "rank": ("rank", "Rank the texts of a file with a cross-encoder."),
    "pairs": ("pairs", "Print the most similar pairs of texts in a file."),
    "cluster": ("cluster", "Group similar texts of a file, and name the groups."),
    "mine": ("mine", "Find hard negatives for training a sentence encoder."),
    "evaluate": ("evaluate", "Evaluate a model on labeled examples, minimal pairs, retrieval or scored pairs."),
    "inspect": ("inspect", "Inspect a model: attention, predictions of layers, heads, probes."),
    "export": ("export", "Export a model for onnxruntime or OpenVINO, without torch."),
    "convert": ("convert", "Write pickled weights as safetensors, without running code."),
    "serve": ("serve", "Serve models over HTTP."),
    "report": ("report", "Write the report of a training run as one self-contained page."),
    "doctor": ("doctor", "Check this machine and the installation; its output helps in bug reports."),
}


SILENT_SECONDS = 1.5
"""Seconds after which a command on a terminal says that it is loading."""


def app() -> "App":
    """The command line application; commands are imported when they run."""
    from cyclopts import App, Parameter

    from bertkit.cli.help_format import HangingFormatter
    from bertkit.version import __version__

    commands = App(
        name="bertkit",
        help="BERT from raw text to a running service.",
        version=__version__,
        help_formatter=HangingFormatter(),
        version_flags=["--version"],
        default_parameter=Parameter(negative_iterable=()),  # no --empty-corpus beside --corpus
        suppress_keyboard_interrupt=False,
    )
    for name, (module, summary) in COMMANDS.items():
        commands.command(f"bertkit.cli.{module}:command", name=name, help=summary)
    return commands


def _use_docstrings(commands: "App", arguments: list[str]) -> None:
    """Make the docstring of the command that the arguments name its help, as summaries are for lists of commands, and
    let it ignore parts of models."""
    from bertkit.cli.ignored_parts import accept_ignored_parts

    for name in arguments:
        if name.startswith("-") or name not in commands:
            return
        commands = commands[name]
        if commands.default_command is not None:
            commands.help = None
            accept_ignored_parts(commands)


def main() -> None:
    """Run the command line; bad input ends with one line and exit code 2."""
    _replace_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    # So that partially written files are removed. Windows has no SIGHUP.
    for number in (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, lambda number, _: sys.exit(128 + number))
    warnings.showwarning = lambda message, *_, **__: print(f"bertkit: {_as_command(str(message))}", file=sys.stderr)
    timer = threading.Timer(SILENT_SECONDS, _say_loading)
    timer.daemon = True
    timer.start()
    try:
        sys.exit(run(sys.argv[1:]))
    finally:
        timer.cancel()


def _say_loading() -> None:
    """Print a line on a terminal if the command has printed nothing yet."""
    from bertkit.cli import output

    if sys.stderr.isatty() and not output.has_printed():
        print("bertkit: loading libraries and the model ...", file=sys.stderr, flush=True)


def _as_command(warning: str) -> str:
    """A warning with the names of options, and without advice that Python alone can follow.

    >>> _as_command("1 of 2 texts lost 3 tokens; raise max_length, or choose on_long='window'")
    '1 of 2 texts lost 3 tokens; raise --max-length, or choose --on-long window'
    >>> _as_command("1 of 2 texts lost 3 tokens; shorten them, or pass report= to get the counts")
    '1 of 2 texts lost 3 tokens'
    """
    facts, _, advice = warning.partition("; ")
    if not advice or "report=" in advice:
        return facts
    return _with_options(f"{facts}; {advice}").replace("max_length", "--max-length")


def _with_options(message: str) -> str:
    """A message with the options of the command line.

    >>> _with_options("shorten it, or choose on_long='truncate' or on_long='window'")
    'shorten it, or choose --on-long truncate or --on-long window'
    >>> _with_options("pass ignore_tensors=['a.*', 'b'] to bertkit.load to skip them")
    "pass --ignore-tensors 'a.*' 'b' to skip them"
    """
    message = message.replace("(read_tagged, scheme='plain')", "(--scheme plain)")
    message = re.sub(r"--[a-z-]+ \((?:class_names|label_separator)\)", lambda match: match[0].split()[0], message)
    message = re.sub(
        r"ignore_(tensors|config_keys)=\[(.*?)\] to bertkit\.load",
        lambda match: f"--ignore-{match[1].replace('_', '-')} {match[2].replace(',', '')}",
        message,
    )
    return re.sub(r"on_long='(\w+)'", r"--on-long \1", message).replace("; snap_spans moves", "; --snap-spans moves")


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit code."""
    try:
        return _run(arguments)
    except KeyboardInterrupt:
        print("bertkit: stopped", file=sys.stderr)
        return 130


def _run(arguments: list[str]) -> int:
    from cyclopts import CycloptsError

    from bertkit.errors import BertkitError

    commands = app()
    try:
        _use_docstrings(commands, arguments)
        commands(arguments, exit_on_error=False, print_error=False, result_action="return_value")
        sys.stdout.flush()
    except BertkitError as error:
        return _fail(_with_options(str(error)))
    except CycloptsError as error:
        return _fail(f"{error} (see {' '.join(['bertkit', *(error.command_chain or ())])} --help)")
    except SystemExit as stop:
        if isinstance(stop.__context__, BrokenPipeError):  # by rich, which prints help
            return 0
        raise
    except BrokenPipeError:  # the reader closed the pipe: not an error, nothing is left to flush
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        return _fail(f"{error.strerror or error}: {error.filename}" if error.filename else str(error))
    return 0


class _ClosedInput(StringIO):
    """Stands for a standard input that is closed."""

    @property
    def buffer(self) -> BinaryIO:
        from bertkit.errors import UsageError

        raise UsageError("standard input is closed: pass a file, or pipe texts to this command")


def _replace_closed_streams() -> None:
    """Replace standard streams that are closed, and occupy their descriptors, which files would get otherwise."""
    if sys.stdin is None:
        os.open(os.devnull, os.O_RDONLY)
        sys.stdin = _ClosedInput()
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8"))


def _fail(message: str) -> int:
    print("bertkit: " + " ".join(message.split()), file=sys.stderr)
    return 2
