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
from collections.abc import Collection, Sequence
from functools import cache
from io import StringIO, TextIOWrapper
from os.path import expanduser
from typing import TYPE_CHECKING, BinaryIO, get_args

if TYPE_CHECKING:
    from cyclopts import App, ArgumentCollection, CycloptsError, Group

COMMANDS = {  # name -> (group, summary); the file is named after the command
    "index": ("Search", "Index files and folders for search."),
    "search": ("Search", "Search an index by words and meaning, or for answers."),
    "rank": ("Search", "Rank the texts of a file with a cross-encoder."),
    "embed": ("Search", "Embed the texts of a file as vectors."),
    "similarity": ("Search", "Cosine similarity of texts."),
    "pairs": ("Search", "Print the most similar pairs of texts in a file."),
    "cluster": ("Search", "Group similar texts of a file, and name the groups."),
    "predict": ("Use a model", "Predict the rows of a file with a fine-tuned model."),
    "classify": ("Use a model", "Classify texts by labels it was not trained on (zero-shot)."),
    "extract": ("Use a model", "Find what labels name in a text, such as persons and places."),
    "redact": ("Use a model", "Replace personal data in a text by placeholders."),
    "fill": ("Use a model", "Predict the token at each [MASK] of a text."),
    "next-sentence": ("Use a model", "Probability that text B follows text A."),
    "generate": ("Use a model", "Generate text: continue prompts, or transform source texts."),
    "data": ("Train and evaluate", "Show what a file of labeled examples holds and how it would be read."),
    "check": ("Train and evaluate", "Check training data: imbalance, repeated texts, likely label errors."),
    "finetune": ("Train and evaluate", "Fine-tune a model for a task on labeled examples."),
    "evaluate": ("Train and evaluate", "Evaluate a model on labeled examples, retrieval, scored pairs or grammar."),
    "calibrate": ("Train and evaluate", "Store a threshold with a promised error or recall in a model."),
    "report": ("Train and evaluate", "Write the report of a training run as one self-contained page."),
    "mine": ("Train and evaluate", "Find hard negatives for training a sentence encoder."),
    "distill": ("Train and evaluate", "Distill a larger model into a smaller one."),
    "plan": ("Train and evaluate", "Estimate hours, memory and files of a pre-training run."),
    "pretrain": ("Train and evaluate", "Pre-train a model from raw text."),
    "serve": ("Serve and export", "Serve models over HTTP."),
    "sizing": ("Serve and export", "Measure how many requests a second a server takes here."),
    "mcp": ("Serve and export", "Serve an index to AI assistants over the Model Context Protocol."),
    "export": ("Serve and export", "Export a model for onnxruntime or OpenVINO, without torch."),
    "convert": ("Serve and export", "Write pickled weights as safetensors, without running code."),
    "inspect": ("Look inside", "Inspect a model: attention, predictions of layers, heads, probes."),
    "describe": ("Look inside", "Show a model's config, and every tensor's name, dtype and shape."),
    "tokenize": ("Text and words", "Tokenize texts: ids, types, offsets, word ids."),
    "vocab": ("Text and words", "Train, extend or show a WordPiece vocabulary."),
    "words": ("Text and words", "Word vectors: nearest words, analogies, odd one out, benchmarks, training."),
    "compare-directions": ("Research", "Compare BERT with unidirectional and shallow bidirectional models."),
    "verify-resume": ("Research", "Kill a short run, resume it, and compare the weights bit by bit."),
    "doctor": ("This machine", "Check this machine and the installation; its output helps in bug reports."),
}


SILENT_SECONDS = 1.5
"""Seconds after which a command on a terminal says that it is loading."""
_SHOWN = 4  # other commands in an error


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
        config=_refuse_fractions,
    )
    groups = _groups()
    for order, (name, (group, summary)) in enumerate(COMMANDS.items()):
        path = f"bertkit.cli.{name.replace('-', '_')}:command"
        commands.command(path, name=name, help=summary, group=groups[group], sort_key=order)
    return commands


def _refuse_fractions(_app: "App", _commands: tuple[str, ...], arguments: "ArgumentCollection") -> None:
    """Raise a UsageError for a fraction as an integer, which the parser would round."""
    from bertkit.errors import UsageError

    for argument in arguments:
        kinds = {argument.hint, *get_args(argument.hint)}
        for token in argument.tokens if int in kinds and float not in kinds else ():
            if re.fullmatch(r"[+-]?\d*\.\d*[1-9]\d*", token.value):
                raise UsageError(f"{token.keyword or argument.name} {token.value}: expected an integer")


@cache
def _groups() -> "dict[str, Group]":
    """The groups of commands by name: the same for each `app`, as a warning makes one while another runs."""
    from cyclopts import Group

    return {group: Group(group, sort_key=order) for order, (group, _) in enumerate(COMMANDS.values())}


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
    warnings.showwarning = lambda message, *_, **__: print(
        f"bertkit: {_as_command(message, sys.argv[1:])}", file=sys.stderr
    )
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

    if sys.stderr.isatty() and not output.printed.is_set():
        print("bertkit: loading libraries and the model ...", file=sys.stderr, flush=True)


