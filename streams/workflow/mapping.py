"""Mappings: the rules that build one message from the input and the responses of earlier steps.

A mapping is compiled once for a plan. Compiling is the static check: a rule that compiles has resolved paths and types
that can meet, so what is left to fail at run time is a value that does not fit.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from schemas.errors import MappingFailed
from streams.workflow.descriptors import SchemaSet, missing_fields
from streams.workflow.json_values import shown
from streams.workflow.mapping_read import compile_reading
from streams.workflow.mapping_shapes import ElementType, One, ValueRefused
from streams.workflow.mapping_write import Place, compile_place
from streams.workflow.protojson_types import Kind
from streams.workflow.rule_text import Operator, Reference, Rule, RuleInvalid, parse_rule

Scope = Mapping[str, Message]
"""`input` and every finished step, each with its message."""

ScopeTypes = Mapping[str, Descriptor | None]
"""The types of a scope. None: that step has findings of its own, so paths into it are not checked."""

_Apply = Callable[[Any, Scope], None]


@dataclass(frozen=True, slots=True)
class CompiledRule:
    """One rule, ready to run: `apply` writes to the message being built. Raises ValueRefused."""

    text: str
    apply: _Apply


@dataclass(frozen=True, slots=True)
class CompiledMapping:
    """All rules of one message, in their order."""

    make: Callable[[], Message]
    rules: tuple[CompiledRule, ...]

    @classmethod
    def into(cls, descriptor: Descriptor, rules: Sequence[CompiledRule]) -> "CompiledMapping":
        """The mapping that builds messages of that type by these rules."""
        return cls(message_factory.GetMessageClass(descriptor), tuple(rules))

    def build(self, scope: Scope, *, step: str) -> Message:
        """A new message, built from *scope*.

        Raises:
            MappingFailed: a rule could not be applied, or required fields were left out; it names *step* and the rule.
        """
        message = self.make()
        self.apply(message, scope, step=step)
        if missing := missing_fields(message):
            raise MappingFailed(f"the rules leave out required fields: {', '.join(missing)}", step=step)
        return message

    def apply(self, message: Message, scope: Scope, *, step: str) -> None:
        """Write to *message*. Raises MappingFailed, which names *step* and the rule."""
        for rule in self.rules:
            try:
                rule.apply(message, scope)
            except ValueRefused as error:
                raise MappingFailed(f"rule {rule.text!r}: {error}", step=step) from None


def compile_rule(text: str, target: Descriptor, scope: ScopeTypes, schemas: SchemaSet) -> CompiledRule:
    """Compile one rule that writes to messages of type *target*.

    Raises:
        RuleInvalid: the rule is no rule, or can never be applied.
    """
    rule = parse_rule(text)
    place = compile_place(target, rule.target, schemas)
    if isinstance(rule.source, Reference):
        return CompiledRule(rule.text, _reference_apply(rule, rule.source, place, scope, schemas))
    value = rule.source.value if rule.source is not None else None
    if value is None:
        return CompiledRule(rule.text, lambda message, _: place.clear(message))
    return CompiledRule(rule.text, _literal_apply(rule, value, place, target))


_LITERAL_KINDS: Final[dict[type, Kind]] = {bool: Kind.BOOL, int: Kind.INT64, float: Kind.DOUBLE, str: Kind.STRING}


def _literal_apply(rule: Rule, value: bool | int | float | str, place: Place, target: Descriptor) -> _Apply:
    shape = One(ElementType(_LITERAL_KINDS[type(value)]))
    store = place.store(shape, append=rule.operator is Operator.APPEND)
    try:
        store(message_factory.GetMessageClass(target)(), value)  # a literal that fits once fits always
    except ValueRefused as error:
        raise RuleInvalid(str(error)) from None
    return lambda message, _: store(message, value)


def _reference_apply(rule: Rule, source: Reference, place: Place, scope: ScopeTypes, schemas: SchemaSet) -> _Apply:
    if source.scope not in scope:
        raise RuleInvalid(f"unknown source {shown(source.scope)}: it is neither input nor an earlier step")
    descriptor = scope[source.scope]
    if descriptor is None:
        return _never
    reading = compile_reading(descriptor, source.path, schemas)
    store = place.store(reading.shape, append=rule.operator is Operator.APPEND)
    name, read = source.scope, reading.read

    def apply(message: Any, values: Scope) -> None:
        value = read(values[name])
        if value is not None:
            store(message, value)

    return apply


def _never(message: Any, scope: Scope) -> None:
    raise AssertionError("a plan with findings is never run")
