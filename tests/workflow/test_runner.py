"""Segments: calls, checkpoints, parks, deadlines, failures, replays."""

import asyncio
import copy
from typing import Any

import pytest
from google.protobuf.message import Message

from schemas.errors import (
    BudgetSpent,
    CallFailed,
    ExternalStepReached,
    LeaseLost,
    MappingFailed,
    SegmentInterrupted,
    StoreUnavailable,
    WorkflowBroken,
)
from streams.evaluator.protoc import ProtocChild
from streams.workflow.plan import Plan
from streams.workflow.runner import CallRequest, Completed, Parked, StepOutcome, StoredCheckpoint, run_segment
from tests.workflow.samples import (
    ANSWER,
    DECIDED,
    EVALUATOR,
    INPUT,
    NOTIFIED,
    RESPONSES,
    SCORED,
    Clock,
    Log,
    Service,
    entry,
    loan,
    loan_with,
    plan_of,
    segment,
    source,
)


@pytest.fixture
async def plan(protoc: ProtocChild) -> Plan:
    return await plan_of(loan(), protoc)


@pytest.fixture
def service(plan: Plan) -> Service:
    return Service(plan.schema_set, RESPONSES)


def two_calls(document: dict[str, Any]) -> None:
    """Leave out the step that is answered from outside."""
    del document["steps"][1]
    document["output"]["rules"] = ["mail_id = notify.id", "note = score.model"]


async def test_a_run_goes_step_by_step_parks_and_completes_after_the_answer(plan: Plan, service: Service) -> None:
    log = Log()

    parked = await segment(plan, service, log)
    assert parked == Parked(
        step="desk",
        step_index=1,
        request={"applicant": "ana", "amountCents": "0", "tags": ["new"], "rush": False},
        resume_target="mailer",
    )
    assert log.stored == [SCORED]
    assert log.targets == ["local:engine"]

    log.stored.append(DECIDED)
    completed = await segment(plan, service, log)
    assert completed == Completed(
        result={"applicant": "ana", "approved": True, "note": "fine", "mailId": "m-1"},
        output_type="loan.v1.Outcome",
        verdict="3 steps, output loan.v1.Outcome",
        steps=(StepOutcome("score", False), StepOutcome("desk", False), StepOutcome("notify", False)),
    )
    assert service.called == ["score", "notify"]
    assert log.stored == [SCORED, DECIDED, NOTIFIED]


async def test_a_call_carries_what_a_channel_needs(plan: Plan, service: Service) -> None:
    await segment(plan, service)

    [request] = service.requests
    sent: Any = plan.schema_set.from_wire("loan.v1.ScoreRequest", request.payload)
    assert (sent.applicant, sent.cents) == ("ana", 250_000)
    assert (request.step, request.step_index, request.target, request.tls) == ("score", 0, "scorer:9443", True)
    assert (request.method, request.response_type) == ("/loan.v1.Scorer/Score", "loan.v1.Score")


@pytest.mark.spec(47)
@pytest.mark.parametrize(
    ("step_ms", "budget_ms", "spent", "seconds"),
    [
        (250, 10_000, 0, 0.25),
        (600_000, 10_000, 0, 10.0),
        (0, 10_000, 0, 10.0),
        (8_000, 10_000, 4, 6.0),
        (0, 0, 0, 30.0),
    ],
)
async def test_a_call_gets_the_steps_deadline_or_what_is_left_of_the_budget(
    step_ms: int, budget_ms: int, spent: float, seconds: float, protoc: ProtocChild
) -> None:
    def change(document: dict[str, Any]) -> None:
        two_calls(document)
        document["deadlineMs"] = budget_ms
        document["steps"][1]["deadlineMs"] = step_ms

    plan = await plan_of(loan_with(change), protoc)
    clock = Clock()

    class Slow(Service):
        async def __call__(self, request: CallRequest) -> bytes:
            answer = await super().__call__(request)
            clock.now += spent if request.step == "score" else 0
            return answer

    service = Slow(plan.schema_set, RESPONSES)
    await segment(plan, service, clock=clock)

    assert service.requests[1].timeout_seconds == pytest.approx(seconds)


