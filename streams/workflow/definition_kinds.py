"""The kinds of steps that call no method: they publish, ask by topic, or wait. Read strictly into typed parts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from schemas.topics import is_topic_name
from streams.workflow.document import ObjectReader
from streams.workflow.json_values import shown
from streams.workflow.limits import MAX_TYPE_NAME_LENGTH, MAX_WAIT_MS

_LONGEST_TOPIC: Final = 249


@dataclass(frozen=True, slots=True)
class PublishDefinition:
    """A message of type `type` for a topic. `key` is an expression, empty for the job's id."""

    topic: str
    key: str
    type: str


@dataclass(frozen=True, slots=True)
class AskDefinition:
    """A question for a topic, whose answer comes from outside."""

    topic: str
    request_type: str
    response_type: str


@dataclass(frozen=True, slots=True)
class WaitDefinition:
    """A time to wait for: `until` is an expression, empty where it is `for_ms` from now on."""

    for_ms: int
    until: str


KindDefinition = PublishDefinition | AskDefinition | WaitDefinition

_OF_CALLS: Final = ("target", "method", "tls", "deadlineMs", "completion", "retry", "edge", "fanOut")
_BESIDE: Final[Mapping[str, tuple[str, ...]]] = {
    "publish": _OF_CALLS,
    "ask": _OF_CALLS,
    "wait": (*_OF_CALLS, "rules", "celRules", "validate"),
}
"""What has no meaning beside each kind."""

KINDS: Final = tuple(_BESIDE)


def read_kind(step: ObjectReader) -> KindDefinition | None:
    """Read what a step does instead of calling a method; None when it names nothing of that sort, or nothing sound."""
    named = [kind for kind in KINDS if step.has(kind)]
    if not named:
        return None
    for other in named[1:]:
        step.take(other)
        step.fault(f"a step is of one kind: it cannot {named[0]} and {other}", other)
    kind = named[0]
    for key in filter(step.has, _BESIDE[kind]):
        step.fault(f"{key} has no meaning in a step with {kind}", key)
    members = step.take(kind)
    if not isinstance(members, Mapping):
        step.fault(f"{kind} must be an object, not {shown(members)}", kind)
        return None
    reader = step.inner(kind, members)
    read: KindDefinition = {"publish": _publish, "ask": _ask, "wait": _wait}[kind](reader)
    reader.refuse_unknown()
    return read


def _publish(reader: ObjectReader) -> KindDefinition:
    return PublishDefinition(
        topic=_topic(reader),
        key=_expression(reader, "key"),
        type=reader.text("type", required=True, longest=MAX_TYPE_NAME_LENGTH),
    )


def _ask(reader: ObjectReader) -> KindDefinition:
    return AskDefinition(
        topic=_topic(reader),
        request_type=reader.text("requestType", required=True, longest=MAX_TYPE_NAME_LENGTH),
        response_type=reader.text("responseType", required=True, longest=MAX_TYPE_NAME_LENGTH),
    )


def _wait(reader: ObjectReader) -> KindDefinition:
    if reader.has("forMs") == reader.has("until"):
        reader.fault("wait needs either forMs, a number of milliseconds, or until, an expression that gives a time")
    return WaitDefinition(
        for_ms=reader.milliseconds("forMs", lowest=0, most=MAX_WAIT_MS), until=_expression(reader, "until")
    )


def _topic(reader: ObjectReader) -> str:
    topic = reader.text("topic", required=True, longest=_LONGEST_TOPIC)
    if topic and not is_topic_name(topic):
        reader.fault(f"{shown(topic)} is no name of a topic: it has letters, digits, `.`, `_` and `-`", "topic")
    return topic


def _expression(reader: ObjectReader, key: str) -> str:
    source = reader.expression(key)
    if reader.has(key) and not source and isinstance(reader.take(key), str):
        reader.fault(f"{key} must not be blank", key)
    return source
