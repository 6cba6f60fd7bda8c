"""Types that a process knows by name: from a folder of descriptor sets, and from generated modules."""

import difflib
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from schemas.errors import InputInvalid, SettingsInvalid
from streams.workflow.descriptor_files import ordered_files, serialized
from streams.workflow.limits import MAX_DESCRIPTOR_SET_BYTES

log = logging.getLogger(__name__)

SUFFIXES: Final = (".binpb", ".desc", ".pb", ".protoset")
"""What the name of a descriptor set ends with; other files of the folder are passed over."""

RELOAD_SECONDS: Final = 1.0
_MOST_NAMED: Final = 3

_Files = Mapping[str, Any]
_Signature = tuple[tuple[str, int, int, int], ...]


@dataclass(frozen=True, slots=True)
class _Source:
    """One descriptor set, or one module: its files by name, and the file that declares each message and service."""

    label: str
    files: _Files
    declared_in: Mapping[str, str]

    def closure_of(self, full_name: str) -> bytes:
        """The file that declares it and all it imports, the same bytes for the same files."""
        needed: dict[str, Any] = {}
        waiting = [self.declared_in[full_name]]
        while waiting:
            name = waiting.pop()
            if name not in needed:
                needed[name] = self.files[name]
                waiting.extend(self.files[name].dependency)
        return serialized(needed[name] for name in sorted(needed))


class RegisteredTypes:
    """The types of *folder* (descriptor sets, named as `SUFFIXES` says) and of generated *modules*.

    Nothing is read or imported before `open`, or the first use. From then on the folder is looked at again at most once
    a second, so a set that is put there needs no restart. A change that cannot be used is logged and leaves the types
    as they were.
    """

    def __init__(
        self,
        folder: Path | None = None,
        modules: Sequence[str] = (),
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = folder
        self._modules = modules
        self._clock = clock
        self._of_modules: Sequence[_Source] = ()
        self._of_folder: Sequence[_Source] = ()
        self._seen: _Signature = ()
        self._next_look: float | None = None

    def open(self) -> None:
        """Read the folder and import the modules, once.

        Raises:
            SettingsInvalid: the folder, a set in it or a module cannot be used; one sentence per fault.
        """
        if self._next_look is not None:
            return
        if (folder := self._folder) is not None:
            if not folder.is_dir():
                raise SettingsInvalid([f"TYPES_DIR: {folder} is not a folder"])
            self._seen = _signature(folder)
            self._of_folder = _sets(folder)
        self._of_modules = [_module(name) for name in self._modules]
        self._next_look = self._clock() + RELOAD_SECONDS

    def descriptor_set(self, full_name: str) -> bytes:
        """A serialized FileDescriptorSet of the file that declares the message or service, and of all it imports.

        Raises:
            InputInvalid: nothing of that name is registered (code `unknown-type`, with names that are near), or two
                sources have different editions of it (code `ambiguous-type`, naming both).
            SettingsInvalid: as `open`, at the first use.
        """
        self.open()
        self._look_again()
        sources = [source for source in (*self._of_modules, *self._of_folder) if full_name in source.declared_in]
        if not sources:
            raise InputInvalid(f"unknown type {full_name}{self._hint(full_name)}", code="unknown-type")
        first, *others = [(source.closure_of(full_name), source.label) for source in sources]
        for data, label in others:
            if data != first[0]:
                text = f"{first[1]} and {label} have different editions of {full_name}: keep one of them"
                raise InputInvalid(text, code="ambiguous-type")
        return first[0]

    def _hint(self, full_name: str) -> str:
        known = sorted({name for source in (*self._of_modules, *self._of_folder) for name in source.declared_in})
        simple = full_name.rpartition(".")[2]
        near = [name for name in known if name.rpartition(".")[2] == simple]
        near = near or difflib.get_close_matches(full_name, known[:1_000], n=_MOST_NAMED)
        if near:
            return f" (did you mean {' or '.join(near[:_MOST_NAMED])}?)"
        return "" if known else ": no types are registered here (TYPES_DIR, TYPES_MODULES)"

    def _look_again(self) -> None:
        if self._folder is None or self._clock() < (self._next_look or 0):
            return
        self._next_look = self._clock() + RELOAD_SECONDS
        if (seen := _signature(self._folder)) == self._seen:
            return
        self._seen = seen
        try:
            self._of_folder = _sets(self._folder)
        except SettingsInvalid as error:
            log.error("the registered types stay as they were: %s", error)
        else:
            log.info("read %d descriptor sets from %s", len(self._of_folder), self._folder)


def _sets(folder: Path) -> list[_Source]:
    sources, problems = [], []
    for path in _set_files(folder):
        try:
            sources.append(_source(str(path), _bytes_of(path)))
        except (OSError, InputInvalid) as error:
            problems.append(f"TYPES_DIR: {path}: {error}")
    if problems:
        raise SettingsInvalid(problems)
    return sources


def _bytes_of(path: Path) -> bytes:
    if (size := path.stat().st_size) > MAX_DESCRIPTOR_SET_BYTES:
        raise InputInvalid(f"the descriptor set has {size:,} bytes, over the limit of {MAX_DESCRIPTOR_SET_BYTES:,}")
    return path.read_bytes()


def _module(name: str) -> _Source:
    try:
        file = getattr(import_module(name), "DESCRIPTOR", None)
    except Exception as error:  # a module of people's own may raise anything while it is imported
        raise SettingsInvalid([f"TYPES_MODULES: {name} cannot be imported: {error!r}"]) from error
    if not isinstance(file, FileDescriptor):
        raise SettingsInvalid([f"TYPES_MODULES: {name} is not a module that the Protobuf compiler made"])
    needed: dict[str, FileDescriptor] = {}
    waiting = [file]
    while waiting:
        one = waiting.pop()
        if one.name not in needed:
            needed[one.name] = one
            waiting.extend(one.dependencies)
    files = (FileDescriptorProto.FromString(one.serialized_pb) for one in needed.values())
    try:
        return _source(name, FileDescriptorSet(file=files).SerializeToString())
    except InputInvalid as error:
        raise SettingsInvalid([f"TYPES_MODULES: {name}: {error}"]) from error


def _source(label: str, descriptor_set: bytes) -> _Source:
    files = ordered_files(descriptor_set)
    declared_in = {full_name: name for name, file in files.items() for full_name in _declared(file)}
    return _Source(label, files, declared_in)


def _declared(file: Any) -> Iterator[str]:
    """The full names of the messages and services of a file; map entries are no types of anybody's."""
    package = f"{file.package}." if file.package else ""
    for service in file.service:
        yield package + service.name
    waiting = [(package, message) for message in file.message_type]
    while waiting:
        prefix, message = waiting.pop()
        if not message.options.map_entry:
            yield prefix + message.name
            waiting.extend((f"{prefix}{message.name}.", nested) for nested in message.nested_type)


def _set_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix in SUFFIXES and path.is_file())


def _signature(folder: Path) -> _Signature:
    """What changes whenever a set is added, written, replaced or taken away; empty while the folder is not there."""
    try:
        found = [(path.name, path.stat()) for path in _set_files(folder)]
    except OSError:
        return ()
    return tuple((name, status.st_mtime_ns, status.st_size, status.st_ino) for name, status in found)
