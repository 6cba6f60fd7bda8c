"""`workflow-runs relay`: what it shows, what it changes, and its exit codes."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID, uuid4

import pytest

from store.database import Database
from store.relay_queue import RelayQueue
from store.submit import IntakeBatch, Submits
from streams.cli.exits import Exit
from streams.cli.main import main
from tests.store.samples import GROUP, connected, letter, select, submission

T = TypeVar("T")


@dataclass(frozen=True)
class Printed:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Relay = Callable[..., Printed]


@pytest.fixture
def relay(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], database_url: str) -> Relay:
    """Run `workflow-runs relay` with these arguments on the test's database."""
    monkeypatch.setenv("WORKFLOW_RUNS_DATABASE_URL", database_url)
    monkeypatch.setenv("WORKFLOW_RUNS_WORKER_ID", "me")

    def run(*arguments: object) -> Printed:
        with pytest.raises(SystemExit) as ended:
            main(["relay", *map(str, arguments)])
        printed = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return Printed(ended.value.code, printed.out, printed.err)

    return run


@dataclass(frozen=True)
class Tables:
    """The test's database, from a test that is not async: the commands bring a loop of their own."""

    url: str

    def run(self, *, attempts: int = 0) -> UUID:
        """A run whose one event has failed that often."""

        async def work(database: Database) -> UUID:
            return (await Submits(database, on_committed=_nobody).submit(submission())).job_id

        job_id = self._on_database(work)
        self.execute(
            "update relay_queue set attempts = %(n)s, last_error = %(error)s where job_id = %(job)s",
            n=attempts, error="too-large: 9\x1b[31m bytes" if attempts else None, job=job_id,
        )  # fmt: skip
        return job_id

    def letter(self, *, attempts: int) -> int:
        async def work(database: Database) -> None:
            await Submits(database, on_committed=_nobody).batch(IntakeBatch(GROUP, letters=[letter(1)]))

        self._on_database(work)
        self.execute("update relay_queue set attempts = %(n)s where kind = 'letter'", n=attempts)
        [row] = self.rows("select letter_id from dead_letter")
        return int(row["letter_id"])

    def held_by(self, owner: str) -> None:
        self._on_database(lambda database: RelayQueue(database).lease_shards(owner=owner))

    def execute(self, statement: str, **params: object) -> None:
        async def work() -> None:
            async with connected(self.url) as sql:
                await sql.execute(statement.encode(), params)

        asyncio.run(work())

    def rows(self, query: str) -> list[dict[str, Any]]:
        async def work() -> list[dict[str, Any]]:
            async with connected(self.url) as sql:
                return await select(sql, query)

        return asyncio.run(work())

    def _on_database(self, work: Callable[[Database], Awaitable[T]]) -> T:
        async def opened() -> T:
            database = Database(self.url, pool_size=1)
            await database.open()
            try:
                return await work(database)
            finally:
                await database.close()

        return asyncio.run(opened())


def _nobody(_: object) -> None:
    """Nobody is to be woken."""


@pytest.fixture
def tables(database_url: str) -> Tables:
    return Tables(database_url)


def test_what_fails_and_who_relays_is_listed(relay: Relay, tables: Tables) -> None:
    assert "nothing fails" in relay("list").out
    blocked, failing = tables.run(attempts=10), tables.run(attempts=3)
    letter_id = tables.letter(attempts=10)
    tables.held_by("worker-a/7-abc")

    listed = relay("list", "--json")
    text = relay("list")

    assert (listed.code, text.code, text.err) == (0, 0, "")
    rows = {row["key"]: (row["status"], row["attempts"], row["seq"]) for row in listed.json["failing"]}
    assert rows == {
        str(blocked): ("FAILED", 10, 1),
        str(failing): ("PENDING", 3, 1),
        f"letter {letter_id}": ("FAILED", 10, None),
    }
    assert sum(shard["backlog"] for shard in listed.json["shards"]) == 3
    assert {shard["holder"] for shard in listed.json["shards"]} == {"worker-a/7-abc"}
    for part in (str(blocked), f"letter {letter_id}", "too-large: 9", "worker-a/7-abc"):
        assert part in text.out
    assert "\x1b" not in text.out
    page = relay("list", "--limit", 2, "--json").json
    assert len(relay("list", "--limit", 2, "--cursor", page["nextCursor"], "--json").json["failing"]) == 1
    assert relay("list", "--cursor", "nonsense").code == Exit.USAGE


def test_shards_that_nobody_relays_are_pointed_out(relay: Relay, tables: Tables) -> None:
    assert "is a worker with the role relay running?" in relay("list").err


def test_the_events_of_a_run_are_shown_with_where_they_are(relay: Relay, tables: Tables) -> None:
    job_id = tables.run(attempts=10)

    shown = relay("show", job_id, "--json")

    assert shown.code == 0
    assert (shown.json["jobId"], shown.json["status"], shown.json["nextSeq"]) == (str(job_id), "QUEUED", None)
    [event] = shown.json["events"]
    assert (event["event"], event["status"], event["attempts"]) == ("ACCEPTED", "FAILED", 10)
    assert event["lastError"].startswith("too-large")
    text = relay("show", job_id).out
    assert "ACCEPTED" in text
    assert "FAILED" in text
    assert "\x1b" not in text
    tables.execute("delete from relay_queue")
    assert relay("show", job_id, "--json").json["events"][0]["status"] == "PUBLISHED"


