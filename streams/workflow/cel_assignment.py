"""Assigning what an expression gives to a place: whether its type can meet the place's, and the write itself.

A list clears the place and fills it anew, null clears it, a map becomes a map, a Struct or a message by field names.
"""

import re
from typing import Any, Final

from google.protobuf.descriptor import Descriptor

from streams.workflow.cel_values import CelValues, type_named
from streams.workflow.coercion import converter
from streams.workflow.descriptors import SchemaSet
from streams.workflow.evaluation import DYN, Plain
from streams.workflow.mapping_moves import describe
from streams.workflow.mapping_shapes import ElementType, Many, MapOf, One, ValueRefused
from streams.workflow.mapping_write import compile_place
from streams.workflow.protojson_types import LIST_VALUE, NOT_AN_OBJECT, VALUE, WRAPPERS, Kind
from streams.workflow.rule_text import RuleInvalid

_LIST: Final = re.compile(r"LIST<(?P<item>.*)>")
_MAP: Final = re.compile(r"MAP<(?P<key>[^,]*), (?P<value>.*)>")

_ANYTHING: Final = frozenset({DYN, "NULL"})


class Assignment:
    """Writes values of expressions to one path of messages of one type."""

    def __init__(self, target: Descriptor, path: tuple[str, ...], schemas: SchemaSet) -> None:
        """Raises RuleInvalid when the path does not resolve, or leads where nothing can be written."""
        self._place = compile_place(target, path, schemas)
        self._schemas = schemas
        self._values = CelValues(schemas)

    def check(self, type_name: str) -> None:
        """Raise RuleInvalid when no value of that static type can be written here."""
        if type_name in _ANYTHING:
            return
        held = self._place.held
        if match := _LIST.fullmatch(type_name):
            if isinstance(held, Many):
                self._check_element(match["item"], held.element)
            elif not (isinstance(held, One) and held.element.name in (VALUE, LIST_VALUE)):
                raise RuleInvalid(f"a list cannot become a {describe(held)}")
        elif isinstance(held, MapOf):
            if not (match := _MAP.fullmatch(type_name)):
                raise RuleInvalid(f"a {type_name} cannot become a {describe(held)}")
            self._check_element(match["key"], held.key)
            self._check_element(match["value"], held.value)
        elif isinstance(held, Many):
            raise RuleInvalid(f"a single {type_name} cannot replace a {describe(held)}: give a list")
        else:
            self._check_element(type_name, held.element)

    def _check_element(self, type_name: str, target: ElementType) -> None:
        if type_name in _ANYTHING:
            return
        if _LIST.fullmatch(type_name):
            fits = target.name in (VALUE, LIST_VALUE)
        elif _MAP.fullmatch(type_name):
            fits = target.name == VALUE or (target.kind is Kind.MESSAGE and target.name not in NOT_AN_OBJECT)
        else:
            source = type_named(type_name, self._schemas)
            converter(source, _unwrapped(target), self._schemas)
            fits = True
        if not fits:
            raise RuleInvalid(f"a {type_name} cannot become a {target}")

    def write(self, message: Any, value: Plain) -> None:
        """Assign *value*. Raises ValueRefused when it does not fit."""
        held = self._place.held
        if value is None:
            self._place.clear(message)
        elif isinstance(held, Many):
            if not isinstance(value, list):
                raise ValueRefused(f"a single value cannot replace a {describe(held)}: give a list")
            self._place.write(message, [self._values.element(item, held.element) for item in value])
        elif isinstance(held, MapOf):
            entries = value.get("map") if isinstance(value, dict) else None
            if not isinstance(entries, list):
                raise ValueRefused(f"it is no map and cannot become a {describe(held)}")
            self._place.write(message, dict(self._entry(entry, held) for entry in entries))
        elif value == [] and held.element.name not in (VALUE, LIST_VALUE):
            self._place.clear(message)
        else:
            self._place.write(message, self._values.element(value, held.element))

    def _entry(self, entry: Any, held: MapOf) -> tuple[Any, Any]:
        key, value = entry
        return self._values.element(key, held.key), self._values.element(value, held.value)


def _unwrapped(target: ElementType) -> ElementType:
    if target.name not in WRAPPERS or target.message is None:
        return target
    return ElementType.of_field(target.message.fields_by_name["value"])
