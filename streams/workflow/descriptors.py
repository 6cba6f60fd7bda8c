"""A workflow's schema: its own types and services, in a descriptor pool that nothing else in the process sees."""

import base64
import binascii
import difflib
import itertools
import re
from collections.abc import Iterable, Mapping
from typing import Final, Protocol, cast

from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, MethodDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message

from schemas.errors import InputInvalid
from streams.workflow.descriptor_files import WELL_KNOWN_BYTES, ordered_files, serialized
from streams.workflow.json_values import check_json, shown
from streams.workflow.limits import MAX_DESCRIPTOR_SET_BYTES
from streams.workflow.protojson_read import MessageReader
from streams.workflow.protojson_types import JsonRefused
from streams.workflow.protojson_write import MessageWriter
from streams.workflow.validation_file import VALIDATION_FILE
from streams.workflow.wire_faults import fault_in_wire

_FULL_NAME: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_NAMES_COMPARED: Final = 200  # when an unknown name is compared with the known ones for a suggestion
_METHOD: Final = re.compile(rf"(?P<service>{_FULL_NAME.pattern})/(?P<method>[A-Za-z_]\w*)", re.ASCII)


class SchemaSet:
    """The types and services of one definition. Messages made here are its own; no two sets share a class.

    Types are found by full name, nested ones included; the well-known types are always there.
    """

    def __init__(self, files: Mapping[str, object], root: str | None) -> None:
        """Use `from_bytes`, which checks the files first."""
        self._data = serialized(files.values())
        self._pool = DescriptorPool()
        self._root = root
        self._file_names = [name for name in files if name not in WELL_KNOWN_BYTES and name != VALIDATION_FILE]
        for name in sorted(WELL_KNOWN_BYTES.keys() - files.keys()):
            self._link(name, WELL_KNOWN_BYTES[name])
        for name, file in files.items():
            self._link(name, cast("Message", file).SerializeToString(deterministic=True))
        self._reader = MessageReader(self._pool)
        self._lenient_reader = MessageReader(self._pool, lenient=True)
        self._writer = MessageWriter(self._pool)

    @classmethod
    def from_bytes(cls, descriptor_set: bytes, *, root: str | None = None) -> "SchemaSet":
        """The schema of a serialized FileDescriptorSet, its files in any order.

        *root* names the file whose single message is the default one (see `default_message`).

        Raises:
            InputInvalid: the bytes are no such set, or its files do not link; the message names the file.
        """
        files = ordered_files(descriptor_set)
        if root is not None and root not in files:
            raise InputInvalid(f"the root file {shown(root)} is not in the descriptor set")
        schemas = cls(files, root)
        if len(schemas._data) > MAX_DESCRIPTOR_SET_BYTES:
            raise InputInvalid(f"the descriptor set has over {MAX_DESCRIPTOR_SET_BYTES:,} bytes with its imports")
        return schemas

    def to_bytes(self) -> bytes:
        """The pinned form: every file once, imports first, byte for byte the same for equal sets."""
        return self._data

    def _link(self, name: str, file: bytes) -> None:
        try:
            self._pool.AddSerializedFile(file)
        except (TypeError, ValueError) as error:
            reason = str(error).removeprefix("Couldn't build proto file into descriptor pool: ")
            raise InputInvalid(f"the file {shown(name)} cannot be linked: {reason}") from None

    def message(self, full_name: str) -> Descriptor:
        """The message type of that full name (no leading dot).

        Raises:
            InputInvalid: there is none; the message says what stands there instead, or which names are near.
        """
        descriptor = self._find(full_name)
        if descriptor is None or descriptor.GetOptions().map_entry:
            raise InputInvalid(f"unknown message type {shown(full_name)}{self._hint(full_name)}")
        return descriptor

    def _find(self, full_name: str) -> Descriptor | None:
        if not _FULL_NAME.fullmatch(full_name):
            return None
        try:
            return self._pool.FindMessageTypeByName(full_name)
        except KeyError:
            return None

    def _hint(self, full_name: str) -> str:
        if full_name.startswith("."):
            return " (names are written without a leading dot)"
        if not _FULL_NAME.fullmatch(full_name):
            return ""
        if self._is_service(full_name):
            return " (that is a service)"
        known = list(itertools.islice(self._message_names(), _NAMES_COMPARED))
        simple = full_name.rpartition(".")[2]
        near = [name for name in known if name.rpartition(".")[2] == simple]
        near = near or difflib.get_close_matches(full_name, known, n=3)
        return f" (did you mean {' or '.join(near[:3])}?)" if near else ""

    def _is_service(self, full_name: str) -> bool:
        try:
            self._pool.FindServiceByName(full_name)
        except KeyError:
            return False
        return True

    def _message_names(self) -> Iterable[str]:
        for file_name in self._file_names:
            waiting = list(self._pool.FindFileByName(file_name).message_types_by_name.values())
            while waiting:
                descriptor = waiting.pop()
                yield descriptor.full_name
                waiting.extend(nested for nested in descriptor.nested_types if not nested.GetOptions().map_entry)

    def method(self, full_name: str) -> MethodDescriptor:
        """The method written as `package.Service/Method`, streaming or not.

        Raises:
            InputInvalid: not of that form, or an unknown service or method: a text of its own for each.
        """
        match = _METHOD.fullmatch(full_name)
        if match is None:
            raise InputInvalid(f"{shown(full_name)} is not of the form package.Service/Method")
        service_name, method_name = match["service"], match["method"]
        try:
            service = self._pool.FindServiceByName(service_name)
        except KeyError:
            raise InputInvalid(f"unknown service {shown(service_name)}") from None
        method = service.methods_by_name.get(method_name)
        if method is None:
            names = ", ".join(sorted(service.methods_by_name)) or "none"
            raise InputInvalid(f"unknown method {shown(method_name)} of {service_name} (it has: {names})")
        return method

    def default_message(self) -> str | None:
        """The full name of the one message that needs no naming, or None.

        With a root file it is that file's single top-level message; without one, the single top-level message of all
        files outside google/protobuf.
        """
        if self._root is not None:
            names = [self._root]
        else:
            names = [name for name in self._file_names if not name.startswith("google/protobuf/")]
        found = [
            message.full_name
            for name in names
            for message in self._pool.FindFileByName(name).message_types_by_name.values()
        ]
        return found[0] if len(found) == 1 else None

    def new(self, full_name: str) -> Message:
        """An empty message of that type. Raises InputInvalid like `message`."""
        return message_factory.GetMessageClass(self.message(full_name))()

    def from_wire(self, full_name: str, data: bytes) -> Message:
        """A message from its bytes; fields it does not know are kept in the message and dropped in JSON.

        Raises:
            InputInvalid: the bytes are no such message, naming the part that is not; or required fields are left out.
        """
        descriptor = self.message(full_name)
        try:
            message = message_factory.GetMessageClass(descriptor).FromString(data)
        except DecodeError as error:
            raise InputInvalid(f"the bytes are no {full_name}: {fault_in_wire(descriptor, data) or error}") from None
        return _complete(message)

    def find_content_type(self, type_url: str) -> Descriptor | None:
        """The message type that an `Any` with this URL holds, or None when this schema does not know it."""
        return self._find(type_url.rpartition("/")[2])

    def parse_json(self, full_name: str, value: object, *, drop_unknown: bool = False) -> Message:
        """A message from a plain JSON value; names in camelCase or snake_case.

        Raises:
            InputInvalid: an unknown field (unless *drop_unknown*), a value that does not fit its field without loss, or
                required fields left out; with the pointer of the part at fault.
        """
        reader = self._lenient_reader if drop_unknown else self._reader
        try:
            message = reader.read(self.message(full_name), value)
        except JsonRefused as refused:
            raise _invalid(refused, full_name) from None
        return _complete(message)

    def to_json(self, message: Message) -> object:
        """The message as a plain JSON value: lowerCamelCase, defaults printed, 64-bit integers as text.

        Raises:
            InputInvalid: part of it has no JSON form that could be kept and read back; with the pointer of that part.
        """
        try:
            return self._writer.write(message)
        except JsonRefused as refused:
            raise _invalid(refused, message.DESCRIPTOR.full_name) from None


