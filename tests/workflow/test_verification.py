"""Verification: every fault of a definition before anything runs."""

from collections.abc import Callable
from typing import Any

import pytest

from schemas.errors import DefinitionInvalid, Finding
from streams.workflow.compiler import Compiled
from streams.workflow.plan import PlannedCall
from tests.workflow.samples import found, loan, loan_with

Compile = Callable[[object], Compiled]


@pytest.fixture
def findings(compiled: Compile) -> Callable[[object], tuple[Finding, ...]]:
    """Compile a definition that does not verify and give its findings."""

    def run(document: object) -> tuple[Finding, ...]:
        with pytest.raises(DefinitionInvalid) as caught:
            compiled(document)
        return caught.value.findings

    return run


Findings = Callable[[object], tuple[Finding, ...]]


def test_a_sound_definition_has_no_findings(compiled: Compile) -> None:
    plan = compiled(loan()).plan

    assert [step.name for step in plan.steps] == ["score", "desk", "notify"]
    assert isinstance(plan.steps[0].work, PlannedCall)
    assert plan.steps[0].work.method_path == "/loan.v1.Scorer/Score"
    assert (plan.input_type, plan.budget_ms) == ("loan.v1.Application", 45_000)


@pytest.mark.spec(15)
@pytest.mark.parametrize("name", ["input", "target", "a-b", "1a", "é", "output", "true", "in", "string", "a b"])
def test_a_name_that_is_no_identifier_or_is_taken_is_one_finding(name: str, findings: Findings) -> None:
    document = loan_with(lambda d: d["steps"][0].update(name=name, rules=["no rule at all"]))

    assert found(findings(document)) == [(name, "workflow", "/steps/0/name")]


@pytest.mark.spec(15)
def test_a_name_used_twice_is_one_finding_and_the_first_one_stays_in_scope(findings: Findings) -> None:
    def change(document: dict[str, Any]) -> None:
        document["steps"][2]["name"] = "score"
        document["output"]["rules"] = ["note = score.model"]

    assert found(findings(loan_with(change))) == [("score", "workflow", "/steps/2/name")]


@pytest.mark.spec(16)
def test_a_streaming_method_is_a_finding_and_later_steps_still_see_its_type(findings: Findings) -> None:
    def change(document: dict[str, Any]) -> None:
        document["steps"][0]["method"] = "loan.v1.Scorer/Stream"
        document["steps"][2]["rules"] = ["subject = score.model", "to = score.nothing"]

    streaming, reading = findings(loan_with(change))

    assert found([streaming]) == [("score", "method", "/steps/0/method")]
    assert found([reading]) == [("notify", "rule", "/steps/2/rules/1")]
    assert "unknown field" in reading.error


@pytest.mark.spec(17)
def test_a_rule_that_reads_a_later_step_is_a_finding_on_the_reading_step(findings: Findings) -> None:
    document = loan_with(lambda d: d["steps"][0]["rules"].append("applicant = notify.id"))

    [finding] = findings(document)

    assert found([finding]) == [("score", "rule", "/steps/0/rules/2")]
    assert "neither input nor an earlier step" in finding.error


@pytest.mark.spec(19)
@pytest.mark.parametrize("completion", ["later", "External", "external "])
def test_an_unknown_completion_is_a_finding(completion: str, findings: Findings) -> None:
    document = loan_with(lambda d: d["steps"][1].update(completion=completion, target="desk"))

    assert found(findings(document)) == [("desk", "completion", "/steps/1/completion")]


@pytest.mark.spec(20)
@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ("to = input.tags", "a list of string cannot become the one value"),
        ('to += "x"', "needs a repeated target"),
        ("to += input.applicant", "needs a repeated target"),
        ("to = score", "a message"),
        ("to = input", "a message"),
    ],
)
def test_shapes_that_never_fit_are_findings(rule: str, reason: str, findings: Findings) -> None:
    [finding] = findings(loan_with(lambda d: d["steps"][2].update(rules=[rule])))

    assert found([finding]) == [("notify", "rule", "/steps/2/rules/0")]
    assert reason in finding.error
    assert rule in finding.error


@pytest.mark.spec(21)
def test_a_single_quoted_literal_is_an_unknown_source(findings: Findings) -> None:
    [finding] = findings(loan_with(lambda d: d["steps"][2].update(rules=["to = 'ana'"])))

    assert found([finding]) == [("notify", "rule", "/steps/2/rules/0")]
    assert "unknown source" in finding.error


@pytest.mark.spec(22)
def test_a_bad_output_rule_is_a_finding_of_the_output_without_a_step(findings: Findings) -> None:
    [finding] = findings(loan_with(lambda d: d["output"]["rules"].append("nte = desk.note")))

    assert found([finding]) == [("", "output", "/output/rules/4")]
    assert "did you mean note" in finding.error


def test_an_unknown_output_type_is_a_finding_of_the_output(findings: Findings) -> None:
    document = loan_with(lambda d: d["output"].update(type="loan.v1.Outcme"))

    assert found(findings(document)) == [("", "output", "/output/type")]


@pytest.mark.spec(23)
@pytest.mark.parametrize("rule", ["labels = input.applicant", 'labels = "x"'])
def test_one_value_assigned_to_a_list_is_a_finding_with_the_way_out(rule: str, findings: Findings) -> None:
    [finding] = findings(loan_with(lambda d: d["steps"][2].update(rules=[rule])))

    assert found([finding]) == [("notify", "rule", "/steps/2/rules/0")]
    assert "use +=" in finding.error


