"""Verifying the steps that call no method: they publish, ask by topic, or wait."""

from typing import TYPE_CHECKING, Final

from google.protobuf.descriptor import Descriptor

from streams.workflow.definition_kinds import AskDefinition, KindDefinition, PublishDefinition, WaitDefinition
from streams.workflow.definition_steps import StepDefinition
from streams.workflow.plan import PlannedAsk, PlannedPublish, PlannedWait, Work

if TYPE_CHECKING:
    from streams.workflow.verification import Verification

_TEXT: Final = frozenset({"STRING"})
_TIME: Final = frozenset({"TIMESTAMP"})
_EMPTY: Final = "google.protobuf.Empty"

_Verified = tuple[Work | None, Descriptor | None]
"""What a step does, None when that has findings, and the type of the message under its name, None when unknown."""


async def verify_kind(walk: "Verification", step: StepDefinition, kind: KindDefinition) -> _Verified:
    """Verify and compile a step of that kind; faults become findings."""
    match kind:
        case PublishDefinition():
            return await _publish(walk, step, kind)
        case AskDefinition():
            return await _ask(walk, step, kind)
        case WaitDefinition():
            return await _wait(walk, step, kind)


async def _publish(walk: "Verification", step: StepDefinition, kind: PublishDefinition) -> _Verified:
    key = None
    if kind.key:
        path = (*step.path, "publish", "key")
        key = await walk.expression(kind.key, *path, results=_TEXT, kind="workflow", step=step.name)
    message = walk.message_type(kind.type, *step.path, "publish", "type", step=step.name)
    if message is None:
        return None, None
    value = await walk.composition(step.rules, step.cel_rules, message, step.path, step=step.name)
    return PlannedPublish(kind.topic, key, message.full_name, value), message


async def _ask(walk: "Verification", step: StepDefinition, kind: AskDefinition) -> _Verified:
    request = walk.message_type(kind.request_type, *step.path, "ask", "requestType", step=step.name)
    response = walk.message_type(kind.response_type, *step.path, "ask", "responseType", step=step.name)
    if request is None:
        return None, response
    composed = await walk.composition(step.rules, step.cel_rules, request, step.path, step=step.name)
    return PlannedAsk(kind.topic, request.full_name, composed, step.patience), response


async def _wait(walk: "Verification", step: StepDefinition, kind: WaitDefinition) -> _Verified:
    until = None
    if kind.until:
        path = (*step.path, "wait", "until")
        until = await walk.expression(kind.until, *path, results=_TIME, kind="workflow", step=step.name)
    return PlannedWait(kind.for_ms, until), walk.message_type(_EMPTY, *step.path, "wait", step=step.name)
