"""What is told of a record that was given up: the same bytes each time, and always something that can be told."""

from typing import Any

import pytest

from schemas.consume import read_event
from schemas.registered import SchemaText
from schemas.topics import load_topics
from store.database import Database
from store.relay_queue import RelayQueue
from streams.kafka.registry import SchemaRegistry
from streams.relay.render import Renderer
from streams.relay.step_records import StepRecords
from tests.relay.rows import event, letter

TOPICS = load_topics("""
requests: {role: requests, partitions: 1}
requests.dlq: {role: dead-letters}
events: {role: events, partitions: 1, config: {max.message.bytes: 1700}}
answers: {role: answers, partitions: 1}
""")


class _Registered(SchemaRegistry):
    async def id_of(self, subject: str, schema: SchemaText) -> int:
        return 7


@pytest.fixture
def renderer() -> Renderer:
    registry = _Registered("http://127.0.0.1:9")
    nowhere = RelayQueue(Database("postgresql://127.0.0.1:9/none"))
    return Renderer(TOPICS, registry, StepRecords(nowhere, TOPICS, registry))


async def test_a_reduced_event_has_these_bytes_for_ever(renderer: Renderer) -> None:
    row = event(
        verdict="v" * 300, labels={"a": "1"}, business_key="order-7", trace_context="00-4bf9-00f0-01", detail='{"n":1}',
        step="s", skip_reason="no topic takes it",
    )  # fmt: skip

    record = await renderer.record(row)

    assert record.key == b"0198c0de-0000-7000-8000-000000000001"
    assert record.value is not None
    assert record.value.hex() == (
        "000000000700"
        "0a2430313938633064652d303030302d373030302d383030302d303030303030303030313030"
        "122430313938633064652d303030302d373030302d383030302d303030303030303030303031"
        "1a0a656d6265642d74657874"
        "2004"
        "2a0173"
        "3001"
        "3aca01" + "76" * 176 + "20e280a6205b6375742c2033303020636861726163746572735d"
        "4a1f7b22736b6970706564223a226e6f20746f7069632074616b6573206974227d"
        "520b08c0cab5d806108094ef3a"
        "5801"
        "620764656661756c74"
        "6a09434f4d504c45544544"
        "72076f726465722d37"
    )
    assert "traceparent" not in dict(record.headers)
    assert dict(record.headers)["ce_id"] == b"0198c0de-0000-7000-8000-000000000100"
    assert await renderer.record(row) == record


@pytest.mark.parametrize(
    "changes",
    [
        {"detail": '"' + "x" * 8_000 + '"'},
        {"detail": "no JSON"},
        {"verdict": "ä" * 100_000},
        {"verdict": None},
        {"verdict": ""},
        {"type": 5, "status": "FAILED", "error": None},
        {"type": 6, "status": "DEAD", "error": "\0" * 9_000},
        {"type": 2, "status": "RUNNING", "step": "s" * 100_000},
        {"type": 3, "status": "WAITING", "step": None},
        {"labels": {"no label": "x" * 100_000}},
        {"business_key": "k" * 100_000},
        {"workflow_name": "\0"},
        {"trace_context": "t" * 100_000},
        {"skip_reason": "why\0 " * 100_000},
    ],
)
async def test_whatever_could_not_be_told_of_an_event_its_reduced_form_can(
    renderer: Renderer, changes: dict[str, Any]
) -> None:
    row = event(**{"skip_reason": "given up", **changes})

    record = await renderer.record(row)

    assert record.value is not None
    message = read_event(record.value)
    assert (message.event_id, message.job_id, message.seq) == (str(row.event_id), str(row.job_id), row.seq)
    assert (int(message.type), message.status) == (row.type, row.status)
    assert '"skipped"' in message.detail


async def test_a_reduced_letter_says_where_it_came_from_and_why_without_its_content(renderer: Renderer) -> None:
    whole = letter(key=b"k", value=b"x" * 5_000_000, headers=(("a", b"x" * 1_000_000),), skip_reason="too large")

    record = await renderer.record(whole)

    assert (record.topic, record.key, record.value, record.timestamp_ms) == (
        "requests.dlq",
        b"k",
        None,
        1_764_500_000_000,
    )
    headers = dict(record.headers)
    assert "a" not in headers
    assert headers["__connect.errors.offset"] == b"42"
    assert headers["__connect.errors.exception.message"] == (
        b"only this is published, the store has all of letter 1: too large; not JSON"
    )
    large_key = letter(key=b"k" * 2_000, skip_reason="too large")
    assert (await renderer.record(large_key)).key is None
