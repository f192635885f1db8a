"""Which keys of its sequence a query attends to, by their distance."""

from typing import NamedTuple


class Window(NamedTuple):
    """A query attends to itself, and to this many tokens before and after it."""

    before: int
    after: int

    def within(self, longest: int) -> "Window":
        """The same for sequences of up to ``longest`` tokens, with no more than these on each side."""
        return Window(min(self.before, longest), min(self.after, longest))


EVERY_TOKEN = 2**31 - 1
"""More tokens than a sequence has."""

CAUSAL = Window(EVERY_TOKEN, 0)
"""Earlier tokens only: a left-to-right model, and the decoder of Vaswani et al. 2017, section 3.2.3."""

REVERSED = Window(0, EVERY_TOKEN)
"""Later tokens only: a right-to-left model."""


def window_of(window: int | Window | None) -> Window | None:
    """A window as two numbers: one number counts on both sides; None is the whole sequence."""
    return Window(window, window) if isinstance(window, int) else window
