"""What one worker serves: the handlers of the modules that HANDLERS names, checked before anything starts."""

import importlib
from collections.abc import Iterator, Sequence
from types import ModuleType

from schemas.errors import SettingsInvalid
from streams.handlers.declarations import Declaration, declared_by
from streams.handlers.failures import text_of
from streams.handlers.values import Served, served


class Registry:
    """Handlers and job types by target. Without any, every target is somebody else's."""

    def __init__(self, handlers: Sequence[Served] = ()) -> None:
        self._by_target = {one.declaration.target: one for one in handlers}

    def __len__(self) -> int:
        return len(self._by_target)

    def __iter__(self) -> Iterator[Served]:
        return iter(self._by_target.values())

    def find(self, target: str) -> Served | None:
        """What serves *target* (`local:package.Service/Method` or `job:type`); None when nothing here does."""
        return self._by_target.get(target)

    @property
    def job_types(self) -> list[str]:
        """The names of the job types, sorted."""
        return sorted(one.declaration.name for one in self if one.declaration.is_job)


def load_registry(modules: Sequence[str]) -> Registry:
    """Import *modules* and collect what they declare: themselves, what they import by name, and the modules below them.

    Raises:
        SettingsInvalid: a module cannot be imported, declares nothing or something unusable, or two declarations serve
            the same; one sentence each, with the places.
    """
    problems: list[str] = []
    found: dict[str, Declaration] = {}
    for name in modules:
        module = _imported(name, problems)
        declarations = list(declared_by(module)) if module is not None else []
        if module is not None and not declarations:
            problems.append(f"HANDLERS: {name} declares no handler")
        for one in declarations:
            first = found.setdefault(one.target, one)
            if first is not one:
                problems.append(f"HANDLERS: {one.name} is served twice, at {first.place} and at {one.place}")
    handlers: list[Served] = []
    for one in found.values():
        try:
            handlers.append(served(one))
        except TypeError as error:
            problems.append(f"HANDLERS: {error} ({one.place})")
    if problems:
        raise SettingsInvalid(list(dict.fromkeys(problems)))
    return Registry(handlers)


def _imported(name: str, problems: list[str]) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:  # noqa: BLE001  # a module is people's code, and may raise anything
        problems.append(f"HANDLERS: {name} cannot be imported: {type(error).__name__}: {text_of(error)}")
        return None
