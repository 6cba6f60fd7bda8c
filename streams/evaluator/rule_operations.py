"""The operations on the rules that schemas declare: finding broken ones, and applying them to a message.

The engine is protovalidate's. It reads messages of the schema's own pool, compiles the rules of a type when the first
message of it comes, and is as hard to interrupt as that of expressions: whoever calls bounds the time and the memory.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Final

import protovalidate
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import Message

from streams.evaluator.frames import Header
from streams.evaluator.operations import LoadedSchema, Operation, Refused
from streams.evaluator.rule_probes import Probes

LISTED: Final = 100
LISTED_OF_ITEM: Final = 10
TEXT_LENGTH: Final = 500
"""Characters of a path, a rule's id or a message that are told; people's rules write all three."""

# Faults that the engine finds only when it runs a rule, and which no data could heal.
_HOPELESS: Final = ("No value with name", "outputs an unexpected type")


def _validator(schema: LoadedSchema) -> protovalidate.Validator:
    """The validator of one schema. One that is shared would mix up editions of a file."""
    validator = protovalidate.Validator()
    validator.collect_violations(_one_that_sees_all(schema))
    return validator


def _one_that_sees_all(schema: LoadedSchema) -> Message:
    """A message whose file imports all others: a validator knows the predefined rules of imports alone.

    A file that imports another one for its options only does not count as importing it.
    """
    file = FileDescriptorProto(name="workflow_runs_sees_all.proto", package="workflow_runs.sees_all")
    file.dependency.extend(schema.file_names)
    file.message_type.add(name="All")
    schema.pool.AddSerializedFile(file.SerializeToString(deterministic=True))
    return schema.new("workflow_runs.sees_all.All")


def check(schema: LoadedSchema, request: Header, blobs: Sequence[bytes]) -> tuple[Header, Sequence[bytes]]:
    """The rules of `type` that are `broken`: each with the name of its field and what is wrong with it."""
    return {"broken": list(_broken(schema, request["type"]))}, ()


def reject(schema: LoadedSchema, request: Header, blobs: Sequence[bytes]) -> tuple[Header, Sequence[bytes]]:
    """What the only byte string, a message of `type`, breaks: `rejections`, each with its place, count and list.

    The place is null for the message itself, and an index for what lies in an element of the list at `items`.
    """
    counts: dict[int | None, int] = defaultdict(int)
    listed: dict[int | None, list[tuple[str, str, str]]] = defaultdict(list)
    for violation in _violations(schema, schema.read(request["type"], blobs[0])):
        broken = violation.proto
        elements = list(broken.field.elements) if broken.field is not None else []
        place, elements = _placed(elements, request["items"])
        counts[place] += 1
        if counts[place] <= (LISTED if place is None else LISTED_OF_ITEM):
            path = "".join(_steps(elements)).removeprefix(".") + ("#key" if broken.for_key else "")
            listed[place].append((_cut(path), _cut(broken.rule_id), _cut(broken.message)))
    return {"rejections": [[place, count, listed[place]] for place, count in counts.items()]}, ()


OPERATIONS: Final[dict[str, Operation]] = {"rules.check": check, "rules.reject": reject}


def _violations(schema: LoadedSchema, message: Message) -> list[protovalidate.Violation]:
    """Raises Refused when a rule does not compile, or fails for this message."""
    try:
        return schema.part(_validator).collect_violations(message)
    except (protovalidate.CompilationError, protovalidate.EvaluationError) as error:
        raise Refused(_one_line(str(error))) from None


def _broken(schema: LoadedSchema, full_name: str) -> Iterator[tuple[str, str]]:
    """The field, empty for the type itself, and what is wrong with a rule of it."""
    validator = schema.part(_validator)
    fault = _fault(validator, schema.new(full_name))
    if fault is None:
        return
    told = False
    for field, probe in Probes(schema, full_name).messages():
        if (inner := _fault(validator, probe)) is not None and inner[0]:
            told = True
            yield field, inner[1].replace(probe.DESCRIPTOR.full_name, full_name)
    if fault[0] and not told:
        yield "", fault[1]


def _fault(validator: protovalidate.Validator, empty: Message) -> tuple[bool, str] | None:
    """Whether a rule is broken, or only fails for a message that is empty, and the engine's text."""
    try:
        validator.collect_violations(empty)
    except protovalidate.CompilationError as error:
        return True, _one_line(str(error))
    except protovalidate.EvaluationError as error:
        return any(text in str(error) for text in _HOPELESS), _one_line(str(error))
    return None


def _placed(elements: list[Any], items: list[str]) -> tuple[int | None, list[Any]]:
    """The index of the element of the list at *items* that the path leads into, and the path from there."""
    names = [element.field_name for element in elements[: len(items)]]
    if not items or names != items or (index := _subscript(elements[len(items) - 1])) is None:
        return None, elements
    return int(index), elements[len(items) :]


def _steps(elements: list[Any]) -> Iterator[str]:
    for element in elements:
        yield f".{element.field_name}"
        if (subscript := _subscript(element)) is not None:
            yield f"[{json.dumps(subscript, ensure_ascii=False)}]"


def _subscript(element: Any) -> Any:
    return element.subscript.value if element.subscript is not None else None


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_LENGTH else f"{text[:TEXT_LENGTH]}..."


def _one_line(text: str) -> str:
    """The engine's text without the picture of the source that it draws below."""
    lines = (line.strip() for line in text.splitlines() if not line.lstrip().startswith("|"))
    said = "; ".join(filter(None, lines)).replace("ERROR: <input>:", "")
    return _cut(said) or "it failed without a word"
