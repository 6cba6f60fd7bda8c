"""Gates: whether a step is run is decided by an expression, before anything else of the step."""

from collections.abc import Callable
from typing import Any

import pytest

from schemas.errors import DefinitionInvalid, EvaluatorUnavailable, ExternalStepReached, GateFailed
from streams.evaluator.protoc import ProtocChild
from streams.workflow.compiler import Compiled
from streams.workflow.plan import ENGINE_LEVEL
from streams.workflow.runner import Completed, Parked, StepOutcome, run_segment
from tests.workflow.samples import (
    DECIDED,
    EVALUATOR,
    INPUT,
    RESPONSES,
    SCORED,
    Clock,
    Log,
    Service,
    entry,
    found,
    loan_with,
    plan_of,
    segment,
)
from tests.workflow.unused import UnusedEvaluator

SKIPPED_DESK = entry(1, "desk", None, skipped=True)


def gates(*sources: str | None) -> Callable[[dict[str, Any]], None]:
    """Give each step of the loan its gate."""

    def change(document: dict[str, Any]) -> None:
        for step, source in zip(document["steps"], sources, strict=False):
            if source is not None:
                step["when"] = source

    return change


def without_output(*sources: str | None) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        gates(*sources)(document)
        del document["output"]

    return change


@pytest.mark.spec(44)
async def test_a_false_gate_skips_the_step_and_later_rules_see_its_empty_message(protoc: ProtocChild) -> None:
    def change(document: dict[str, Any]) -> None:
        gates("size(input.applicant) > 100", None, "!desk.approved && score.value == 0.0")(document)
        document["steps"][1]["when"] = "false"
        document["steps"][1]["method"] = "loan.v1.Tagger/Tag"
        document["steps"][2]["rules"] = ['labels += "kept"', 'subject = "none"', "subject = score.model"]
        document["steps"][2]["rules"].append("labels = desk.tags")

    document = loan_with(change)
    text = document["schema"]["sources"]["loan.proto"]
    document["schema"]["sources"]["loan.proto"] = (
        text + "service Tagger { rpc Tag(Application) returns (Tagged); } message Tagged { repeated string tags = 1; "
        "bool approved = 2; string note = 3; }"
    )
    plan = await plan_of(document, protoc)
    service, log = Service(plan.schema_set, RESPONSES), Log()

    completed = await segment(plan, service, log)

    assert isinstance(completed, Completed)
    assert service.called == ["notify"]
    sent: Any = plan.schema_set.from_wire("loan.v1.Mail", service.requests[0].payload)
    assert (sent.subject, list(sent.labels)) == ("none", [])  # an unset scalar is passed over, an empty list clears
    assert log.stored[:2] == [entry(0, "score", None, skipped=True), SKIPPED_DESK]
    assert log.targets == ["local:engine", "mailer", "local:engine"]
    assert completed.steps == (StepOutcome("score", True), StepOutcome("desk", True), StepOutcome("notify", False))


@pytest.mark.spec(54)
async def test_the_verdict_counts_skipped_steps_too(protoc: ProtocChild) -> None:
    def change(document: dict[str, Any]) -> None:
        del document["steps"][1]
        document["steps"][1]["when"] = "false"
        del document["output"]

    plan = await plan_of(loan_with(change), protoc)

    completed = await segment(plan, Service(plan.schema_set, RESPONSES))

    assert isinstance(completed, Completed)
    assert completed.verdict == "2 steps, output loan.v1.Score"
    assert completed.verdict.startswith("2 steps, output ")


@pytest.mark.spec(45)
async def test_the_result_is_that_of_the_last_step_that_ran_live_and_after_a_resume_alike(protoc: ProtocChild) -> None:
    plan = await plan_of(loan_with(without_output(None, "false", "false")), protoc)
    service, log = Service(plan.schema_set, RESPONSES), Log()

    live = await segment(plan, service, log)
    assert isinstance(live, Completed)
    assert live.result == {"value": 0.7, "model": "v3"}
    for kept in range(4):
        assert await segment(plan, service, stored=log.stored[:kept]) == live


