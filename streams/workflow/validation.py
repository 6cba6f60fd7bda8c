"""Validating: a message must keep the rules that its schema declares, where a definition asks for that."""

import json
from collections.abc import Mapping, Sequence
from typing import Final

from google.protobuf.message import Message

from schemas.errors import StepFailed, ValidationFailed, WorkflowBroken
from streams.workflow.descriptors import SchemaSet
from streams.workflow.evaluation import Evaluator, Rejection, RuleFailed, Violation

_DETAIL_BYTES: Final = 6_000
_DETAIL_LENGTH: Final = 300
"""Code points of one text in an event's detail; the error's text has more of it."""


async def validate(
    message: Message, schemas: SchemaSet, evaluator: Evaluator, *, step: str = "", what: str = ""
) -> None:
    """Make sure that *message* keeps the rules of its type. *what* stands before the violations, if it is given.

    Raises:
        ValidationFailed: it does not; trying again would not help.
        WorkflowBroken: a rule is broken, failed for this message, or needed too much time or memory.
        EvaluatorUnavailable: this machine could not evaluate now.
    """
    rejections = await rejections_of(message, schemas, evaluator, step=step)
    if None in rejections:
        raise rejected(rejections[None], step=step, what=what)


async def rejections_of(
    message: Message, schemas: SchemaSet, evaluator: Evaluator, *, step: str, items: Sequence[str] = ()
) -> Mapping[int | None, Rejection]:
    """What *message* breaks, by item as `Evaluator.rejections` says. Raises as `validate`, but no ValidationFailed."""
    try:
        return await evaluator.rejections(schemas, message, items=items)
    except RuleFailed as error:
        raise WorkflowBroken(f"a rule of {message.DESCRIPTOR.full_name} gives no answer: {error}", step=step) from None


def rejected(rejection: Rejection, *, step: str, what: str = "") -> StepFailed:
    """The failure that a rejection is."""
    detail = {"violations": _detailed(rejection.violations), "violationsTotal": rejection.count}
    return ValidationFailed(f"{what}: {rejection}" if what else str(rejection), step=step, event_detail=detail)


def _detailed(violations: Sequence[Violation]) -> list[Mapping[str, str]]:
    """As many as an event's detail has room for, however they are written there."""
    listed: list[Mapping[str, str]] = []
    size = 0
    for violation in violations:
        told = {"path": violation.path, "ruleId": violation.rule_id, "message": violation.message}
        cut = {key: _cut(text) for key, text in told.items()}
        size += len(json.dumps(cut))
        if size > _DETAIL_BYTES:
            break
        listed.append(cut)
    return listed


def _cut(text: str) -> str:
    return text if len(text) <= _DETAIL_LENGTH else f"{text[: _DETAIL_LENGTH - 3]}..."
