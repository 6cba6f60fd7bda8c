"""dead-letters: what a person sees of the records that no run was made of, and how they go back to their topic."""

import asyncio
import json
import time
from base64 import b64encode
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest

from store.database import Database
from store.records import DeadLetter
from store.submit import IntakeBatch, Submits
from streams.cli.exits import Exit
from tests.cli.conftest import Run
from tests.fixtures.kafka import Kafka
from tests.kafka.reading import read
from tests.store.samples import GROUP, connected, letter, select

T = TypeVar("T")
HEADERS = (("a", b"1"), ("a", b"\xff\x00"), ("none", None), ("__connect.errors.stage", b"older"))
A_YEAR_AGO_MS = 1_764_500_000_000


def in_a_loop(work: Coroutine[object, object, T]) -> T:
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


@pytest.fixture
def write(database_url: str) -> Callable[..., list[int]]:
    """Store letters as intake does, and return their ids."""

    async def stored(letters: tuple[DeadLetter, ...]) -> list[int]:
        database = Database(database_url)
        await database.open()
        await Submits(database, on_committed=lambda payloads: None).batch(IntakeBatch(GROUP, (), letters))
        await database.close()
        async with connected(database_url) as sql:
            return [row["letter_id"] for row in await select(sql, "select letter_id from dead_letter order by 1")]

    return lambda *letters: in_a_loop(stored(letters))


@pytest.fixture
def rows(database_url: str) -> Callable[[str], list[dict[str, Any]]]:
    async def found(query: str) -> list[dict[str, Any]]:
        async with connected(database_url) as sql:
            return await select(sql, query)

    return lambda query: in_a_loop(found(query))


@pytest.fixture
def on_kafka(on_store: Run, monkeypatch: pytest.MonkeyPatch, kafka: Kafka) -> Run:
    monkeypatch.setenv("WORKFLOW_RUNS_KAFKA_BOOTSTRAP", kafka.bootstrap)
    return on_store


Write = Callable[..., list[int]]
Rows = Callable[[str], list[dict[str, Any]]]


def test_letters_are_listed_for_people_and_for_machines(on_store: Run, write: Write) -> None:
    assert on_store("dead-letters", "list", "--json").json == {"letters": [], "nextCursor": None}
    ids = write(letter(0, code="job-id"), letter(1), letter(2, topic="answers", held_seconds=60))

    listed = on_store("dead-letters", "list", "--limit", "2", "--json").json
    assert [each["letterId"] for each in listed["letters"]] == [ids[2], ids[1]]
    rest = on_store("dead-letters", "list", "--cursor", listed["nextCursor"], "--json").json
    assert [each["letterId"] for each in rest["letters"]] == [ids[0]]
    assert rest["nextCursor"] is None

    def found(*options: str) -> list[int]:
        return [each["letterId"] for each in on_store("dead-letters", "list", *options, "--json").json["letters"]]

    assert found("--code", "job-id") == [ids[0]]
    assert found("--topic", "answers") == found("--state", "HELD") == [ids[2]]
    assert found("--state", "SENT") == []
    table = on_store("dead-letters", "list")
    assert (table.code, table.out.count("\n"), "not JSON" in table.out) == (0, 4, True)
    assert on_store("dead-letters", "list", "--cursor", "x").code == Exit.USAGE
    assert on_store("dead-letters", "list", "--state", "LOST").code == Exit.USAGE


def test_one_letter_is_shown_as_text_where_it_can_be_read(on_store: Run, write: Write) -> None:
    [text, binary] = write(
        letter(0, key="ключ".encode(), value=b'{"a":\n1}', headers=HEADERS, timestamp_ms=A_YEAR_AGO_MS),
        letter(1, key=None, value=b"\xff\x00"),
    )
    shown = on_store("dead-letters", "show", str(text), "--json").json
    assert shown["key"] == {"text": "ключ"}
    assert shown["value"] == {"text": '{"a":\n1}'}
    assert shown["headers"][:3] == [
        {"name": "a", "value": {"text": "1"}},
        {"name": "a", "value": {"base64": "/wA="}},
        {"name": "none", "value": None},
    ]
    assert (shown["code"], shown["reason"], shown["state"]) == ("bad-json", "not JSON", "READY")
    assert (shown["topic"], shown["partition"], shown["offset"]) == ("workflow-run-requests", 0, 0)
    assert shown["recordTime"] == "2025-11-30T10:53:20+00:00"
    shown = on_store("dead-letters", "show", str(binary), "--json").json
    assert (shown["key"], shown["value"]) == (None, {"base64": b64encode(b"\xff\x00").decode()})
    assert "not JSON" in on_store("dead-letters", "show", str(text)).out
    unknown = on_store("dead-letters", "show", "999")
    assert (unknown.code, "999" in unknown.err) == (Exit.UNKNOWN_ID, True)


def test_what_a_stranger_wrote_gives_no_orders_to_a_terminal(on_store: Run, write: Write) -> None:
    evil = "\x1b]0;owned\x07 \x9b31m"
    [letter_id] = write(letter(0, value=evil.encode(), reason=evil, headers=((evil, evil.encode()),)))
    for printed in (on_store("dead-letters", "show", str(letter_id)), on_store("dead-letters", "list")):
        assert printed.code == 0
        assert not {"\x1b", "\x07", "\x9b"} & set(printed.out)


