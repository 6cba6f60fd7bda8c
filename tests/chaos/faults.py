"""What goes wrong, one thing every few seconds, chosen by a seeded generator."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from streams.dev.apache import ApacheKafka
from streams.dev.broker import EmbeddedBroker
from streams.dev.postgres import EmbeddedPostgres
from tests.acceptance.fleet import Fleet
from tests.acceptance.processes import WorkerProcess

_EXIT_SECONDS = 25.0


@dataclass
class Place:
    """A place for one worker, as a process manager keeps it: whatever ends in it is started again."""

    name: str
    process: WorkerProcess
    disturbed: bool = False


class Faults:
    """Disturbs workers, the database and the brokers. `calm` undoes whatever is still under way."""

    def __init__(
        self,
        fleet: Fleet,
        postgres: EmbeddedPostgres,
        brokers: ApacheKafka | EmbeddedBroker,
        chance: random.Random,
        *,
        workers: int,
        every_seconds: float,
    ) -> None:
        self._fleet = fleet
        self._postgres = postgres
        self._brokers = brokers
        self._chance = chance
        self._every_seconds = every_seconds
        self._names = [f"worker-{number}" for number in range(workers)]
        self.places: list[Place] = []
        self.done: list[str] = []
        self._under_way: set[asyncio.Task[None]] = set()
        self._busy: set[str] = set()
        self._began = time.monotonic()

    async def start(self) -> None:
        """Start the workers and wait until all are ready."""
        self.places = [Place(name, self._new(name)) for name in self._names]
        for place in self.places:
            await place.process.ready()
        self._began = time.monotonic()

    async def run(self) -> None:
        """Disturb until cancelled."""
        while True:
            await asyncio.sleep(self._every_seconds * self._chance.uniform(0.6, 1.4))
            fault = self._chance.choices(
                [self._kill, self._terminate, self._freeze, self._stop_postgres, self._stop_broker], [4, 2, 3, 2, 2]
            )[0]
            task = asyncio.create_task(fault())
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)

    async def calm(self) -> None:
        """Wait until everything that was disturbed runs again, and every worker is ready."""
        while self._under_way:
            await asyncio.gather(*self._under_way)
        for place in self.places:
            await place.process.ready()

    def _new(self, name: str) -> WorkerProcess:
        # A run whose worker is killed time and again must end all the same, and not as the fault of the chaos.
        return self._fleet.start(name, max_lost_leases=100, backoff_base_seconds=0.5, drain_grace_seconds=3)

    def _tell(self, what: str) -> None:
        self.done.append(f"{time.monotonic() - self._began:6.1f} s  {what}")

    async def _kill(self) -> None:
        async def kill(place: Place) -> None:
            self._tell(f"kill {place.name}")
            place.process.kill()
            await self._start_again(place)

        await self._disturb(kill)

    async def _terminate(self) -> None:
        async def terminate(place: Place) -> None:
            self._tell(f"terminate {place.name}")
            place.process.terminate()
            code = await place.process.wait(_EXIT_SECONDS)
            self._tell(f"{place.name} exited {code}")
            await self._start_again(place)

        await self._disturb(terminate)

    async def _freeze(self) -> None:
        async def freeze(place: Place) -> None:
            seconds = self._chance.uniform(2, 8)
            self._tell(f"freeze {place.name} for {seconds:.1f} s")
            place.process.pause()
            await asyncio.sleep(seconds)
            place.process.resume()

        await self._disturb(freeze)

    async def _disturb(self, act: Callable[[Place], Awaitable[None]]) -> None:
        calm = [place for place in self.places if not place.disturbed]
        if not calm:
            return
        place = self._chance.choice(calm)
        place.disturbed = True
        await act(place)
        place.disturbed = False

    async def _start_again(self, place: Place) -> None:
        await asyncio.sleep(self._chance.uniform(0, 2))
        place.process = self._new(place.name)

    async def _stop_postgres(self) -> None:
        if "postgres" in self._busy:
            return
        self._busy.add("postgres")
        end, word = self._chance.choice([(self._postgres.stop, "stop"), (self._postgres.kill, "kill")])
        seconds = self._chance.uniform(0, 4)
        self._tell(f"{word} Postgres for {seconds:.1f} s")
        await asyncio.to_thread(end)
        await asyncio.sleep(seconds)
        await asyncio.to_thread(self._postgres.start)
        self._busy.discard("postgres")

    async def _stop_broker(self) -> None:
        if "broker" in self._busy:
            return
        self._busy.add("broker")
        seconds = self._chance.uniform(1, 6)
        if isinstance(self._brokers, ApacheKafka):
            index = self._chance.randrange(3)
            self._tell(f"kill broker {index} for {seconds:.1f} s")
            await asyncio.to_thread(self._brokers.kill_broker, index)
            await asyncio.sleep(seconds)
            await asyncio.to_thread(self._brokers.start_broker, index)
        else:
            self._tell(f"freeze the broker for {seconds:.1f} s")
            self._brokers.pause()
            await asyncio.sleep(seconds)
            self._brokers.resume()
        self._busy.discard("broker")
