"""The supervisor: one process, its services side by side, and the way out."""

import asyncio
import contextlib
import logging
import signal
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final

from schemas.errors import SettingsInvalid, StoreUnavailable
from store.database import CommitPoint, passes
from store.history import History
from store.migrate import StoreFacts
from store.migrate import check as check_store
from store.notify import CONNECTION
from streams.app import Intake, build_intake
from streams.health import HealthCheck, ServiceHealth
from streams.kafka.backpressure import Backpressure
from streams.metrics import Metrics
from streams.parts.commit_points import find_commit_point
from streams.parts.engine import build_own_calls, build_types
from streams.parts.handlers import store_job_types
from streams.parts.relaying import Relaying, build_relaying
from streams.parts.runs import Runs, build_runs
from streams.parts.store import Store, build_bare_verbs, build_store, new_owner
from streams.parts.workflows_dir import store_workflows
from streams.settings import Role, Settings
from streams.verbs.verbs import Verbs
from streams.watch import StoreWatch
from streams.web.health import health_app
from streams.web.routes import verbs_app
from streams.web.server import WebServer

log = logging.getLogger(__name__)

DONE: Final = 0
GAVE_UP: Final = 75
STOP_SECONDS: Final = 4.0
"""What the end of intake, release, flush and close share from the end of the grace on, whatever is away."""

CLOSE_SECONDS: Final = 2.0
"""What of it is kept for release, flush and close when intake does not end."""


@dataclass(frozen=True, slots=True)
class Service:
    """One long-running duty: `run` ends only when it is told to, `health` says how it is."""

    name: str
    run: Callable[[], Coroutine[Any, Any, None]]
    health: HealthCheck | None = None