@pytest.mark.spec(5)
@pytest.mark.parametrize(
    ("method", "reason"),
    [
        ("loan.v1.Desk.Decide", "not of the form package.Service/Method"),
        ("loan.v1.Dsk/Decide", "unknown service"),
        ("loan.v1.Desk/Dcide", "unknown method"),
    ],
)
def test_a_method_that_is_none_or_unknown_is_told_apart_on_its_step(
    method: str, reason: str, findings: Findings
) -> None:
    [finding] = findings(loan_with(lambda d: d["steps"][1].update(method=method)))

    assert found([finding]) == [("desk", "workflow", "/steps/1/method")]
    assert reason in finding.error


def test_what_reads_a_broken_step_is_not_reported_for_it(findings: Findings) -> None:
    document = loan_with(lambda d: d["steps"][1].update(method="loan.v1.Desk/Dcide"))

    assert [finding.step for finding in findings(document)] == ["desk"]  # the output reads desk.approved


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ('cents = "12x"', "not an integer"),
        ("cents = 1.5", "not an integer"),
        ("cents = true", "bool cannot become int64"),
        ("applicant = input.rush.x", "single value"),
        ("cents = input.rush", "bool cannot become int64"),
        ("applicant.x = 1", "single value"),
        ("cents = input.amountCents", "rules take amount_cents"),
        ("nobody = 1", "unknown field"),
        ("-nobody", "unknown field"),
        ("", "blank"),
    ],
)
def test_literals_and_types_that_never_fit_are_findings(rule: str, reason: str, findings: Findings) -> None:
    [finding] = findings(loan_with(lambda d: d["steps"][0].update(rules=[rule])))

    assert found([finding]) == [("score", "rule", "/steps/0/rules/0")]
    assert reason in finding.error


@pytest.mark.parametrize(
    "target",
    ["mailer", "mail_er.v2-x", "127.0.0.1:9000", "mail.example.com:1", "m:65535", "[::1]:9000", "_x"],
)
def test_a_target_is_a_name_or_host_and_port(target: str, compiled: Compile) -> None:
    assert compiled(loan_with(lambda d: d["steps"][2].update(target=target))).plan.target_of(2) == target


@pytest.mark.parametrize(
    "target",
    [
        "http://mail:9000",
        "dns:///mail:9000",
        "me@mail:9000",
        "mail:9000/path",
        "mail:9000?x=1",
        "mail%20er:1",
        "mail:0",
        "mail:65536",
        "mail:",
        ":9000",
        "mail:9:9",
        "-mail",
        "ma il",
        "::1",
        "[::1]",
        "[nonsense]:1",
        "[::1::]:1",
        "mäil",
        "job:",
        "job:re index",
        "mail:9000\n",
    ],
)
def test_what_is_no_target_is_a_finding(target: str, findings: Findings) -> None:
    document = loan_with(lambda d: d["steps"][2].update(target=target))

    assert found(findings(document)) == [("notify", "workflow", "/steps/2/target")]


@pytest.mark.spec(11)
def test_the_one_message_of_a_schema_is_the_input_type_when_none_is_named(
    compiled: Compile, findings: Findings
) -> None:
    document: dict[str, Any] = {
        "schema": {
            "sources": {
                "one.proto": 'syntax = "proto3"; package one; message Only { string a = 1; } '
                "service Echo { rpc Echo(Only) returns (Only); }"
            }
        },
        "steps": [{"name": "echo", "target": "echo", "method": "one.Echo/Echo", "rules": ["a = input.a"]}],
    }
    assert compiled(document).plan.input_type == "one.Only"

    two = loan()
    del two["inputType"]
    assert found(findings(two)) == [("", "workflow", "")]


@pytest.mark.parametrize("name", [".loan.v1.Application", "loan.v1.Scorer", "loan.v1.Nothing"])
def test_an_input_type_that_is_no_message_is_a_finding(name: str, findings: Findings) -> None:
    assert found(findings({**loan(), "inputType": name})) == [("", "workflow", "/inputType")]


def test_a_schema_that_does_not_resolve_is_a_finding_beside_those_of_the_form(findings: Findings) -> None:
    def change(document: dict[str, Any]) -> None:
        document["schema"]["root"] = "other.proto"
        document["steps"][1]["when"] = 5

    assert found(findings(loan_with(change))) == [
        ("", "workflow", "/schema/root"),
        ("desk", "when", "/steps/1/when"),
    ]


def test_all_findings_come_at_once_in_step_order_and_the_output_last(findings: Findings) -> None:
    def change(document: dict[str, Any]) -> None:
        document["output"]["rules"].append("x = 1")
        document["steps"][2]["target"] = "http://x"
        document["steps"][0]["rules"].append("y = 1")
        document["steps"][0]["structured"] = {}
        document["inputType"] = "loan.v1.Score"

    assert found(findings(loan_with(change))) == [
        ("score", "structured", "/steps/0/structured"),
        ("score", "rule", "/steps/0/rules/0"),
        ("score", "rule", "/steps/0/rules/1"),
        ("score", "rule", "/steps/0/rules/2"),
        ("desk", "rule", "/steps/1/rules/0"),
        ("desk", "rule", "/steps/1/rules/1"),
        ("notify", "workflow", "/steps/2/target"),
        ("notify", "rule", "/steps/2/rules/0"),
        ("notify", "rule", "/steps/2/rules/1"),
        ("", "output", "/output/rules/0"),
        ("", "output", "/output/rules/4"),
    ]


def test_a_stored_name_has_precedence_and_is_bounded(compiled: Compile, findings: Findings) -> None:
    document = loan()
    assert compiled(document).plan.name == "loan-intake"
    del document["name"]
    assert compiled(document).plan.name is None
