"""Attention windows: which tokens of its sequence a token attends to, by their distance."""

from typing import NamedTuple


class Window(NamedTuple):
    """A query attends to itself, and to this many tokens before and after it."""

    before: int
    after: int

    def within(self, longest: int) -> "Window":
        """The window clipped to sequences of up to ``longest`` tokens."""
        return Window(min(self.before, longest), min(self.after, longest))


EVERY_TOKEN = 2**31 - 1
"""More tokens than any sequence has."""

CAUSAL = Window(EVERY_TOKEN, 0)
"""A token and all before it: a left-to-right model, and the decoder of Vaswani et al. 2017, section 3.2.3."""

REVERSED = Window(0, EVERY_TOKEN)
"""A token and all after it: a right-to-left model."""


def window_of(window: int | Window | None) -> Window | None:
    """A Window from a number of tokens on both sides; None for the whole sequence."""
    return Window(window, window) if isinstance(window, int) else window
