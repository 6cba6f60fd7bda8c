from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import ContractError
from schemas.events import (
    ANNOUNCES,
    STATUS_AFTER,
    EventFields,
    EventType,
    Status,
    build_message,
    cut_error,
    serialize,
    validate_event,
    validate_fields,
)
from schemas.messages import WorkflowRunEvent

HAPPENED = datetime(2026, 11, 1, 10, 0, 3, 123456, UTC)

ACCEPTED = EventFields(
    event_id=UUID("01920000-0000-7000-8000-000000000001"),
    job_id=UUID("0b7f6f0e-6a2f-4d0c-9a51-2f5a0d8d2c11"),
    tenant_id="default",
    workflow_name="embed-text",
    type=EventType.ACCEPTED,
    status=Status.QUEUED,
    step=None,
    attempt=0,
    verdict=None,
    error=None,
    detail=None,
    seq=1,
    business_key=None,
    labels=None,
)
WAITING = replace(ACCEPTED, type=EventType.WAITING, status=Status.WAITING, step="review", attempt=1, seq=4)
COMPLETED = replace(
    ACCEPTED, type=EventType.COMPLETED, status=Status.COMPLETED, attempt=1, seq=6, verdict="3 steps, output acme.v1.Out"
)
FAILED = replace(ACCEPTED, type=EventType.FAILED, status=Status.FAILED, seq=2, error="GRPC: NOT_FOUND: no such text")
DEAD = replace(ACCEPTED, type=EventType.DEAD, status=Status.DEAD, seq=2, error="GRPC: UNAVAILABLE")
FULL = replace(
    WAITING,
    detail='{"request":{"text":"a"}}',
    business_key="order 17",
    labels={"team": "search", "a": "ö"},
)
GOLDEN = (
    "0a2430313932303030302d303030302d373030302d383030302d30303030303030303030303112243062376636663065"
    "2d366132662d346430632d396135312d3266356130643864326331311a0a656d6265642d7465787420032a0672657669"
    "657730014a187b2272657175657374223a7b2274657874223a2261227d7d520b08a39b9cd706108094ef3a5804620764"
    "656661756c746a0757414954494e4772086f726465722031377a1a7b2261223a22c3b6222c227465616d223a22736561"
    "726368227d"
)


def fault_of(fields: EventFields) -> str:
    with pytest.raises(ContractError) as refused:
        validate_fields(fields)
    assert refused.value.code == "event"
    with pytest.raises(ContractError) as refused_again:
        serialize(build_message(fields, HAPPENED))
    assert str(refused_again.value) == str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize(
    "fields", [ACCEPTED, WAITING, COMPLETED, FAILED, DEAD, FULL], ids=lambda fields: fields.type.name
)
def test_a_valid_event_says_what_its_columns_say(fields: EventFields) -> None:
    validate_fields(fields)
    event = WorkflowRunEvent.FromString(serialize(build_message(fields, HAPPENED)))
    assert event.event_id == str(fields.event_id)
    assert event.job_id == str(fields.job_id)
    assert int(event.type) == fields.type
    assert event.status == fields.status
    assert event.occurred_at.ToDatetime(UTC) == HAPPENED
    assert (event.tenant_id, event.workflow_name, event.attempt, event.seq) == (
        fields.tenant_id,
        fields.workflow_name,
        fields.attempt,
        fields.seq,
    )
    for name in ("step", "verdict", "error", "detail", "business_key"):
        assert (getattr(event, name) if event.HasField(name) else None) == getattr(fields, name)


def test_an_event_has_these_bytes_for_ever() -> None:
    assert serialize(build_message(FULL, HAPPENED)).hex() == GOLDEN


def test_the_order_of_labels_and_the_time_zone_never_change_the_bytes() -> None:
    turned = replace(FULL, labels={"a": "ö", "team": "search"})
    elsewhere = HAPPENED.astimezone(timezone(timedelta(hours=-3)))
    assert serialize(build_message(turned, elsewhere)) == serialize(build_message(FULL, HAPPENED))


def test_a_time_without_a_zone_is_no_instant() -> None:
    with pytest.raises(ContractError, match="occurred_at has no time zone"):
        build_message(ACCEPTED, HAPPENED.replace(tzinfo=None))


@pytest.mark.spec(92)
@pytest.mark.parametrize("verdict", [None, ""])
def test_completed_without_a_verdict_is_refused(verdict: str | None) -> None:
    assert "verdict" in fault_of(replace(COMPLETED, verdict=verdict))


