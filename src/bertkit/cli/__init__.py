"""The command line: one file a command, imported when it runs.

Takes: arguments.
Gives: results on stdout (JSON lines when piped, tables on a terminal), one clear line on stderr and exit code 2 on
bad input.
May import: every room.
"""

import os
import signal
import sys
import warnings
from io import TextIOWrapper

COMMANDS = {  # name -> (file, what it does)
    "tokenize": ("tokenize", "Show the tokens of texts: ids, types, offsets, word ids."),
    "vocab": ("vocab", "Learn a WordPiece vocabulary, extend or inspect one."),
    "describe": ("describe", "Show a model's architecture and every parameter's name and shape."),
    "pretrain": ("pretrain", "Pre-train a model from raw text."),
    "verify-resume": ("verify_resume", "Kill a short run, go on with it, and compare the weights bit by bit."),
    "finetune": ("finetune", "Train a model for a task, from labeled examples."),
    "predict": ("predict", "What a trained model says of every row of a file."),
    "fill": ("fill", "Fill the [MASK] in a text."),
    "next-sentence": ("next_sentence", "How likely is it that text B follows text A?"),
    "embed": ("embed", "Turn every text of a file into a vector."),
    "similarity": ("similarity", "How alike are texts in meaning?"),
    "evaluate": ("evaluate", "Measure what a model knows."),
    "report": ("report", "Show a training run on one self-contained page."),
    "doctor": ("doctor", "Check this machine and installation; the page that bug reports ask for."),
}


def app():
    """The command line application; commands are imported when they run."""
    from cyclopts import App

    from bertkit.cli.help_format import HangingFormatter
    from bertkit.version import __version__

    commands = App(
        name="bertkit",
        help="BERT from raw text to a running service.",
        version=__version__,
        help_formatter=HangingFormatter(),
        version_flags=["--version"],
        suppress_keyboard_interrupt=False,
    )
    for name, (module, summary) in COMMANDS.items():
        commands.command(f"bertkit.cli.{module}:command", name=name, help=summary)
    return commands


def main() -> None:
    """Run the command line; bad input ends with one line and exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that half-written files are removed
    warnings.showwarning = lambda message, *_, **__: print(f"bertkit: {message}", file=sys.stderr)
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit code."""
    from cyclopts import CycloptsError

    from bertkit.errors import BertkitError

    try:
        app()(arguments, exit_on_error=False, print_error=False, result_action="return_value")
        sys.stdout.flush()
    except BertkitError as error:
        return _fail(str(error))
    except CycloptsError as error:
        return _fail(f"{error} (see bertkit --help)")
    except BrokenPipeError:  # nobody reads on: not an error, and nothing is left to be flushed
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        return _fail(f"{error.strerror or error}: {error.filename}" if error.filename else str(error))
    except KeyboardInterrupt:
        print("bertkit: stopped", file=sys.stderr)
        return 130
    return 0


def _fail(message: str) -> int:
    print("bertkit: " + " ".join(message.split()), file=sys.stderr)
    return 2
