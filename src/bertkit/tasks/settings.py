"""Settings as a tree: a recipe has its own settings and those of its parts, each declared once, by its owner."""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, Self

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
        """A copy with other values by name, also those of parts.

        Raises:
            UsageError: an unknown name, or an invalid value.
        """
        known = self.values()
        for name in values:
            if name not in known:
                raise UsageError(f"unknown setting {name!r}; expected one of {', '.join(known)}")
        changes: dict[str, Any] = {}
        for part in fields(self):  # pyrefly: ignore
            value = getattr(self, part.name)
            if isinstance(value, Settings):
                if of_part := {name: values[name] for name in value.values() if name in values}:
                    changes[part.name] = value.changed(**of_part)
            elif part.name in values:
                changes[part.name] = values[part.name]
        return replace(self, **changes) if changes else self  # pyrefly: ignore

    def values(self) -> dict[str, Any]:
        """All values by name, also those of parts."""
        values: dict[str, Any] = {}
        for part in fields(self):  # pyrefly: ignore
            value = getattr(self, part.name)
            values |= value.values() if isinstance(value, Settings) else {part.name: value}
        return values

    def completed(self, values: Mapping[str, Any]) -> Self:
        """A copy in which these values replace None."""
        own = self.values()
        return self.changed(**{name: value for name, value in values.items() if own[name] is None})

    def tree(self) -> list["Settings"]:
        """These settings and those of all parts, in the order of the fields."""
        below = [getattr(self, part.name) for part in fields(self)]  # pyrefly: ignore
        return [self, *(other for part in below if isinstance(part, Settings) for other in part.tree())]
