"""What can be asked of an evaluator, by name, and the schemas that it has loaded.

An operation is given a loaded schema, the request's header and its byte strings, and answers in the same form. It says
no by `Refused`. A new family of operations gets a module of its own and a place in `all_operations`.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from google.protobuf import message_factory
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message

from streams.evaluator.frames import Header

SCHEMAS_KEPT: Final = 64
SCHEMA_BYTES_KEPT: Final = 16 << 20

_Part = TypeVar("_Part")


class Refused(Exception):
    """An operation says no: an expression does not compile, say, or has no value. The text says why.

    `worn` means that the process should not be used any longer.
    """

    def __init__(self, reason: str, *, worn: bool = False) -> None:
        super().__init__(reason)
        self.worn = worn


class SchemaUnknown(Exception):
    """The schema is not loaded, or not any more: send it."""


class LoadedSchema:
    """One schema in a descriptor pool of its own, and what operations make of it. Dropped whole."""

    def __init__(self, descriptor_set: bytes) -> None:
        self.size = len(descriptor_set)
        self.pool = DescriptorPool()
        files = FileDescriptorSet.FromString(descriptor_set).file
        for file in files:
            self.pool.AddSerializedFile(file.SerializeToString(deterministic=True))
        self.file_names = [file.name for file in files]
        self._parts: dict[Callable[[LoadedSchema], Any], Any] = {}

    def part(self, make: Callable[["LoadedSchema"], _Part]) -> _Part:
        """What *make* makes of this schema, made once."""
        if make not in self._parts:
            self._parts[make] = make(self)
        made: _Part = self._parts[make]
        return made

    def new(self, full_name: str) -> Message:
        """An empty message of that type."""
        return message_factory.GetMessageClass(self.pool.FindMessageTypeByName(full_name))()

    def read(self, full_name: str, data: bytes) -> Message:
        """A message from its bytes. Raises Refused when they are none, or nested more than 100 levels deep."""
        message = self.new(full_name)
        try:
            message.ParseFromString(data)
        except DecodeError as error:
            raise Refused(f"a {full_name} cannot be read by the evaluator: {error}") from None
        return message


class LoadedSchemas:
    """The newest schemas by their digest, bounded by number and by bytes."""

    def __init__(self, most: int = SCHEMAS_KEPT, most_bytes: int = SCHEMA_BYTES_KEPT) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._held: OrderedDict[str, LoadedSchema] = OrderedDict()

    def get(self, digest: str) -> LoadedSchema:
        """The schema of that digest. Raises SchemaUnknown."""
        if digest not in self._held:
            raise SchemaUnknown(digest)
        self._held.move_to_end(digest)
        return self._held[digest]

    def has(self, digest: str) -> bool:
        return digest in self._held

    def load(self, digest: str, descriptor_set: bytes) -> None:
        """Keep a schema; the oldest make room."""
        self._held[digest] = LoadedSchema(descriptor_set)
        while len(self._held) > 1 and (
            len(self._held) > self._most or sum(held.size for held in self._held.values()) > self._most_bytes
        ):
            self._held.popitem(last=False)


Operation = Callable[[LoadedSchema, Header, Sequence[bytes]], tuple[Header, Sequence[bytes]]]


def perform(
    operations: Mapping[str, Operation], schemas: LoadedSchemas, request: Header, blobs: Sequence[bytes]
) -> tuple[Header, Sequence[bytes]]:
    """Do what *request* asks: `operation` names it, `schema` the schema by its digest.

    A schema that comes along as the last byte string (`loads`) is kept first.

    Raises:
        Refused: the operation says no, or went wrong in a way that nobody expected.
        SchemaUnknown: repeat the request with the schema.
    """
    try:
        if request.get("loads"):
            *blobs, descriptor_set = blobs
            schemas.load(request["schema"], descriptor_set)
        return operations[request["operation"]](schemas.get(request["schema"]), request, blobs)
    except (Refused, SchemaUnknown):
        raise
    except MemoryError:
        raise Refused("it needs more memory than it is given", worn=True) from None
    except Exception as error:  # the edge of other people's libraries: they fail this one request
        raise Refused(f"unexpected {type(error).__name__}: {error}") from error
