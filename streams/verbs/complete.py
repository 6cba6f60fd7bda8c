"""complete-step: a person's, or another system's, answer to a parked step."""

from collections.abc import Mapping, Sequence
from uuid import UUID

from google.protobuf.message import Message

from schemas import strict_json
from schemas.errors import InputInvalid, JobCorrupt, StepFailed, WorkflowBroken
from schemas.events import Status
from store.answers import AnswerOutcome, AnswerResult, Answers
from store.queries import Queries
from store.records import RunRow
from streams.verbs.answers import REJECTED, WRONG_STATE, Answer, refused, unknown_job
from streams.verbs.arguments import Arguments
from streams.verbs.plans import Plans
from streams.workflow.plan import Plan


async def complete_step(queries: Queries, answers: Answers, plans: Plans, tenant_id: str, given: object) -> Answer:
    """Answer the step a run waits for; the run goes on from there.

    A step that is done already answers `alreadyDone: true`, and `same` says whether the two answers are equal, so that
    repeating an answer is safe. An answer that does not fit the step's type is refused and leaves the run waiting. One
    that breaks the rules of that type, where the step asks for these, decides too: the run is FAILED.

    Raises:
        InputInvalid: a field is missing, the step is not declared, or the response does not fit its type.
        JobCorrupt: the run's definition can no longer be read.
        StoreUnavailable, EvaluatorUnavailable: call again.
    """
    arguments = Arguments(given, ("jobId", "stepName", "response"))
    job_id, step = arguments.job_id(), arguments.required_text("stepName")
    response = arguments.value("response")
    row = await queries.run(tenant_id, job_id)
    if row is None:
        return unknown_job(job_id)
    if (done := _done(row, step, response)) is not None:
        return done
    if row.status is not Status.WAITING or row.columns["outstanding_step"] != step:
        return _wrong_state(job_id, step, row.status, row.columns["outstanding_step"])
    if row.columns["due_move"] == "wake":
        return _wrong_state(job_id, step, row.status, step)
    plan = await _plan(plans, row)
    message, canonical = _read(plan, step, response)
    try:
        await plan.check_response(message, step, plans.evaluator)
    except StepFailed as error:
        text, detail = str(error), error.event_detail
        result = await answers.reject_answer(tenant_id=tenant_id, job_id=job_id, step=step, error=text, detail=detail)
        return _rejection(job_id, step, result, error)
    result = await answers.answer(tenant_id=tenant_id, job_id=job_id, step=step, response=canonical)
    return _answer(job_id, step, result)


async def _plan(plans: Plans, row: RunRow) -> Plan:
    try:
        return await plans.by_hash(bytes.fromhex(str(row.columns["definition_hash"])))
    except (WorkflowBroken, ValueError) as error:
        raise JobCorrupt(f"job {row.job_id}: its definition can no longer be read: {error}") from error


def _read(plan: Plan, step: str, response: object) -> tuple[Message, object]:
    """The answer as a message, and as canonical JSON."""
    index = plan.index_of(step)
    if index is None:
        raise InputInvalid(f"the workflow has no step {step!r}", pointer="/stepName")
    try:
        message = plan.parse_response(index, response)
        return message, plan.render(message)
    except InputInvalid as error:
        raise InputInvalid(str(error), pointer=f"/response{error.pointer}") from error


def _done(row: RunRow, step: str, response: object) -> Answer | None:
    """Return the answer for a step that has its checkpoint, whoever ran it; None when it has none."""
    entries = row.columns["checkpoints"]
    for entry in entries if isinstance(entries, Sequence) else ():
        if isinstance(entry, Mapping) and entry["step"] == step:
            same = strict_json.canonical(entry["response"]) == strict_json.canonical(response)
            return {"ok": True, "status": row.status, "alreadyDone": True, "same": same}
    return None


def _rejection(job_id: UUID, step: str, result: AnswerResult, error: StepFailed) -> Answer:
    """Return what became of an answer that breaks rules: it ended the run, unless another one was first."""
    if result.outcome is not AnswerOutcome.APPLIED:
        return _answer(job_id, step, result)
    return refused(REJECTED, str(error), status=result.status, **(error.event_detail or {}))


def _answer(job_id: UUID, step: str, result: AnswerResult) -> Answer:
    match result.outcome:
        case AnswerOutcome.APPLIED:
            return {"ok": True, "status": result.status}
        case AnswerOutcome.ALREADY_DONE:
            return {"ok": True, "status": result.status, "alreadyDone": True, "same": result.same}
        case AnswerOutcome.WRONG_STATE:
            return _wrong_state(job_id, step, result.status, result.outstanding_step)
        case AnswerOutcome.UNKNOWN:
            return unknown_job(job_id)


def _wrong_state(job_id: UUID, step: str, status: object, outstanding_step: object) -> Answer:
    if outstanding_step == step:
        error = f"job {job_id} waits at {step!r} until its time has come: a wait is not answered"
        return refused(WRONG_STATE, error, status=status, outstandingStep=outstanding_step)
    waits = f"waits for {outstanding_step!r}" if outstanding_step else "waits for no answer"
    error = f"job {job_id} is {status} and {waits}, not for {step!r}"
    return refused(WRONG_STATE, error, status=status, outstandingStep=outstanding_step)
