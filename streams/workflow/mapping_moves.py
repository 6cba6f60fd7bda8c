"""Moving values whose shape only the data tells: what a Struct, a Value, a ListValue or an Any holds."""

from collections.abc import Callable
from typing import Any

from streams.workflow.coercion import Convert, converter
from streams.workflow.descriptors import SchemaSet
from streams.workflow.mapping_read import found_in_any, found_in_list, found_in_value
from streams.workflow.mapping_shapes import ElementType, Found, Many, MapOf, One, Shape, ValueRefused
from streams.workflow.protojson_types import ANY, LIST_VALUE, VALUE
from streams.workflow.rule_text import RuleInvalid

Store = Callable[[Any, Any], None]
"""Moves a source value into a message. Raises ValueRefused."""

Unwrap = Callable[[Any], Found | None]
"""From a free-form message to what it holds; None when it holds null or nothing. Raises ValueRefused."""


class StoresByShape:
    """Stores for shapes that only the data tells, each made once. The schema bounds how many there can be."""

    def __init__(self, make: Callable[[Shape], Store]) -> None:
        self._make = make
        self._made: dict[Shape, Store] = {}

    def of(self, shape: Shape) -> Store:
        """The store for values of that shape. Raises ValueRefused when the target takes none of them."""
        store = self._made.get(shape)
        if store is None:
            try:
                store = self._made[shape] = self._make(shape)
            except RuleInvalid as error:
                raise ValueRefused(str(error)) from None
        return store


def unwrapper(source: ElementType, target: ElementType, schemas: SchemaSet) -> Unwrap | None:
    """How a free-form message gives up what it holds, or None when the target takes such a message as it is."""
    if source.name == target.name or target.name == ANY:
        return None
    if source.name == ANY:
        return lambda message: found_in_any(message, schemas)
    if source.name == VALUE:
        return found_in_value
    if source.name == LIST_VALUE and target.name != VALUE:
        return found_in_list
    return None


def unwrapping_store(unwrap: Unwrap, dynamic: Store) -> Store:
    def store(message: Any, value: Any) -> None:
        found = unwrap(value)
        if found is not None:
            dynamic(message, found)

    return store


def item_converter(source: ElementType, target: ElementType, schemas: SchemaSet) -> Convert:
    """A converter for one element of a list, which must have a value."""
    unwrap = unwrapper(source, target, schemas)
    if unwrap is None:
        return converter(source, target, schemas)
    unwrap_item = unwrap
    converters: dict[ElementType, Convert] = {}

    def convert(item: Any) -> Any:
        found = unwrap_item(item)
        if found is None:
            raise ValueRefused("an item of the list is null")
        if not isinstance(found.shape, One):
            raise ValueRefused(f"an item of the list is itself a {describe(found.shape)}")
        element = found.shape.element
        if element not in converters:
            try:
                converters[element] = converter(element, target, schemas)
            except RuleInvalid as error:
                raise ValueRefused(str(error)) from None
        return converters[element](found.value)

    return convert


def describe(shape: Shape) -> str:
    if isinstance(shape, MapOf):
        return f"map of {shape.key} to {shape.value}"
    return f"list of {shape.element}" if isinstance(shape, Many) else f"single {shape.element}"
