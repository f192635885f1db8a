"""Tags of words: schemes such as BIO, allowed sequences of tags, and conversion to entities.

    words   Ada   Lovelace  met   Babbage  in   London
    BIO     B-PER I-PER     O     B-PER    O    B-LOC     a tag B- begins each entity
    IOB1    I-PER I-PER     O     I-PER    O    I-LOC     B- only where an entity of the same type ends just before
    BIOES   B-PER E-PER     O     S-PER    O    S-LOC     the last tag is E-, that of a single word S- (also L-, U-)
    IO      I-PER I-PER     O     I-PER    O    I-LOC     neighbors of one type are one entity
    plain   PROPN PROPN     VERB  PROPN    ADP  PROPN     labels of words, not of entities

Entities are decoded strictly, as in seqeval's strict mode: a BIO entity is B- and the following I- of its type, a
BIOES entity is S-, or B-, I- and E- in that order; other tags form no entity.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from bertkit.errors import UsageError

Scheme = Literal["BIO", "BIOES", "IO", "plain"]
"""Tag schemes of models."""

FileScheme = Literal["BIO", "IOB1", "BIOES", "IO", "plain"]
"""Tag schemes of files."""

Entity = tuple[int, int, str]
"""First word, word after the last, type."""

OUTSIDE = "O"
"""The tag of a word outside all entities."""

_TAG = re.compile(r"([BIESLU])(?:-(.*))?", re.DOTALL)
_O, _B, _I, _E, _S = range(5)
_KINDS = {"B": _B, "I": _I, "E": _E, "S": _S, "L": _E, "U": _S}
_SCHEME_KINDS = {"BIO": {_O, _B, _I}, "BIOES": {_O, _B, _I, _E, _S}, "IO": {_O, _I}}
_LETTERS = {"BIO": "BI", "BIOES": "BIES", "IO": "I"}
_BEGINS = {"BIO": {_B}, "IOB1": {_B, _I}, "BIOES": {_B, _S}, "IO": {_I}}  # the first tag of an entity
_CONTINUES = {"BIO": {_I}, "IOB1": {_I}, "BIOES": {_I, _E}, "IO": {_I}}  # the following tags, of the same type
_IS_FOLLOWED = {"BIO": {_B, _I}, "IOB1": {_B, _I}, "BIOES": {_B, _I}, "IO": {_I}}  # tags before others of an entity
_CLOSES = {"BIO": {_B, _I}, "IOB1": {_B, _I}, "BIOES": {_E, _S}, "IO": {_I}}  # the last tag of an entity


def guess_file_scheme(texts: Iterable[Sequence[str]]) -> FileScheme:
    """Identify the scheme of the tags of texts; "plain" also if no word is in an entity.

    If O occurs, and most other tags are a letter and a type, the remaining tags are misspelled and ignored.
    """
    kinds: set[int | None] = set()
    starts_with_b = False
    num_typed = num_other = 0
    for tags in texts:
        before = _O, ""
        for kind, type_name in map(_parts, tags):
            kinds.add(kind)
            num_typed += type_name not in ("", "_")
            num_other += kind is None
            follows = before[0] in (_B, _I) and before[1] == type_name
            starts_with_b |= kind == _B and not follows
            before = kind, type_name
    if _O in kinds and num_typed > num_other:
        kinds.discard(None)
    if None in kinds or kinds <= {_O}:
        return "plain"
    if not kinds <= _SCHEME_KINDS["BIO"]:
        return "BIOES"
    if _B not in kinds:
        return "IO"
    return "BIO" if starts_with_b else "IOB1"


def guess_scheme(names: Iterable[str]) -> Scheme:
    """Identify the scheme of a model's label names."""
    kinds = {_parts(name)[0] for name in names}
    if None in kinds or kinds <= {_O}:
        return "plain"
    return next(scheme for scheme in ("IO", "BIO", "BIOES") if kinds <= _SCHEME_KINDS[scheme])


def complete_names(names: Iterable[str], scheme: Scheme) -> tuple[str, ...]:
    """Label names of a model that learns these names: for entities O and every tag of each type, in order."""
    if scheme == "plain":
        return tuple(sorted(names))
    types = sorted({_parts(name)[1] for name in names if name != OUTSIDE})
    return (OUTSIDE, *(_tag(letter, kind) for kind in types for letter in _LETTERS[scheme]))


def entities_in(tags: Sequence[str], scheme: FileScheme) -> list[Entity]:
    """Entities of one text; empty for plain labels."""
    entities: list[Entity] = []
    first, before = None, (_O, "")
    for index, tag in enumerate((*tags, OUTSIDE)):
        kind, type_name = here = _parts(tag)
        if scheme == "plain" or (
            kind in _CONTINUES[scheme] and before[0] in _IS_FOLLOWED[scheme] and type_name == before[1]
        ):
            before = here
            continue
        if first is not None and before[0] in _CLOSES[scheme]:
            entities.append((first, index, before[1]))
        first = index if kind in _BEGINS[scheme] else None
        before = here
    return entities


