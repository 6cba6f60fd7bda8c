"""The testing kit: what a test of a workflow sees, and what it is told when it prepared too little."""

from dataclasses import replace
from typing import Any

import pytest

from schemas.errors import DefinitionInvalid, InputInvalid
from streams.handlers import Context, Reject, Retry, handler, job
from streams.testing import (
    InvalidArgument,
    Item,
    NotPrepared,
    Published,
    ResourceExhausted,
    Run,
    Unavailable,
    Workflow,
)
from tests.workflow.mail import campaign, mail_all
from tests.workflow.notices import ask, notices, tell, wait
from tests.workflow.ruled import ruled_mail
from tests.workflow.samples import INPUT, loan, loan_with

SCORE, MAIL = "loan.v1.Scorer/Score", "loan.v1.Mailer/Send"
CALLS: dict[str, Any] = {SCORE: {"value": 0.7, "model": "v3"}, MAIL: {"id": "m-1"}}
APPROVED = {"desk": {"approved": True, "note": "fine"}}


@pytest.fixture(scope="module")
def lending() -> Workflow:
    return Workflow.load(loan())


def run(workflow: Workflow, **prepared: Any) -> Run:
    return workflow.run(INPUT, **{"calls": CALLS, "answers": APPROVED, **prepared})


def of(document: object, given: dict[str, object] | None = None, **prepared: Any) -> Run:
    return Workflow.load(document).run({"number": "7"} if given is None else given, **prepared)  # type: ignore[arg-type]


def test_a_run_tells_all_that_became_of_it(lending: Workflow) -> None:
    done = run(lending)

    assert (done.status, done.verdict, done.error, done.waiting_for) == (
        "COMPLETED",
        "3 steps, output loan.v1.Outcome",
        None,
        None,
    )
    assert done.result == {"applicant": "ana", "approved": True, "note": "fine", "mailId": "m-1"}
    assert done.events == [
        "ACCEPTED",
        "STEP_CHECKPOINT score",
        "WAITING desk",
        "STEP_CHECKPOINT desk",
        "STEP_CHECKPOINT notify",
        "COMPLETED",
    ]
    assert done.responses["score"] == {"value": 0.7, "model": "v3"}
    assert done.requests("score") == [{"applicant": "ana", "cents": "250000"}]
    assert [request["tags"] for request in done.requests("desk")] == [["new"]]  # type: ignore[index]
    assert (done.calls("score"), done.calls("desk"), done.seconds) == (1, 0, 0)


@pytest.mark.parametrize("step", ["score", "desk", "notify"])
def test_a_crash_after_a_step_repeats_nothing(lending: Workflow, step: str) -> None:
    crashed, whole = run(lending, crash_after=[step]), run(lending)

    # A step that is answered leaves no worker at its checkpoint that could die.
    assert (whole.claims, crashed.claims) == (2, 2 if step == "desk" else 3)
    assert replace(crashed, claims=whole.claims) == whole
    assert (crashed.calls("score"), crashed.calls("notify")) == (1, 1)


def test_a_run_without_a_prepared_answer_waits(lending: Workflow) -> None:
    waiting = run(lending, answers={})

    assert (waiting.status, waiting.waiting_for, waiting.result) == ("WAITING", "desk", None)
    assert waiting.events[-1] == "WAITING desk"


def test_a_failure_that_may_pass_is_tried_again_without_taking_time(lending: Workflow) -> None:
    done = run(lending, calls={**CALLS, SCORE: [Unavailable("away"), ResourceExhausted(), {"value": 1}]})

    assert (done.status, done.calls("score"), done.seconds) == ("COMPLETED", 3, 5 + 10)


def test_the_last_try_ends_the_run(lending: Workflow) -> None:
    dead = run(lending, calls={**CALLS, SCORE: Unavailable("away")}, max_attempts=2)

    assert (dead.status, dead.error, dead.failed_step) == ("DEAD", "GRPC: UNAVAILABLE: away", "score")
    assert (dead.calls("score"), dead.events) == (2, ["ACCEPTED", "DEAD score"])


