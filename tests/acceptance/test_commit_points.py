"""A worker is killed right before and right after each commit: the next one goes on, and nothing is lost or doubled."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from schemas.events import EventType
from store.committer import Committer
from store.database import Database
from store.definitions import Definitions
from store.leases import Leases
from store.moves import Moves
from store.records import StoredDefinition
from store.submit import Submits
from streams.parts.commit_points import COMMIT_POINTS
from streams.workflow.plan import ENGINE_LEVEL
from tests.acceptance.forked import Forked, fork_worker
from tests.acceptance.waiting import until
from tests.acceptance.ways_to_moves import WAYS
from tests.driver.stories import EMBED, TOKENIZE, TOKENS, VECTOR, Compiler, embed_reviewed_text, embed_text
from tests.fixtures.grpc_server import ScriptedServer
from tests.store.given import finished
from tests.store.samples import Sql, connected, select, select_one, submission

pytestmark = pytest.mark.embedded

_LEASE_SECONDS = 30
_TERMINAL = ("COMPLETED", "FAILED", "DEAD", "CANCELLED")
_SIDES = ("before_commit", "after_commit")


@dataclass
class Bench:
    """A store, services, and workers without Kafka on them."""

    url: str
    folder: Path
    server: ScriptedServer
    compiler: Compiler
    database: Database
    sql: Sql

    def worker(self, *, stop_at: str | None = None, **settings: object) -> Forked:
        known = {
            "database_url": self.url,
            "targets_file": self.folder / "targets.yaml",
            "worker_id": "worker",
            "roles": "runs,web",
            "lease_seconds": _LEASE_SECONDS,
            "backoff_base_seconds": 0.1,
        }
        return fork_worker({**known, **settings}, self.folder, stop_at=stop_at)

    async def store(self, document: dict[str, Any]) -> StoredDefinition:
        """Make *document* the workflow `embed-text`."""
        compiled = await self.compiler(document)
        definition = StoredDefinition(
            compiled.definition_hash, "embed-text", compiled.document, compiled.descriptor_set, ENGINE_LEVEL
        )
        await Definitions(self.database).put_workflow(
            definition, tenant_id="default", name="embed-text", created_by="test"
        )
        return definition

    async def run(self, document: dict[str, Any], **changes: Any) -> UUID:
        """A queued run."""
        definition = await self.store(document)
        known: dict[str, Any] = {"definition_hash": definition.definition_hash, "target": "tokenizer"}
        request = submission(**{**known, "steps_total": len(document["steps"]), **changes})
        await Submits(self.database, on_committed=lambda payloads: None).submit(request)
        return request.job_id

    async def parked(self) -> UUID:
        """A run that another worker brought to its review."""
        job_id = await self.run(embed_reviewed_text())
        committer = Committer(self.database, on_committed=lambda payloads: None)
        running = asyncio.create_task(committer.run())
        [held] = await Leases(self.database, owner="earlier:1", lease_seconds=30, engine_level=1).claim(
            {"tokenizer": 1}
        )
        moves = Moves(committer)
        await moves.checkpoint(held, finished(response={"tokens": ["a"]}))
        await moves.park(held, step="review", step_index=1, request={"text": "a"}, resume_target="embedder")
        await committer.close()
        await running
        return job_id

    async def let_leases_run_out(self) -> None:
        """What time does to the claims of a worker that is gone."""
        await self.sql.execute("update run set lease_until = now() - interval '1 s' where status = 'RUNNING'")

    async def status(self, job_id: UUID) -> str:
        return str(await select_one(self.sql, "select status from run where job_id = %(id)s", {"id": job_id}))

    async def until_status(self, job_id: UUID, worker: Forked, *statuses: str) -> None:
        async def there() -> bool:
            return await self.status(job_id) in statuses

        await until(there, lambda: worker.log)

    async def ledger(self, job_id: UUID) -> list[str]:
        """The run's events, having made sure that request, row, events, queue and checkpoints add up to one another."""
        assert [row["job_id"] for row in await select(self.sql, "select job_id from run")] == [job_id]
        events = await select(self.sql, "select seq, type, step, event_id from event order by seq")
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
        assert len({event["event_id"] for event in events}) == len(events)
        queued = await select(self.sql, "select seq from relay_queue order by id")
        assert [row["seq"] for row in queued] == [event["seq"] for event in events]
        told = [" ".join(filter(None, (EventType(event["type"]).name, event["step"]))) for event in events]
        checkpoints = await select(self.sql, "select step from checkpoint order by step_index")
        assert [f"STEP_CHECKPOINT {row['step']}" for row in checkpoints] == [
            event for event in told if event.startswith("STEP_CHECKPOINT")
        ]
        return told

    def calls(self) -> tuple[int, int]:
        """Those of tokenize and embed."""
        return len(self.server.calls(TOKENIZE)), len(self.server.calls(EMBED))


@pytest.fixture
async def bench(
    database_url: str, tmp_path: Path, grpc_server: ScriptedServer, compiler: Compiler
) -> AsyncIterator[Bench]:
    targets = {name: {"address": grpc_server.target} for name in ("tokenizer", "embedder", "desk")}
    (tmp_path / "targets.yaml").write_text(json.dumps(targets))
    grpc_server.script(TOKENIZE, TOKENS)
    grpc_server.script(EMBED, VECTOR)
    database = Database(database_url, pool_size=3)
    await database.open()
    async with connected(database_url) as sql:
        yield Bench(database_url, tmp_path, grpc_server, compiler, database, sql)
    await database.close()


