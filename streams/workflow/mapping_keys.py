"""Writing into a Struct: a rule's path that leads to a key, perhaps below other keys."""

from typing import Any

from streams.workflow.descriptors import SchemaSet
from streams.workflow.json_values import shown
from streams.workflow.mapping_moves import Store, StoresByShape, item_converter, unwrapper, unwrapping_store
from streams.workflow.mapping_shapes import DYNAMIC, Dynamic, ElementType, Many, MapOf, One, Shape, ValueRefused
from streams.workflow.protojson_types import VALUE


def parent_of(message: Any, parents: tuple[str, ...]) -> Any:
    """The message that holds the place; what is missing on the way comes into being with the first write."""
    for name in parents:
        message = getattr(message, name)
    return message


def present_parent_of(message: Any, parents: tuple[str, ...]) -> Any:
    """The message that holds the place, or None when one on the way is unset."""
    for name in parents:
        if not message.HasField(name):
            return None
        message = getattr(message, name)
    return message


class KeyPlace:
    """A key inside a Struct, perhaps below other keys. It takes any value that JSON has."""

    def __init__(self, parents: tuple[str, ...], keys: tuple[str, ...], schemas: SchemaSet) -> None:
        self._parents = parents
        self._midway = keys[:-1]
        self._key = keys[-1]
        self._schemas = schemas
        self._value_type = ElementType.of_message(schemas.message(VALUE))
        self.held: Shape = One(self._value_type)

    def clear(self, message: Any) -> None:
        struct = present_parent_of(message, self._parents)
        for key in self._midway:
            if struct is None or key not in struct.fields or not struct.fields[key].HasField("struct_value"):
                return
            struct = struct.fields[key].struct_value
        if struct is not None and self._key in struct.fields:
            del struct.fields[self._key]

    def write(self, message: Any, value: Any) -> None:
        self._place(message).CopyFrom(value)

    def store(self, shape: Shape | Dynamic, *, append: bool) -> Store:
        if isinstance(shape, Dynamic):
            stores = StoresByShape(lambda found: self.store(found, append=append))
            return lambda message, found: stores.of(found.shape)(message, found.value)
        if isinstance(shape, MapOf):
            return self._map_store(shape, append)
        unwrap = unwrapper(shape.element, self._value_type, self._schemas) if isinstance(shape, One) else None
        if unwrap is not None:
            return unwrapping_store(unwrap, self.store(DYNAMIC, append=append))
        convert = item_converter(shape.element, self._value_type, self._schemas)
        many = isinstance(shape, Many)

        def store(message: Any, value: Any) -> None:
            values = [convert(item) for item in value] if many else [convert(value)]
            place = self._place(message)
            if append:
                _append(place, values)
            elif many:
                _put_list(place, values)
            else:
                place.CopyFrom(values[0])

        return store

    def _map_store(self, shape: MapOf, append: bool) -> Store:
        convert = item_converter(shape.value, self._value_type, self._schemas)

        def store(message: Any, entries: Any) -> None:
            members: Any = self._schemas.new(VALUE)
            members.struct_value.SetInParent()
            for key in entries:
                name = str(key).lower() if isinstance(key, bool) else str(key)
                members.struct_value.fields[name].CopyFrom(convert(entries[key]))
            if append:
                _append(self._place(message), [members])
            else:
                self._place(message).CopyFrom(members)

        return store

    def _place(self, message: Any) -> Any:
        """The Value at the key; Structs missing on the way are made."""
        struct = parent_of(message, self._parents)
        for key in self._midway:
            value = struct.fields[key]
            if value.WhichOneof("kind") not in (None, "null_value", "struct_value"):
                raise ValueRefused(f"the Struct's key {shown(key)} holds no object, so nothing can be put into it")
            value.struct_value.SetInParent()
            struct = value.struct_value
        return struct.fields[self._key]


def _append(place: Any, values: list[Any]) -> None:
    kind = place.WhichOneof("kind")
    if kind != "list_value":
        first = [] if kind in (None, "null_value") else [_copy(place)]
        _put_list(place, [*first, *values])
    else:
        place.list_value.values.extend(values)


def _put_list(place: Any, values: list[Any]) -> None:
    place.Clear()
    place.list_value.SetInParent()
    place.list_value.values.extend(values)


def _copy(value: Any) -> Any:
    copied = type(value)()
    copied.CopyFrom(value)
    return copied
