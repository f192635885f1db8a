"""Tags of words: schemes such as BIO, allowed sequences of tags, and conversion to entities.

    words   Ada   Lovelace  met   Babbage  in   London
    BIO     B-PER I-PER     O     B-PER    O    B-LOC     a tag B- begins each entity
    IOB1    I-PER I-PER     O     I-PER    O    I-LOC     B- only where an entity of the same type ends just before
    BIOES   B-PER E-PER     O     S-PER    O    S-LOC     the last tag is E-, that of a single word S- (also L-, U-)
    IOE1    I-PER I-PER     O     I-PER    O    I-LOC     E- only where an entity of the same type begins just after
    IOE2    I-PER E-PER     O     E-PER    O    E-LOC     a tag E- ends each entity
    IO      I-PER I-PER     O     I-PER    O    I-LOC     neighbors of one type are one entity
    names   PER   PER       O     PER      O    LOC       IO without a letter
    plain   PROPN PROPN     VERB  PROPN    ADP  PROPN     labels of words, not of entities

Entities are decoded strictly, as in seqeval's strict mode: a BIO entity is B- and the following I- of its type, a
BIOES entity is S-, or B-, I- and E- in that order; other tags form no entity. M- is I-, L- is E-, U- and W- are S-. The
letter may also follow the type, and the separator may be an underscore: PER-B, B_PER (`Notation`).
"""

import difflib
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from bertkit.errors import UsageError

Scheme = Literal["BIO", "BIOES", "IO", "names", "plain"]
"""Tag schemes of models."""

FileScheme = Literal["BIO", "IOB1", "BIOES", "IOE1", "IOE2", "IO", "names", "plain"]
"""Tag schemes of files."""

Entity = tuple[int, int, str]
"""First word, word after the last, type."""

OUTSIDE = "O"
"""The tag of a word outside all entities."""

_O, _B, _I, _E, _S = _EVERY_KIND = range(5)
_KINDS = {"B": _B, "I": _I, "M": _I, "E": _E, "L": _E, "S": _S, "U": _S, "W": _S}
_SCHEME_KINDS = {"BIO": {_O, _B, _I}, "BIOES": {_O, _B, _I, _E, _S}, "IO": {_O, _I}, "names": {_O, _I}}
_BEGINS = {  # the first tag of an entity
    "BIO": {_B}, "IOB1": {_B, _I}, "BIOES": {_B, _S}, "IOE1": {_I, _E}, "IOE2": {_I, _E}, "IO": {_I}, "names": {_I},
}  # fmt: skip
_CONTINUES = {  # the following tags, of the same type
    "BIO": {_I}, "IOB1": {_I}, "BIOES": {_I, _E}, "IOE1": {_I, _E}, "IOE2": {_I, _E}, "IO": {_I}, "names": {_I},
}  # fmt: skip
_IS_FOLLOWED = {  # tags before others of an entity
    "BIO": {_B, _I}, "IOB1": {_B, _I}, "BIOES": {_B, _I}, "IOE1": {_I}, "IOE2": {_I}, "IO": {_I}, "names": {_I},
}  # fmt: skip
_CLOSES = {  # the last tag of an entity
    "BIO": {_B, _I}, "IOB1": {_B, _I}, "BIOES": {_E, _S}, "IOE1": {_I, _E}, "IOE2": {_E}, "IO": {_I}, "names": {_I},
}  # fmt: skip
_CALLED_OUTSIDE = {"o", "0", "\u043e", "\u03bf", "_", "-", "out", "outside", "other", "none", "null", "nil"}


