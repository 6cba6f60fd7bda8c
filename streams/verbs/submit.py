"""submit-workflow, and what intake does with a request record: one way from a request to a run."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final
from uuid import uuid4

from schemas import strict_json
from schemas.errors import (
    Conflict,
    ContractError,
    DefinitionInvalid,
    FailureKind,
    InputInvalid,
    JobCorrupt,
    StepFailed,
    ValidationFailed,
    WorkflowBroken,
)
from schemas.fingerprint import fingerprint
from schemas.ids import parse_job_id
from schemas.labels import labels_of
from schemas.requests import Request, Unusable
from store.definitions import Definitions
from store.records import Submission, SubmitOutcome, Submitted
from store.submit import Submits
from streams.verbs.answers import UNKNOWN_WORKFLOW, Answer, refused
from streams.verbs.arguments import Arguments
from streams.verbs.definition_source import DefinitionCompiler
from streams.verbs.plans import NewerDefinition, Plans
from streams.verbs.workflows import findings_answer, stored_definition
from streams.workflow.plan import ENGINE, ENGINE_LEVEL, Plan

INLINE: Final = "inline"
"""The name of a run whose definition came with the request and names itself nothing."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Whose request it is, and what the record it came in says besides. All None for a call of a verb."""

    tenant_id: str
    trace_context: str | None = None
    record_time: datetime | None = None


class Submitter:
    """Resolves requests against stored workflows. Bad content is never an error here: its run is born FAILED."""

    def __init__(self, plans: Plans, *, max_attempts: int) -> None:
        self._plans = plans
        self._max_attempts = max_attempts

    async def prepare(self, request: Request | Unusable, origin: Origin) -> Submission:
        """Return the submission for *request*, with `error` set when its run is to be born FAILED.

        Raises:
            StoreUnavailable: Postgres gave no answer; call again.
            EvaluatorUnavailable: this machine could not check expressions or the input's rules now; call again.
        """
        if isinstance(request, Unusable):
            return self._born_failed(request, origin, f"{FailureKind.WORKFLOW}: {request.reason}")
        try:
            named = await self._plans.by_name(origin.tenant_id, request.workflow_name)
        except NewerDefinition as error:
            return self._for_newer_workers(request, origin, error)
        except (JobCorrupt, WorkflowBroken) as error:
            return self._born_failed(request, origin, f"{FailureKind.WORKFLOW}: {error}")
        if named is None:
            reason = f"there is no stored workflow {request.workflow_name!r}"
            return self._born_failed(request, origin, f"{FailureKind.WORKFLOW}: {reason}")
        try:
            await named.plan.check_input(named.plan.parse_input(request.input), self._plans.evaluator)
        except InputInvalid as error:
            return self._born_failed(request, origin, f"{FailureKind.MAPPING}: input{error.pointer}: {error}")
        except StepFailed as error:
            return replace(self._born_failed(request, origin, str(error)), event_detail=error.event_detail)
        return self.of_plan(request, origin, named.plan, named.workflow.definition_hash)

    def of_plan(
        self,
        request: Request,
        origin: Origin,
        plan: Plan,
        definition_hash: bytes,
        inline_hash: bytes | None = None,
    ) -> Submission:
        """Return the submission of a request whose definition and input are known to be good.

        *inline_hash* stands for the definition in the fingerprint, when it came with the request and not by name.
        """
        return replace(
            self._submission(request, origin, inline_hash),
            definition_hash=definition_hash,
            engine_level=plan.engine_level,
            steps_total=len(plan.steps),
            target=plan.next_target(0),
            run_deadline_ms=plan.run_deadline_ms,
        )

    def _for_newer_workers(self, request: Request, origin: Origin, error: NewerDefinition) -> Submission:
        """Queue the run for whoever knows its definition. Its input is checked there; its steps stay uncounted."""
        return replace(
            self._submission(request, origin),
            definition_hash=error.definition_hash,
            engine_level=error.engine_level,
            target=ENGINE,
            run_deadline_ms=error.run_deadline_ms,
        )

    def _born_failed(self, request: Request | Unusable, origin: Origin, error: str) -> Submission:
        return replace(self._submission(request, origin), error=error)

    def _submission(self, request: Request | Unusable, origin: Origin, inline_hash: bytes | None = None) -> Submission:
        return Submission(
            job_id=request.job_id,
            tenant_id=origin.tenant_id,
            workflow_name=request.workflow_name,
            fingerprint=_fingerprint(request, origin.tenant_id, inline_hash),
            definition_hash=None,
            engine_level=ENGINE_LEVEL,
            steps_total=0,
            max_attempts=self._max_attempts,
            target=None,
            input=request.input,
            labels=request.labels,
            business_key=request.business_key,
            trace_context=origin.trace_context,
            record_time=origin.record_time,
        )