def test_any_other_failure_ends_the_run_at_once(lending: Workflow) -> None:
    failed = run(lending, calls={**CALLS, SCORE: InvalidArgument("no such applicant")})

    assert (failed.status, failed.error) == ("FAILED", "GRPC: INVALID_ARGUMENT: no such applicant")
    assert (failed.calls("score"), failed.events) == (1, ["ACCEPTED", "FAILED score"])


def test_a_crash_keeps_count_of_the_tries(lending: Workflow) -> None:
    dead = run(lending, calls={**CALLS, MAIL: [Unavailable()] * 3}, crash_after=["score", "desk"])

    assert (dead.status, dead.calls("notify"), dead.calls("score")) == ("DEAD", 3, 1)


def test_gates_are_decided() -> None:
    gated = Workflow.load(loan_with(lambda document: document["steps"][1].update(when="score.value < 0.5")))

    assert run(gated, answers={}).skipped == ["desk"]
    assert run(gated, answers={}).status == "COMPLETED"
    assert run(gated, answers={}, calls={**CALLS, SCORE: {"value": 0.1}}).waiting_for == "desk"


def test_expressions_can_be_evaluated_in_a_child_as_workers_do() -> None:
    document = loan_with(lambda document: document["steps"][1].update(when="score.value < 0.5"))

    assert run(Workflow.load(document, evaluator="child"), answers={}).skipped == ["desk"]


def test_items_are_called_and_kept_one_by_one() -> None:
    document = mail_all(failurePolicy="CONTINUE", maxConcurrency=2)
    sender = Workflow.load(document)
    [method] = {step["method"] for step in document["steps"]}
    done = sender.run(campaign(3), calls={method: [{"id": "1"}, InvalidArgument("no"), Unavailable(), {"id": "3"}]})
    [step] = done.steps

    assert done.status == "COMPLETED"
    assert done.items(step) == [
        Item("COMPLETED", {"id": "1"}, None),
        Item("FAILED", None, f"GRPC: {step}#1: INVALID_ARGUMENT: no"),
        Item("COMPLETED", {"id": "3"}, None),
    ]
    assert (done.calls(step), len(done.requests(step)), done.seconds) == (4, 4, 5)
    assert done.events == ["ACCEPTED", f"STEP_CHECKPOINT {step}", "COMPLETED"]


def test_what_steps_send_is_seen_once() -> None:
    done = of(
        notices(
            steps=[tell(publish={"key": "'order-' + input.number"}), ask(), tell("again", rules=["text = ask.note"])]
        ),
        answers={"ask": {"note": "yes"}},
        crash_after=["tell", "again"],
    )

    job_id = "0b7f6f0e-6a2f-4d0c-9a51-2f5a0d8d2c11"
    assert done.status == "COMPLETED"
    assert done.published == [
        Published("tell", "notices", "order-7", "notice.v1.Notice", {"text": "", "number": "7"}),
        Published("ask", "questions", job_id, "notice.v1.Question", {"number": "7"}),
        Published("again", "notices", job_id, "notice.v1.Notice", {"text": "yes", "number": ""}),
    ]


def test_waits_take_no_time() -> None:
    done = of(notices(steps=[wait(), tell()]))

    assert (done.status, done.seconds) == ("COMPLETED", 60)
    assert done.events == ["ACCEPTED", "WAITING pause", "STEP_CHECKPOINT pause", "STEP_CHECKPOINT tell", "COMPLETED"]


def test_a_wait_until_a_time_is_over_when_it_has_come() -> None:
    document = notices(steps=[wait(wait={"until": "input.ready_at"})])

    assert of(document, {"readyAt": "2020-01-01T00:00:00Z"}).events == [
        "ACCEPTED",
        "STEP_CHECKPOINT pause",
        "COMPLETED",
    ]
    assert of(document, {"readyAt": "2999-01-01T00:00:00Z"}).events == [
        "ACCEPTED",
        "WAITING pause",
        "STEP_CHECKPOINT pause",
        "COMPLETED",
    ]


def test_an_answer_that_never_comes_is_overdue() -> None:
    late = of(notices(steps=[ask(remindAfterMs=1_000, answerWithinMs=5_000)]))

    assert (late.status, late.failed_step, late.seconds) == ("FAILED", "ask", 5)
    assert late.events == ["ACCEPTED", "WAITING ask", "WAITING ask", "FAILED ask"]
    assert late.error is not None
    assert late.error.startswith("DEADLINE: ask was not answered by 2")
    assert late.error.endswith("Z (answerWithinMs)")