@dataclass(frozen=True)
class Notation:
    """The parts of tags: a letter and a type, the type alone, or a letter alone for the type "_"."""

    separator: str = "-"  # between them; "": the type alone, of which each is I
    is_suffix: bool = False  # the letter is last

    def parts(self, tag: str) -> tuple[int | None, str]:
        """The kind of a tag and the type of its entity; None and "" for a label that is not a tag."""
        if tag == OUTSIDE:
            return _O, ""
        if not self.separator:
            return _I, tag
        if tag in _KINDS:
            return _KINDS[tag], "_"
        letter, type_name = (tag[-1:], tag[:-2]) if self.is_suffix else (tag[:1], tag[2:])
        separator = tag[-2:-1] if self.is_suffix else tag[1:2]
        if letter not in _KINDS or separator != self.separator:
            return None, ""
        return _KINDS[letter], type_name or "_"

    def tag(self, letter: str, type_name: str) -> str:
        """The tag with a letter and a type."""
        if not self.separator:
            return type_name
        if type_name == "_":
            return letter
        return self.separator.join((type_name, letter) if self.is_suffix else (letter, type_name))


STANDARD = Notation()
"""B-PER."""

_NOTATIONS = (
    STANDARD,
    Notation("_"),
    *(Notation(separator, is_suffix=True) for separator in "-_"),
    *(Notation(separator, is_suffix) for separator in ":/" for is_suffix in (False, True)),
)
_NAMES = Notation("")


def guess_notation(counts: Mapping[str, int]) -> Notation | None:
    """The notation of tags, some of which may be misspelled; None for plain labels.

    Args:
        counts: the number of words with each tag; of the labels of a model, any number above 0.
    """
    outside = [tag for tag in counts if _is_called_outside(tag)]
    others = {tag: number for tag, number in counts.items() if tag not in outside}
    for notation in _NOTATIONS:
        parts = {tag: notation.parts(tag) for tag in others}
        kinds_of: dict[str, set[int]] = {}
        for kind, type_name in parts.values():
            if kind is not None and type_name != "_":
                kinds_of.setdefault(type_name, set()).add(kind)
        num_tags = sum(number for tag, number in others.items() if parts[tag][1] in kinds_of)
        is_sure = any(len(kinds) > 1 for kinds in kinds_of.values())  # a type with several letters
        if others and all(kind is not None for kind, _ in parts.values()):
            if notation == STANDARD or is_sure or (outside and kinds_of):
                return notation
        elif kinds_of and (is_sure or (OUTSIDE in counts and 2 * num_tags >= sum(others.values()))):
            return notation
    if OUTSIDE in counts and others and all(len(tag) > 1 for tag in others):
        return _NAMES
    capitals = Counter({_with_capital(tag): number for tag, number in counts.items()})
    return None if capitals.keys() == counts.keys() else guess_notation(capitals)


def _with_capital(tag: str) -> str:
    """A tag with its letter in uppercase: b-per as B-per, per-b as per-B, o as O."""
    parts = re.split(r"([-_:/])", tag)
    return "".join(part.upper() if len(part) == 1 else part for part in parts)


def _is_called_outside(tag: str) -> bool:
    """Whether a tag is O or looks like it."""
    return tag == OUTSIDE or _plain_letters(tag).casefold() in _CALLED_OUTSIDE


def _plain_letters(tag: str) -> str:
    """A tag without compatibility characters, invisible ones and white space."""
    normal = unicodedata.normalize("NFKC", tag)
    return "".join(letter for letter in normal if unicodedata.category(letter) != "Cf" and not letter.isspace())


def meant_tag(tag: str, known: Collection[str]) -> str:
    """The tag that a misspelled one most likely means; "" if none is near."""
    if _is_called_outside(tag):
        return OUTSIDE
    plain = _plain_letters(tag)
    near = [name for name in known if name.casefold() == plain.casefold()]
    if not near and (capital := _with_capital(plain)) != plain:
        return capital
    return next(iter(near or difflib.get_close_matches(plain, known, 1, 0.5)), "")