class SubmitWorkflow:
    """The verb submit-workflow."""

    def __init__(
        self,
        definitions: Definitions,
        submits: Submits,
        plans: Plans,
        compiler: DefinitionCompiler,
        submitter: Submitter,
    ):
        self._definitions = definitions
        self._submits = submits
        self._plans = plans
        self._compiler = compiler
        self._submitter = submitter

    async def __call__(self, tenant_id: str, given: object) -> Answer:
        """Store one run of a stored workflow (`workflowName`) or of a definition that comes along (`workflow`).

        Nothing is stored unless everything verifies. An id that is known already answers the stored run's status and
        `created: false` when the request is the same.

        Raises:
            InputInvalid: a field is missing or of the wrong type.
            Conflict: the id stands for another request.
            StoreUnavailable, EvaluatorUnavailable: call again with the same `jobId`.
        """
        arguments = Arguments(given, ("workflow", "workflowName", "input", "jobId", "businessKey", "labels"))
        document, name = arguments.object("workflow"), arguments.text("workflowName")
        if (document is None) == (name is None):
            raise InputInvalid("give either workflow, a definition, or workflowName, the name of a stored one")
        request = _request(arguments, name)
        if request is None:
            return refused("invalid-job-id", "jobId must be a UUID of 36 characters; leave it out to have one made")
        inline_hash = None if document is None else hashlib.sha256(strict_json.canonical(document).encode()).digest()
        known = await self._submits.known(request.job_id, tenant_id, _fingerprint(request, tenant_id, inline_hash))
        if known is not None:
            return _answer(known)
        if document is None:
            return await self._by_name(tenant_id, request)
        return await self._inline(tenant_id, request, document, inline_hash)

    async def _by_name(self, tenant_id: str, request: Request) -> Answer:
        named = await self._plans.by_name(tenant_id, request.workflow_name)
        if named is None:
            return refused(UNKNOWN_WORKFLOW, f"there is no stored workflow {request.workflow_name!r}")
        if (refusal := await _input_refusal(named.plan, request, self._plans)) is not None:
            return refusal
        submission = self._submitter.of_plan(request, Origin(tenant_id), named.plan, named.workflow.definition_hash)
        return _answer(await self._submits.submit(submission))

    async def _inline(
        self, tenant_id: str, request: Request, document: Mapping[str, object], inline_hash: bytes | None
    ) -> Answer:
        try:
            compiled = await self._compiler.compile(document)
        except DefinitionInvalid as error:
            return findings_answer(error)
        if (refusal := await _input_refusal(compiled.plan, request, self._plans)) is not None:
            return refusal
        request = replace(request, workflow_name=compiled.plan.name or INLINE)
        await self._definitions.put(stored_definition(compiled, request.workflow_name))
        self._plans.keep(compiled.definition_hash, compiled.plan)
        submission = self._submitter.of_plan(
            request, Origin(tenant_id), compiled.plan, compiled.definition_hash, inline_hash
        )
        return _answer(await self._submits.submit(submission))


def _request(arguments: Arguments, name: str | None) -> Request | None:
    """Return the request as sent; None when its job id is no job id."""
    given_input = arguments.object("input")
    if given_input is None:
        raise InputInvalid("input is required: a JSON object", pointer="/input")
    try:
        labels = labels_of(arguments.object("labels"))
    except ContractError as error:
        raise InputInvalid(str(error), pointer="/labels") from error
    text = arguments.text("jobId")
    try:
        job_id = uuid4() if text is None else parse_job_id(text)
    except ContractError:
        return None
    return Request(
        job_id=job_id,
        workflow_name=name or "",
        input=json.dumps(given_input, ensure_ascii=False),
        business_key=arguments.text("businessKey"),
        labels=labels,
    )


async def _input_refusal(plan: Plan, request: Request, plans: Plans) -> Answer | None:
    try:
        await plan.check_input(plan.parse_input(request.input), plans.evaluator)
    except InputInvalid as error:
        return refused("input", f"input{error.pointer}: {error}")
    except ValidationFailed as error:
        return refused("input", str(error), **(error.event_detail or {}))
    except WorkflowBroken as error:
        return refused("failed", str(error))
    return None


def _fingerprint(request: Request | Unusable, tenant_id: str, inline_hash: bytes | None = None) -> bytes:
    return fingerprint(
        tenant_id=tenant_id,
        workflow_name=None if inline_hash else request.workflow_name,
        definition_hash=inline_hash,
        business_key=request.business_key,
        labels=request.labels,
        input=request.input,
    )


def _answer(submitted: Submitted) -> Answer:
    job_id = str(submitted.job_id)
    match submitted.outcome:
        case SubmitOutcome.CONFLICT:
            raise Conflict(f"job {job_id} exists and stands for another request: use another jobId", {"jobId": job_id})
        case SubmitOutcome.TOO_OLD:
            raise Conflict(f"job {job_id} is too old to know whether it ran: use another jobId", {"jobId": job_id})
        case SubmitOutcome.CREATED | SubmitOutcome.EXISTING | SubmitOutcome.PRUNED:
            return {
                "ok": True,
                "jobId": job_id,
                "status": submitted.status,
                "created": submitted.outcome is SubmitOutcome.CREATED,
            }