def missing_fields(message: Message) -> list[str]:
    """The paths of required fields that are not set; only proto2 has such fields."""
    if message.IsInitialized():
        return []
    missing: list[str] = message.FindInitializationErrors()  # type: ignore[attr-defined]
    return missing


def _complete(message: Message) -> Message:
    if missing := missing_fields(message):
        raise InputInvalid(f"{message.DESCRIPTOR.full_name} needs {', '.join(missing)}")
    return message


def _invalid(refused: JsonRefused, full_name: str) -> InputInvalid:
    return InputInvalid(f"{refused.pointer or full_name} {refused.reason}", pointer=refused.pointer)


class Protoc(Protocol):
    """Compiles .proto sources. The engine is given one; it never starts a compiler by itself."""

    async def __call__(self, sources: Mapping[str, str], root: str | None) -> bytes:
        """A serialized FileDescriptorSet of the sources and all their imports.

        With *root*, a key of *sources*, only that file and what it imports.

        Raises:
            InputInvalid: the sources do not compile (code `compile-failed`, with the compiler's text), or a path is
                not one.
        """


class Types(Protocol):
    """Types that are registered with a process. The engine is given them; it never looks for any by itself."""

    def descriptor_set(self, full_name: str) -> bytes:
        """A serialized FileDescriptorSet of the file that declares the message or service, and of all it imports.

        Raises:
            InputInvalid: nothing of that name is registered (code `unknown-type`, with names that are near), or two
                things are.
        """


