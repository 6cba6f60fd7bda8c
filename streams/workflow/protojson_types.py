"""What reading and writing messages as JSON share: the kinds of fields and the error with its path."""

from enum import Enum
from typing import Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from streams.workflow.json_values import pointer_to
from streams.workflow.limits import MAX_DEPTH

WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
TIMESTAMP: Final = "google.protobuf.Timestamp"
DURATION: Final = "google.protobuf.Duration"
FIELD_MASK: Final = "google.protobuf.FieldMask"
STRUCT: Final = "google.protobuf.Struct"
VALUE: Final = "google.protobuf.Value"
LIST_VALUE: Final = "google.protobuf.ListValue"
ANY: Final = "google.protobuf.Any"
NULL_VALUE: Final = "google.protobuf.NullValue"

AS_TEXT: Final = frozenset({TIMESTAMP, DURATION, FIELD_MASK})
"""Messages whose JSON form is text."""

NOT_AN_OBJECT: Final = AS_TEXT | WRAPPERS | {VALUE, LIST_VALUE}
"""Messages whose JSON form need not be an object with the message's fields."""


class Kind(Enum):
    """The kind of one value: a field's, or an element's of a list or map."""

    INT32 = "int32"
    INT64 = "int64"
    UINT32 = "uint32"
    UINT64 = "uint64"
    DOUBLE = "double"
    FLOAT = "float"
    BOOL = "bool"
    STRING = "string"
    BYTES = "bytes"
    ENUM = "enum"
    MESSAGE = "message"


INTEGER_RANGES: Final = {
    Kind.INT32: range(-(2**31), 2**31),
    Kind.INT64: range(-(2**63), 2**63),
    Kind.UINT32: range(2**32),
    Kind.UINT64: range(2**64),
}

_KINDS: Final = {
    FieldDescriptor.CPPTYPE_INT32: Kind.INT32,
    FieldDescriptor.CPPTYPE_INT64: Kind.INT64,
    FieldDescriptor.CPPTYPE_UINT32: Kind.UINT32,
    FieldDescriptor.CPPTYPE_UINT64: Kind.UINT64,
    FieldDescriptor.CPPTYPE_DOUBLE: Kind.DOUBLE,
    FieldDescriptor.CPPTYPE_FLOAT: Kind.FLOAT,
    FieldDescriptor.CPPTYPE_BOOL: Kind.BOOL,
    FieldDescriptor.CPPTYPE_STRING: Kind.STRING,
    FieldDescriptor.CPPTYPE_ENUM: Kind.ENUM,
    FieldDescriptor.CPPTYPE_MESSAGE: Kind.MESSAGE,
}


def kind_of(field: FieldDescriptor) -> Kind:
    """The kind of a field, or of its elements when it is repeated."""
    return Kind.BYTES if field.type == FieldDescriptor.TYPE_BYTES else _KINDS[field.cpp_type]


def is_map(field: FieldDescriptor) -> bool:
    return field.is_repeated and field.message_type is not None and field.message_type.GetOptions().map_entry


def map_types(field: FieldDescriptor) -> tuple[FieldDescriptor, FieldDescriptor]:
    """The key and value fields of a map field's entries."""
    entry = field.message_type
    assert entry is not None, "asked of map fields only"
    return entry.fields_by_name["key"], entry.fields_by_name["value"]


def message_type_of(field: FieldDescriptor) -> Descriptor:
    assert field.message_type is not None, "asked of message fields only"
    return field.message_type


class JsonRefused(Exception):
    """A value has no place in the message, or the message none in JSON. `inside` adds the path on the way out."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self._path: list[str | int] = []

    def inside(self, part: str | int) -> "JsonRefused":
        self._path.append(part)
        return self

    @property
    def pointer(self) -> str:
        return pointer_to(reversed(self._path))


def check_depth(depth: int) -> None:
    """Refuse the object or array at nesting level *depth* (the outermost is 1) when it is too deep.

    Callers pass over empty lists and maps, which writing adds to what was read.
    """
    if depth > MAX_DEPTH:
        raise JsonRefused(f"is nested deeper than {MAX_DEPTH} levels")
