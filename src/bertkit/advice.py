"""Advice on training rows and runs: sentences that commands, runs and reports share.

Takes: numbers of rows and tokens, names of labels, losses.
Gives: a finding or a sentence for each; None or "" if there is nothing to say.
May import: nothing.
"""

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

FEWEST_OF_A_LABEL = 5
FEWEST_WITH_GAIN = 100
"""Training rows: the smallest number in benchmarks/default_settings.py, at which four of five data sets gain."""
FEW_HELD_OUT_TOKENS = 500
"""Below, held-out loss is the mean of less than 75 masked tokens: mostly chance."""

_MOST_NAMED = 8  # labels in a sentence
_MOST_ALIKE = 5  # groups of labels that are named
_STILL_FALLING = 0.05  # relative decrease of the loss
_MUCH_WORSE = 2.0  # increase of the loss
_FEWEST_LOSSES = 6  # minimum number of logged losses to judge the trend by
_QUOTES = {ord(mark): plain for marks, plain in (("‘’‚‛′`´", "'"), ("“”„‟″«»", '"'), ("–—−‐‑", "-")) for mark in marks}


class Finding(NamedTuple):
    """A result in a sentence."""

    kind: Literal["good", "note", "warning"]
    sentence: str

    @property
    def line(self) -> str:
        """The sentence as a line of a log: without capital letter and period."""
        return self.sentence[0].lower() + self.sentence[1:].removesuffix(".")


def good(sentence: str) -> Finding:
    """A finding that all is well."""
    return Finding("good", sentence)


def note(sentence: str) -> Finding:
    """A finding that is worth knowing."""
    return Finding("note", sentence)


def warning(sentence: str) -> Finding:
    """A finding that asks for an action."""
    return Finding("warning", sentence)


def rare_labels(counts: Mapping[str, int]) -> Finding | None:
    """A warning of labels with fewer than five rows.

    >>> rare_labels({"cat": 9, "dog": 4}).line
    '1 of 2 labels have fewer than 5 rows (dog 4): predictions of these are unreliable; add rows, or merge labels'
    """
    rare = sorted((number, name) for name, number in counts.items() if number < FEWEST_OF_A_LABEL)
    if not rare:
        return None
    shown = ", ".join(f"{name} {number}" for number, name in rare[:_MOST_NAMED]) + ", ..." * (len(rare) > _MOST_NAMED)
    return warning(
        f"{len(rare)} of {len(counts)} labels have fewer than {FEWEST_OF_A_LABEL} rows ({shown}): predictions of these "
        "are unreliable; add rows, or merge labels."
    )


def few_rows(number: int) -> Finding | None:
    """A note on training rows that are too few for fine-tuning to gain."""
    if number >= FEWEST_WITH_GAIN:
        return None
    return note(
        f"{number} rows: {FEWEST_WITH_GAIN} is the smallest number for which fine-tuning was measured to gain over "
        "frozen features (docs/guides/finetuning.md)."
    )


def few_held_out(num_tokens: float) -> Finding | None:
    """A warning of held-out text that is too short to measure a loss."""
    if not num_tokens < FEW_HELD_OUT_TOKENS:
        return None
    return warning(
        f"Only {num_tokens:,.0f} tokens are held out, so held-out loss is mostly chance: hold out at least "
        f"{FEW_HELD_OUT_TOKENS}, with longer files of --held-out or a larger held_out_share."
    )


def still_falling(losses: Sequence[float]) -> str | None:
    """Advice if the training loss was still falling at the end of a finished run.

    >>> still_falling([3.0, 2.0, 1.6, 1.3, 1.1, 0.9, 0.7, 0.5, 0.3])
    'the training loss was still falling at the end (1.100 to 0.500): more epochs or a higher learning rate may help'
    """
    if len(losses) < _FEWEST_LOSSES:
        return None
    third = len(losses) // 3
    before, last = (_mean(part) for part in (losses[-2 * third : -third], losses[-third:]))
    if last > (1 - _STILL_FALLING) * before or f"{last:.3f}" == f"{before:.3f}":
        return None
    return (
        f"the training loss was still falling at the end ({before:.3f} to {last:.3f}): more epochs or a higher "
        "learning rate may help"
    )


def got_worse(losses: Sequence[float], saved: float) -> str | None:
    """Advice if the last weights, which nothing was compared with, have a far higher training loss than the first.

    Args:
        losses: logged in training, at least one.
        saved: loss of the last batch by the last weights; it can be a single row, so the lowest of three decides.

    >>> got_worse([0.693], 25.8)
    'the training loss rose from 0.693 to 25.8: the model got worse, so train again with a lower learning rate'
    >>> got_worse([0.35, 0.31, 2.9], 3.0) is None
    True
    """
    first, last = losses[0], min([*losses[1:], saved][-3:])
    if last <= _MUCH_WORSE * first:
        return None
    return (
        f"the training loss rose from {first:.4g} to {last:.4g}: the model got worse, so train again with a lower "
        "learning rate"
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def spelled_alike(names: Iterable[str]) -> str:
    """A sentence on names that differ only in case, white space, invisible characters, quotes, dashes or the form of
    Unicode, or are the same number; "" without any.

    >>> spelled_alike(["Praise", "praise", "blame", "1", "1.0"])
    "labels are spelled in several ways ('Praise' and 'praise'; '1' and '1.0'), and each counts as a class: use one"
    >>> spelled_alike(["caf\\u00e9", "cafe\\u0301"])
    "labels are spelled in several ways ('café' and 'cafe\\\\u0301'), and each counts as a class: use one"
    """
    alike: dict[str | float, list[str]] = {}
    for name in names:
        alike.setdefault(_as_seen(name), []).append(name)
    several = [" and ".join(map(_shown, some)) for some in alike.values() if len(some) > 1]
    if not several:
        return ""
    shown = "; ".join(several[:_MOST_ALIKE]) + ("; ..." if several[_MOST_ALIKE:] else "")
    return f"labels are spelled in several ways ({shown}), and each counts as a class: use one"


def _as_seen(name: str) -> str | float:
    """A value that is equal for names that look the same."""
    try:
        return float(name)
    except ValueError:
        pass
    normal = unicodedata.normalize("NFKC", name).translate(_QUOTES)
    visible = "".join(
        letter for letter in normal if unicodedata.category(letter) not in ("Cf", "Cc") or letter.isspace()
    )
    return " ".join(unicodedata.normalize("NFKC", visible).casefold().split())


def _shown(name: str) -> str:
    """A name in quotes, with escapes for what is not ASCII if it holds something that is not seen."""
    is_seen = name == unicodedata.normalize("NFC", name) and all(
        letter == " " or unicodedata.category(letter)[0] not in "CZ" for letter in name
    )
    return repr(name) if is_seen and name.isprintable() else ascii(name)
