"""cancel-job: the run stops, whoever works on it."""

from schemas.errors import InputInvalid
from store.control import CancelOutcome, Control
from streams.verbs.answers import WRONG_STATE, Answer, refused, unknown_job
from streams.verbs.arguments import Arguments


async def cancel_job(control: Control, tenant_id: str, given: object) -> Answer:
    """Cancel a queued, running or waiting run. `reason` is required: the event and the row carry it.

    A settled run is refused with its status and stays as it is. A worker in the middle of a call stops within a second.
    """
    arguments = Arguments(given, ("jobId", "reason"))
    job_id = arguments.job_id()
    reason = arguments.text("reason", most=1000)
    if reason is None:
        raise InputInvalid("reason is required: say why, for whoever reads the row", pointer="/reason")
    result = await control.cancel(tenant_id=tenant_id, job_id=job_id, reason=reason)
    if result.outcome is CancelOutcome.UNKNOWN:
        return unknown_job(job_id)
    if result.outcome is CancelOutcome.TERMINAL:
        return refused(WRONG_STATE, f"job {job_id} is settled: {result.status}", status=result.status)
    return {"ok": True, "status": "CANCELLED"}
