"""The left side of a mapping rule: a path compiled into functions that write to it or clear it.

Two places can be written: a field of a message, and a key inside a Struct. Both answer the same question, `store`:
given the shape of the source, which function moves such a value there?
"""

from typing import Any, Protocol

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from streams.workflow.coercion import converter
from streams.workflow.descriptors import SchemaSet
from streams.workflow.mapping_keys import KeyPlace, parent_of, present_parent_of
from streams.workflow.mapping_moves import Store, StoresByShape, describe, item_converter, unwrapper, unwrapping_store
from streams.workflow.mapping_read import field_at, message_on_the_way
from streams.workflow.mapping_shapes import Dynamic, ElementType, Found, Many, MapOf, One, Shape, shape_of
from streams.workflow.protojson_types import ANY, STRUCT, Kind
from streams.workflow.rule_text import RuleInvalid


class Place(Protocol):
    """Where a rule writes. `held` is what stands there."""

    held: Shape

    def write(self, message: Any, value: Any) -> None:
        """Put a value that is of the held type already: one, a list of them, or a dict."""

    def store(self, shape: Shape | Dynamic, *, append: bool) -> Store:
        """The function that moves values of that shape here. Raises RuleInvalid when none of them fits."""

    def clear(self, message: Any) -> None:
        """Clear the place; parents that are not there stay away."""


def compile_place(descriptor: Descriptor, path: tuple[str, ...], schemas: SchemaSet) -> Place:
    """Compile the path to a place in messages of that type.

    Raises:
        RuleInvalid: the path does not resolve, or leads where nothing can be written.
    """
    parents: list[str] = []
    for index, name in enumerate(path):
        if descriptor.full_name == STRUCT:
            return KeyPlace(tuple(parents), path[index:], schemas)
        if descriptor.full_name == ANY:
            raise RuleInvalid(f"{'.'.join(path[:index]) or 'the message'} is an Any, which no rule writes into")
        field = field_at(descriptor, path, index)
        if index == len(path) - 1:
            return FieldPlace(tuple(parents), field, schemas)
        descriptor = message_on_the_way(field, path, index)
        parents.append(name)
    raise AssertionError("a path ends at its last name")


class FieldPlace:
    """A field of a message: one value, a list or a map."""

    def __init__(self, parents: tuple[str, ...], field: FieldDescriptor, schemas: SchemaSet) -> None:
        self._parents = parents
        self._name = field.name
        self.held = shape_of(field)
        self._schemas = schemas

    def clear(self, message: Any) -> None:
        parent = present_parent_of(message, self._parents)
        if parent is not None:
            parent.ClearField(self._name)

    def write(self, message: Any, value: Any) -> None:
        if isinstance(self.held, One):
            _put(parent_of(message, self._parents), self._name, value)
            return
        self.clear(message)
        if not value:
            return
        held = getattr(parent_of(message, self._parents), self._name)
        if isinstance(self.held, Many):
            held.extend(value)
        else:
            for key, item in value.items():
                if isinstance(item, Message):
                    held[key].CopyFrom(item)
                else:
                    held[key] = item

    def store(self, shape: Shape | Dynamic, *, append: bool) -> Store:
        if append and isinstance(self.held, One):
            raise RuleInvalid(f"+= needs a repeated target, and {self._name} holds one value")
        if isinstance(shape, Dynamic):
            return self._dynamic_store(append)
        if isinstance(self.held, MapOf):
            return self._map_store(shape, self.held, append)
        if isinstance(self.held, Many):
            return self._list_store(shape, self.held.element, append)
        return self._one_store(shape, self.held.element)

    def _dynamic_store(self, append: bool) -> Store:
        stores = StoresByShape(lambda shape: self.store(shape, append=append))

        def store(message: Any, found: Found) -> None:
            if isinstance(self.held, One) and isinstance(found.shape, Many) and not found.value:
                self.clear(message)
            else:
                stores.of(found.shape)(message, found.value)

        return store

    def _one_store(self, shape: Shape, element: ElementType) -> Store:
        if not isinstance(shape, One):
            raise RuleInvalid(f"a {describe(shape)} cannot become the one value of {self._name}")
        unwrap = unwrapper(shape.element, element, self._schemas)
        if unwrap is not None:
            return unwrapping_store(unwrap, self._dynamic_store(append=False))
        convert, parents, name = converter(shape.element, element, self._schemas), self._parents, self._name
        if element.kind is not Kind.MESSAGE:
            return lambda message, value: setattr(parent_of(message, parents), name, convert(value))
        return lambda message, value: _put(parent_of(message, parents), name, convert(value))

    def _list_store(self, shape: Shape, element: ElementType, append: bool) -> Store:
        if isinstance(shape, MapOf):
            raise RuleInvalid(f"a map cannot become the list {self._name}")
        if isinstance(shape, One):
            unwrap = unwrapper(shape.element, element, self._schemas)
            if unwrap is not None:
                return unwrapping_store(unwrap, self._dynamic_store(append))
            if not append:
                raise RuleInvalid(f"one value cannot replace the list {self._name}: use += to append it")
        convert = item_converter(shape.element, element, self._schemas)
        many = isinstance(shape, Many)

        def store(message: Any, value: Any) -> None:
            items = [convert(item) for item in value] if many else [convert(value)]
            if not append:
                self.clear(message)
            if items:
                getattr(parent_of(message, self._parents), self._name).extend(items)

        return store

    def _map_store(self, shape: Shape, target: MapOf, append: bool) -> Store:
        if shape != target:
            raise RuleInvalid(
                f"the map {self._name} ({describe(target)}) takes only a map of the same key and value types, "
                f"not a {describe(shape)}"
            )

        def store(message: Any, entries: Any) -> None:
            if not append:
                self.clear(message)
            if entries:
                getattr(parent_of(message, self._parents), self._name).MergeFrom(entries)

        return store


def _put(parent: Any, name: str, value: Any) -> None:
    if not isinstance(value, Message):
        setattr(parent, name, value)
        return
    held = getattr(parent, name)
    held.CopyFrom(value)
    held.SetInParent()
