"""YAML read strictly: no key twice, none passed over, and every fault told at once with where it stands."""

from collections.abc import Collection, Hashable, Mapping
from typing import Any, Final

import yaml

from schemas.errors import SettingsInvalid
from schemas.text import unstorable


class _Missing:
    """What a key that is left out has for a value."""


_MISSING: Final = _Missing()


def load_mapping(text: str) -> Mapping[object, object]:
    """Read YAML text that is one mapping, without any tag that would build more than plain values.

    Raises:
        SettingsInvalid: the text is not YAML, a key stands twice in one mapping, or it is not a mapping.
    """
    try:
        document = yaml.load(text, Loader=_StrictLoader)
    except (yaml.YAMLError, ValueError) as error:
        raise SettingsInvalid([f"not YAML: {' '.join(str(error).split())}"]) from error
    except RecursionError:
        raise SettingsInvalid(["not YAML: nested too deep"]) from None
    if not isinstance(document, Mapping):
        raise SettingsInvalid(["the file is not a mapping"])
    return document


class Section:
    """One mapping of a file, taken key by key.

    Each reader reports a fault into the file's *problems* and answers what it was told to otherwise, so that reading
    goes on. `end` then reports every key that nobody took.
    """

    def __init__(self, path: str, values: object, problems: list[str]) -> None:
        self._path = path
        self._problems = problems
        self._left: dict[object, object] = {}
        if isinstance(values, Mapping):
            self._left.update(values)
        else:
            self.report(None, f"is {_kind_of(values)}, not a mapping")

    def report(self, key: str | None, fault: str) -> None:
        self._problems.append(f"{self._path if key is None else f'{self._path}.{key}'}: {fault}")

    def text(self, key: str, otherwise: str | None = None) -> str | None:
        """Take a text that is not empty; *otherwise* when it is left out."""
        value = self._left.pop(key, _MISSING)
        if value is _MISSING:
            return otherwise
        if not isinstance(value, str) or not value.strip() or unstorable(value):
            self.report(key, f"is {_kind_of(value)}, not a text that says something")
            return otherwise
        return value

    def take(self, key: str, otherwise: object) -> object:
        """Take a value of any kind; *otherwise* when it is left out."""
        return self._left.pop(key, otherwise)

    def whole(self, key: str, otherwise: int | None, *, most: int) -> int:
        """Take a whole number from 1 to *most*; *otherwise* when it is left out, a fault where that is None."""
        value = self._left.pop(key, _MISSING if otherwise is None else otherwise)
        if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most:
            return value
        found = value if type(value) is int else _kind_of(value)
        self.report(key, f"is {found}, not a whole number from 1 to {most}")
        return otherwise or 1

    def choices(self, key: str, allowed: Collection[str]) -> tuple[str, ...]:
        """Take one of *allowed*, or a list of several; all of them when it is left out."""
        value = self._left.pop(key, list(allowed))
        chosen = value if isinstance(value, list) else [value]
        if not chosen or any(not isinstance(each, str) or each not in allowed for each in chosen):
            self.report(key, f"is {value!r}, not one or more of {', '.join(allowed)}")
            return tuple(allowed)
        return tuple(dict.fromkeys(chosen))

    def section(self, key: str) -> "Section":
        """Take a mapping; an empty one when it is left out."""
        return Section(f"{self._path}.{key}", self._left.pop(key, {}), self._problems)

    def rest(self) -> dict[str, str]:
        """Take everything that is left as texts: numbers and booleans as Kafka writes them."""
        taken: dict[str, str] = {}
        for key, value in self._left.items():
            if not isinstance(key, str):
                self.report(None, f"the key {key!r} is not a text")
            elif isinstance(value, bool):
                taken[key] = str(value).lower()
            elif isinstance(value, int | str):
                taken[key] = str(value)
            else:
                self.report(key, f"is {_kind_of(value)}, not a text, a whole number or a boolean")
        self._left.clear()
        return taken

    def end(self, known: Collection[str]) -> None:
        """Report every key that is left, naming those that are *known*."""
        for key in self._left:
            self.report(str(key), f"is not a key here; there are {', '.join(known)}")


def _kind_of(value: object) -> str:
    match value:
        case _Missing():
            return "missing"
        case None:
            return "empty"
        case bool():
            return "a boolean"
        case int():
            return "a whole number"
        case float():
            return "a number"
        case str():
            return "an empty text" if not value.strip() else "a text"
        case list():
            return "a list"
        case dict():
            return "a mapping"
        case _:
            return f"a {type(value).__name__}"


class _StrictLoader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[object] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable):
                if key in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {key!r} stands twice", key_node.start_mark
                    )
                seen.add(key)
        return super().construct_mapping(node, deep=deep)