@pytest.mark.spec(48)
async def test_a_budget_spent_during_a_call_refuses_the_next_one_and_sends_nothing(protoc: ProtocChild) -> None:
    plan = await plan_of(loan_with(two_calls), protoc)
    clock = Clock()
    log = Log()

    class Slow(Service):
        async def __call__(self, request: CallRequest) -> bytes:
            clock.now += 45
            return await super().__call__(request)

    service = Slow(plan.schema_set, RESPONSES)
    with pytest.raises(BudgetSpent) as caught:
        await segment(plan, service, log, clock=clock)

    assert str(caught.value) == "DEADLINE: the segment's 45000 ms were used up before the call"
    assert (caught.value.step, caught.value.retryable) == ("notify", True)
    assert service.called == ["score"]
    assert log.stored == [SCORED]  # the first step ran, and is kept

    service.requests.clear()
    await segment(plan, service, log, clock=Clock())  # a resumed run has a fresh budget
    assert service.called == ["notify"]


@pytest.mark.spec(52)
async def test_a_synchronous_run_refuses_a_step_answered_from_outside(plan: Plan, service: Service) -> None:
    with pytest.raises(ExternalStepReached, match=r"EXTERNAL: desk .*submit the workflow as a job") as caught:
        await segment(plan, service, refuse_external=True)

    assert caught.value.step == "desk"


@pytest.mark.spec(53)
async def test_an_output_mapping_that_fails_names_the_output(protoc: ProtocChild) -> None:
    def change(document: dict[str, Any]) -> None:
        two_calls(document)
        document["output"] = {"type": "loan.v1.ScoreRequest", "rules": ["cents = score.model"]}

    plan = await plan_of(loan_with(change), protoc)

    with pytest.raises(MappingFailed, match=r"MAPPING: rule 'cents = score\.model'") as caught:
        await segment(plan, Service(plan.schema_set, RESPONSES))
    assert caught.value.step == "output"


async def test_a_request_mapping_that_fails_names_its_step_and_calls_nobody(protoc: ProtocChild) -> None:
    document = loan_with(lambda d: d["steps"][0].update(rules=["cents = input.applicant"]))
    plan = await plan_of(document, protoc)
    service = Service(plan.schema_set, RESPONSES)

    with pytest.raises(MappingFailed) as caught:
        await segment(plan, service)

    assert (caught.value.step, caught.value.retryable, service.called) == ("score", False, [])


@pytest.mark.spec(54)
async def test_the_verdict_counts_skipped_steps(plan: Plan, service: Service) -> None:
    completed = await segment(plan, service, stored=[entry(0, "score", None, skipped=True), DECIDED])

    assert isinstance(completed, Completed)
    assert completed.verdict == "3 steps, output loan.v1.Outcome"
    assert completed.steps[0] == StepOutcome("score", True)


async def test_a_skipped_step_is_the_empty_message_to_later_rules(protoc: ProtocChild) -> None:
    def change(document: dict[str, Any]) -> None:
        two_calls(document)
        document["steps"][1]["rules"] = ['subject = "kept"', "subject = score.model"]

    plan = await plan_of(loan_with(change), protoc)
    service = Service(plan.schema_set, RESPONSES)

    await segment(plan, service, stored=[entry(0, "score", None, skipped=True)])

    mail: Any = plan.schema_set.from_wire("loan.v1.Mail", service.requests[0].payload)
    assert mail.subject == "kept"


@pytest.mark.parametrize(
    ("stored", "result"),
    [
        ([SCORED, DECIDED, NOTIFIED], {"id": "m-1"}),
        ([SCORED, DECIDED, entry(2, "notify", None, skipped=True)], ANSWER),
        (
            [entry(index, name, None, skipped=True) for index, name in enumerate(("score", "desk", "notify"))],
            INPUT,
        ),
    ],
    ids=["all ran", "the last was skipped", "all were skipped"],
)
async def test_without_an_output_the_last_response_stands_or_else_the_input(
    stored: list[StoredCheckpoint], result: object, protoc: ProtocChild
) -> None:
    plan = await plan_of(loan_with(lambda d: d.pop("output")), protoc)

    completed = await segment(plan, Service(plan.schema_set, {}), stored=stored)

    assert isinstance(completed, Completed)
    assert completed.result == result


