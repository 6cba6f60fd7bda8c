"""What a worker costs while there is nothing to do."""

import time
from typing import Final

from tests.bench.measure import Sample
from tests.bench.points import Bench, Kind, Point

TOPIC: Final = "idle"
ALL_ROLES: Final = "intake,runs,relay,web"

# A connection that has nothing to do tells the server's counters of its transactions only after ten seconds.
_STARTED_SECONDS: Final = 10.5


def idle_point(bench: Bench, seconds: int) -> Point:
    """One worker with all roles. Its unit is a second, so that transactions per unit are queries a second."""
    return Point(TOPIC, "one idle worker, all roles", "second", Kind.WORKER, lambda: _of_worker(bench, seconds))


def _of_worker(bench: Bench, seconds: int) -> Sample:
    meter, servers = bench.meter, bench.servers
    topics = servers.topics()
    with (
        servers.without_autovacuum(),
        servers.database() as database,
        servers.worker(database, ALL_ROLES, topics) as worker,
    ):
        time.sleep(_STARTED_SECONDS)
        transactions = meter.transactions_so_far(database.name)
        before = meter.read(worker.pid)
        time.sleep(seconds)
        after = meter.read(worker.pid)
        transactions = meter.transactions_so_far(database.name) - transactions
    return meter.sample(seconds, after.at - before.at, before, after, transactions=transactions)