def test_every_commit_point_is_one_of_those_below() -> None:
    moves = {*WAYS, "submit", "answer", "cancel", "intake"}
    relay = {"relay.acknowledged", "relay.before_mark", "relay.after_mark"}
    assert {f"{move}.{side}" for move in moves for side in _SIDES} | relay | {"intake.before_offset"} == set(
        COMMIT_POINTS
    )


@pytest.mark.spec(61)
@pytest.mark.parametrize("side", _SIDES)
@pytest.mark.parametrize("move", WAYS)
async def test_a_worker_killed_at_a_move_repeats_the_step_in_hand_at_most(bench: Bench, move: str, side: str) -> None:
    way = WAYS[move]
    for method, answers in way.scripts.items():
        bench.server.script(method, *answers)
    job_id = await bench.run(dict(way.document), max_attempts=way.max_attempts)
    if move == "expire":
        await Leases(bench.database, owner="gone:1", lease_seconds=30, engine_level=1).claim({"tokenizer": 1})
        await bench.let_leases_run_out()
    with closing(bench.worker(stop_at=f"{move}.{side}", drain_grace_seconds=0)) as victim:
        if move == "release":
            with bench.server.holding(EMBED) as hold:
                await hold.arrived()
                victim.terminate()
                await victim.was_killed()
        await victim.was_killed()

    await bench.let_leases_run_out()
    with closing(bench.worker()) as heir:
        if move == "park":
            await bench.until_status(job_id, heir, "WAITING")
            await heir.ready()
            answer = {"jobId": str(job_id), "stepName": "review", "response": {"approved": True}}
            assert (await heir.call("complete-step", answer))["ok"]
        await bench.until_status(job_id, heir, *_TERMINAL)
    assert await bench.ledger(job_id) == list(way.log)
    assert bench.calls() == (way.calls if side == "before_commit" else way.calls_after)


@pytest.mark.spec(66)
async def test_a_run_whose_claims_kill_their_workers_is_dead_at_the_ceiling_and_takes_no_other_down(
    bench: Bench,
) -> None:
    job_id = await bench.run(embed_text())
    # A suspect is claimed by itself, after a look for others.
    for passage in (1, 1, 2):
        with closing(bench.worker(stop_at=f"claim.after_commit:{passage}")) as victim:
            await victim.was_killed()
        await bench.let_leases_run_out()
    with closing(bench.worker()) as heir:
        await bench.until_status(job_id, heir, *_TERMINAL)
        assert await bench.ledger(job_id) == ["ACCEPTED", "DEAD"]
        other = await bench.run(embed_text())
        await bench.until_status(other, heir, "COMPLETED")
    [row] = await select(bench.sql, "select lost_leases, error from workflow_run where status = 'DEAD'")
    assert row["lost_leases"] == 3
    assert row["error"].startswith("lease expired 3 times in a row, last held by worker/")


@pytest.mark.parametrize("side", _SIDES)
async def test_an_answer_whose_worker_is_killed_is_taken_once(bench: Bench, side: str) -> None:
    job_id = await bench.parked()
    answer = {"jobId": str(job_id), "stepName": "review", "response": {"approved": True}}
    with closing(bench.worker(stop_at=f"answer.{side}", roles="web")) as victim:
        await victim.ready()
        assert await victim.call("complete-step", answer) is None
        await victim.was_killed()
    assert await bench.status(job_id) == ("WAITING" if side == "before_commit" else "QUEUED")

    with closing(bench.worker()) as heir:
        await heir.ready()
        again = await heir.call("complete-step", answer)
        assert (again["ok"], again.get("alreadyDone", False)) == (True, side == "after_commit")
        await bench.until_status(job_id, heir, *_TERMINAL)
    assert await bench.ledger(job_id) == list(WAYS["park"].log)
    assert bench.calls() == (0, 1)


@pytest.mark.parametrize("side", _SIDES)
async def test_a_cancel_whose_worker_is_killed_is_made_once(bench: Bench, side: str) -> None:
    job_id = await bench.run(embed_text(), target="nowhere")
    cancel = {"jobId": str(job_id), "reason": "no longer needed"}
    with closing(bench.worker(stop_at=f"cancel.{side}", roles="web")) as victim:
        await victim.ready()
        assert await victim.call("cancel-job", cancel) is None
        await victim.was_killed()
    assert await bench.status(job_id) == ("QUEUED" if side == "before_commit" else "CANCELLED")

    with closing(bench.worker(roles="web")) as heir:
        await heir.ready()
        await heir.call("cancel-job", cancel)
    assert await bench.ledger(job_id) == ["ACCEPTED", "CANCELLED"]


@pytest.mark.parametrize("side", _SIDES)
async def test_a_submit_whose_worker_is_killed_makes_one_run(bench: Bench, side: str) -> None:
    await bench.store(embed_text())
    job_id = uuid4()
    request = {"workflowName": "embed-text", "input": {"text": "a"}, "jobId": str(job_id)}
    with closing(bench.worker(stop_at=f"submit.{side}", roles="web")) as victim:
        await victim.ready()
        assert await victim.call("submit-workflow", request) is None
        await victim.was_killed()
    assert await select_one(bench.sql, "select count(*) from run") == (side == "after_commit")

    with closing(bench.worker()) as heir:
        await heir.ready()
        again = await heir.call("submit-workflow", request)
        assert (again["ok"], again["created"]) == (True, side == "before_commit")
        await bench.until_status(job_id, heir, *_TERMINAL)
    assert await bench.ledger(job_id) == list(WAYS["complete"].log)
    assert bench.calls() == (1, 1)