def test_a_letter_goes_back_as_it_was_once_and_is_audited(
    on_kafka: Run, write: Write, rows: Rows, kafka: Kafka
) -> None:
    topic = kafka.create_topic(kafka.unique("requests"))
    written = letter(0, topic=topic, key=b"k\xff", value=b"\x00\x01", headers=HEADERS, timestamp_ms=A_YEAR_AGO_MS)
    [letter_id] = write(written)

    done = on_kafka("dead-letters", "replay", str(letter_id), "--reason", "the producer was mended", "--json")
    assert done.code == 0
    assert done.json == {"letters": [{"letterId": letter_id, "outcome": "REPLAYED", "detail": ""}]}
    again = on_kafka("dead-letters", "replay", str(letter_id))
    assert (again.code, "ALREADY" in again.err, "0 of 1" in again.out) == (0, True, True)

    [record] = read(kafka.bootstrap, topic, 1)
    assert (record.key, record.value) == (b"k\xff", b"\x00\x01")
    assert [(name, value) for name, value in record.headers] == list(HEADERS[:3])
    # The letter's record is a year old: under its own time the topic's retention would remove it unread.
    assert abs(record.timestamp_ms - time.time() * 1000) < 60_000
    [row] = rows("select replayed_at is not null as replayed, state from dead_letter")
    assert row == {"replayed": True, "state": "READY"}
    [audit] = rows("select verb, reason, detail, actor from audit")
    assert (audit["verb"], audit["reason"]) == ("dead-letters replay", "the producer was mended")
    assert audit["detail"] == {"letterIds": [letter_id]}
    assert audit["actor"].startswith("cli:")

    assert on_kafka("dead-letters", "replay", str(letter_id), "--again").code == 0
    assert len(read(kafka.bootstrap, topic, 2)) == 2
    assert len(rows("select 1 from audit")) == 2


def test_letters_go_back_by_filter_once_each_and_held_ones_stay(
    on_kafka: Run, write: Write, rows: Rows, kafka: Kafka
) -> None:
    topic = kafka.create_topic(kafka.unique("requests"))
    many = [letter(n, topic=topic, code="bad-json", value=f"{n}".encode()) for n in range(130)]
    others = [letter(200, topic=topic, code="job-id"), letter(201, topic=topic, held_seconds=600)]
    ids = write(*many, *others)

    careful = on_kafka("dead-letters", "replay", "--topic", topic, "--code", "bad-json")
    assert (careful.code, "--yes" in careful.err) == (Exit.USAGE, True)
    assert rows("select 1 from audit") == []
    done = on_kafka("dead-letters", "replay", "--topic", topic, "--code", "bad-json", "--yes")
    assert (done.code, "130 of 130" in done.out) == (0, True)
    again = on_kafka("dead-letters", "replay", "--topic", topic, "--code", "bad-json", "--yes")
    assert (again.code, "0 of 0" in again.out) == (0, True)
    rest = on_kafka("dead-letters", "replay", "--topic", topic, "--yes", "--json")
    assert [each["letterId"] for each in rest.json["letters"]] == [ids[130]]
    assert {record.value for record in read(kafka.bootstrap, topic, 131)} >= {b"0", b"129"}
    held = on_kafka("dead-letters", "replay", str(ids[131]))
    assert (held.code, "HELD" in held.err) == (Exit.REFUSED, True)
    assert len(read(kafka.bootstrap, topic, 131)) == 131


def test_the_exit_code_of_a_replay_says_what_became_of_it(
    on_store: Run, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    [letter_id] = write(letter(0))
    assert on_store("dead-letters", "replay", str(letter_id)).code == Exit.USAGE  # no KAFKA_BOOTSTRAP
    monkeypatch.setattr("streams.kafka.replay.ANSWER_SECONDS", 0.5)
    monkeypatch.setenv("WORKFLOW_RUNS_KAFKA_BOOTSTRAP", "127.0.0.1:9")
    assert on_store("dead-letters", "replay", str(letter_id)).code == Exit.UNAVAILABLE
    unknown = on_store("dead-letters", "replay", "999", "--json")
    assert (unknown.code, json.loads(unknown.out)["letters"][0]["outcome"]) == (Exit.UNKNOWN_ID, "UNKNOWN")
    assert on_store("dead-letters", "replay").code == Exit.USAGE
    assert on_store("dead-letters", "replay", "1", "--topic", "t", "--yes").code == Exit.USAGE
    assert on_store("dead-letters", "replay", "--topic", "t", "--yes", "--again").code == Exit.USAGE
    assert on_store("dead-letters", "replay", "x").code == Exit.USAGE
    assert on_store("dead-letters", "list", "--json").json["letters"][0]["replayedAt"] is None


@pytest.mark.apache
def test_a_record_that_kafka_refuses_is_told_and_its_neighbours_go(on_kafka: Run, write: Write, kafka: Kafka) -> None:
    topic = kafka.create_topic(kafka.unique("requests"), config={"max.message.bytes": "2000"})
    ids = write(letter(0, topic=topic, value=b"x" * 5_000), letter(1, topic=topic))
    done = on_kafka("dead-letters", "replay", *map(str, ids), "--json")
    assert done.code == Exit.REFUSED
    assert [each["outcome"] for each in done.json["letters"]] == ["REFUSED", "REPLAYED"]
    assert len(read(kafka.bootstrap, topic, 1)) == 1
