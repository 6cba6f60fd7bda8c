"""Validating: what keeps its rules goes on, and what breaks them ends the run with the first try."""

import base64
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from schemas.errors import (
    DefinitionInvalid,
    EvaluatorUnavailable,
    ItemFailed,
    StepFailed,
    ValidationFailed,
    WorkflowBroken,
)
from streams.evaluator.protoc import ProtocChild
from streams.workflow.compiler import compile_definition, load_plan
from streams.workflow.descriptors import SchemaSet
from streams.workflow.items import ItemStatus
from streams.workflow.plan import Plan
from streams.workflow.runner import Completed, run_segment
from tests.workflow.mail import Kept, Mailer, gone, mailed, sent, tried
from tests.workflow.ruled import IMPORT, ruled_mail, ruled_mail_all, ruled_source
from tests.workflow.samples import EVALUATOR, Clock, Log, Service, found, segment

DONE, FAILED = ItemStatus.COMPLETED, ItemStatus.FAILED


def result(completed: object) -> Any:
    assert isinstance(completed, Completed)
    return completed.result


async def ran(plan: Plan, to: str, response: object = None, log: Log | None = None) -> Service:
    service = Service(plan.schema_set, {"mail": {"id": "m"} if response is None else response})
    await segment(plan, service, log, given={"title": to})
    return service


async def failure(plan: Plan, to: str, response: object = None) -> StepFailed:
    log = Log()
    with pytest.raises(StepFailed) as caught:
        await ran(plan, to, response, log)
    assert log.stored == []
    assert not caught.value.retryable
    return caught.value


async def test_a_response_must_keep_its_rules_where_its_step_asks(compiled_plan: Any) -> None:
    checked, unchecked = await compiled_plan(ruled_mail(validate=True)), await compiled_plan(ruled_mail())

    error = await failure(checked, "1", {"id": "m-2"})
    assert (str(error), error.step, error.kind) == ("VALIDATION: id: must be sent", "mail", "VALIDATION")
    violation = {"path": "id", "ruleId": "sent.id", "message": "must be sent"}
    assert error.event_detail == {"violations": [violation], "violationsTotal": 1}
    await ran(checked, "1", {"id": "m-1"})
    await ran(unchecked, "1", {"id": "m-2"})


async def test_an_edge_delivers_nothing_that_breaks_rules(compiled_plan: Any) -> None:
    edge = {"sources": ["input"], "produceType": "mail.v1.Mail", "rules": ["to = input.title"]}
    document = ruled_mail(edge={**edge, "validate": True})
    del document["steps"][0]["rules"]
    plan = await compiled_plan(document)

    service = Service(plan.schema_set, {"mail": {"id": "m-2"}})
    with pytest.raises(ValidationFailed, match=r"^VALIDATION: edge: to: must not be in list") as caught:
        await segment(plan, service, given={"title": "3"})
    assert (service.called, caught.value.step) == ([], "mail")
    assert (await ran(plan, "1")).called == ["mail"]


async def test_a_record_that_breaks_rules_is_not_sent(compiled_plan: Any) -> None:
    document = ruled_mail()
    publish = {"topic": "mails", "type": "mail.v1.Mail"}
    document["steps"] = [{"name": "mail", "publish": publish, "rules": ["to = input.title"], "validate": True}]
    plan = await compiled_plan(document)

    assert str(await failure(plan, "3")).startswith("VALIDATION: to: must not be in list")
    await ran(plan, "1", log=(log := Log()))
    assert log.stored[0].record is not None


async def test_an_input_must_keep_its_rules_where_the_document_asks(compiled_plan: Any) -> None:
    plan, unchecked = await compiled_plan({**ruled_mail(), "validate": True}), await compiled_plan(ruled_mail())

    error = await failure(plan, "abcdef")
    assert (str(error), error.step) == ("VALIDATION: input: title: must be at most 5 characters", "")
    await ran(plan, "abcde")
    await ran(unchecked, "abcdef")
    assert (plan.engine_level, plan.validates_input, unchecked.validates_input) == (2, True, False)


async def test_an_input_is_looked_at_once(compiled_plan: Any) -> None:
    plan = await compiled_plan({**ruled_mail(), "validate": True})
    stored = (log := Log()).stored
    await ran(plan, "1", log=log)

    await segment(plan, Service(plan.schema_set, {}), stored=stored, given={"title": "abcdef"})


async def test_items_that_break_rules_are_left_out(compiled_plan: Any) -> None:
    plan = await compiled_plan(ruled_mail_all(edge={"validate": True}))
    mailer, log, kept = Mailer(plan), Log(), Kept()

    assert result(await mailed(plan, mailer, count=8, log=log, items=kept))["sentMails"] == sent(0, 1, 2, 4, 6, 7)
    assert sorted(mailer.called) == [0, 1, 2, 4, 6, 7]
    assert kept.of(FAILED) == [3, 5]
    assert kept.items[3].error == "VALIDATION: mailall#3: edge: to: must not be in list [3, 5]"
    assert kept.items[3].input == {"to": "3", "subject": "", "labels": []}
    assert log.stored[0].detail == {"items": {"total": 8, "done": 6, "failed": 2, "failedIndexes": [3, 5]}}