def options_in(message: str, options: Collection[str], *, has_settings: bool = False) -> str:
    """A message for the command line: a parameter of Python is the option of that name, if the command has it. A
    name alone is that of a setting if it ``has_settings``.

    >>> options_in("text 0 is too long: shorten it, raise max_length=, or choose on_long='window'", {"on_long"})
    'text 0 is too long: shorten it, raise max_length=, or choose --on-long window'
    >>> options_in("labels are integers: name them with label_names=", {"label_names"})
    'labels are integers: name them with --label-names'
    >>> options_in("top_k=0: expected at least 1; snap_spans=True moves them", {"top_k", "snap_spans"})
    '--top-k 0: expected at least 1; --snap-spans moves them'
    >>> options_in("2 more than max_length 4: see max_length.txt", {"max_length"})
    '2 more than --max-length 4: see max_length.txt'
    >>> options_in("recipe.toml: unknown setting 'x': expected one of top_k", {"top_k"}, has_settings=True)
    "recipe.toml: unknown setting 'x': expected one of top_k"
    """

    def option(match: re.Match[str]) -> str:
        name, flag, value, following = match.groups()
        if name not in options:
            return match[0]
        dashed = "no-" * (flag == "False") + name.replace("_", "-")
        return f"--{dashed} {value or ''}" if value or following not in ("", *".,;:)") else f"--{dashed}"

    def bare(match: re.Match[str]) -> str:
        return "--" + match[0].replace("_", "-") if match[0] in options else match[0]

    message = re.sub(r"(?<![\w.-])([a-z]\w*)=(?:(True|False)\b|'([\w.+-]*)')?(?=(\S?))", option, message)
    names = r"""(?<![\w./'"-])[a-z]\w*_\w+(?![\w/='"-]|\.\w)"""
    return message if has_settings else re.sub(names, bare, message)


def _as_command(said: object, arguments: list[str]) -> str:
    """An error or a warning with the options of the command that the arguments name."""
    from bertkit.errors import RecipeError

    message = re.sub(
        r"ignore_(tensors|config_keys)=\[(.*?)\] to bertkit\.load",  # options of every command
        lambda match: f"--ignore-{match[1].replace('_', '-')} {match[2].replace(',', '')}",
        str(said),
    )
    message = re.sub(r"(: expected [^:;]+) or None$", r"\1, or omit it", message)  # which an option cannot be
    _, commands, _ = app().parse_commands(arguments)
    if commands[-1].default_command is None:  # a group of commands, which has no options
        return message
    options = {name.removeprefix("--").replace("-", "_") for name in _options(commands[-1])}
    for name, other in (("class_names", "label_names"), ("k", "top_k")):  # Python has two names
        if other in options:
            message = re.sub(rf"(?<![\w.-]){name}=", f"{other}=", message)
    return options_in(message, options, has_settings=isinstance(said, RecipeError))


def _options(command: "App") -> set[str]:
    """The long options of a command."""
    names = (name for argument in command.assemble_argument_collection() for name in argument.names)
    return {name for name in names if name.startswith("--")}


def misplaced_option(option: str, command: str, others: Sequence[str]) -> str:
    """The error for an option that only other commands or tasks have."""
    shown = ", ".join(others[:_SHOWN]) + ", ..." * (len(others) > _SHOWN)
    return f"{option} is an option of {shown}, not of {command}: omit it"


def _misplaced(commands: "App", error: "CycloptsError") -> str:
    """`misplaced_option` for an option that other commands of the same group have; "" for other errors."""
    from cyclopts import UnknownOptionError

    *groups, name = error.command_chain or ("",)
    if not (groups and isinstance(error, UnknownOptionError)):
        return ""
    group, option = commands, (error.token.keyword or error.token.value or "").partition("=")[0]
    for part in groups:
        group = group[part]
    others = [
        other
        for other in group
        if not other.startswith("-") and group[other].default_command and option in _options(group[other])
    ]
    return misplaced_option(option, name, others) if others else ""


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit code. ~ in --option=~/file, which shells leave, is the home folder."""
    try:
        return _run(
            [re.sub(r"^(--[\w-]+=)~(?=/|$)", lambda option: option[1] + expanduser("~"), one) for one in arguments]
        )
    except KeyboardInterrupt:
        print("bertkit: stopped", file=sys.stderr)
        return 130


def _run(arguments: list[str]) -> int:
    from cyclopts import CycloptsError
    from cyclopts.exceptions import MissingArgumentError, UnusedCliTokensError

    from bertkit.errors import BertkitError
    from bertkit.later import without_torch

    commands = app()
    try:
        _use_docstrings(commands, arguments)
        commands(arguments, exit_on_error=False, print_error=False, result_action="return_value")
        sys.stdout.flush()
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        return _fail(str(without_torch(error)))
    except BertkitError as error:
        return _fail(_as_command(error, arguments))
    except CycloptsError as error:
        help_of = " ".join(["bertkit", *(error.command_chain or ())])
        what = str(error)
        if isinstance(error, UnusedCliTokensError):
            what = f"not expected: {' '.join(error.unused_tokens or ())}; a text of several words needs quotation marks"
        if isinstance(error, MissingArgumentError) and error.keyword is None:  # no option without its value
            what = re.sub('^Command "(.+)" parameter (.+) requires an argument', r"\1 requires \2", what)
        return _fail(_misplaced(commands, error) or f"{what} (see {help_of} --help)")
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
    from bertkit.cli.output import plain

    print("bertkit: " + plain(" ".join(message.split())), file=sys.stderr)
    return 2
