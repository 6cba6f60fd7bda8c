"""The driver, put together: its loops, the runs in hand, and how it stops."""

import asyncio
import logging
from dataclasses import dataclass
from typing import Final

from schemas.errors import StoreUnavailable
from store.items import Items
from store.leases import Leases
from store.moves import Moves
from store.notify import Listener
from store.upkeep import Upkeep
from streams.calls.grpc_calls import TargetCalls
from streams.calls.targets import Targets
from streams.driver.claims import Claims
from streams.driver.drain import Drain, ended
from streams.driver.handled import Handlers
from streams.driver.held import Cause, Held, Holding
from streams.driver.permits import Permits
from streams.driver.renewal import Renewal
from streams.driver.segment import Surroundings
from streams.driver.settle import work_on
from streams.driver.upkeep import Housekeeping
from streams.health import ServiceHealth
from streams.metrics import Metrics
from streams.verbs.plans import Plans
from streams.workflow.backoff import Backoff
from streams.workflow.evaluation import Evaluator
from streams.workflow.plan import ENGINE

log = logging.getLogger(__name__)

_NAME: Final = "runs"
_CANCEL_SECONDS: Final = 0.25
_HAND_BACK_SECONDS: Final = 0.75


@dataclass(frozen=True, slots=True)
class DriverLimits:
    """What a driver keeps to: runs worked on at once, how long a claim holds unrenewed, and pauses between tries."""

    in_flight: int = 128
    lease_seconds: float = 300
    backoff_base_seconds: float = 5
    backoff_cap_seconds: float = 3_600


class Driver:
    """Claims due runs, and works on each until it is settled, parked, put off or handed back.

    Each run is a task of its own: what happens in one touches no other. The loops that claim, renew and sweep wait
    neither for runs nor for each other. `permits` are those of all calls that this process makes.
    """

    def __init__(
        self,
        *,
        leases: Leases,
        moves: Moves,
        items: Items,
        upkeep: Upkeep,
        plans: Plans,
        evaluator: Evaluator,
        calls: TargetCalls,
        targets: Targets,
        handlers: Handlers,
        listener: Listener,
        metrics: Metrics,
        limits: DriverLimits,
    ) -> None:
        self._leases = leases
        self._targets = targets
        self._handlers = handlers
        self._metrics = metrics
        self._limits = limits
        self._held = Held()
        self._runs: set[asyncio.Task[None]] = set()
        self._drain = Drain(self._held, lambda: self._runs)
        self.permits = permits = Permits(self._permits_of, on_release=self._room)
        self._around = Surroundings(
            moves=moves,
            items=items,
            plans=plans,
            evaluator=evaluator,
            calls=calls,
            handlers=handlers,
            permits=permits,
            backoff=Backoff(limits.backoff_base_seconds, limits.backoff_cap_seconds),
            patience_seconds=limits.lease_seconds,
            metrics=metrics,
            stopping=lambda: self._drain.begun,
            put_off=lambda seconds: self._claims.wake_after(seconds),
            due_in=lambda seconds: self._housekeeping.look_after(seconds),
        )
        self._claims = Claims(
            leases=leases,
            listener=listener,
            held=self._held,
            permits=permits,
            serves=self._serves,
            in_flight=limits.in_flight,
            start=self._start,
        )
        self._renewal = Renewal(leases=leases, held=self._held, listener=listener, lease_seconds=limits.lease_seconds)
        self._housekeeping = Housekeeping(
            upkeep=upkeep, lease_seconds=limits.lease_seconds, metrics=metrics, on_due=self._claims.wake
        )
        self._running = False
        self._ended = asyncio.Event()
        listener.on_cancelled(self._held.on_cancelled)

    async def run(self) -> None:
        """Drive runs until drained or cancelled. On every way out, what is still held is handed back.

        Raises:
            Exception: a loop ended by a bug. Nothing is claimed any more; start the process anew.
        """
        self._running = True
        loops = [self._claims.run(), self._renewal.run(), self._housekeeping.run()]
        loops.append(self._handlers.board.run())
        tasks = {asyncio.create_task(loop) for loop in loops}
        drained = asyncio.create_task(self._drained())
        try:
            while not drained.done():
                done, tasks = await asyncio.wait({*tasks, drained}, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
        finally:
            self._running = False
            try:
                await self._leave({*tasks, drained})
            finally:
                self._ended.set()

    async def drain(self, grace_seconds: float) -> None:
        """Stop: claim nothing, begin no call, give calls in flight *grace_seconds*, then hand everything back.

        Returns when `run` has ended, within about 2 s of the grace whatever is out of reach. Called again meanwhile,
        the shorter grace counts.
        """
        self._drain.ask(grace_seconds)
        self._claims.stop()
        if self._running:
            await self._ended.wait()

    def history_changed(self) -> None:
        """The database was put back or failed over: drop every run in hand, as the restored rows know nothing of it.

        Calls in flight are cancelled and nothing is written; what the rows say that this process holds is handed back.
        """
        for holding in self._held:
            holding.interrupt(Cause.RESTORED)
        self._claims.history_changed()

    def health(self) -> ServiceHealth:
        """How it is: not alive once a loop has died, not ready while the store gives no answer."""
        return ServiceHealth(_NAME, alive=not self._ended.is_set(), ready=self._is_ready(), detail=self._detail())

    async def _drained(self) -> None:
        await self._drain.asked()
        await self._drain.finish()

    async def _leave(self, tasks: set[asyncio.Task[None]]) -> None:
        for task in tasks | self._runs:
            task.cancel()
        await ended(tasks | self._runs, _CANCEL_SECONDS)
        handing_back = asyncio.create_task(self._hand_back())
        if not await ended({handing_back}, _HAND_BACK_SECONDS):
            handing_back.cancel()

    async def _hand_back(self) -> None:
        try:
            if released := await self._leases.release_all():
                log.info("handed back %d runs", released)
        except StoreUnavailable as error:
            log.warning("what is held goes back when its leases end: %s", error)

    def _start(self, holding: Holding) -> None:
        task = asyncio.create_task(work_on(holding, self._around))
        self._runs.add(task)
        self._metrics.claims.inc()
        self._metrics.held_runs.set(len(self._held))

        def let_go(task: asyncio.Task[None]) -> None:
            self._runs.discard(task)
            self._held.let_go(holding)
            self._metrics.held_runs.set(len(self._held))
            self._room()

        task.add_done_callback(let_go)

    def _room(self) -> None:
        self._claims.room()

    def _serves(self, target: str) -> bool:
        return target == ENGINE or self._handlers.serves(target) or self._targets.serves(target)

    def _permits_of(self, target: str) -> int:
        if target == ENGINE:
            return self._limits.in_flight
        if self._handlers.serves(target):
            return self._handlers.calls.permits_of(target)
        served = self._targets.find(target)
        return served.permits if served is not None else 0

    def _is_ready(self) -> bool:
        return self._running and not self._drain.begun and not self._store_is_away()

    def _store_is_away(self) -> bool:
        return self._claims.failing or self._renewal.failing

    def _detail(self) -> str:
        if self._ended.is_set():
            return "ended"
        if not self._running:
            return "not started"
        state = "stopping" if self._drain.begun else "the store is away" if self._store_is_away() else "claiming"
        return f"{state}, {len(self._held)} of {self._limits.in_flight} runs in hand"