async def test_a_rule_of_all_items_together_ends_the_step_before_any_call(compiled_plan: Any) -> None:
    plan = await compiled_plan(ruled_mail_all(edge={"validate": True}))
    mailer = Mailer(plan)

    with pytest.raises(ValidationFailed, match=r"^VALIDATION: edge: mails: must contain no more than 8"):
        await mailed(plan, mailer, count=9)
    assert mailer.requests == []


async def test_an_item_that_breaks_rules_stops_those_after_it_and_none_before(compiled_plan: Any) -> None:
    plan = await compiled_plan(ruled_mail_all(edge={"validate": True}, failurePolicy="FAIL_FAST"))
    mailer, kept = Mailer(plan), Kept()

    with pytest.raises(ItemFailed, match=r"^VALIDATION: mailall#3: edge: to: ") as caught:
        await mailed(plan, mailer, count=8, items=kept)
    assert (sorted(mailer.called), mailer.cancelled, kept.of(DONE)) == ([0, 1, 2], [], [0, 1, 2])
    assert not caught.value.retryable
    assert caught.value.event_detail is not None
    with pytest.raises(ItemFailed, match=r"^VALIDATION: mailall#3: edge: to: "):
        await mailed(plan, mailer, count=8, items=kept)
    assert len(mailer.requests) == 3


async def test_an_item_that_is_to_be_tried_again_comes_before_one_that_breaks_rules(compiled_plan: Any) -> None:
    plan = await compiled_plan(ruled_mail_all(edge={"validate": True}, failurePolicy="FAIL_FAST"))
    mailer, kept = Mailer(plan), Kept()
    mailer.failing = {1: gone()}

    with pytest.raises(ItemFailed, match="mailall#1: UNAVAILABLE") as caught:
        await mailed(plan, mailer, count=8, items=kept)
    assert caught.value.retryable
    assert kept.of(FAILED) == []


async def test_each_response_of_a_step_that_fans_out_must_keep_its_rules(compiled_plan: Any) -> None:
    document = ruled_mail_all()
    document["steps"][0]["validate"] = True
    plan = await compiled_plan(document)
    kept = Kept(tried(0, DONE, response={"id": "m-0"}))

    assert result(await mailed(plan, Mailer(plan), count=4, items=kept))["sentMails"] == sent(0, 1, 3)
    assert kept.items[2].error == "VALIDATION: mailall#2: id: must be sent"


async def test_what_has_no_rules_needs_no_evaluator(compiled_plan: Any) -> None:
    document = ruled_mail(validate=True)
    document["schema"]["sources"] = {"mail.proto": ruled_source({"package mail.v1;": f"package mail.v1;\n{IMPORT}"})}
    document["validate"] = True
    plan = await compiled_plan(document)

    assert not plan.validates_input
    assert not plan.steps[0].validates
    service = Service(plan.schema_set, {"mail": {"id": "m-2"}})
    given: Any = plan.parse_input({"title": "abcdef"})
    completed = await run_segment(
        plan,
        given,
        (),
        call=service,
        checkpoint=Log(),
        clock=Clock(),
        evaluator=None,  # type: ignore[arg-type]
    )
    assert isinstance(completed, Completed)


async def test_a_machine_that_cannot_evaluate_is_no_failure_of_the_run(compiled_plan: Any) -> None:
    class Away:
        async def rejections(self, *_: object, **__: object) -> None:
            raise EvaluatorUnavailable("no process")

    plan = await compiled_plan(ruled_mail(validate=True))
    away: Any = Away()
    with pytest.raises(EvaluatorUnavailable):
        await run_segment(
            plan,
            plan.parse_input({"title": "1"}),
            (),
            call=Service(plan.schema_set, {"mail": {}}),
            checkpoint=Log(),
            clock=Clock(),
            evaluator=away,
        )


def broken_rule(**changes: Any) -> dict[str, Any]:
    document = ruled_mail_all()
    document["schema"]["sources"] = {"mail.proto": ruled_source().replace("this != 'm-2'", "this +")}
    document["steps"][0].update(changes)
    return document


async def test_a_broken_rule_is_a_finding_where_it_would_be_applied(protoc: ProtocChild) -> None:
    await compile_definition(broken_rule(), protoc=protoc, evaluator=EVALUATOR)
    document = broken_rule(validate=True)
    document["steps"].append(
        {
            **document["steps"][0],
            "name": "again",
            "edge": {"sources": ["input"], "produceType": "mail.v1.MailBatch", "validate": True},
        }
    )

    with pytest.raises(DefinitionInvalid) as caught:
        await compile_definition(document, protoc=protoc, evaluator=EVALUATOR)

    findings = caught.value.findings
    assert found(findings) == [
        ("mailall", "workflow", "/steps/0/validate"),
        ("again", "workflow", "/steps/1/validate"),
    ]
    assert "a rule is broken: mail.v1.Sent.id: failed to compile expression sent.id: 1:7: Syntax" in findings[0].error