def test_what_failed_is_sent_again_and_the_audit_says_who_and_why(relay: Relay, tables: Tables) -> None:
    job_id, other = tables.run(attempts=10), tables.run(attempts=10)
    letter_id = tables.letter(attempts=10)

    answer = relay("resend", job_id, "--seq", 1, "--reason", "mended", "--json")
    assert (answer.code, answer.json) == (0, {"ok": True, "jobId": str(job_id), "seqs": [1]})
    assert relay("resend", job_id).code == Exit.REFUSED
    assert relay("resend", "--letter", letter_id).code == 0
    everything = relay("resend", "--all", "--json")
    assert (everything.code, everything.json["rows"]) == (0, 1)
    assert "nothing fails" in relay("resend", "--all").out

    assert {row["attempts"] for row in tables.rows("select attempts from relay_queue")} == {0}
    assert other in {row["job_id"] for row in tables.rows("select job_id from relay_queue")}
    audit = tables.rows("select actor, verb, reason from audit order by id")
    assert audit[0] == {"actor": "cli:me", "verb": "relay resend", "reason": "mended"}
    assert len(audit) == 3


def test_what_is_blocked_can_be_skipped_and_nothing_else(relay: Relay, tables: Tables) -> None:
    blocked, failing = tables.run(attempts=10), tables.run(attempts=3)
    letter_id = tables.letter(attempts=10)

    refused = relay("skip", failing, "--seq", 1, "--reason", "impatient")
    assert refused.code == Exit.CONFLICT
    assert "is blocked after 10" in refused.err
    assert relay("skip", blocked, "--seq", 2, "--reason", "r").code == Exit.CONFLICT
    skipped = relay("skip", blocked, "--seq", 1, "--reason", "no topic takes it", "--json")
    assert (skipped.code, skipped.json) == (0, {"ok": True, "jobId": str(blocked), "seq": 1})
    assert relay("skip", "--letter", letter_id, "--reason", "too large").code == 0

    [event] = relay("show", blocked, "--json").json["events"]
    assert (event["status"], event["skipReason"]) == ("PENDING", "no topic takes it")
    assert {row["verb"] for row in tables.rows("select verb from audit")} == {"relay skip"}


@pytest.mark.parametrize("since", ["2020-01-01T00:00:00Z", "2020-01-01T00:00:00+02:00"])
def test_events_are_sent_anew_from_a_time_on(relay: Relay, tables: Tables, since: str) -> None:
    tables.run()
    tables.run()
    tables.execute("delete from relay_queue")

    answer = relay("republish", "--since", since, "--json")

    assert (answer.code, answer.json) == (0, {"ok": True, "runs": 2, "events": 2})
    assert len(tables.rows("select * from relay_queue")) == 2
    assert relay("republish", "--since", "2999-01-01T00:00Z", "--json").json["events"] == 0


def test_events_of_one_run_are_sent_anew_from_a_number_on(relay: Relay, tables: Tables) -> None:
    job_id = tables.run()
    tables.run()
    tables.execute("delete from relay_queue")

    assert "1 events of 1 runs" in relay("republish", "--since", 1, "--job-id", job_id).out
    assert [row["job_id"] for row in tables.rows("select job_id from relay_queue")] == [job_id]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("show", uuid4()), Exit.UNKNOWN_ID),
        (("resend", uuid4()), Exit.UNKNOWN_ID),
        (("resend", "--letter", 7), Exit.UNKNOWN_ID),
        (("skip", uuid4(), "--seq", 1, "--reason", "r"), Exit.UNKNOWN_ID),
        (("republish", "--since", 1, "--job-id", uuid4()), Exit.UNKNOWN_ID),
        (("show", "17"), Exit.USAGE),
        (("resend",), Exit.USAGE),
        (("resend", uuid4(), "--all"), Exit.USAGE),
        (("resend", "--all", "--seq", 1), Exit.USAGE),
        (("skip", uuid4(), "--seq", 1), Exit.USAGE),
        (("skip", uuid4(), "--reason", "r"), Exit.USAGE),
        (("skip", "--letter", 1, "--seq", 1, "--reason", "r"), Exit.USAGE),
        (("republish", "--since", 1), Exit.USAGE),
        (("republish", "--since", "2020-01-01T00:00"), Exit.USAGE),
        (("republish", "--since", "yesterday"), Exit.USAGE),
    ],
)
def test_a_call_that_cannot_be_done_says_so_by_its_exit_code(
    relay: Relay, arguments: tuple[object, ...], code: Exit
) -> None:
    assert relay(*arguments).code == code


def test_a_skip_without_a_word_is_no_reason(relay: Relay, tables: Tables) -> None:
    assert relay("skip", tables.run(attempts=10), "--seq", 1, "--reason", " ").code == Exit.USAGE
