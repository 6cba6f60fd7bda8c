"""Which types of a schema declare rules, and which of them a message can hold."""

from collections.abc import Iterator
from functools import cached_property
from typing import Any

from google.protobuf.descriptor import Descriptor
from google.protobuf.unknown_fields import UnknownFieldSet

from streams.workflow.descriptor_files import parsed_files
from streams.workflow.descriptors import SchemaSet
from streams.workflow.validation_file import RULES_NUMBER


class RuledTypes:
    """The types with rules of one schema. Nothing is read before the first question."""

    def __init__(self, schemas: SchemaSet) -> None:
        self._schemas = schemas

    def below(self, message: Descriptor) -> tuple[str, ...]:
        """The full names of the types with rules among *message* and all that its fields can hold, sorted.

        Empty: no message of this type can break a rule. What an `Any` holds does not count: it is not looked into.
        """
        if not self._ruled:
            return ()
        seen, waiting = {message.full_name}, [message]
        while waiting:
            for field in waiting.pop().fields:
                inner = field.message_type
                if inner is not None and inner.full_name not in seen:
                    seen.add(inner.full_name)
                    waiting.append(inner)
        return tuple(sorted(seen & self._ruled))

    @cached_property
    def _ruled(self) -> frozenset[str]:
        return frozenset(
            full_name
            for file in parsed_files(self._schemas.to_bytes())
            for full_name, message in _messages(file.package, file.message_type)
            if any(map(_has_rules, (message, *message.field, *message.oneof_decl)))
        )


def _messages(scope: str, messages: Any) -> Iterator[tuple[str, Any]]:
    waiting = [(f"{scope}." if scope else "", message) for message in messages]
    while waiting:
        prefix, message = waiting.pop()
        full_name = f"{prefix}{message.name}"
        yield full_name, message
        waiting.extend((f"{full_name}.", nested) for nested in message.nested_type)


def _has_rules(element: Any) -> bool:
    if not element.HasField("options"):
        return False
    options: Any = UnknownFieldSet(element.options)
    return any(option.field_number == RULES_NUMBER for option in options)
