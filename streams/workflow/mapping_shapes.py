"""What a mapping rule moves: one value, a list or a map, of a known type or of one known only with the data."""

from dataclasses import dataclass, field
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

from streams.workflow.protojson_types import Kind, is_map, kind_of, map_types


class ValueRefused(Exception):
    """A value that a rule cannot move where it should go; the text says why. Fails the step that runs the rule."""


@dataclass(frozen=True, slots=True)
class ElementType:
    """The type of one value. Equal types have equal kinds and full names."""

    kind: Kind
    name: str = ""
    message: Descriptor | None = field(default=None, compare=False, repr=False)
    enum: EnumDescriptor | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of_field(cls, declared: FieldDescriptor) -> "ElementType":
        """The type of a field's value, or of its elements when it is repeated."""
        named = declared.message_type or declared.enum_type
        name = named.full_name if named is not None else ""
        return cls(kind_of(declared), name, declared.message_type, declared.enum_type)

    @classmethod
    def of_message(cls, descriptor: Descriptor) -> "ElementType":
        return cls(Kind.MESSAGE, descriptor.full_name, descriptor)

    def __str__(self) -> str:
        return self.name or self.kind.value


@dataclass(frozen=True, slots=True)
class One:
    element: ElementType


@dataclass(frozen=True, slots=True)
class Many:
    element: ElementType


@dataclass(frozen=True, slots=True)
class MapOf:
    key: ElementType
    value: ElementType


@dataclass(frozen=True, slots=True)
class Dynamic:
    """Behind a Struct or an Any: only the data tells. Reading such a path gives a `Found`."""


Shape = One | Many | MapOf
DYNAMIC: Final = Dynamic()


@dataclass(frozen=True, slots=True)
class Found:
    """A value together with its shape, which was not known before."""

    shape: Shape
    value: Any


def shape_of(declared: FieldDescriptor) -> Shape:
    """The shape of a field's value."""
    if is_map(declared):
        key, value = map_types(declared)
        return MapOf(ElementType.of_field(key), ElementType.of_field(value))
    element = ElementType.of_field(declared)
    return Many(element) if declared.is_repeated else One(element)