@pytest.mark.parametrize(
    ("steps", "prepared", "step"),
    [
        ([wait()], {}, "pause"),
        ([ask()], {}, "ask"),
        ([ask(remindAfterMs=60_000)], {}, "ask"),
        ([ask(answerWithinMs=60_000)], {}, "ask"),
    ],
    ids=["wait", "park", "reminder", "answer"],
)
def test_a_run_past_its_deadline_fails_wherever_it_is(steps: list[Any], prepared: dict[str, Any], step: str) -> None:
    late = of(notices(steps=steps, runDeadlineMs=30_000), **prepared)

    assert (late.status, late.failed_step, late.seconds) == ("FAILED", step, 30)
    assert late.error is not None
    assert late.error.startswith("DEADLINE: the run was not done by 2")
    assert late.events == ["ACCEPTED", f"WAITING {step}", f"FAILED {step}"]


def test_a_run_that_backs_off_past_its_deadline_fails() -> None:
    hurried = Workflow.load({**loan(), "runDeadlineMs": 12_000})
    late = run(hurried, calls={**CALLS, SCORE: Unavailable()})

    assert (late.status, late.failed_step, late.calls("score"), late.seconds) == ("FAILED", "score", 2, 12)


@handler(SCORE)
def score(request: Any, context: Context) -> dict[str, object]:
    if request.cents > 1_000_000:
        raise Reject("too much")
    if context.attempt == 1:
        raise Retry("not yet", after=2)
    return {"value": request.cents / 1_000_000, "model": f"{context.step} {context.attempt} {context.job_id}"}


async def send(request: Any, context: Context) -> dict[str, object]:
    if "auto" not in request.labels:
        raise Unavailable
    return {"id": f"m-{request.to}"}


def test_handlers_serve_as_they_are(lending: Workflow) -> None:
    done = run(lending, calls={SCORE: score, MAIL: send})

    assert (done.status, done.seconds) == ("COMPLETED", 2)
    assert done.responses["score"] == {"value": 0.25, "model": "score 2 0b7f6f0e-6a2f-4d0c-9a51-2f5a0d8d2c11"}
    assert done.responses["notify"] == {"id": "m-ana"}


def test_a_handler_that_rejects_fails_the_run(lending: Workflow) -> None:
    failed = lending.run({**INPUT, "amountCents": "5000000"}, calls={SCORE: score})

    assert (failed.status, failed.error, failed.calls("score")) == ("FAILED", "VALIDATION: too much", 1)


@job("reindex")
def rebuild(data: dict[str, Any], context: Context) -> dict[str, Any]:
    if not data["documents"]:
        raise ValueError("nothing to do")
    return {"indexed": data["documents"], "by": context.connection}


def test_a_job_type_is_a_workflow_of_its_function() -> None:
    reindex = Workflow.of_job(rebuild)
    done = reindex.run({"documents": 3}, connection="a connection")

    assert done.result == {"value": {"indexed": 3, "by": "a connection"}}
    assert reindex.run({"documents": 0}).error == "WORKFLOW: the handler of reindex raised ValueError: nothing to do"


RULED = """
syntax = "proto3";
package mail.v1;
import "buf/validate/validate.proto";
message Mail { string to = 1 [(buf.validate.field).string.min_len = 2]; }
service Mailer { rpc Send(Mail) returns (Mail); }
"""


def ruled(**step: object) -> dict[str, object]:
    """A mail that has rules goes in, and one comes out."""
    call = {"name": "mail", "target": "mailer", "method": "mail.v1.Mailer/Send", "rules": ["to = input.to"], **step}
    return {"schema": {"sources": {"mail.proto": RULED}}, "inputType": "mail.v1.Mail", "steps": [call]}