def spell(entities: Iterable[Entity], num_words: int, scheme: FileScheme) -> list[str]:
    """Tags of a text with these entities, in order."""
    tags = [OUTSIDE] * num_words
    before = (0, 0, "")
    for first, end, type_name in entities:
        letters = "I" * (end - first)
        if scheme == "BIO" or (scheme == "IOB1" and before[1] == first and before[2] == type_name):
            letters = "B" + letters[1:]
        elif scheme == "BIOES":
            letters = "S" if len(letters) == 1 else "B" + letters[2:] + "E"
        tags[first:end] = [_tag(letter, type_name) for letter in letters]
        before = first, end, type_name
    return tags


def misspelled(tags: Sequence[str], scheme: FileScheme) -> int | None:
    """The index of the first tag that is neither outside nor part of an entity; None if there is none."""
    if scheme == "plain":
        return None
    spelled = spell(entities_in(tags, scheme), len(tags), scheme)
    differing = (
        index for index, (tag, right) in enumerate(zip(tags, spelled, strict=True)) if _parts(tag) != _parts(right)
    )
    return next(differing, None)


@dataclass(frozen=True)
class Tags:
    """The labels of a tagger by index, and their entities.

    Raises:
        UsageError: a name that is not a tag of the scheme.
    """

    names: tuple[str, ...]
    scheme: Scheme

    def __post_init__(self) -> None:
        if self.scheme not in get_args(Scheme):
            raise UsageError(f"scheme={self.scheme!r}: expected one of {', '.join(get_args(Scheme))}")
        if self.scheme == "plain":
            return
        for name in self.names:
            if _parts(name)[0] not in _SCHEME_KINDS[self.scheme]:
                raise UsageError(
                    f"the label {name!r} is not a tag of scheme {self.scheme}: choose scheme='plain' for other labels"
                )

    @cached_property
    def types(self) -> tuple[str, ...]:
        """Entity types, sorted; empty for plain labels."""
        if self.scheme == "plain":
            return ()
        return tuple(sorted({_parts(name)[1] for name in self.names if name != OUTSIDE}))

    def entities(self, tags: ArrayLike, cu_words: ArrayLike) -> np.ndarray:
        """(E, 3) int64: first word, word after the last, and type index of each entity.

        Args:
            tags: (W,) tag indices of the words of N texts, concatenated.
            cu_words: (N + 1,) first word of each text, and W.
        """
        tags = np.asarray(tags, np.int64)
        if self.scheme == "plain" or not len(tags):
            return np.zeros((0, 3), np.int64)
        continues = np.zeros(len(tags) + 1, np.bool_)
        continues[1:-1] = self._may_continue[tags[:-1], tags[1:]]
        continues[np.asarray(cu_words)] = False
        bounds = np.flatnonzero(~continues)  # of runs of tags that continue each other
        first, end = bounds[:-1], bounds[1:]
        spelled = _is_in(self._kinds[tags[first]], _BEGINS[self.scheme])
        spelled &= _is_in(self._kinds[tags[end - 1]], _CLOSES[self.scheme])
        first, end = first[spelled], end[spelled]
        return np.stack([first, end, self._type_numbers[tags[first]]], axis=1)

    @cached_property
    def may_follow(self) -> np.ndarray:
        """(C + 1, C + 1) bool: whether tag j may follow tag i if every tag is part of an entity or outside all.

        Row C is the start of a text, column C its end.
        """
        allowed = np.ones((len(self.names) + 1, len(self.names) + 1), np.bool_)
        if self.scheme == "plain":
            return allowed
        # text boundaries act like a tag outside all entities
        kinds = np.append(self._kinds, _O)
        may_end = _is_in(kinds, _CLOSES[self.scheme] | {_O})
        may_start = _is_in(kinds, _BEGINS[self.scheme] | {_O})
        allowed = may_end[:, None] & may_start[None, :]
        allowed[:-1, :-1] |= self._may_continue
        return allowed

    @cached_property
    def numbers(self) -> dict[str, int]:
        """Label name -> index."""
        return {name: number for number, name in enumerate(self.names)}

    @cached_property
    def _kinds(self) -> np.ndarray:
        """(C,) int64"""
        return np.array([_parts(name)[0] for name in self.names], np.int64)

    @cached_property
    def _type_numbers(self) -> np.ndarray:
        """(C,) int64, -1 for a tag outside all entities."""
        numbers = {name: number for number, name in enumerate(self.types)}
        return np.array([-1 if name == OUTSIDE else numbers[_parts(name)[1]] for name in self.names], np.int64)

    @cached_property
    def _may_continue(self) -> np.ndarray:
        """(C, C) bool: whether tag j continues the entity that tag i is part of."""
        same_type = self._type_numbers[:, None] == self._type_numbers[None, :]
        followed = _is_in(self._kinds, _IS_FOLLOWED[self.scheme])
        return same_type & followed[:, None] & _is_in(self._kinds, _CONTINUES[self.scheme])[None, :]


def _parts(name: str) -> tuple[int | None, str]:
    """The kind of a tag and the type of its entity; None and "" for a label that is not a tag."""
    if name == OUTSIDE:
        return _O, ""
    match = _TAG.fullmatch(name)
    return (None, "") if match is None else (_KINDS[match[1]], match[2] or "_")


def _tag(letter: str, type_name: str) -> str:
    return letter if type_name == "_" else f"{letter}-{type_name}"


def _is_in(kinds: np.ndarray, wanted: set[int]) -> np.ndarray:
    return np.isin(kinds, list(wanted))
