"""Settings as a tree: a recipe has its own settings and those of its parts, each declared once, by its owner."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from typing import Any, ClassVar, Self

from bertkit.errors import UsageError
from bertkit.tasks.field_types import check_field_types


class Settings:
    """Base class of frozen dataclasses with a default for every field; a field may be `Settings` of a part.

    No name occurs twice in a tree: each value has one name in Python, on the command line and in files.
    """

    def __post_init__(self) -> None:
        check_field_types(self)

    @classmethod
    def of(cls, **values: Any) -> Self:
        """The defaults, with other values by name, also those of parts; raises a UsageError as `changed`."""
        return cls().changed(**values)

    def changed(self, **values: Any) -> Self:
        """A copy with other values by name, also those of parts; the name of a `Choice` selects its kind.

        Raises:
            UsageError: an unknown name, or an invalid value.
        """
        chosen = self._chosen(values)
        known = chosen.values()
        for name in values:
            if name not in known:
                raise UsageError(self._refusal(name, known, values))
        return chosen._replaced(values)

    def values(self) -> dict[str, Any]:
        """All values by name, also those of parts; that of a `Choice` is the name of its kind."""
        values: dict[str, Any] = {}
        for name, value in self._fields():
            if isinstance(value, Settings):
                values |= ({name: value.name} if isinstance(value, Choice) else {}) | value.values()
            else:
                values[name] = value
        return values

    def all_values(self) -> dict[str, Any]:
        """All values by name, and the defaults of settings that only other kinds of a `Choice` have."""
        others = [kind().values() for part in self.choices().values() for kind in part.kinds().values()]
        return {name: value for one in reversed(others) for name, value in one.items()} | self.values()

    def completed(self, values: Mapping[str, Any]) -> Self:
        """A copy in which these values replace None."""
        own = self.values()
        return self.changed(**{name: value for name, value in values.items() if own[name] is None})

    def tree(self) -> list["Settings"]:
        """These settings and those of all parts, in the order of the fields."""
        return [self, *(one for _, value in self._fields() if isinstance(value, Settings) for one in value.tree())]

    def choices(self) -> dict[str, "Choice"]:
        """The parts that are a `Choice`, by the names of their fields."""
        return {name: value for one in self.tree() for name, value in one._fields() if isinstance(value, Choice)}

    def _fields(self) -> Iterator[tuple[str, Any]]:
        return ((part.name, getattr(self, part.name)) for part in fields(self))  # pyrefly: ignore

    def _chosen(self, values: Mapping[str, Any]) -> Self:
        """A copy with the kinds of parts that the values name."""
        changes: dict[str, Any] = {}
        for name, value in self._fields():
            if isinstance(value, Choice):
                changes[name] = value.other(name, values) if name in values else value
            elif isinstance(value, Settings):
                changes[name] = value._chosen(values)
        return self._with(changes)

    def _replaced(self, values: Mapping[str, Any]) -> Self:
        changes: dict[str, Any] = {}
        for name, value in self._fields():
            if isinstance(value, Settings):
                changes[name] = value._replaced(values)
            elif name in values:
                changes[name] = values[name]
        return self._with(changes)

    def _with(self, changes: Mapping[str, Any]) -> Self:
        is_changed = any(value is not getattr(self, name) for name, value in changes.items())
        return replace(self, **changes) if is_changed else self  # pyrefly: ignore

    def _refusal(self, name: str, known: Mapping[str, Any], values: Mapping[str, Any]) -> str:
        """What is wrong with an unknown name."""
        for field, part in self.choices().items():
            having = [key for key, kind in part.kinds().items() if name in kind().values()]
            if having:
                chosen = values.get(field, part.name)
                kinds = f"{field}={' or '.join(having)}, not of {field}={chosen}"
                return f"{name}={values[name]!r:.60} is a setting of {kinds}: omit one"
        return f"unknown setting {name!r}; expected one of {', '.join(known)}"


class Choice(Settings):
    """Settings of a part that has several kinds: a subclass for each, by its name.

    In a tree the name of the part selects the kind, which keeps the values of settings that it has, too.
    """

    name: ClassVar[str]

    @classmethod
    @abstractmethod
    def kinds(cls) -> Mapping[str, "type[Choice]"]:
        """All kinds by name, those that are registered from outside included."""

    def other(self, field: str, values: Mapping[str, Any]) -> "Choice":
        """The kind that ``values[field]`` names, or that value if it is one; raises a UsageError for an unknown name.

        Args:
            values: values by name; those of the kind are set.
        """
        if isinstance(asked := values[field], Choice):
            return asked
        if not isinstance(asked, str) or asked not in self.kinds():
            raise UsageError(f"{field}={asked!r}: expected one of {', '.join(self.kinds())}")
        kind = self.kinds()[asked]
        if kind is type(self):
            return self
        known = self.values() | dict(values)
        return kind(**{part.name: known[part.name] for part in fields(kind) if part.name in known})  # pyrefly: ignore
