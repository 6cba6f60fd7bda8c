"""Running the steps that call no method: they publish, ask by topic, or wait."""

from datetime import UTC, datetime, timedelta
from typing import Final

from schemas.errors import MappingFailed
from streams.workflow.cel import Expression, described
from streams.workflow.evaluation import ExpressionFailed, Plain
from streams.workflow.limits import MAX_KEY_BYTES
from streams.workflow.outcomes import Asleep, Parked
from streams.workflow.plan import PlannedAsk, PlannedPublish, PlannedStep, PlannedWait
from streams.workflow.records import ComposedRecord
from streams.workflow.segment import Segment

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


async def publish(segment: Segment, step: PlannedStep, work: PlannedPublish) -> None:
    """Keep the message as the step's response, and hand it over to be sent, in one."""
    message = await segment.built(work.value, step.name)
    if step.validates:
        await segment.validated(message, step.name)
    key = await _key(segment, step, work.key) if work.key is not None else None
    record = ComposedRecord(work.topic, key, work.type, message.SerializeToString(deterministic=True))
    await segment.finish(step, message, record=record)


async def ask(segment: Segment, step: PlannedStep, work: PlannedAsk) -> Parked:
    """Say that the run waits for an answer to the question that is sent."""
    request = await segment.built(work.request, step.name)
    return Parked(
        step=step.name,
        step_index=step.index,
        request=segment.rendered(request, step.name, "the composed request"),
        resume_target=segment.plan.next_target(step.index + 1),
        patience=work.patience,
        record=ComposedRecord(work.topic, None, work.input_type, request.SerializeToString(deterministic=True)),
    )


async def wait(segment: Segment, step: PlannedStep, work: PlannedWait) -> Asleep | None:
    """Say until when the run waits; None: that time has come already, and the step is finished."""
    at = await _time(segment, step, work.until) if work.until is not None else None
    if work.for_ms == 0 if at is None else at <= segment.now():
        await segment.finish(step, segment.plan.schema_set.new(step.output_type))
        return None
    return Asleep(
        step=step.name,
        step_index=step.index,
        resume_target=segment.plan.next_target(step.index + 1),
        at=at,
        after_ms=work.for_ms if at is None else None,
    )


async def _key(segment: Segment, step: PlannedStep, key: Expression) -> bytes:
    value = await _value(segment, step, "publish.key", key)
    if not isinstance(value, str) or not 0 < len(value.encode(errors="surrogatepass")) <= MAX_KEY_BYTES:
        gives = "a text that is empty or too long" if isinstance(value, str) else described(value)
        text = f"publish.key {key.source!r} gives {gives}, and a text of 1 to {MAX_KEY_BYTES:,} bytes is needed"
        raise MappingFailed(text, step=step.name)
    return value.encode(errors="replace")


async def _time(segment: Segment, step: PlannedStep, until: Expression) -> datetime:
    value = await _value(segment, step, "wait.until", until)
    if not isinstance(value, dict) or "timestamp" not in value:
        text = f"wait.until {until.source!r} gives {described(value)}, and a timestamp is needed"
        raise MappingFailed(text, step=step.name)
    match value["timestamp"]:
        case [int(seconds), int(nanos)]:
            # Rounded up, so that nobody is woken before the time; the last second of all has no later one.
            return _EPOCH + timedelta(seconds=seconds, microseconds=min(-(-nanos // 1000), 999_999))
    raise MappingFailed(f"wait.until {until.source!r} gives no time", step=step.name)


async def _value(segment: Segment, step: PlannedStep, what: str, expression: Expression) -> Plain:
    try:
        return await expression.value(segment.scope, segment.evaluator)
    except ExpressionFailed as error:
        raise MappingFailed(f"{what} {expression.source!r}: {error}", step=step.name) from None
