"""A store, services, and workers without Kafka on them: forked, so that a test may start and kill several."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from schemas.events import EventType
from store.committer import Committer
from store.database import Database
from store.definitions import Definitions
from store.leases import Leases
from store.moves import Moves
from store.records import StoredDefinition
from store.submit import Submits
from streams.workflow.plan import ENGINE_LEVEL
from tests.acceptance.forked import Forked, fork_worker
from tests.acceptance.waiting import until
from tests.driver.stories import EMBED, TOKENIZE, Compiler, embed_reviewed_text
from tests.fixtures.grpc_server import ScriptedServer
from tests.store.given import finished
from tests.store.samples import Sql, connected, select, select_one, submission

_LEASE_SECONDS = 30


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
        [job_id] = await self.runs(1, document, **changes)
        return job_id

    async def runs(self, count: int, document: dict[str, Any], **changes: Any) -> list[UUID]:
        """Queued runs of one definition."""
        definition = await self.store(document)
        known: dict[str, Any] = {"definition_hash": definition.definition_hash, "target": "tokenizer"}
        known["steps_total"] = len(document["steps"])
        submits = Submits(self.database, on_committed=lambda payloads: None)
        return [(await submits.submit(submission(**{**known, **changes}))).job_id for _ in range(count)]

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


@asynccontextmanager
async def opened_bench(url: str, folder: Path, server: ScriptedServer, compiler: Compiler) -> AsyncIterator[Bench]:
    """A bench whose workers find every target at *server*."""
    targets = {name: {"address": server.target} for name in ("tokenizer", "embedder", "desk")}
    (folder / "targets.yaml").write_text(json.dumps(targets))
    database = Database(url, pool_size=3)
    await database.open()
    async with connected(url) as sql:
        yield Bench(url, folder, server, compiler, database, sql)
    await database.close()
