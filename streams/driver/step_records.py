"""From a record that the engine composed to what is stored: under the job's own key, and saying for whom it is."""

from schemas.headers import record_headers
from schemas.ids import key_of
from store.records import HeldRun
from store.step_records import StepRecord
from streams.workflow.records import ComposedRecord


def step_record(run: HeldRun, step: str, step_index: int, composed: ComposedRecord) -> StepRecord:
    """Return the record that *step* of the held run sends; equal for each try from the same checkpoints."""
    claim = run.claim
    headers = record_headers(
        job_id=claim.job_id,
        tenant_id=claim.tenant_id,
        step=step,
        message_type=composed.type,
        traceparent=claim.trace_context,
    )
    key = composed.key if composed.key is not None else key_of(claim.job_id)
    return StepRecord(step_index, composed.topic, composed.type, key, composed.value, headers)
