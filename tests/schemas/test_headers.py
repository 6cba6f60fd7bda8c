from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.events import EventFields, EventType, Status, build_message
from schemas.headers import (
    Failure,
    Headers,
    dead_letter_headers,
    event_headers,
    record_headers,
    without_failure,
)

EVENT = build_message(
    EventFields(
        event_id=UUID("01920000-0000-7000-8000-000000000001"),
        job_id=UUID("0b7f6f0e-6a2f-4d0c-9a51-2f5a0d8d2c11"),
        tenant_id="default",
        workflow_name="embed-text",
        type=EventType.STEP_CHECKPOINT,
        status=Status.RUNNING,
        step="tokenize",
        attempt=1,
        verdict=None,
        error=None,
        detail=None,
        seq=2,
        business_key=None,
        labels=None,
    ),
    datetime(2026, 11, 1, 10, 0, 3, 123456, UTC),
)
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
FAILURE = Failure("workflow-run-requests", 3, 41, "intake", "job-id", "job_id is missing")
WHY = [
    ("__connect.errors.topic", b"workflow-run-requests"),
    ("__connect.errors.partition", b"3"),
    ("__connect.errors.offset", b"41"),
    ("__connect.errors.connector.name", b"workflow-runs"),
    ("__connect.errors.stage", b"intake"),
    ("__connect.errors.exception.class.name", b"job-id"),
    ("__connect.errors.exception.message", b"job_id is missing"),
]

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=2000)
ANY_HEADERS: st.SearchStrategy[Headers] = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "__connect.errors.topic", "__connect.errors.task.id"]), st.none() | st.binary()
    )
)


def test_an_event_carries_its_cloudevents_attributes() -> None:
    assert event_headers(EVENT, traceparent=TRACE) == [
        ("ce_specversion", b"1.0"),
        ("ce_id", b"01920000-0000-7000-8000-000000000001"),
        ("ce_source", b"/workflow-runs"),
        ("ce_type", b"workflow_runs.v1.STEP_CHECKPOINT"),
        ("ce_subject", b"0b7f6f0e-6a2f-4d0c-9a51-2f5a0d8d2c11"),
        ("ce_time", b"2026-11-01T10:00:03.123456Z"),
        ("content-type", b"application/protobuf"),
        ("traceparent", TRACE.encode()),
    ]


def test_a_request_without_a_trace_gives_an_event_without_one() -> None:
    assert [name for name, _ in event_headers(EVENT) if name == "traceparent"] == []


def test_a_dead_letter_says_why_in_the_words_of_kafka_connect() -> None:
    assert dead_letter_headers([("tenant-id", b"acme")], FAILURE) == [("tenant-id", b"acme"), *WHY]


def test_a_record_that_fails_again_says_why_once() -> None:
    earlier = dead_letter_headers([("a", b"1")], replace(FAILURE, offset=7, reason="another"))
    earlier.append(("__connect.errors.exception.stacktrace", b"at ..."))
    assert dead_letter_headers(earlier, FAILURE) == [("a", b"1"), *WHY]


def test_a_replay_carries_what_the_record_had() -> None:
    original: Headers = [("a", b"1"), ("a", None), ("b", b"\xff")]
    assert without_failure([*original, *WHY]) == original


def test_a_name_that_stood_twice_keeps_its_last_value_and_null_becomes_empty() -> None:
    assert dead_letter_headers([("a", b"1"), ("b", None), ("a", b"2")], FAILURE)[:2] == [("a", b"2"), ("b", b"")]


def test_a_long_reason_is_cut_to_a_kilobyte_between_characters() -> None:
    [message] = [
        value
        for name, value in dead_letter_headers([], replace(FAILURE, reason="ö" * 2000))
        if name.endswith("exception.message")
    ]
    assert len(message) <= 1024
    assert message.decode() == "ö" * 510 + "…"


@given(ANY_HEADERS, ANY_TEXT, ANY_TEXT)
def test_sinks_take_every_dead_letter(original: Headers, reason: str, stage: str) -> None:
    written = dead_letter_headers(original, replace(FAILURE, reason=reason, stage=stage))
    names = [name for name, _ in written]
    assert len(names) == len(set(names))
    assert all(isinstance(value, bytes) for _, value in written)
    for name, value in written:
        if name.startswith("__connect.errors."):
            assert len(value) <= 1024
            assert "\0" not in value.decode()


@pytest.mark.parametrize("traceparent", [None, TRACE])
def test_event_headers_are_the_same_each_time(traceparent: str | None) -> None:
    assert event_headers(EVENT, traceparent=traceparent) == event_headers(EVENT, traceparent=traceparent)


@pytest.mark.parametrize("traceparent", [None, TRACE])
def test_what_a_step_sends_says_for_whom_it_is_and_has_one_id_however_often_it_is_tried(
    traceparent: str | None,
) -> None:
    job_id = UUID(EVENT.job_id)

    def headers(step: str, tenant_id: str = "acme") -> dict[str, str]:
        found = record_headers(
            job_id=job_id, tenant_id=tenant_id, step=step, message_type="acme.v1.Order", traceparent=traceparent
        )
        assert len({name for name, _ in found}) == len(found)
        return dict(found)

    ask = headers("ask")
    assert ask == headers("ask")
    assert (ask["job-id"], ask["step-name"], ask["tenant-id"]) == (EVENT.job_id, "ask", "acme")
    assert (ask["ce_type"], ask["ce_subject"]) == ("acme.v1.Order", EVENT.job_id)
    assert ask.get("traceparent") == traceparent
    assert UUID(ask["ce_id"]) != UUID(headers("tell")["ce_id"])
