"""The same row gives the same bytes, for ever."""

from datetime import UTC, datetime
from typing import Any

import pytest

from schemas.consume import read_event
from schemas.errors import ContractError, RecordRefused
from schemas.events import EventType
from schemas.registered import SchemaText
from schemas.topics import load_topics
from store.database import Database
from store.relay_queue import RelayQueue
from streams.kafka.registry import SchemaRegistry
from streams.relay.render import Renderer
from streams.relay.step_records import StepRecords
from tests.relay.rows import event, job, letter

TOPICS = load_topics("""
requests: {role: requests, partitions: 1, config: {max.message.bytes: 1000}}
requests.dlq: {role: dead-letters}
events: {role: events, partitions: 1, config: {max.message.bytes: 5000}}
answers: {role: answers, partitions: 1}
""")


class _Registered(SchemaRegistry):
    """Our text as if it were registered under the id 7: bytes can be pinned only with a known id."""

    async def id_of(self, subject: str, schema: SchemaText) -> int:
        assert (subject, schema.contract_version) == ("events-value", 1)
        return 7


@pytest.fixture
def renderer() -> Renderer:
    registry = _Registered("http://127.0.0.1:9")
    nowhere = RelayQueue(Database("postgresql://127.0.0.1:9/none"))
    return Renderer(TOPICS, registry, StepRecords(nowhere, TOPICS, registry))


async def test_an_event_has_these_bytes_for_ever(renderer: Renderer) -> None:
    row = event(
        labels={"b": "2", "a": "1"}, business_key="order-7", trace_context="00-4bf9-00f0-01", detail='{"n":1}', step="s"
    )

    record = await renderer.event(row)

    assert record.topic == "events"
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
        "3a11636f6d706c657465642033207374657073"
        "4a077b226e223a317d"
        "520b08c0cab5d806108094ef3a"
        "5801"
        "620764656661756c74"
        "6a09434f4d504c45544544"
        "72076f726465722d37"
        "7a117b2261223a2231222c2262223a2232227d"
    )
    assert record.timestamp_ms == 1_796_040_000_123
    assert record.headers == [
        ("ce_specversion", b"1.0"),
        ("ce_id", b"0198c0de-0000-7000-8000-000000000100"),
        ("ce_source", b"/workflow-runs"),
        ("ce_type", b"workflow_runs.v1.COMPLETED"),
        ("ce_subject", b"0198c0de-0000-7000-8000-000000000001"),
        ("ce_time", b"2026-11-30T12:00:00.123456Z"),
        ("content-type", b"application/protobuf"),
        ("traceparent", b"00-4bf9-00f0-01"),
    ]
    assert await renderer.event(row) == record


async def test_an_event_reads_as_its_row(renderer: Renderer) -> None:
    row = event(type=EventType.FAILED, status="FAILED", verdict=None, error="GRPC: INTERNAL: no", attempt=3, seq=9)

    record = await renderer.event(row)
    assert record.value is not None
    message = read_event(record.value)

    assert (message.event_id, message.job_id) == (str(row.event_id), str(row.job_id))
    assert (int(message.type), message.status, message.error) == (5, "FAILED", "GRPC: INTERNAL: no")
    assert (message.attempt, message.seq) == (3, 9)
    assert not message.HasField("verdict")
    assert not message.HasField("labels")
    assert "traceparent" not in dict(record.headers)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"contract_version": 2}, "contract-version"),
        ({"format": 2}, "event-format"),
        ({"status": "GONE"}, "event"),
        ({"verdict": None}, "event"),
    ],
)
async def test_an_event_that_cannot_be_published_says_why(
    renderer: Renderer, changes: dict[str, Any], code: str
) -> None:
    with pytest.raises(ContractError) as refused:
        await renderer.event(event(**changes))
    assert refused.value.code == code


async def test_an_event_larger_than_its_topic_takes_is_refused_before_it_is_sent(renderer: Renderer) -> None:
    fits = event(detail='"' + "x" * 4_200 + '"')
    over = event(detail='"' + "x" * 4_600 + '"')

    assert (await renderer.event(fits)).batch_bytes() <= 5_000
    with pytest.raises(RecordRefused, match="events takes 5000") as refused:
        await renderer.event(over)
    assert refused.value.code == "too-large"


def test_a_letter_is_the_record_byte_for_byte_and_why(renderer: Renderer) -> None:
    row = letter(
        key=None,
        value=b"\x00\xff not a request",
        headers=(("a", b"1"), ("__connect.errors.topic", b"elsewhere"), ("a", b"2"), ("null", None)),
        reason="x" * 2_000,
    )

    record = renderer.letter(row)

    assert (record.topic, record.key, record.value) == ("requests.dlq", None, b"\x00\xff not a request")
    assert record.timestamp_ms == 1_764_500_000_000
    names = [name for name, _ in record.headers]
    assert len(names) == len(set(names))
    headers = dict(record.headers)
    assert (headers["a"], headers["null"]) == (b"2", b"")
    assert headers["__connect.errors.topic"] == b"requests"
    assert headers["__connect.errors.partition"] == b"3"
    assert headers["__connect.errors.offset"] == b"42"
    assert headers["__connect.errors.exception.class.name"] == b"bad-json"
    assert len(headers["__connect.errors.exception.message"] or b"") <= 1_024


def test_a_tombstone_stays_one(renderer: Renderer) -> None:
    assert renderer.letter(letter(value=None)).value is None


def test_the_largest_record_of_a_source_fits_its_dead_letters(renderer: Renderer) -> None:
    row = letter(value=b"x" * 900, code="c" * 5_000, reason="r" * 5_000, topic="requests")

    assert renderer.letter(row).batch_bytes() <= 1_000 + 64 * 1_024


def test_a_record_without_a_time_gets_one(renderer: Renderer) -> None:
    assert renderer.letter(letter(timestamp_ms=-1)).timestamp_ms is None


def test_letters_of_a_topic_that_is_gone_have_nowhere_to_go(renderer: Renderer) -> None:
    with pytest.raises(ContractError) as refused:
        renderer.letter(letter(topic="orders"))
    assert refused.value.code == "no-dead-letters"
    assert renderer.topic_of(letter(topic="orders")) == "dead letters of orders"


def test_every_row_knows_its_topic(renderer: Renderer) -> None:
    assert renderer.topic_of(event(job_id=job(3))) == "events"
    assert renderer.topic_of(letter(topic="answers")) == "answers.dlq"


async def test_times_before_1970_and_between_milliseconds_round_down(renderer: Renderer) -> None:
    late = await renderer.event(event(occurred_at=datetime(2026, 1, 1, 0, 0, 0, 999, UTC)))
    early = await renderer.event(event(occurred_at=datetime(1969, 12, 31, 23, 59, 59, 999999, UTC)))

    assert late.timestamp_ms == 1_767_225_600_000
    assert early.timestamp_ms == -1
