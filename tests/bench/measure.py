"""What a stretch of work cost: time, CPU by party, commits and WAL, from /proc and from the server itself."""

import os
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import psycopg

_PROC: Final = Path("/proc")
_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
_FLUSH_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Cpu:
    """CPU seconds since some time in the past.

    `beside` is what else the bench runs: broker, registry, service, and the bench itself unless it is the worker.
    `machine` is spent by everything on the machine, the bench included.
    """

    postgres: float
    worker: float
    beside: float
    machine: float

    def __sub__(self, earlier: "Cpu") -> "Cpu":
        return Cpu(
            self.postgres - earlier.postgres,
            self.worker - earlier.worker,
            self.beside - earlier.beside,
            self.machine - earlier.machine,
        )

    @property
    def ours(self) -> float:
        return self.postgres + self.worker + self.beside


@dataclass(frozen=True, slots=True)
class Reading:
    """The meters at one moment. `commits` counts transactions that wrote, `wal_bytes` is a place in the log."""

    at: float
    cpu: Cpu
    commits: int
    wal_bytes: int


@dataclass(frozen=True, slots=True)
class Sample:
    """What *units* of work took, all in all. `commits` wrote, `transactions` are all of them, those that read too.

    `others` is the part of the machine, 0 to 1, that went to programs outside the bench.
    """

    units: int
    seconds: float
    cpu: Cpu
    commits: int
    transactions: int
    wal_bytes: int
    others: float

    @property
    def rate(self) -> float:
        """Units a second."""
        return self.units / self.seconds


class Meter:
    """Reads the meters of one server and of this machine. Its own queries run in another database than is measured."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        self._postmaster = _stat(self._connection.info.backend_pid).parent

    def read(self, worker: int | None) -> Reading:
        """Read now; *worker* is a process that counts with all its children, None stands for this process alone."""
        at = time.time()
        cpu = self._cpu(worker)
        row = self._connection.execute(
            "select pg_snapshot_xmax(pg_current_snapshot())::text::bigint, pg_current_wal_insert_lsn() - '0/0'"
        ).fetchone()
        assert row is not None
        return Reading(at, cpu, int(row[0]), int(row[1]))

    def transactions(self, database: str) -> int:
        """How many transactions were committed in *database*. Waits until every connection has told of its own."""
        give_up_at = time.monotonic() + _FLUSH_SECONDS
        while time.monotonic() < give_up_at and self._number(_CONNECTIONS, database):
            time.sleep(0.02)
        return self._number(_TRANSACTIONS, database)

    def transactions_so_far(self, database: str) -> int:
        """The same without waiting: a busy connection tells each second, an idle one within ten."""
        return self._number(_TRANSACTIONS, database)

    def sample(self, units: int, seconds: float, before: Reading, after: Reading, *, transactions: int) -> Sample:
        """What happened between two readings. *seconds* is the time of the work itself, which may end before."""
        cpu = after.cpu - before.cpu
        room = (after.at - before.at) * (os.cpu_count() or 1)
        return Sample(
            units=units,
            seconds=seconds,
            cpu=cpu,
            commits=after.commits - before.commits,
            transactions=transactions,
            wal_bytes=after.wal_bytes - before.wal_bytes,
            others=max(0.0, cpu.machine - cpu.ours) / room,
        )

    def _cpu(self, worker: int | None) -> Cpu:
        processes = _Processes()
        postgres = processes.with_children(self._postmaster)
        spent = _stat(os.getpid()).own if worker is None else processes.with_children(worker)
        return Cpu(
            postgres=postgres,
            worker=spent,
            beside=processes.with_children(os.getpid()) - postgres - spent,
            machine=_machine_seconds(),
        )

    def _number(self, query: bytes, database: str) -> int:
        row = self._connection.execute(query, {"database": database}).fetchone()
        assert row is not None
        return int(row[0])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()


_CONNECTIONS: Final = b"select count(*) from pg_stat_activity where datname = %(database)s"
_TRANSACTIONS: Final = b"select xact_commit from pg_stat_database where datname = %(database)s"


@dataclass(frozen=True, slots=True)
class _Stat:
    """One process in /proc: its parent, its own CPU seconds, and those of children that it has seen the end of."""

    parent: int
    own: float
    ended_children: float


class _Processes:
    """Every process of the machine at one moment."""

    def __init__(self) -> None:
        self._stats: dict[int, _Stat] = {}
        self._children: defaultdict[int, list[int]] = defaultdict(list)
        for entry in os.listdir(_PROC):
            if not entry.isdigit():
                continue
            try:
                stat = _stat(int(entry))
            except (FileNotFoundError, ProcessLookupError):
                continue
            self._stats[int(entry)] = stat
            self._children[stat.parent].append(int(entry))

    def with_children(self, pid: int) -> float:
        """CPU seconds of a process and of all that it started, those that have ended included."""
        stat = self._stats.get(pid)
        if stat is None:
            return 0.0
        return stat.own + stat.ended_children + sum(map(self.with_children, self._children[pid]))


def _stat(pid: int) -> _Stat:
    # The name in front, which is in brackets, may hold anything.
    fields = (_PROC / str(pid) / "stat").read_text().rpartition(") ")[2].split()
    user, system, ended_user, ended_system = (int(ticks) / _TICKS_PER_SECOND for ticks in fields[11:15])
    return _Stat(int(fields[1]), user + system, ended_user + ended_system)


def _machine_seconds() -> float:
    user, nice, system, _idle, _waiting, *interrupts_and_stolen = (
        int(ticks) for ticks in (_PROC / "stat").read_text().partition("\n")[0].split()[1:9]
    )
    return (user + nice + system + sum(interrupts_and_stolen)) / _TICKS_PER_SECOND
