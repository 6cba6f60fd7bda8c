"""Edges and fan-outs: every fault before anything runs, and the call of an edge without a fan-out."""

from collections.abc import Callable
from typing import Any

import pytest

from schemas.errors import DefinitionInvalid, Finding, MappingFailed
from streams.workflow.compiler import Compiled
from streams.workflow.plan import PlannedCall, PlannedFanOut
from streams.workflow.runner import Completed
from tests.workflow.mail import EDGE, FAN_OUT, mail_all
from tests.workflow.samples import RESPONSES, Log, Service, found, loan_with, segment

Compile = Callable[[object], Compiled]


def findings_of(compiled: Compile, document: object) -> tuple[Finding, ...]:
    with pytest.raises(DefinitionInvalid) as caught:
        compiled(document)
    return caught.value.findings


def texts_of(compiled: Compile, document: object) -> list[tuple[str, str, str]]:
    """Kind, place within the step, and sentence of each finding."""
    findings = findings_of(compiled, document)
    assert {finding.step for finding in findings} <= {"mailall", "score", ""}
    return [(finding.kind, finding.pointer.removeprefix("/steps/0"), finding.error) for finding in findings]


def scored(edge: dict[str, Any], **step: Any) -> dict[str, Any]:
    """The loan definition whose first step has an edge instead of rules."""

    def change(document: dict[str, Any]) -> None:
        del document["steps"][0]["rules"]
        document["steps"][0].update(edge=edge, **step)
        del document["steps"][1]
        document["output"]["rules"] = ["note = score.model"]

    return loan_with(change)


SCORE_EDGE: dict[str, Any] = {
    "sources": ["input"],
    "produceType": "loan.v1.ScoreRequest",
    "rules": ["applicant = input.applicant", "cents = input.amount_cents"],
}


async def test_an_edge_builds_the_request_of_its_call(compiled_plan: Any) -> None:
    plan = await compiled_plan(scored(SCORE_EDGE))
    service = Service(plan.schema_set, RESPONSES)

    completed = await segment(plan, service, Log())

    assert isinstance(completed, Completed)
    sent: Any = plan.schema_set.from_wire("loan.v1.ScoreRequest", service.requests[0].payload)
    assert (sent.applicant, sent.cents) == ("ana", 250_000)
    assert isinstance(plan.steps[0].work, PlannedCall)
    assert plan.engine_level == 2


async def test_nothing_is_called_when_an_edge_cannot_be_built(compiled_plan: Any) -> None:
    plan = await compiled_plan(scored({**SCORE_EDGE, "rules": ["cents = input.applicant"]}))
    service = Service(plan.schema_set, RESPONSES)

    with pytest.raises(MappingFailed, match=r"cents = input\.applicant"):
        await segment(plan, service, Log())

    assert service.requests == []


def test_an_edge_sees_its_sources_alone(compiled: Compile) -> None:
    def change(document: dict[str, Any]) -> None:
        edge = {"sources": ["score"], "produceType": "loan.v1.Mail", "rules": ["to = input.applicant"]}
        del document["steps"][2]["rules"]
        document["steps"][2]["edge"] = edge

    [finding] = findings_of(compiled, loan_with(change))

    assert (finding.step, finding.kind, finding.pointer) == ("notify", "edge", "/steps/2/edge/rules/0")
    assert 'unknown source "input"' in finding.error