@pytest.mark.spec(92)
@pytest.mark.parametrize("fields", [FAILED, DEAD], ids=lambda fields: fields.type.name)
@pytest.mark.parametrize("error", [None, ""])
def test_failed_or_dead_without_an_error_is_refused(fields: EventFields, error: str | None) -> None:
    assert "error" in fault_of(replace(fields, error=error))


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        (replace(ACCEPTED, tenant_id=""), "tenant_id is empty"),
        (replace(ACCEPTED, workflow_name="x" * 201), "workflow_name has 201 characters, at most 200 are allowed"),
        (replace(WAITING, step="x" * 201), "step has 201 characters, at most 200 are allowed"),
        (replace(WAITING, step=None), "step is missing, WAITING needs one"),
        (replace(ACCEPTED, business_key="x" * 201), "business_key has 201 characters"),
        (replace(COMPLETED, verdict="x" * 501), "verdict has 501 characters, at most 500 are allowed"),
        (replace(FAILED, error="x" * 4001), "error has 4001 characters, at most 4000 are allowed"),
        (replace(FAILED, error="a\0b"), "error holds U+0000"),
        (replace(ACCEPTED, detail='"' + "ö" * 4096 + '"'), "detail has 8194 bytes, at most 8192 are allowed"),
        (replace(ACCEPTED, detail="{"), "detail: not JSON"),
        (replace(ACCEPTED, attempt=-1), "attempt is -1, 0 to 2147483647 are allowed"),
        (replace(ACCEPTED, seq=0), "seq is 0, 1 to 9223372036854775807 are allowed"),
        (replace(ACCEPTED, status=Status.RUNNING), "status is RUNNING, after ACCEPTED it is QUEUED"),
        (replace(ACCEPTED, labels={"": "x"}), "labels: the key '' is not 1 to 63"),
        (replace(ACCEPTED, labels={"a": "x" * 256}), "labels: the value of 'a' is not at most 255"),
        (replace(ACCEPTED, labels={str(n): "" for n in range(33)}), "labels: 33 of them, at most 32 are allowed"),
    ],
)
def test_each_broken_rule_is_told_with_its_field_and_limit(fields: EventFields, fault: str) -> None:
    assert fault in fault_of(fields)


def test_every_broken_rule_is_told_at_once() -> None:
    told = fault_of(replace(COMPLETED, verdict=None, seq=0, workflow_name="x" * 201))
    assert len(told.split("; ")) == 3


def test_a_limit_counts_code_points_and_is_itself_allowed() -> None:
    validate_fields(replace(FAILED, error="\U0001f600" * 4000))
    validate_fields(replace(COMPLETED, verdict="ö" * 500))
    validate_fields(replace(WAITING, step="x" * 200, detail='"' + "x" * 8190 + '"'))


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"event_id": "1"}, "event_id is not a UUID of 36 characters"),
        ({"job_id": ""}, "job_id is not a UUID of 36 characters"),
        ({"type": 0}, "type is 0, 1 to 8 are defined"),
        ({"type": 9}, "type is 9, 1 to 8 are defined"),
        ({"status": "LEASED"}, "status is 'LEASED'"),
        ({"labels": "[]"}, "labels: is an array, not an object"),
        ({"labels": '{"a": 1}'}, "labels: 'a' is a number, not a text"),
    ],
)
def test_a_rendered_event_is_refused_for_its_form_too(change: Mapping[str, object], fault: str) -> None:
    event = build_message(ACCEPTED, HAPPENED)
    for name, value in change.items():
        setattr(event, name, value)
    for check in (validate_event, serialize):
        with pytest.raises(ContractError) as refused:
            check(event)
        assert fault in str(refused.value)


def test_an_event_without_a_time_is_refused() -> None:
    event = build_message(ACCEPTED, HAPPENED)
    event.ClearField("occurred_at")
    with pytest.raises(ContractError, match="occurred_at is missing"):
        serialize(event)


def test_a_long_error_is_cut_with_a_mark_and_fits_an_event() -> None:
    short = cut_error("GRPC: INTERNAL: " + "x" * 10_000)
    assert len(short) == 4000
    assert short.startswith("GRPC: INTERNAL: xxx")
    assert short.endswith(" … [cut, 10016 characters]")
    validate_fields(replace(FAILED, error=short))


@given(st.text(st.characters(exclude_categories=()), min_size=1))
def test_any_error_can_be_announced(error: str) -> None:
    serialize(build_message(replace(FAILED, error=cut_error(error)), HAPPENED))


def test_a_short_error_is_left_alone() -> None:
    assert cut_error("line one\nline two \U0001f600") == "line one\nline two \U0001f600"


def test_every_event_is_announced_by_some_move_and_leads_to_some_status() -> None:
    assert set(ANNOUNCES.values()) - {None} == set(EventType)
    assert set(STATUS_AFTER) == set(EventType)
    assert frozenset().union(*STATUS_AFTER.values()) == set(Status)
