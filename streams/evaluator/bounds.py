"""Bounds on what an expression may say, read from its checked form, and those that are kept at run time.

Macros are the only loops there are. `map` and `filter` take time with the square of what they build, and functions
that build text from text can double it with every call: so all of these are counted.

The keys of a map have another order in every process. An expression must give the same wherever it is evaluated, so
lists are built from lists only.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf import message_factory
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message

MAX_MACROS: Final = 4
MAX_MACRO_NESTING: Final = 2
MAX_BUILDERS: Final = 2
BUILDERS: Final = frozenset({"join", "replace", "format", "split"})
MAX_ELEMENTS: Final = 1_000

NO_ORDER: Final = "its keys have no order"
NESTED_TOO_DEEPLY: Final = "it is nested too deeply: parentheses, calls, fields and terms in a row, 32 levels at most"


@dataclass(frozen=True, slots=True)
class _TooMany:
    """The function that a program calls where `map` or `filter` would build one element too many."""

    function: str = "@too_many_elements"
    overload: str = "too_many_elements"
    text: str = f"map and filter build lists of at most {MAX_ELEMENTS:,} elements"


TOO_MANY: Final = _TooMany()


def bounded(serialized: bytes, variables: frozenset[str]) -> tuple[bytes, frozenset[str]]:
    """The same checked expression with the bounds of run time built in, and which of *variables* it reads.

    Raises:
        ValueError: it is over a bound, which the text names.
    """
    holder = AnyMessage.FromString(serialized)
    try:
        checked: Any = _CHECKED.FromString(holder.value)
    except DecodeError:
        raise ValueError(NESTED_TOO_DEEPLY) from None
    seen = list(_expressions(checked.expr))
    macros = [(node.comprehension, depth) for node, depth in seen if node.HasField("comprehension")]
    calls = [node.call.function for node, _ in seen if node.HasField("call")]
    _check(len(macros), MAX_MACROS, "macros (all, exists, map, filter)")
    _check(max((depth + 1 for _, depth in macros), default=0), MAX_MACRO_NESTING, "macros inside each other")
    _check(sum(name in BUILDERS for name in calls), MAX_BUILDERS, f"calls of {', '.join(sorted(BUILDERS))}")
    reads = frozenset(node.ident.name.lstrip(".") for node, _ in seen if node.HasField("ident")) & variables
    ids = _Ids(max(node.id for node, _ in seen))
    types = {entry.key: entry.value for entry in checked.types}
    for comprehension, _ in reversed(macros):  # the inner ones first, since the outer ones are copied with them
        if comprehension.accu_init.HasField("list"):
            _bound_elements(comprehension, ids)
            _bound_range(comprehension.iter_range, types, ids)
    holder.value = checked.SerializeToString()
    return holder.SerializeToString(), reads


def _check(count: int, most: int, what: str) -> None:
    if count > most:
        raise ValueError(f"it has {count} {what}, over the limit of {most}")


def _expressions(root: Any) -> Iterator[tuple[Any, int]]:
    """Every part of an expression with the number of macros around it, each before what is inside it."""
    waiting = [(root, 0)]
    while waiting:
        node, depth = waiting.pop()
        if node.DESCRIPTOR.name == "Expr":
            yield node, depth
        for field, value in node.ListFields():
            if field.message_type is None:
                continue
            inner = depth + (node.DESCRIPTOR.name == "Comprehension" and field.name != "iter_range")
            waiting.extend((part, inner) for part in (value if field.is_repeated else (value,)))


class _Ids:
    """Numbers for new parts of an expression."""

    def __init__(self, last: int) -> None:
        self._last = last

    def next(self) -> int:
        self._last += 1
        return self._last


def _bound_elements(comprehension: Any, ids: _Ids) -> None:
    """Let the step be: size(accumulated) < limit ? step : the error."""
    step = comprehension.loop_step
    built = type(step)()
    built.CopyFrom(step)
    step.Clear()
    step.id, step.call.function = ids.next(), "_?_:_"
    condition = _call(step.call.args.add(), "_<_", ids)
    size = _call(condition.args.add(), "size", ids)
    accumulated = size.args.add()
    accumulated.id, accumulated.ident.name = ids.next(), comprehension.accu_var
    limit = condition.args.add()
    limit.id, limit.const.int64_value = ids.next(), MAX_ELEMENTS
    step.call.args.add().CopyFrom(built)
    _call(step.call.args.add(), TOO_MANY.function, ids)


def _bound_range(elements: Any, types: Mapping[int, Any], ids: _Ids) -> None:
    """Refuse a map; what only the data tells becomes [] + elements, which a map is no part of."""
    known = types.get(elements.id)
    if known is not None and known.HasField("map_type"):
        raise ValueError(f"a map cannot be gone over by map or filter: {NO_ORDER}")
    if known is not None and known.HasField("list_type"):
        return
    copied = type(elements)()
    copied.CopyFrom(elements)
    elements.Clear()
    both = _call(elements, "_+_", ids).args
    empty = both.add()
    empty.id = ids.next()
    empty.list.SetInParent()
    both.add().CopyFrom(copied)


def _call(node: Any, function: str, ids: _Ids) -> Any:
    node.id, node.call.function = ids.next(), function
    return node.call


def _checked_class() -> type[Message]:
    """The engine's cel.expr.CheckedExpr as far as it is read here; every other field stays in it untouched."""
    file = FileDescriptorProto(name="checked.proto", package="checked", syntax="proto2")  # which keeps a zero
    for name, fields in _LAYOUT.items():
        message = file.message_type.add(name=name)
        for field_name, number, kind in fields:
            repeated = kind.startswith("*")
            field = message.field.add(name=field_name, number=number)
            field.label = FieldDescriptorProto.LABEL_REPEATED if repeated else FieldDescriptorProto.LABEL_OPTIONAL
            kind = kind.removeprefix("*")
            if kind in _LAYOUT:
                field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".checked.{kind}"
            else:
                field.type = FieldDescriptorProto.Type.Value(kind)
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("checked.Checked"))


_LAYOUT: Final[dict[str, list[tuple[str, int, str]]]] = {
    "Checked": [("types", 3, "*TypeOf"), ("expr", 4, "Expr")],
    "TypeOf": [("key", 1, "TYPE_INT64"), ("value", 2, "Type")],
    "Type": [("list_type", 6, "TYPE_BYTES"), ("map_type", 7, "TYPE_BYTES")],
    "Constant": [("int64_value", 3, "TYPE_INT64")],
    "Ident": [("name", 1, "TYPE_STRING")],
    "Select": [("operand", 1, "Expr")],
    "Call": [("target", 1, "Expr"), ("function", 2, "TYPE_STRING"), ("args", 3, "*Expr")],
    "List": [("elements", 1, "*Expr")],
    "Entry": [("map_key", 3, "Expr"), ("value", 4, "Expr")],
    "Struct": [("entries", 2, "*Entry")],
    "Comprehension": [
        ("iter_range", 2, "Expr"),
        ("accu_var", 3, "TYPE_STRING"),
        ("accu_init", 4, "Expr"),
        ("loop_condition", 5, "Expr"),
        ("loop_step", 6, "Expr"),
        ("result", 7, "Expr"),
    ],
    "Expr": [
        ("id", 2, "TYPE_INT64"),
        ("const", 3, "Constant"),
        ("ident", 4, "Ident"),
        ("select", 5, "Select"),
        ("call", 6, "Call"),
        ("list", 7, "List"),
        ("struct", 8, "Struct"),
        ("comprehension", 9, "Comprehension"),
    ],
}
_CHECKED: Final = _checked_class()