def guess_file_scheme(texts: Iterable[Sequence[str]], notation: Notation | None = None) -> FileScheme:
    """Identify the scheme of the tags of texts; "plain" also if no word is in an entity. Misspelled tags are ignored.

    Args:
        notation: that of the tags; None: it is identified too.
    """
    texts = list(texts)
    notation = notation or guess_notation(Counter(tag for tags in texts for tag in tags))
    if notation is None:
        return "plain"
    if notation == _NAMES:
        return "names"
    kinds: set[int | None] = set()
    starts_with_b = ends_with_i = False
    for tags in texts:
        before = _O, ""
        for kind, type_name in (*map(notation.parts, tags), (_O, "")):
            kinds.add(kind)
            follows = before[0] in (_B, _I) and before[1] == type_name
            starts_with_b |= kind == _B and not follows
            ends_with_i |= before[0] == _I and not (follows and kind in (_I, _E))
            before = kind, type_name
    kinds -= {None, _O}
    if not kinds:
        return "plain"
    if kinds <= {_I, _E} and _E in kinds:
        return "IOE1" if ends_with_i else "IOE2"
    if not kinds <= _SCHEME_KINDS["BIO"]:
        return "BIOES"
    if _B not in kinds:
        return "IO"
    return "BIO" if starts_with_b else "IOB1"


def notation_of(names: Collection[str], scheme: Scheme) -> Notation:
    """The notation of the label names of a model with this scheme."""
    if scheme == "names":
        return _NAMES
    count = [sum(notation.parts(name)[0] is not None for name in names) for notation in _NOTATIONS]
    return _NOTATIONS[int(np.argmax(count))]


def guess_scheme(names: Iterable[str]) -> Scheme:
    """Identify the scheme of a model's label names."""
    names = list(names)
    notation = guess_notation(Counter(names))
    if notation is None or any(notation.parts(name)[0] is None for name in names):
        return "plain"
    if notation == _NAMES:
        return "names"
    kinds = {notation.parts(name)[0] for name in names}
    return next(scheme for scheme in ("IO", "BIO", "BIOES") if kinds <= _SCHEME_KINDS[scheme])


def complete_names(names: Iterable[str], scheme: Scheme) -> tuple[str, ...]:
    """Label names of a model that learns these names: for entities O and every tag of each type, in order."""
    names = list(names)
    if scheme == "plain":
        return tuple(sorted(names))
    notation = notation_of(names, scheme)
    letters: dict[int | None, str] = dict(zip((_B, _I, _E, _S), "BIES", strict=True))
    types = set()
    for name in names:
        kind, type_name = notation.parts(name)
        if kind not in (None, _O):
            types.add(type_name)
            letters[kind] = str(name[-1:] if notation.is_suffix else name[:1])
    kinds = [kind for kind in (_B, _I, _E, _S) if kind in _SCHEME_KINDS[scheme]]
    return (OUTSIDE, *(notation.tag(letters[kind], type_name) for type_name in sorted(types) for kind in kinds))


def entities_in(tags: Sequence[str], scheme: FileScheme, notation: Notation = STANDARD) -> list[Entity]:
    """Entities of one text; empty for plain labels."""
    if scheme == "plain":
        return []
    entities: list[Entity] = []
    first, before = None, (_O, "")
    parts = (_NAMES if scheme == "names" else notation).parts
    for index, tag in enumerate((*tags, OUTSIDE)):
        kind, type_name = here = parts(tag)
        if kind in _CONTINUES[scheme] and before[0] in _IS_FOLLOWED[scheme] and type_name == before[1]:
            before = here
            continue
        if first is not None and before[0] in _CLOSES[scheme]:
            entities.append((first, index, before[1]))
        first = index if kind in _BEGINS[scheme] else None
        before = here
    return entities


