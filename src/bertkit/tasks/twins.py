"""Label names that a reader cannot tell apart."""

import unicodedata
from collections.abc import Iterable

_MOST_ALIKE = 5  # groups of labels that are named
_QUOTES = {ord(mark): plain for marks, plain in (("‘’‚‛′`´", "'"), ("“”„‟″«»", '"'), ("–—−‐‑", "-")) for mark in marks}


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
