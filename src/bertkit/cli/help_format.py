"""The layout of ``--help``."""

import io
import textwrap
from typing import TYPE_CHECKING

from cyclopts.help import PlainFormatter

if TYPE_CHECKING:
    from cyclopts.help import HelpPanel
    from rich.console import Console, ConsoleOptions

_UNWRAPPED = 10_000  # columns: wider than any entry


class HangingFormatter(PlainFormatter):
    """Plain help text; each entry is wrapped once, to the width of the terminal, with a hanging indent.

    `PlainFormatter` wraps a description to the full width, prepends the option's name and wraps the result again.
    """

    def __call__(self, console: "Console", options: "ConsoleOptions", panel: "HelpPanel") -> None:
        """Print the entries of one panel."""
        from rich.console import Console

        unwrapped = Console(file=io.StringIO(), width=_UNWRAPPED)
        with unwrapped.capture() as entries:
            super().__call__(unwrapped, unwrapped.options, panel)
        for entry in entries.get().splitlines():
            wrapped = textwrap.fill(
                entry, console.width, subsequent_indent=3 * self.indent, break_long_words=False, break_on_hyphens=False
            )
            console.print(wrapped, highlight=False, markup=False, soft_wrap=True)