def spell(entities: Iterable[Entity], num_words: int, scheme: Scheme | Literal["IOB1"]) -> list[str]:
    """Tags of a text with these entities, in order, in the standard notation."""
    tags = [OUTSIDE] * num_words
    notation, before = _NAMES if scheme == "names" else STANDARD, (0, 0, "")
    for first, end, type_name in entities:
        letters = "I" * (end - first)
        if scheme == "BIO" or (scheme == "IOB1" and before[1] == first and before[2] == type_name):
            letters = "B" + letters[1:]
        elif scheme == "BIOES":
            letters = "S" if len(letters) == 1 else "B" + letters[2:] + "E"
        tags[first:end] = [notation.tag(letter, type_name) for letter in letters]
        before = first, end, type_name
    return tags


def misspelled(tags: Sequence[str], scheme: FileScheme, notation: Notation = STANDARD) -> int | None:
    """The index of the first tag that is neither outside nor part of an entity; None if there is none."""
    if scheme == "plain":
        return None
    parts, inside = (_NAMES if scheme == "names" else notation).parts, np.zeros(len(tags), np.bool_)
    for first, end, _ in entities_in(tags, scheme, notation):
        inside[first:end] = True
    return next((index for index, tag in enumerate(tags) if not inside[index] and parts(tag)[0] != _O), None)


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
            if self.notation.parts(name)[0] not in _SCHEME_KINDS[self.scheme]:
                raise UsageError(
                    f"the label {name!r} is not a tag of scheme {self.scheme}: choose scheme='plain' for other labels"
                )

    @cached_property
    def notation(self) -> Notation:
        """The notation of the names."""
        return notation_of(self.names, self.scheme)

    def named(self, tags: Iterable[str]) -> list[str]:
        """Tags in the standard notation as the labels of the model; unknown ones unchanged."""
        if self.scheme in ("names", "plain"):
            return list(tags)
        return [self._name_of.get(STANDARD.parts(tag), tag) for tag in tags]

    @cached_property
    def _name_of(self) -> dict[tuple[int | None, str], str]:
        return {self.notation.parts(name): name for name in self.names}

    @cached_property
    def types(self) -> tuple[str, ...]:
        """Entity types, sorted; empty for plain labels."""
        if self.scheme == "plain":
            return ()
        return tuple(sorted({self.notation.parts(name)[1] for name in self.names if name != OUTSIDE}))

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
    def continuations(self) -> np.ndarray:
        """(C, C) float64, 1 where tag j continues tag i within a word: B- and I- as I-, S- and E- as E-."""
        if self.scheme == "plain":
            return np.eye(len(self.names))
        following = {_B: _I, _S: _E}
        kinds = np.array([following.get(int(kind), int(kind)) for kind in self._kinds])
        same_type = self._type_numbers[:, None] == self._type_numbers[None, :]
        return (same_type & (kinds[:, None] == self._kinds[None, :])).astype(np.float64)

    @cached_property
    def numbers(self) -> dict[str, int]:
        """Label name -> index."""
        return {name: number for number, name in enumerate(self.names)}

    @cached_property
    def _kinds(self) -> np.ndarray:
        """(C,) int64"""
        return np.array([self.notation.parts(name)[0] for name in self.names], np.int64)

    @cached_property
    def _type_numbers(self) -> np.ndarray:
        """(C,) int64, -1 for a tag outside all entities."""
        numbers = {name: number for number, name in enumerate(self.types)}
        types = [self.notation.parts(name)[1] for name in self.names]
        return np.array([numbers.get(type_name, -1) for type_name in types], np.int64)

    @cached_property
    def _may_continue(self) -> np.ndarray:
        """(C, C) bool: whether tag j continues the entity that tag i is part of."""
        same_type = self._type_numbers[:, None] == self._type_numbers[None, :]
        followed = _is_in(self._kinds, _IS_FOLLOWED[self.scheme])
        return same_type & followed[:, None] & _is_in(self._kinds, _CONTINUES[self.scheme])[None, :]


def _is_in(kinds: np.ndarray, wanted: set[int]) -> np.ndarray:
    return np.array([kind in wanted for kind in _EVERY_KIND])[kinds]  # np.isin is slow for few