async def test_a_broken_rule_of_an_edge_and_of_the_input_is_found_below_them(protoc: ProtocChild) -> None:
    document = ruled_mail_all(edge={"validate": True})
    text = ruled_source().replace('{not_in: ["3", "5"]}', '{pattern: "("}')
    document["schema"]["sources"] = {"mail.proto": text}
    document["validate"] = True

    with pytest.raises(DefinitionInvalid) as caught:
        await compile_definition(document, protoc=protoc, evaluator=EVALUATOR)

    assert found(caught.value.findings) == [
        ("", "workflow", "/validate"),
        ("mailall", "edge", "/steps/0/edge/validate"),
    ]
    assert all("a rule is broken: mail.v1.Mail.to: " in finding.error for finding in caught.value.findings)


async def test_a_rule_that_fails_is_a_defect_of_the_workflow_and_never_a_retry(compiled_plan: Any) -> None:
    document = ruled_mail(validate=True)
    text = ruled_source().replace("this != 'm-2'", "10 / int(this) > 0")
    document["schema"]["sources"] = {"mail.proto": text}
    plan = await compiled_plan(document)

    error = await failure(plan, "1", {"id": "0"})
    assert isinstance(error, WorkflowBroken)
    assert error.step == "mail"
    assert str(error).startswith("WORKFLOW: a rule of mail.v1.Sent gives no answer: error evaluating sent.id: ")
    await ran(plan, "1", {"id": "5"})


async def test_many_long_violations_fit_into_an_event(compiled_plan: Any) -> None:
    document = {**ruled_mail(), "validate": True}
    text = ruled_source().replace("{not_in:", f'{{prefix: "{"é" * 400}", not_in:')
    document["schema"]["sources"] = {"mail.proto": text}
    plan = await compiled_plan(document)
    service = Service(plan.schema_set, {})

    with pytest.raises(ValidationFailed) as caught:
        await segment(plan, service, given={"drafts": [{"to": "3"}] * 150})

    detail: Any = caught.value.event_detail
    assert detail["violationsTotal"] == 300
    assert 1 < len(detail["violations"]) < 20
    assert str(caught.value).endswith("; and 200 more")


@pytest.mark.spec(12)
async def test_rules_hold_however_the_schema_arrived(protoc: ProtocChild) -> None:
    """As sources with or without the file of options, as a set with or without it, and pinned."""
    with_options = await protoc({"mail.proto": ruled_source()}, None)
    files = SchemaSet.from_bytes(with_options).to_bytes()
    without_options = _without(files, "buf/validate/validate.proto")
    assert len(files) - len(without_options) > 50_000
    for descriptor_set in (with_options, files, without_options):
        document = ruled_mail(validate=True)
        document["schema"] = {"descriptorSetBase64": base64.b64encode(descriptor_set).decode()}
        compiled = await compile_definition(document, protoc=protoc, evaluator=EVALUATOR)
        for plan in (
            compiled.plan,
            await load_plan(compiled.document, compiled.descriptor_set, evaluator=EVALUATOR),
        ):
            assert str(await failure(plan, "1", {"id": "m-2"})) == "VALIDATION: id: must be sent"


def _without(descriptor_set: bytes, name: str) -> bytes:
    files = FileDescriptorSet.FromString(descriptor_set)
    kept = [file for file in files.file if file.name != name]
    return FileDescriptorSet(file=kept).SerializeToString()


async def test_two_editions_of_a_file_keep_their_own_rules(compiled_plan: Any) -> None:
    plans = []
    for forbidden in ("m-2", "m-1"):
        document = ruled_mail(validate=True)
        document["schema"]["sources"] = {"mail.proto": ruled_source().replace("m-2", forbidden)}
        plans.append(await compiled_plan(document))

    for _ in range(2):
        for plan, forbidden, allowed in zip(plans, ("m-2", "m-1"), ("m-1", "m-2"), strict=True):
            assert "must be sent" in str(await failure(plan, "1", {"id": forbidden}))
            await ran(plan, "1", {"id": allowed})


async def test_the_file_of_options_leaves_the_default_message_alone(compiled_plan: Any) -> None:
    declared = "message Only { string a = 1; } service S { rpc M(Only) returns (Only); }"
    text = f'syntax = "proto3"; package p; {IMPORT} {declared}'
    document = ruled_mail()
    del document["inputType"]
    document["schema"]["sources"] = {"p.proto": text}
    document["steps"][0].update(method="p.S/M", rules=[])

    assert (await compiled_plan(document)).input_type == "p.Only"
