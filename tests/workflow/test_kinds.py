"""Steps that call no method: they publish, ask by topic, or wait."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from schemas.errors import CallFailed, DefinitionInvalid, ExternalStepReached, MappingFailed, StoreUnavailable
from streams.evaluator.protoc import ProtocChild
from streams.workflow.compiler import Compiled, compile_definition
from streams.workflow.outcomes import Asleep, Completed, Parked
from streams.workflow.patience import Patience
from streams.workflow.plan import ENGINE, Plan
from streams.workflow.records import ComposedRecord
from streams.workflow.retry import DEFAULT_RETRY, RetryPolicy
from streams.workflow.runner import StoredCheckpoint, run_segment
from tests.workflow.notices import ask, notices, tell, wait
from tests.workflow.samples import EVALUATOR, Clock, Log, Service, entry, found, loan, loan_with, plan_of

NOW = datetime(2026, 12, 1, 12, 0, 0, tzinfo=UTC)
ORDER = {"number": "o-7", "readyAt": "2026-12-01T13:00:00Z"}
ANSWER = {"approved": True, "note": "fine"}

Compile = Callable[[object], Compiled]


async def run(plan: Plan, log: Log, *, given: object = None, stored: Any = None, refuse_external: bool = False) -> Any:
    return await run_segment(
        plan,
        plan.parse_input(ORDER if given is None else given),
        list(log.stored if stored is None else stored),
        call=Service(plan.schema_set, {}),
        checkpoint=log,
        clock=Clock(),
        evaluator=EVALUATOR,
        now=lambda: NOW,
        refuse_external=refuse_external,
    )


async def test_a_run_publishes_asks_waits_and_goes_on(protoc: ProtocChild) -> None:
    plan = await plan_of(notices(), protoc)
    log = Log()

    parked = await run(plan, log)
    assert parked == Parked(
        step="ask",
        step_index=1,
        request={"number": "o-7"},
        resume_target=ENGINE,
        record=ComposedRecord("questions", None, "notice.v1.Question", b"\n\x03o-7"),
    )
    [told] = log.stored
    assert (told.step, told.response) == ("tell", {"text": "", "number": "o-7"})
    assert told.record == ComposedRecord("notices", None, "notice.v1.Notice", b"\x12\x03o-7")

    log.stored.append(entry(1, "ask", ANSWER))
    assert await run(plan, log) == Asleep("pause", 2, ENGINE, at=None, after_ms=60_000)

    log.stored.append(entry(2, "pause", {}))
    completed = await run(plan, log)
    assert isinstance(completed, Completed)
    assert completed.result == {"text": "", "number": "o-7"}
    assert [checkpoint.record for checkpoint in log.stored[1:3]] == [None, None]
    assert log.stored[3].record == ComposedRecord("notices", None, "notice.v1.Notice", b"\n\x04fine")


async def test_a_replay_publishes_nothing_again(protoc: ProtocChild) -> None:
    plan = await plan_of(notices(steps=[tell(), tell("again")]), protoc)
    log = Log()
    await run(plan, log)
    assert [checkpoint.record is not None for checkpoint in log.stored] == [True, True]
    replayed = Log()
    stored = [StoredCheckpoint(c.step_index, c.step, c.skipped, c.response) for c in log.stored]
    assert isinstance(await run(plan, replayed, stored=stored), Completed)
    assert replayed.stored == []


class Crashing(Log):
    """Keeps checkpoints until it crashes: at the given one, before or after it is kept."""

    def __init__(self, at: int, *, after: bool) -> None:
        super().__init__()
        self.at: int | None = at
        self.after = after
        self.composed: list[tuple[str, ComposedRecord | None]] = []

    async def __call__(self, checkpoint: StoredCheckpoint, next_target: str) -> None:
        self.composed.append((checkpoint.step, checkpoint.record))
        crashes = self.at == len(self.stored)
        self.at = None if crashes else self.at
        if not crashes or self.after:
            await super().__call__(checkpoint, next_target)
        if crashes:
            raise StoreUnavailable("gone")


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", range(4))
async def test_a_run_that_is_interrupted_anywhere_keeps_each_record_once_and_as_it_would_have_been(
    protoc: ProtocChild, at: int, after: bool
) -> None:
    texts = [[], ["text = tell.number"], ["text = tell1.text"], ["text = tell2.text"]]
    rules = [["number = input.number", *text] for text in texts]
    names = ["tell", *(f"tell{number}" for number in range(1, 4))]
    steps = [tell(name, rules=rules[index]) for index, name in enumerate(names)]
    plan = await plan_of(notices(steps=steps), protoc)
    whole, crashed = Log(), Crashing(at, after=after)
    await run(plan, whole)
    with pytest.raises(StoreUnavailable):
        await run(plan, crashed)
    assert isinstance(await run(plan, crashed), Completed)

    assert crashed.stored == whole.stored
    records = {checkpoint.step: checkpoint.record for checkpoint in whole.stored}
    assert all(record == records[step] for step, record in crashed.composed)
    assert len(crashed.composed) == len(names) + (not after)


async def test_every_try_of_a_step_composes_the_same_record(protoc: ProtocChild) -> None:
    key = "'order-' + input.number"
    plan = await plan_of(notices(steps=[tell(publish={"key": key})]), protoc)
    logs = [Log(), Log()]
    for log in logs:
        await run(plan, log)
    first, second = (log.stored[0].record for log in logs)
    assert first == second
    assert first is not None
    assert first.key == b"order-o-7"


@pytest.mark.parametrize("key", ["''", "input.number.replace('o-7', '')"])
async def test_a_key_is_a_text_that_is_not_empty(protoc: ProtocChild, key: str) -> None:
    plan = await plan_of(notices(steps=[tell(publish={"key": key})]), protoc)
    log = Log()
    with pytest.raises(MappingFailed, match=r"publish\.key .* is empty or too long") as failed:
        await run(plan, log)
    assert (failed.value.step, log.stored) == ("tell", [])


async def test_a_key_or_time_that_has_no_value_fails_its_step(protoc: ProtocChild) -> None:
    for step in (tell(publish={"key": "input.number.charAt(99)"}), wait(wait={"until": "timestamp(input.number)"})):
        plan = await plan_of(notices(steps=[step]), protoc)
        with pytest.raises(MappingFailed, match=rf"{'publish.key' if 'publish' in step else 'wait.until'}"):
            await run(plan, Log())


@pytest.mark.parametrize(
    ("until", "at"),
    [
        ("input.ready_at", datetime(2026, 12, 1, 13, tzinfo=UTC)),
        ("input.ready_at + duration('1.0000001s')", datetime(2026, 12, 1, 13, 0, 1, 1, UTC)),
        ("timestamp('9999-12-31T23:59:59.999999999Z')", datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC)),
    ],
)
async def test_a_wait_for_a_time_never_ends_before_it(protoc: ProtocChild, until: str, at: datetime) -> None:
    plan = await plan_of(notices(steps=[wait(wait={"until": until})]), protoc)
    assert await run(plan, Log()) == Asleep("pause", 0, ENGINE, at=at, after_ms=None)


@pytest.mark.parametrize(
    "until",
    [
        {"until": "input.ready_at - duration('1h')"},
        {"until": "timestamp('0001-01-01T00:00:00Z')"},
        {"until": "timestamp(0)"},
        {"forMs": 0},
    ],
)
async def test_a_wait_whose_time_has_come_goes_on_at_once(protoc: ProtocChild, until: dict[str, Any]) -> None:
    plan = await plan_of(notices(steps=[wait(wait=until)]), protoc)
    log = Log()
    assert isinstance(await run(plan, log), Completed)
    assert log.stored == [entry(0, "pause", {})]


async def test_a_gate_is_looked_at_before_anything_is_sent_or_waited_for(protoc: ProtocChild) -> None:
    never = {"when": "input.number == 'x'"}
    steps = [tell(**never), ask(**never), wait(**never)]
    log = Log()
    assert isinstance(await run(await plan_of(notices(steps=steps), protoc), log), Completed)
    assert [(c.step, c.skipped, c.record) for c in log.stored] == [
        ("tell", True, None),
        ("ask", True, None),
        ("pause", True, None),
    ]


@pytest.mark.parametrize("step", [tell(), ask(), wait()])
async def test_a_run_that_is_not_kept_sends_and_waits_for_nothing(protoc: ProtocChild, step: dict[str, Any]) -> None:
    log = Log()
    with pytest.raises(ExternalStepReached, match="submit the workflow as a job") as reached:
        await run(await plan_of(notices(steps=[step]), protoc), log, refuse_external=True)
    assert (reached.value.step, log.stored) == (step["name"], [])


def test_an_answer_is_read_as_the_type_that_was_asked_for(compiled: Compile) -> None:
    plan = compiled(notices()).plan
    assert plan.render(plan.parse_response(1, {"note": "x"})) == {"approved": False, "note": "x"}
    assert [plan.target_of(index) for index in range(4)] == [ENGINE] * 4


def refusals(compiled: Compile, *steps: dict[str, Any], **envelope: Any) -> list[tuple[str, str, str]]:
    with pytest.raises(DefinitionInvalid) as refused:
        compiled(notices(steps=list(steps), **envelope))
    return found(refused.value.findings)


@pytest.mark.parametrize(
    ("step", "pointer"),
    [
        (tell(publish={"topic": "a b"}), "/publish/topic"),
        (tell(publish={"topic": ".."}), "/publish/topic"),
        (tell(publish={"topic": "x" * 250}), "/publish/topic"),
        (tell(publish={"topic": 1}), "/publish/topic"),
        (tell(publish={"type": "notice.v1.Note"}), "/publish/type"),
        (tell(publish={"key": "7"}), "/publish/key"),
        (tell(publish={"key": "input.nope"}), "/publish/key"),
        (tell(publish={"key": " "}), "/publish/key"),
        (tell(publish={"kez": "x"}), "/publish/kez"),
        (tell(publish={"key": "again.text"}), "/publish/key"),
        ({"name": "tell", "publish": {"topic": "x"}}, "/publish"),
        ({"name": "tell", "publish": []}, "/publish"),
        (tell(target="x:1"), "/target"),
        (tell(deadlineMs=1), "/deadlineMs"),
        (tell(answerWithinMs=1), "/answerWithinMs"),
        (tell(wait={"forMs": 1}), "/wait"),
        (ask(completion="external"), "/completion"),
        (ask(retry={}), "/retry"),
        (ask(remindAfterMs=5, answerWithinMs=5), "/remindAfterMs"),
        (ask(remindAfterMs=0), "/remindAfterMs"),
        (ask(answerWithinMs=True), "/answerWithinMs"),
        (ask(answerWithinMs=366 * 86_400_000 + 1), "/answerWithinMs"),
        ({**ask(), "ask": {**ask()["ask"], "responseType": "x.Y"}}, "/ask/responseType"),
        ({**ask(), "ask": {**ask()["ask"], "requestType": "x.Y"}}, "/ask/requestType"),
        ({**ask(), "ask": {**ask()["ask"], "key": "'x'"}}, "/ask/key"),
        (wait(wait={}), "/wait"),
        (wait(wait={"forMs": 1, "until": "input.ready_at"}), "/wait"),
        (wait(wait={"forMs": -1}), "/wait/forMs"),
        (wait(wait={"forMs": 1.5}), "/wait/forMs"),
        (wait(wait={"until": "1"}), "/wait/until"),
        (wait(wait={"until": "now()"}), "/wait/until"),
        (wait(rules=[]), "/rules"),
        (wait(celRules=[]), "/celRules"),
    ],
)
def test_a_fault_of_such_a_step_is_found_at_its_place(compiled: Compile, step: dict[str, Any], pointer: str) -> None:
    assert refusals(compiled, step) == [(step["name"], "workflow", f"/steps/0{pointer}")]


def test_rules_of_such_steps_are_checked_as_all_others(compiled: Compile) -> None:
    assert refusals(
        compiled, tell(rules=["nope = input.number"]), ask(celRules=[{"target": "number", "selector": "1 +"}])
    ) == [
        ("tell", "rule", "/steps/0/rules/0"),
        ("ask", "celRule", "/steps/1/celRules/0/selector"),
    ]


async def test_no_step_sends_to_a_topic_of_the_workers_themselves(protoc: ProtocChild) -> None:
    with pytest.raises(DefinitionInvalid, match="a topic of the workers themselves") as refused:
        await compile_definition(
            notices(), protoc=protoc, evaluator=EVALUATOR, own_topics={"notices", "questions", "others"}
        )
    assert found(refused.value.findings) == [
        ("tell", "workflow", "/steps/0/publish/topic"),
        ("ask", "workflow", "/steps/1/ask/topic"),
        ("again", "workflow", "/steps/3/publish/topic"),
    ]


@pytest.mark.parametrize("value", [0, -1, True, 1.5, "1", None, 366 * 86_400_000 + 1])
def test_the_deadline_of_a_run_is_a_number_of_milliseconds_up_to_a_year(compiled: Compile, value: object) -> None:
    assert refusals(compiled, tell(), runDeadlineMs=value) == [("", "workflow", "/runDeadlineMs")]
    assert compiled(notices(runDeadlineMs=366 * 86_400_000)).plan.run_deadline_ms == 366 * 86_400_000
    assert compiled(notices()).plan.run_deadline_ms is None


def test_only_steps_that_are_answered_say_how_long_that_may_take(compiled: Compile) -> None:
    document = loan_with(lambda d: d["steps"][1].update(answerWithinMs=9, remindAfterMs=8))
    work = compiled(document).plan.steps[1].work
    assert getattr(work, "patience", None) == Patience(answer_within_ms=9, remind_after_ms=8)
    with pytest.raises(DefinitionInvalid, match="for steps that are answered from outside") as refused:
        compiled(loan_with(lambda d: d["steps"][0].update(answerWithinMs=9)))
    assert found(refused.value.findings) == [("score", "workflow", "/steps/0/answerWithinMs")]


@pytest.mark.parametrize(
    ("retry", "pointers"),
    [
        (None, [""]),
        ([], [""]),
        ({"codes": ["GONE"]}, ["/codes/0"]),
        ({"codes": ["ABORTED", "OK", "unavailable"]}, ["/codes/1", "/codes/2"]),
        ({"codes": "ABORTED"}, ["/codes"]),
        ({"attempts": 0}, ["/attempts"]),
        ({"attempts": 1_001}, ["/attempts"]),
        ({"attempts": True}, ["/attempts"]),
        ({"delaysMs": 5}, ["/delaysMs"]),
        ({"delaysMs": [1, -1, "x", True, 2**31]}, [f"/delaysMs/{index}" for index in (1, 2, 3, 4)]),
        ({"delaysMs": [1] * 101}, ["/delaysMs"]),
        ({"delays": []}, ["/delays"]),
    ],
)
def test_a_retry_policy_is_read_strictly(compiled: Compile, retry: object, pointers: list[str]) -> None:
    with pytest.raises(DefinitionInvalid) as refused:
        compiled(loan_with(lambda d: d["steps"][0].update(retry=retry)))
    assert found(refused.value.findings) == [("score", "workflow", f"/steps/0/retry{pointer}") for pointer in pointers]


def test_a_retry_policy_says_what_is_tried_again_how_often_and_when(compiled: Compile) -> None:
    policy = {"codes": ["ABORTED"], "attempts": 5, "delaysMs": [100, 2_000]}
    step = compiled(loan_with(lambda d: d["steps"][0].update(retry=policy))).plan.steps[0]
    assert step.retry == RetryPolicy(frozenset({"ABORTED"}), 5, (100, 2_000))
    assert step.retry.retries(CallFailed("ABORTED", ""))
    assert not step.retry.retries(CallFailed("UNAVAILABLE", ""))
    assert [step.retry.delay_seconds(failures) for failures in (1, 2, 3, 1_000)] == [0.1, 2, 2, 2]


def test_without_a_retry_policy_three_codes_are_tried_again(compiled: Compile) -> None:
    empties: tuple[dict[str, object], ...] = ({}, {"codes": [], "delaysMs": []})
    for empty in empties:
        document = loan()
        document["steps"][0]["retry"] = empty
        assert compiled(document).plan.steps[0].retry == DEFAULT_RETRY
    assert compiled(loan()).plan.steps[0].retry == DEFAULT_RETRY
    codes = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "ABORTED", "INTERNAL")
    assert [DEFAULT_RETRY.retries(CallFailed(code, "")) for code in codes] == [True, True, True, False, False]
    assert DEFAULT_RETRY.delay_seconds(1) is None


@pytest.mark.parametrize(
    "document",
    [
        notices(),
        notices(runDeadlineMs=1),
        loan_with(lambda d: d["steps"][0].update(retry={})),
        loan_with(lambda d: d["steps"][1].update(remindAfterMs=1)),
    ],
)
def test_what_older_engines_do_not_know_is_left_to_newer_ones(compiled: Compile, document: dict[str, Any]) -> None:
    assert compiled(document).engine_level == 2
    assert compiled(loan()).engine_level == 1
