"""The database is put back to an older base copy under live workers: nothing that Kafka still has is lost."""

from collections.abc import AsyncIterator, Collection, Iterator
from pathlib import Path
from uuid import UUID

import pytest

from streams.dev.postgres import EmbeddedPostgres
from streams.dev.registry.server import RegistryServer
from tests.acceptance.fleet import EMBED_TEXT_LOG, Fleet, opened_fleet
from tests.acceptance.waiting import until
from tests.driver.stories import EMBED, TOKENIZE, Compiler
from tests.fixtures.base_copy import BaseCopy
from tests.fixtures.grpc_server import ScriptedServer
from tests.fixtures.kafka import Kafka

pytestmark = pytest.mark.embedded


@pytest.fixture
async def fleet(
    kafka: Kafka,
    registry: RegistryServer,
    own_postgres: EmbeddedPostgres,
    tmp_path: Path,
    services: ScriptedServer,
    compiler: Compiler,
) -> AsyncIterator[Fleet]:
    """A fleet on a server of its own."""
    async with opened_fleet(kafka, registry, own_postgres.url(), tmp_path, services, compiler) as fleet:
        yield fleet


@pytest.fixture
def base_copy(own_postgres: EmbeddedPostgres) -> Iterator[BaseCopy]:
    with BaseCopy(own_postgres) as copy:
        yield copy


@pytest.mark.timeout(240)
async def test_live_workers_catch_up_with_a_database_that_was_put_back(fleet: Fleet, base_copy: BaseCopy) -> None:
    workers = await fleet.started("worker-a", "worker-b")
    before = await fleet.produce(4)
    await fleet.until_all(before, "COMPLETED")
    with fleet.server.holding(EMBED) as held:
        known = await fleet.produce(4)
        for _ in known:
            await held.arrived()
        base_copy.take()
    await fleet.until_all(known, "COMPLETED")
    lost = await fleet.produce(6)
    await fleet.until_all(lost, "COMPLETED")
    await fleet.until_read_up()
    await fleet.until_told([*before, *known, *lost], EMBED_TEXT_LOG)

    with fleet.server.holding(EMBED) as held:
        in_hand = await fleet.produce(4)
        for _ in in_hand:
            await held.arrived()
        await fleet.until_read_up()
        cut = [call for job_id in in_hand for call in fleet.calls(EMBED, job_id)]
        base_copy.put_back()
        assert all([await call.was_cut() for call in cut])
        assert all(call.cut.is_set() for call in cut)
        assert await fleet.statuses(before) == {"COMPLETED": len(before)}
    everything = [*before, *known, *lost, *in_hand]
    await fleet.until_all(everything, "COMPLETED", seconds=60)

    for job_id in everything:
        assert await fleet.log(job_id) == EMBED_TEXT_LOG
    for job_id in known:  # the copy says RUNNING, under the claim that had finished one step: handed back, and no more
        row = await fleet.row(job_id)
        assert [checkpoint["fence"] for checkpoint in row["checkpoints"]] == [1, 2]
        assert (row["lost_leases"], len(fleet.calls(TOKENIZE, job_id))) == (0, 1)
    await until_published(fleet, everything)
    ids = {(told.event.job_id, told.event.seq, told.event.event_id) for told in fleet.reader.told()}
    assert len([one for one in ids if UUID(one[0]) in lost]) == 2 * len(EMBED_TEXT_LOG) * len(lost)
    await fleet.until_read_up()
    for worker in workers:
        assert await worker.count("history_changes_total") == 1
        assert await worker.count("intake_rebuilds_total") == 0
        assert "the database was put back or failed over: it stood at" in worker.log
        status, health = await worker.health("/readyz")
        assert (status, "put back or failed over 1 times" in str(health)) == (200, True)


async def until_published(fleet: Fleet, jobs: Collection[UUID]) -> None:
    """Wait until every event that the database has now is on the topic, under its id."""
    rows = await fleet.rows("select event_id from event where job_id = any (%(jobs)s)", jobs=list(jobs))
    wanted = {str(row["event_id"]) for row in rows}

    def all_there() -> bool:
        return wanted <= {told.event.event_id for told in fleet.reader.told()}

    await until(all_there, lambda: f"of {len(wanted)} events not all are published")