@pytest.mark.spec(46)
async def test_a_run_of_which_every_step_was_skipped_gives_its_input(protoc: ProtocChild) -> None:
    plan = await plan_of(loan_with(without_output("false", "false", "false")), protoc)
    service, log = Service(plan.schema_set, RESPONSES), Log()

    live = await segment(plan, service, log)
    assert isinstance(live, Completed)
    assert (live.result, live.output_type) == (INPUT, "loan.v1.Application")
    assert await segment(plan, service, stored=log.stored) == live
    assert service.called == []


@pytest.mark.spec(90)
async def test_a_gate_that_is_false_on_a_step_answered_from_outside_skips_it_and_parks_nothing(
    protoc: ProtocChild,
) -> None:
    plan = await plan_of(loan_with(gates(None, "score.value > 0.9", None)), protoc)
    service, log = Service(plan.schema_set, RESPONSES), Log()

    completed = await segment(plan, service, log, refuse_external=True)

    assert isinstance(completed, Completed)
    assert log.stored[1] == SKIPPED_DESK
    assert service.called == ["score", "notify"]


async def test_a_gate_that_holds_parks_as_ever_or_refuses_a_run_that_cannot_wait(protoc: ProtocChild) -> None:
    plan = await plan_of(loan_with(gates(None, "score.value > 0.5", None)), protoc)
    service = Service(plan.schema_set, RESPONSES)

    assert isinstance(await segment(plan, service), Parked)
    with pytest.raises(ExternalStepReached):
        await segment(plan, service, refuse_external=True)


@pytest.mark.spec(41)
@pytest.mark.parametrize(
    ("gate", "said"),
    [
        ("1 / (input.amount_cents - input.amount_cents) == 0", "divide by zero"),
        ("dyn(input.applicant)", "it gives a string, not true or false"),
        ("dyn(null)", "it gives null"),
        ("dyn([true])", "it gives a list"),
        ("dyn(score)", "it gives loan.v1.Score"),
        ("dyn(1u)", "it gives a uint"),
    ],
)
async def test_a_gate_that_fails_or_is_no_truth_fails_its_step_without_a_retry(
    gate: str, said: str, protoc: ProtocChild
) -> None:
    plan = await plan_of(loan_with(gates(None, gate)), protoc)
    log = Log()

    with pytest.raises(GateFailed, match=f"GATE: when .*: {said}") as caught:
        await segment(plan, Service(plan.schema_set, RESPONSES), log)

    assert (caught.value.step, caught.value.retryable) == ("desk", False)
    assert gate in str(caught.value)
    assert log.stored == [SCORED]


@pytest.mark.spec(18)
@pytest.mark.parametrize("gate", ["input.applicant", "1", "null", "[true]", "score", "input.amount_cents + 1"])
def test_a_gate_of_another_type_is_a_finding(gate: str, compiled: Callable[[object], Compiled]) -> None:
    assert _findings(compiled, gates(None, gate)) == [("desk", "when", "/steps/1/when")]


@pytest.mark.parametrize(
    "gate",
    [
        "target.approved",  # no message is being built yet
        "desk.approved",  # the step itself
        "notify.id == ''",  # a later one
        "applicant == 'x'",
        "input.nothing == 1",
        "true ||",
        "input.tags.all(a, input.tags.all(b, input.tags.all(c, a == c)))",
        "true /* " + "x" * 4_096,
    ],
)
def test_a_gate_sees_the_scope_before_its_step_and_keeps_to_the_bounds(
    gate: str, compiled: Callable[[object], Compiled]
) -> None:
    assert _findings(compiled, gates(None, gate)) == [("desk", "when", "/steps/1/when")]