class Worker:
    """One worker, for the length of a process. Nothing of it is global: two can live in one loop."""

    def __init__(self, settings: Settings, *, commit_point: CommitPoint = passes) -> None:
        """Build the parts that the roles need; nothing is opened yet.

        Raises:
            SettingsInvalid: a setting or a file that it names cannot be used.
        """
        settings.require_for_roles()
        self._settings = settings
        self._owner = new_owner(settings.worker_id)
        self.metrics = Metrics()
        self._store = build_store(settings, commit_point=commit_point) if settings.database_url else None
        self._watch: StoreWatch | None = None
        self._runs: Runs | None = None
        self._intake: Intake | None = None
        self._relaying: Relaying | None = None
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._health: list[HealthCheck] = [self._starting]
        self._leave_by: float | None = None
        self._closes: list[Callable[[], Awaitable[object]]] = []
        if self._store is not None:
            self._build(self._store, commit_point)
        build_types(settings).open()  # a worker that cannot read them must not start
        self.web = WebServer(self._apps())

    def _build(self, store: Store, commit_point: CommitPoint) -> None:
        settings = self._settings
        backpressure = Backpressure(settings.max_queued, self.metrics)
        self._watch = StoreWatch(
            store.database,
            store.looks,
            store.queries,
            backpressure,
            self.metrics,
            store.listener.subscribe(CONNECTION),
        )
        if Role.RUNS in settings.roles:
            self._runs = build_runs(settings, store, self._owner, self.metrics, commit_point=commit_point)
        if Role.INTAKE in settings.roles:
            self._intake = build_intake(
                settings, store, self.metrics, backpressure=backpressure, commit_point=commit_point
            )
        if Role.RELAY in settings.roles:
            self._relaying = build_relaying(settings, store, self._owner, self.metrics, commit_point=commit_point)
        self._tell_of_history(store.database.history)

    def _tell_of_history(self, history: History) -> None:
        """Have everything dropped that speaks of rows which a restore or a failover took away."""
        history.on_changed(self.metrics.history_changes.inc)
        if self._runs is not None:
            history.on_changed(self._runs.driver.history_changed)
        if self._intake is not None:
            history.on_changed(self._intake.service.history_changed)
        if self._relaying is not None:
            history.on_changed(self._relaying.relay.history_changed)

    def stop(self) -> None:
        """Drain and end. Called again, what is in hand gets no more grace."""
        if self._stop.is_set():
            self._hurry.set()
        self._stop.set()

    def health(self) -> Sequence[ServiceHealth]:
        """How each service is now."""
        return [check() for check in self._health]

    async def run(self) -> int:
        """Work until `stop`, or until a service has died. Returns the exit code of the process.

        Raises:
            SettingsInvalid: an address is taken, or the database is not one that a worker may start on.
        """
        await self.web.start()
        tasks: dict[asyncio.Task[None], Service] = {}
        try:
            if await self._store_is_ready():
                await self._load_workflows()
                await self._store_job_types()
                services = await self._services()
                self._health = [self.web.health, *(s.health for s in services if s.health is not None)]
                tasks = {asyncio.create_task(s.run(), name=s.name): s for s in services}
                log.info("worker %s is up", self._owner)
                return await self._supervise(tasks)
            return DONE
        finally:
            await self._leave(tasks)

    def _starting(self) -> ServiceHealth:
        return ServiceHealth("worker", alive=True, ready=False, detail="starting")

    def _apps(self) -> dict[str, Any]:
        settings = self._settings
        apps = {}
        if settings.http_bind and Role.WEB in settings.roles:
            apps[settings.http_bind] = verbs_app(self._verbs(), self.metrics)
        if settings.health_bind:
            apps[settings.health_bind] = health_app(self.health, self.metrics)
        return apps

    def _verbs(self) -> Verbs:
        settings = self._settings
        if self._runs is not None and self._store is not None:
            return self._store.verbs(settings.worker_id, self._runs.unkept_calls)
        own = build_own_calls(settings)
        self._closes.append(own.close)
        if self._store is not None:
            return self._store.verbs(settings.worker_id, own.calls)
        bare = build_bare_verbs(settings, own.calls)
        self._closes.append(bare.close)
        return bare.verbs

    async def _store_is_ready(self) -> bool:
        """Wait for the store and refuse one that would void the promises. False: told to stop meanwhile."""
        if self._store is None or self._watch is None:
            return True
        await self._store.database.open()
        while not self._stop.is_set():
            try:
                facts = await check_store(self._settings.database_url or "")
            except StoreUnavailable as error:
                log.warning("the store is away: %s", error)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stop.wait(), 1.0)
                continue
            self._accept(facts)
            self._watch.begin(facts)
            return True
        return False

    def _accept(self, facts: StoreFacts) -> None:
        if problems := facts.problems(allow_async_commit=self._settings.allow_async_commit):
            raise SettingsInvalid(problems)

    async def _load_workflows(self) -> None:
        """Store every definition of WORKFLOWS_DIR; one that does not verify stops the start."""
        if self._settings.workflows_dir is not None and self._store is not None:
            await store_workflows(self._settings.workflows_dir, self._store.verbs(actor=self._settings.worker_id))

    async def _store_job_types(self) -> None:
        if self._runs is not None and self._store is not None:
            await store_job_types(self._runs.handlers, self._store, actor=self._settings.worker_id)

    async def _services(self) -> list[Service]:
        services: list[Service] = []
        if self._store is not None and self._watch is not None:
            services += [
                Service("listener", self._store.listener.run),
                Service("store", self._watch.run, self._watch.health),
            ]
        if self._runs is not None:
            services.append(Service("committer", self._runs.committer.run))
            services.append(Service("runs", self._runs.driver.run, self._runs.driver.health))
            services.append(Service("pruning", self._runs.pruning.run))
            if len(handlers := self._runs.handlers.calls) > 0:
                services.append(Service("handlers", handlers.run, handlers.health))
        if self._intake is not None:
            services.append(Service("intake", self._intake.service.run, self._intake.service.health))
            services.append(Service("held letters", self._intake.held.run, self._intake.held.health))
            services.append(Service("retention", self._intake.retention.run, self._intake.retention.health))
        if self._relaying is not None:
            await self._relaying.producer.start()
            services.append(Service("relay", self._relaying.relay.run, self._relaying.relay.health))
        return services

    async def _supervise(self, tasks: dict[asyncio.Task[None], Service]) -> int:
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({stopping, *tasks}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
        dead = [task for task in tasks if task.done()]
        for task in dead:
            error = None if task.cancelled() else task.exception()
            log.critical("the service %s ended: this process gives up", tasks[task].name, exc_info=error)
        in_time = await self._drain()
        return GAVE_UP if dead or not in_time else DONE

    async def _drain(self) -> bool:
        """Take nothing more in, and bring what is in hand to rest. False: intake did not end in time."""
        log.info("stopping")
        intake = asyncio.create_task(self._stop_intake())
        rest_by = time.monotonic() + self._settings.drain_grace_seconds
        if self._runs is not None:
            hurry = asyncio.create_task(self._hurry.wait())
            drain = asyncio.create_task(self._runs.driver.drain(self._settings.drain_grace_seconds))
            await asyncio.wait({hurry, drain}, return_when=asyncio.FIRST_COMPLETED)
            if not drain.done():
                rest_by = time.monotonic()
                await self._runs.driver.drain(0)
            hurry.cancel()
            await drain
        # What nobody answers on is still being handed back when the grace is over: that is no more time for the rest.
        self._leave_by = min(time.monotonic(), rest_by) + STOP_SECONDS
        left = self._leave_by - CLOSE_SECONDS - time.monotonic()
        in_time, _ = await asyncio.wait({intake}, timeout=max(0.1, left))
        return bool(in_time) and intake.result()

    async def _stop_intake(self) -> bool:
        return True if self._intake is None else await self._intake.service.stop()

    async def _leave(self, tasks: dict[asyncio.Task[None], Service]) -> None:
        """Close everything within what is left of `STOP_SECONDS`."""
        until = self._leave_by or time.monotonic() + STOP_SECONDS
        await asyncio.gather(*(_in_order(way, until) for way in self._ways_out()))
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=max(0.1, until - time.monotonic()))
        await _in_order([self.web.stop, *self._closes], until)
        if self._store is not None:
            store = self._store
            await _in_order([store.notifier.close, store.evaluator.close, store.database.close], until)

    def _ways_out(self) -> list[list[Callable[[], Awaitable[object]]]]:
        """What must be closed: in order within a list, the lists side by side, so that no part waits for another's."""
        ways: list[list[Callable[[], Awaitable[object]]]] = []
        if self._relaying is not None:
            ways.append([self._relaying.relay.stop, self._relaying.producer.close, self._relaying.registry.close])
        if self._runs is not None:
            runs = self._runs
            leases = runs.leases
            closes = (runs.committer.close, leases.release_all, leases.close, runs.calls.close, runs.handlers.close)
            ways.append([*closes])
        if self._intake is not None:
            ways.append([self._intake.registry.close])
        return ways


async def run_worker(settings: Settings) -> int:
    """Run one worker until SIGTERM or SIGINT; return the exit code."""
    worker = Worker(settings, commit_point=find_commit_point())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, worker.stop)
    return await worker.run()


async def _in_order(closes: Sequence[Callable[[], Awaitable[object]]], until: float) -> None:
    for close in closes:
        await _within(close, until)


async def _within(close: Callable[[], Awaitable[object]], until: float) -> None:
    """Give one part its share of the way out; a part that is out of reach does not hold up the others."""
    closing = asyncio.ensure_future(close())
    done, _ = await asyncio.wait({closing}, timeout=max(0.1, until - time.monotonic()))
    if not done:
        closing.cancel()
        log.warning("%s did not end in time", getattr(close, "__qualname__", close))
    elif (error := closing.exception()) is not None:
        log.warning("%s: %s", getattr(close, "__qualname__", close), error)