@pytest.mark.parametrize(
    ("edge", "pointer", "text"),
    [
        ({"sources": [], "rules": []}, "/sources", "at least one"),
        ({"sources": ["later"], "rules": []}, "/sources/0", 'unknown source "later"'),
        ({"sources": ["input", "a-b"]}, "/sources/1", 'unknown source "a-b"'),
        ({"sources": ["input", "input"]}, "/sources/1", "named twice"),
        ({"sources": "input", "rules": []}, "/sources", "must be an array"),
        ({"produceType": "loan.v1.Nothing"}, "/produceType", "unknown message type"),
        ({"produceType": "loan.v1.Mail", "rules": []}, "/produceType", "takes loan.v1.ScoreRequest"),
        ({"rules": ["cents = 1.5"]}, "/rules/0", "cents"),
        ({"celRules": [{"selector": "1"}]}, "/celRules/0", "target is missing"),
        ({"validate": "yes"}, "/validate", "must be true or false"),
        ({"projectTo": "loan.v1.Mail"}, "/projectTo", "build the message with rules and celRules"),
        ({"rule": []}, "/rule", "is no key here"),
    ],
)
def test_a_fault_of_an_edge_is_a_finding_at_its_place(
    edge: dict[str, Any], pointer: str, text: str, compiled: Compile
) -> None:
    [(kind, found_at, error)] = texts_of(compiled, scored({**SCORE_EDGE, **edge}))

    assert (kind, found_at) == ("edge", f"/edge{pointer}")
    assert text in error


def test_an_edge_needs_sources_and_a_type(compiled: Compile) -> None:
    assert texts_of(compiled, scored({})) == [
        ("edge", "/edge", "sources is missing"),
        ("edge", "/edge", "produceType is missing"),
    ]


@pytest.mark.parametrize("edge", [7, [], "x", None])
def test_an_edge_is_an_object(edge: Any, compiled: Compile) -> None:
    [(kind, pointer, _)] = texts_of(compiled, scored(edge))

    assert (kind, pointer) == ("edge", "/edge")


@pytest.mark.parametrize(
    "own", [{"rules": ["applicant = input.applicant"]}, {"celRules": [{"selector": "'a'", "target": "applicant"}]}]
)
def test_a_step_with_an_edge_has_no_rules_of_its_own(own: dict[str, Any], compiled: Compile) -> None:
    [(kind, pointer, error)] = texts_of(compiled, scored(SCORE_EDGE, **own))

    assert (kind, pointer) == ("edge", f"/{next(iter(own))}")
    assert "they stand in the edge" in error


def test_a_step_that_is_answered_from_outside_has_no_edge(compiled: Compile) -> None:
    document = scored(SCORE_EDGE, completion="external")

    assert found(findings_of(compiled, document)) == [("score", "edge", "/steps/0/edge")]


def test_a_fan_out_is_planned_with_its_collect_type(compiled: Compile) -> None:
    document = mail_all()
    document["output"] = {"type": "mail.v1.SentBatch", "rules": ["sent_mails += mailall.sent_mails"]}

    plan = compiled(document).plan

    [step] = plan.steps
    assert isinstance(step.work, PlannedFanOut)
    assert step.output_type == "mail.v1.SentBatch"
    assert plan.target_of(0) == "mailer"


@pytest.mark.parametrize("key", FAN_OUT)
def test_every_member_of_a_fan_out_is_needed(key: str, compiled: Compile) -> None:
    document = mail_all()
    del document["steps"][0]["fanOut"][key]

    assert texts_of(compiled, document) == [("fanOut", "/fanOut", f"{key} is missing")]