def test_a_gate_over_a_step_that_has_findings_itself_has_none_of_its_own(
    compiled: Callable[[object], Compiled],
) -> None:
    def change(document: dict[str, Any]) -> None:
        document["steps"][0]["method"] = "loan.v1.Scorer/Nothing"
        document["steps"][1]["when"] = "score.anything > 1 && score.value == 'x'"
        document["output"]["rules"] = []

    assert _findings(compiled, change) == [("score", "workflow", "/steps/0/method")]


def _findings(
    compiled: Callable[[object], Compiled], change: Callable[[dict[str, Any]], object]
) -> list[tuple[str, str, str]]:
    with pytest.raises(DefinitionInvalid) as caught:
        compiled(loan_with(change))
    return found(caught.value.findings)


async def test_a_machine_that_cannot_evaluate_is_no_failure_of_the_run(protoc: ProtocChild) -> None:
    plan = await plan_of(loan_with(gates("input.rush")), protoc)

    with pytest.raises(EvaluatorUnavailable):
        await run_segment(
            plan,
            plan.parse_input(INPUT),
            [],
            call=Service(plan.schema_set, RESPONSES),
            checkpoint=Log(),
            clock=Clock(),
            evaluator=UnusedEvaluator(EvaluatorUnavailable("no process")),
        )


async def test_a_plan_without_expressions_never_touches_the_evaluator(protoc: ProtocChild) -> None:
    plan = await plan_of(loan_with(lambda d: None), protoc)
    service = Service(plan.schema_set, RESPONSES)
    given = plan.parse_input(INPUT)

    for stored in ([], [SCORED, DECIDED]):
        await run_segment(
            plan, given, stored, call=service, checkpoint=Log(), clock=Clock(), evaluator=UnusedEvaluator()
        )


def test_only_a_definition_that_says_something_new_needs_the_newer_engine(
    compiled: Callable[[object], Compiled],
) -> None:
    def cel_rule(document: dict[str, Any]) -> None:
        document["steps"][0]["celRules"] = [{"target": "applicant", "selector": "'x'"}]

    def output_rule(document: dict[str, Any]) -> None:
        document["output"]["celRules"] = [{"target": "note", "selector": "'x'"}]

    assert compiled(loan_with(lambda d: None)).engine_level == 1
    for change in (gates("true"), cel_rule, output_rule):
        assert compiled(loan_with(change)).engine_level == 2 <= ENGINE_LEVEL


TAKEN = """
    as break const continue else false for function if import in let loop namespace null package return true var void
    while bool bytes double dyn int list map null_type optional_type string type uint
"""
FREE = """
    optional timestamp duration size has matches all exists exists_one filter math strings google loan cel self this
    abs any error result accu __result__ inputs none undefined not and or is try throw NaN inf message struct
"""


@pytest.mark.parametrize("name", TAKEN.split())
def test_a_step_name_that_expressions_could_not_read_is_refused(
    name: str, compiled: Callable[[object], Compiled]
) -> None:
    assert (name, "workflow", "/steps/0/name") in _findings(compiled, _named(name))


@pytest.mark.parametrize("name", FREE.split())
def test_a_step_of_any_other_name_can_be_read_by_expressions(name: str, compiled: Callable[[object], Compiled]) -> None:
    assert compiled(loan_with(_named(name))).plan.steps[2].gate is not None


def _named(name: str) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        document["steps"][0]["name"] = name
        document["steps"][2]["when"] = f"{name}.model == 'v3' && [1].all(n, {name}.value > 0.0)"
        document["output"]["rules"] = []

    return change


async def test_the_scope_of_a_gate_is_read_as_it_is_and_not_changed(protoc: ProtocChild) -> None:
    plan = await plan_of(loan_with(gates(None, "false", "score.value > 0.5 && input.tags == ['new']")), protoc)
    given = plan.parse_input(INPUT)
    before = given.SerializeToString(deterministic=True)
    log = Log()

    await run_segment(
        plan, given, [], call=Service(plan.schema_set, RESPONSES), checkpoint=log, clock=Clock(), evaluator=EVALUATOR
    )

    assert given.SerializeToString(deterministic=True) == before
    assert [kept.skipped for kept in log.stored] == [False, True, False]