@pytest.mark.parametrize(
    "error",
    [
        StoreUnavailable("away"),
        LeaseLost("job", 3),
        SegmentInterrupted("drained"),
        CallFailed("UNAVAILABLE", "refused"),
        asyncio.CancelledError(),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("where", ["call", "checkpoint"])
async def test_what_the_callbacks_raise_on_purpose_passes_through_untouched(
    error: BaseException, where: str, plan: Plan
) -> None:
    class Refusing(Log):
        async def __call__(self, checkpoint: StoredCheckpoint, next_target: str) -> None:
            raise error

    service = Service(plan.schema_set, {"score": error} if where == "call" else RESPONSES)

    with pytest.raises(type(error)) as caught:
        await segment(plan, service, Refusing() if where == "checkpoint" else Log())

    assert caught.value is error


async def test_a_call_that_failed_without_a_step_gets_the_name_of_its_step(plan: Plan) -> None:
    with pytest.raises(CallFailed) as caught:
        await segment(plan, Service(plan.schema_set, {"score": CallFailed("INTERNAL", "x")}))

    assert (caught.value.step, str(caught.value)) == ("score", "GRPC: INTERNAL: x")


@pytest.mark.parametrize(
    "error", [ValueError("boom"), KeyError("k"), RecursionError(), MemoryError(), OSError(5, "io")]
)
@pytest.mark.parametrize("where", ["call", "checkpoint"])
async def test_what_nobody_expected_fails_the_step_and_keeps_its_cause(
    error: Exception, where: str, plan: Plan
) -> None:
    class Failing(Log):
        async def __call__(self, checkpoint: StoredCheckpoint, next_target: str) -> None:
            raise error

    service = Service(plan.schema_set, {"score": error} if where == "call" else RESPONSES)

    with pytest.raises(WorkflowBroken, match=f"WORKFLOW: unexpected {type(error).__name__}") as caught:
        await segment(plan, service, Failing() if where == "checkpoint" else Log())

    assert (caught.value.step, caught.value.__cause__, caught.value.retryable) == ("score", error, False)


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        (b"\x12\x02\xc3\x28", "cannot be read"),
        (b"\x12\x24abc", "cannot be read"),
        (b"\x12\x03a\x00b", "/model holds the character U\\+0000"),
    ],
    ids=["not UTF-8", "cut short", "U+0000"],
)
async def test_a_response_that_cannot_be_read_or_kept_fails_naming_step_and_field(
    response: bytes, reason: str, plan: Plan
) -> None:
    log = Log()

    with pytest.raises(WorkflowBroken, match=reason) as caught:
        await segment(plan, Service(plan.schema_set, {"score": response}), log)

    assert (caught.value.step, caught.value.retryable, log.stored) == ("score", False, [])


async def test_fields_that_a_response_has_and_the_schema_not_are_dropped(plan: Plan) -> None:
    log = Log()

    await segment(plan, Service(plan.schema_set, {"score": b"\xe2\x12\x05hello\x12\x02v3"}), log)

    assert log.stored == [entry(0, "score", {"value": 0.0, "model": "v3"})]


async def test_a_request_is_the_same_bytes_whatever_order_its_map_was_filled_in(protoc: ProtocChild) -> None:
    document = {
        "schema": {"sources": {"kit.proto": source("kit.proto")}},
        "inputType": "kit.v1.Kit",
        "steps": [{"name": "s", "target": "t", "method": "kit.v1.Kits/Make", "rules": ["labels = input.labels"]}],
    }
    plan = await plan_of(document, protoc)
    service = Service(plan.schema_set, {"s": {}})
    labels = {f"key {index}": "x" for index in range(50)}

    for filled in (labels, dict(reversed(labels.items()))):
        await segment(plan, service, given={"labels": filled})

    assert service.requests[0].payload == service.requests[1].payload


async def test_neither_the_input_nor_the_plan_is_changed_by_a_run(plan: Plan, service: Service) -> None:
    message: Message = plan.parse_input(INPUT)
    before = copy.deepcopy(message)

    for _ in range(2):
        await run_segment(
            plan, message, [SCORED, DECIDED], call=service, checkpoint=Log(), clock=Clock(), evaluator=EVALUATOR
        )

    assert message == before
    assert service.requests[0].payload == service.requests[1].payload
