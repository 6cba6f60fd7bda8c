"""Stored checkpoints: they must fit the plan, and a run resumed from them ends as if it had not been stopped."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemas.errors import WorkerError, WorkflowBroken
from streams.evaluator.protoc import ProtocChild
from streams.workflow.plan import Plan
from streams.workflow.runner import Completed, Parked, StoredCheckpoint, run_segment
from tests.workflow.samples import (
    ANSWER,
    DATA,
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
    plan_of,
    segment,
)


@pytest.fixture
async def plan(protoc: ProtocChild) -> Plan:
    return await plan_of(loan(), protoc)


@pytest.fixture
def service(plan: Plan) -> Service:
    return Service(plan.schema_set, RESPONSES)


@pytest.mark.spec(69)
async def test_a_checkpoint_of_another_step_fails_naming_both(plan: Plan, service: Service) -> None:
    with pytest.raises(WorkflowBroken, match=r"WORKFLOW: the stored checkpoint 0 is of desk, and step 0 is score"):
        await segment(plan, service, stored=[entry(0, "desk", ANSWER)])


@pytest.mark.spec(70)
@pytest.mark.parametrize("stored", [[SCORED, DECIDED, NOTIFIED, entry(3, "more", {})], {}, "[]", None, 5])
async def test_more_checkpoints_than_steps_or_no_array_fail(stored: Any, plan: Plan, service: Service) -> None:
    given = plan.parse_input(INPUT)
    with pytest.raises(WorkflowBroken, match="checkpoints"):
        await run_segment(plan, given, stored, call=service, checkpoint=Log(), clock=Clock(), evaluator=EVALUATOR)
    assert service.called == []


@pytest.mark.spec(71)
@pytest.mark.parametrize("response", [{"vlaue": 1}, {"value": "x"}, [], "x", {"value": {}}])
async def test_a_response_that_does_not_parse_fails_naming_the_step(
    response: object, plan: Plan, service: Service
) -> None:
    with pytest.raises(WorkflowBroken, match="the stored response of score does not parse") as caught:
        await segment(plan, service, stored=[entry(0, "score", response)])
    assert caught.value.step == "score"


@pytest.mark.spec(73)
async def test_a_step_that_ran_without_a_response_fails(plan: Plan, service: Service) -> None:
    with pytest.raises(WorkflowBroken, match="of score has no response"):
        await segment(plan, service, stored=[entry(0, "score", None)])


@pytest.mark.spec(72)
@pytest.mark.parametrize("skipped", [1, 2, 3])
async def test_a_run_goes_on_behind_steps_that_were_skipped(skipped: int, plan: Plan, service: Service) -> None:
    log = Log()
    log.stored = [entry(index, step.name, None, skipped=True) for index, step in enumerate(plan.steps[:skipped])]

    ended = await segment(plan, service, log)

    if skipped == 1:
        assert isinstance(ended, Parked)
        assert ended.step == "desk"
        return
    assert isinstance(ended, Completed)
    assert service.called == (["notify"] if skipped == 2 else [])
    assert ended.result == {"applicant": "ana", "approved": False, "note": "", "mailId": "m-1" if skipped == 2 else ""}
    assert [step.skipped for step in ended.steps] == [index < skipped for index in range(3)]


@pytest.mark.parametrize("stored", [[entry(1, "score", {})], [SCORED, entry(0, "desk", ANSWER)], [{"step": "score"}]])
async def test_checkpoints_with_gaps_or_of_another_kind_fail(stored: list[Any], plan: Plan, service: Service) -> None:
    with pytest.raises(WorkflowBroken, match="the stored checkpoint"):
        await segment(plan, service, stored=stored)


@pytest.mark.spec(75)
async def test_with_every_checkpoint_there_nobody_is_called_and_the_run_completes(plan: Plan, service: Service) -> None:
    log = Log()
    log.stored = [SCORED, DECIDED, NOTIFIED]

    completed = await segment(plan, service, log)

    assert isinstance(completed, Completed)
    assert completed.result == {"applicant": "ana", "approved": True, "note": "fine", "mailId": "m-1"}
    assert (service.called, len(log.stored)) == ([], 3)


@pytest.mark.parametrize("as_text", [True, False])
async def test_integers_of_64_bits_keep_every_digit_before_and_after_a_replay(
    as_text: bool, protoc: ProtocChild
) -> None:
    document = json.loads((DATA / "workflows" / "parcel.json").read_text())
    copied = ["serial = input.serial", "checksum = input.checksum", "counts = input.counts"]
    again = ["serial = accept.serial", "checksum = accept.checksum", "counts = accept.counts"]
    document["steps"] = [
        {"name": "accept", "target": "t", "method": "depot.Intake/Accept", "rules": copied},
        {"name": "again", "target": "t", "method": "depot.Intake/Accept", "rules": again},
    ]
    plan = await plan_of(document, protoc)
    exact = {"serial": 9007199254740993, "checksum": 18446744073709551615, "counts": {"a": -9223372036854775808}}
    shown = {"serial": "9007199254740993", "checksum": "18446744073709551615", "counts": {"a": "-9223372036854775808"}}
    service, log = Service(plan.schema_set, {"accept": exact, "again": exact}), Log()

    live = await segment(plan, service, log, given=json.dumps(shown if as_text else exact))
    resumed = await segment(plan, service, given=shown, stored=json_again(log.stored[:1]))

    assert isinstance(live, Completed)
    assert live == resumed
    assert isinstance(live.result, dict)
    assert shown.items() <= live.result.items()
    assert len({request.payload for request in service.requests}) == 1


def json_again(stored: list[StoredCheckpoint]) -> list[StoredCheckpoint]:
    """The checkpoints as a database gives them back."""
    return [
        StoredCheckpoint(kept.step_index, kept.step, kept.skipped, json.loads(json.dumps(kept.response)))
        for kept in stored
    ]


class Crash(WorkerError):
    """The process dies at a checkpoint: after its commit, or before it."""


class CrashingLog(Log):
    """Dies at the checkpoint number `at`, once; the entry is kept or not, as a commit would have it."""

    def __init__(self, at: int, *, committed: bool) -> None:
        super().__init__()
        self.at = at
        self.committed = committed

    async def __call__(self, checkpoint: StoredCheckpoint, next_target: str) -> None:
        if len(self.stored) == self.at:
            self.at = -1
            if self.committed:
                await super().__call__(checkpoint, next_target)
            raise Crash("gone")
        await super().__call__(checkpoint, next_target)


async def finished(plan: Plan, service: Service, log: Log, given: object) -> Completed:
    """Run to the end, segment by segment, answering what parks and coming back after each crash."""
    while True:
        try:
            ended = await segment(plan, service, log, given=given)
        except Crash:
            continue
        if isinstance(ended, Completed):
            return ended
        log.stored.append(entry(ended.step_index, ended.step, ANSWER))


def chain(kinds: Sequence[bool]) -> dict[str, Any]:
    """A definition with a step per kind: True calls the mailer, False waits for the desk."""
    steps = []
    for index, calls in enumerate(kinds):
        before = f"s{index - 1}" if index else None
        if calls:
            rules = ["to = input.applicant", "labels = input.tags"]
            if before is not None:
                rules.append(f"subject = {before}.{'id' if kinds[index - 1] else 'note'}")
            steps.append({"name": f"s{index}", "target": "mailer", "method": "loan.v1.Mailer/Send", "rules": rules})
        else:
            steps.append(
                {
                    "name": f"s{index}",
                    "method": "loan.v1.Desk/Decide",
                    "completion": "external",
                    "rules": ["applicant = input.applicant"],
                }
            )
    return {
        **loan(),
        "steps": steps,
        "output": {"type": "loan.v1.Mail", "rules": [f"to = s{len(kinds) - 1}.{'id' if kinds[-1] else 'note'}"]},
    }


@given(
    kinds=st.lists(st.booleans(), min_size=1, max_size=5),
    tags=st.lists(st.text("ab é", max_size=3), max_size=3),
    at=st.integers(0, 4),
    committed=st.booleans(),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_run_stopped_at_any_checkpoint_ends_as_if_it_had_not_been(
    protoc: ProtocChild, kinds: list[bool], tags: list[str], at: int, committed: bool
) -> None:
    async def both() -> None:
        plan = await plan_of(chain(kinds), protoc)
        given = {"applicant": "ana", "tags": tags}
        responses: dict[str, object] = {f"s{index}": {"id": f"m{index}"} for index in range(len(kinds))}
        straight, crashed = Service(plan.schema_set, responses), Service(plan.schema_set, responses)
        straight_log, crashed_log = Log(), CrashingLog(at, committed=committed)

        expected = await finished(plan, straight, straight_log, given)
        result = await finished(plan, crashed, crashed_log, given)

        assert result == expected
        assert crashed_log.stored == straight_log.stored
        again = [(request.step, request.payload) for request in crashed.requests]
        for request in straight.requests:
            again.remove((request.step, request.payload))
        # Only the step whose commit was lost is called a second time, with the same bytes.
        lost = at < len(kinds) and kinds[at] and not committed
        assert [step for step, _ in again] == ([f"s{at}"] if lost else [])

    asyncio.run(both())