@pytest.mark.parametrize(
    ("fan_out", "pointer", "text"),
    [
        ({"maxItems": 0}, "/maxItems", "from 1 to 1,024"),
        ({"maxItems": 1025}, "/maxItems", "from 1 to 1,024"),
        ({"maxItems": "7"}, "/maxItems", "from 1 to 1,024"),
        ({"maxItems": True}, "/maxItems", "from 1 to 1,024"),
        ({"maxItems": 7.0}, "/maxItems", "from 1 to 1,024"),
        ({"maxConcurrency": 0}, "/maxConcurrency", "from 1 to 64"),
        ({"maxConcurrency": 65}, "/maxConcurrency", "from 1 to 64"),
        ({"failurePolicy": "fail_fast"}, "/failurePolicy", "FAIL_FAST or CONTINUE"),
        ({"failurePolicy": None}, "/failurePolicy", "FAIL_FAST or CONTINUE"),
        ({"items": "mail"}, "/items", 'unknown field "mail"'),
        ({"items": "mails."}, "/items", "not a path"),
        ({"items": "one"}, "/items", "no repeated message"),
        ({"items": "names"}, "/items", "no repeated message"),
        ({"items": "by_name"}, "/items", "no repeated message"),
        ({"items": "mails.to"}, "/items", "mails is repeated"),
        ({"items": "envelope"}, "/items", "no repeated message"),
        ({"collectType": "mail.v1.Nothing"}, "/collectType", "unknown message type"),
        ({"collectInto": "sentMails"}, "/collectInto", "rules take sent_mails"),
        ({"collectInto": "one"}, "/collectInto", "no repeated message"),
        ({"collectInto": "ids"}, "/collectInto", "no repeated message"),
        ({"collectInto": "by_name"}, "/collectInto", "no repeated message"),
        ({"collectInto": "title"}, "/collectInto", "no repeated message"),
        ({"collectInto": "mails"}, "/collectInto", "holds mail.v1.Mail, and mail.v1.Mailer/Send returns mail.v1.Sent"),
        ({"projectTo": "mail.v1.Mail"}, "/projectTo", "there are no projections here"),
        ({"align": True}, "/align", "is no key here"),
        ({"aligned": "yes"}, "/aligned", "must be true or false"),
        ({"aligned": True, "failurePolicy": "FAIL_FAST"}, "/aligned", "goes with failurePolicy CONTINUE"),
    ],
)
def test_a_fault_of_a_fan_out_is_a_finding_at_its_place(
    fan_out: dict[str, Any], pointer: str, text: str, compiled: Compile
) -> None:
    [(kind, found_at, error)] = texts_of(compiled, mail_all(**fan_out))

    assert (kind, found_at) == ("fanOut", f"/fanOut{pointer}")
    assert text in error


def test_items_may_lie_deeper_and_must_be_what_the_method_takes(compiled: Compile) -> None:
    compiled(mail_all(edge={"rules": ["envelope.mails += input.drafts"]}, items="envelope.mails"))

    edge = {"produceType": "mail.v1.SentBatch", "rules": []}
    [(kind, pointer, error)] = texts_of(compiled, mail_all(edge=edge, items="sent_mails"))
    assert (kind, pointer) == ("fanOut", "/fanOut/items")
    assert "sent_mails holds mail.v1.Sent, and mail.v1.Mailer/Send takes mail.v1.Mail" in error


def test_a_fan_out_needs_an_edge(compiled: Compile) -> None:
    document = mail_all()
    del document["steps"][0]["edge"]

    assert found(findings_of(compiled, document)) == [("mailall", "fanOut", "/steps/0/fanOut")]


def test_faults_of_an_edge_and_of_its_fan_out_are_told_together(compiled: Compile) -> None:
    document = mail_all(edge={"sources": ["later"]}, collectInto="ids", maxItems=0)

    assert sorted(kind for kind, _, _ in texts_of(compiled, document)) == ["edge", "edge", "fanOut", "fanOut"]


def test_the_rules_of_an_edge_count_among_those_of_the_definition(compiled: Compile) -> None:
    document = mail_all(edge={"rules": EDGE["rules"] * 10_001})

    [finding] = findings_of(compiled, document)
    assert "10,001 rules" in finding.error


def test_a_gap_must_be_a_message_that_can_be_empty(compiled: Compile) -> None:
    proto = """syntax = "proto2"; package a;
message In { repeated Ask asks = 1; }
message Ask {}
message Said { required string text = 1; }
message All { repeated Said said = 1; }
service Asks { rpc Put(Ask) returns (Said); }"""
    fan_out = {**FAN_OUT, "items": "asks", "collectType": "a.All", "collectInto": "said"}
    edge = {"sources": ["input"], "produceType": "a.In", "rules": ["asks += input.asks"]}
    step = {"name": "mailall", "target": "asks", "method": "a.Asks/Put", "edge": edge, "fanOut": fan_out}
    document = {"schema": {"sources": {"a.proto": proto}}, "inputType": "a.In", "steps": [step]}
    compiled(document)

    fan_out["aligned"] = True

    assert texts_of(compiled, document) == [
        ("fanOut", "/fanOut/aligned", "aligned: a gap is an empty a.Said, which needs text")
    ]