def test_what_breaks_the_rules_of_its_type_fails_the_run_where_it_comes_in() -> None:
    born = Workflow.load({**ruled(), "validate": True}).run({"to": "a"})
    called = Workflow.load(ruled(validate=True)).run({"to": "ana"}, calls={"mail.v1.Mailer/Send": {"to": "b"}})
    asked = Workflow.load(ruled(validate=True, completion="external")).run({"to": "ana"}, answers={"mail": {"to": "c"}})

    assert (born.status, born.failed_step, born.events) == ("FAILED", None, ["FAILED"])
    assert (called.status, called.failed_step, called.events) == ("FAILED", "mail", ["ACCEPTED", "FAILED mail"])
    assert (asked.status, asked.failed_step, asked.events) == (
        "FAILED",
        "mail",
        ["ACCEPTED", "WAITING mail", "FAILED mail"],
    )
    for run in (born, called, asked):
        assert run.error is not None
        assert run.error.startswith("VALIDATION: ")
        assert "to: " in run.error
        assert run.responses == {}


def test_a_call_without_a_reply_names_method_and_step(lending: Workflow) -> None:
    with pytest.raises(
        NotPrepared, match=r"^step score calls loan\.v1\.Scorer/Score, and no reply is prepared for it: "
    ):
        run(lending, calls={})
    with pytest.raises(
        NotPrepared, match=r"^step score calls loan\.v1\.Scorer/Score, and all 1 of its replies are used"
    ):
        run(lending, calls={SCORE: [Unavailable()]})


def test_an_item_without_a_reply_names_method_and_branch() -> None:
    with pytest.raises(NotPrepared, match=r"^step [a-z]+#0 calls "):
        Workflow.load(mail_all()).run(campaign(2))


def test_a_reply_or_an_answer_that_does_not_fit_is_told(lending: Workflow) -> None:
    with pytest.raises(
        NotPrepared, match=r"loan\.v1\.Scorer/Score, which step score calls, is no loan\.v1\.Score: .*worth"
    ):
        run(lending, calls={SCORE: {"worth": 1}})
    with pytest.raises(NotPrepared, match=r"prepared for step desk is no loan\.v1\.Decision: .*aproved"):
        run(lending, answers={"desk": {"aproved": True}})


def test_names_that_the_workflow_does_not_have_are_told(lending: Workflow) -> None:
    with pytest.raises(
        ValueError, match=r"calls names 'loan\.v1\.Scorer/Scor', and no step calls that: there are loan"
    ):
        run(lending, calls={"loan.v1.Scorer/Scor": {}})
    with pytest.raises(ValueError, match="answers names 'score', and no step of that name is answered from outside"):
        run(lending, answers={"score": {}})
    with pytest.raises(ValueError, match="crash_after names 'scor', and there is no such step: there are desk, notify"):
        run(lending, crash_after=["scor"])
    with pytest.raises(ValueError, match="the workflow has no step 'scor'; it has score, desk, notify"):
        run(lending).calls("scor")


def test_an_input_that_could_not_be_submitted_is_refused(lending: Workflow) -> None:
    with pytest.raises(InputInvalid, match="aplicant"):
        lending.run({"aplicant": "ana"})


def test_a_definition_that_does_not_verify_is_refused() -> None:
    with pytest.raises(DefinitionInvalid, match="step notify: "):
        Workflow.load(loan_with(lambda document: document["steps"][2]["rules"].append("nothing = input.applicant")))


def test_a_request_that_could_not_be_kept_is_sent_all_the_same() -> None:
    nul = {"target": "applicant", "selector": r"'a\u0000b'"}
    workflow = Workflow.load(loan_with(lambda document: document["steps"][0].update(celRules=[nul])))

    done = run(workflow)

    assert (done.status, done.calls("score"), done.requests("score")) == ("COMPLETED", 1, [None])


async def test_it_also_works_where_a_loop_is_running(lending: Workflow) -> None:
    assert run(lending).status == "COMPLETED"


def test_a_prepared_answer_that_breaks_its_rules_ends_the_run_as_in_a_store() -> None:
    asked = Workflow.load(ruled_mail(completion="external", validate=True))

    refused = asked.run({"title": "1"}, answers={"mail": {"id": "m-2"}})
    assert (refused.status, refused.error) == ("FAILED", "VALIDATION: id: must be sent")
    assert refused.events == ["ACCEPTED", "WAITING mail", "FAILED mail"]
    assert asked.run({"title": "1"}, answers={"mail": {"id": "m-1"}}).status == "COMPLETED"
