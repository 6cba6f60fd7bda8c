"""Values that no run can be made of, and the code of the dead letter that each becomes."""

from uuid import uuid4

from schemas.framing import frame
from schemas.messages import INDEXES, WorkflowRunEvent, WorkflowRunRequest

UNKNOWN_ID = 987_654_321


def hostile_values(known_id: int) -> dict[str, tuple[bytes | None, str]]:
    """Return value and code by name. *known_id* is the registry's id of our own schema text."""
    request = INDEXES[WorkflowRunRequest]
    event = INDEXES[WorkflowRunEvent]
    whole = WorkflowRunRequest(job_id=str(uuid4()), workflow_name="no-such", input="{}").SerializeToString()
    return {
        "tombstone": (None, "null-value"),
        "empty": (b"", "not-json"),
        "one_zero_byte": (b"\x00", "not-framed"),
        "magic_and_half_an_id": (b"\x00\x00\x00", "not-framed"),
        "header_only": (b"\x00" + known_id.to_bytes(4), "bad-index"),
        "unknown_schema_id": (frame(UNKNOWN_ID, b"\x0a\x01a"), "unknown-schema"),
        "event_cut_short": (frame(known_id, b"\x0a\x24abc"), "other-message"),
        "event_bad_utf8": (frame(known_id, b"\x0a\x02\xc3\x28"), "other-message"),
        "event_wrong_wire_type": (frame(known_id, b"\x08\x05"), "other-message"),
        "event_empty": (frame(known_id, b"", event), "other-message"),
        "request_cut_short": (frame(known_id, b"\x0a\x24abc", request), "bad-protobuf"),
        "request_bad_utf8": (frame(known_id, b"\x0a\x02\xc3\x28", request), "bad-protobuf"),
        "request_wrong_wire_type": (frame(known_id, b"\x08\x05", request), "job-id"),
        "request_empty": (frame(known_id, b"", request), "job-id"),
        "request_of_no_such_message": (frame(known_id, whole, (9,)), "bad-index"),
        "request_of_a_nested_message": (frame(known_id, whole, (1, 0)), "bad-index"),
        "request_with_a_loose_job_id": (
            frame(known_id, WorkflowRunRequest(job_id=f" {uuid4()}", input="{}").SerializeToString(), request),
            "job-id",
        ),
        "plain_text": (b"hello", "not-json"),
        "not_utf8": (b"\xff\xfe{}", "bad-utf8"),
        "json_array": (b"[]", "not-json"),
        "json_cut_short": (b'{"job_id": "', "bad-json"),
        "json_without_a_job_id": (b'{"workflow_name": "no-such", "input": {}}', "job-id"),
        "json_with_two_job_ids": (
            f'{{"job_id": "{uuid4()}", "jobId": "{uuid4()}", "workflow_name": "no-such", "input": {{}}}}'.encode(),
            "duplicate-key",
        ),
        "deep_json": (b"[" * 100_000, "not-json"),
        "one_megabyte_of_zero": (b"\x00" * 1_000_000, "unknown-schema"),
    }