class NoTypes:
    """`Types` of a process that has none."""

    def descriptor_set(self, full_name: str) -> bytes:
        """Raises InputInvalid, always."""
        text = f"unknown type {shown(full_name)}: no types are registered here (TYPES_DIR, TYPES_MODULES)"
        raise InputInvalid(f"{text}; send sources or descriptorSetBase64 instead", code="unknown-type")


NO_TYPES: Final = NoTypes()

_FORMS: Final = ("type", "sources", "descriptorSetBase64")


async def resolve_schema(schema: object, *, protoc: Protoc, types: Types = NO_TYPES) -> SchemaSet:
    """The schema that a definition's `schema` object stands for: exactly one of its forms.

    Raises:
        InputInvalid: at pointer /schema or below; code `compile-failed` when the sources do not compile, `unknown-type`
            when no such type is registered.
    """
    if not isinstance(schema, dict):
        raise InputInvalid("schema must be an object", pointer="/schema")
    for key in schema:
        if key not in (*_FORMS, "root"):
            raise InputInvalid(f"{shown(key)} is no key of schema", pointer="/schema")
    forms = [form for form in _FORMS if form in schema]
    if len(forms) != 1:
        raise InputInvalid(f"schema must hold exactly one of {', '.join(_FORMS)}", pointer="/schema")
    if "root" in schema and forms != ["sources"]:
        raise InputInvalid("root goes with sources only", pointer="/schema/root")
    if forms == ["type"]:
        return _from_type(schema["type"], types)
    if forms == ["descriptorSetBase64"]:
        return _from_base64(schema["descriptorSetBase64"])
    return await _from_sources(schema["sources"], schema.get("root"), protoc)


def _from_type(full_name: object, types: Types) -> SchemaSet:
    pointer = "/schema/type"
    if not isinstance(full_name, str) or not _FULL_NAME.fullmatch(full_name):
        raise InputInvalid(f"type must be the full name of a registered type, not {shown(full_name)}", pointer=pointer)
    try:
        return SchemaSet.from_bytes(types.descriptor_set(full_name))
    except InputInvalid as error:
        raise InputInvalid(str(error), pointer=pointer, code=error.code) from None


def _from_base64(text: object) -> SchemaSet:
    pointer = "/schema/descriptorSetBase64"
    if not isinstance(text, str):
        raise InputInvalid("descriptorSetBase64 must be text", pointer=pointer)
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise InputInvalid(
            "descriptorSetBase64 is not base64 (standard alphabet, no line breaks)", pointer=pointer
        ) from None
    try:
        return SchemaSet.from_bytes(data)
    except InputInvalid as error:
        raise InputInvalid(str(error), pointer=pointer, code=error.code) from None


async def _from_sources(sources: object, root: object, protoc: Protoc) -> SchemaSet:
    pointer = "/schema/sources"
    if not isinstance(sources, dict) or not sources:
        raise InputInvalid("sources must be an object of .proto texts by path, with at least one", pointer=pointer)
    for path, text in sources.items():
        if not isinstance(path, str) or not isinstance(text, str):
            raise InputInvalid(f"the source {shown(path)} must be text by path", pointer=pointer)
    if root is not None and (not isinstance(root, str) or root not in sources):
        raise InputInvalid(f"root is {shown(root)}, which is not among the sources", pointer="/schema/root")
    check_json({"schema": {"sources": sources}})
    data = await protoc(cast("Mapping[str, str]", sources), root)
    try:
        return SchemaSet.from_bytes(data, root=root)
    except InputInvalid as error:
        raise InputInvalid(str(error), pointer=pointer, code=error.code) from None


def root_of(schema: object) -> str | None:
    """The root file that a `schema` object names, or None."""
    root = schema.get("root") if isinstance(schema, dict) else None
    return root if isinstance(root, str) else None


def field_hint(name: str, descriptor: Descriptor) -> str:
    """A suggestion for a misspelt field, or nothing: rules take the name as the .proto file has it."""
    fields = descriptor.fields[:_NAMES_COMPARED]
    for field in fields:
        if field.json_name == name:
            return f" (rules take {field.name})"
    near = difflib.get_close_matches(name, [field.name for field in fields], n=1)
    return f" (did you mean {near[0]}?)" if near else ""
