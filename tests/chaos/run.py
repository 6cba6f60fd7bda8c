"""One chaos run: everything started, disturbed, brought to rest and compared."""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from store.migrate import migrate
from streams.dev.apache import ApacheKafka, available
from streams.dev.broker import EmbeddedBroker
from streams.dev.postgres import EmbeddedPostgres
from streams.dev.registry.server import RegistryServer
from tests.acceptance.fleet import Fleet, opened_fleet
from tests.chaos.faults import Faults
from tests.chaos.ledger import discrepancies, summary, until_settled
from tests.chaos.load import Load
from tests.chaos.observer import Observer
from tests.chaos.services import ChaosServices
from tests.driver.stories import Compiler
from tests.fixtures.kafka import OnApache, OnEmbedded

BROKERS = 3
_PROGRESS_SECONDS = 5.0


@dataclass(frozen=True)
class Plan:
    """What is run: the same seed makes the same choices, though not at the same moments."""

    seed: int
    seconds: float
    workers: int = 3
    fault_every_seconds: float = 4.0
    records_per_second: float = 12.0


@dataclass(frozen=True)
class Outcome:
    """What came of it; all is well when `problems` is empty."""

    problems: list[str]
    faults: list[str]
    figures: dict[str, int]


async def run_chaos(plan: Plan, folder: Path, tell: Callable[[str], None]) -> Outcome:
    """Run *plan* to its end, with a line of progress every few seconds."""
    async with _opened(folder) as (fleet, postgres, brokers):
        chance = random.Random(plan.seed)
        load = Load(fleet, random.Random(chance.random()), per_second=plan.records_per_second)
        observer = Observer(fleet)
        faults = Faults(
            fleet,
            postgres,
            brokers,
            random.Random(chance.random()),
            workers=plan.workers,
            every_seconds=plan.fault_every_seconds,
        )
        await faults.start()
        problems: list[str] = []
        async with _running(observer.run(), _progress(plan, load, observer, faults, tell)):
            async with _running(load.run(), faults.run()):
                await asyncio.sleep(plan.seconds)
            try:
                await faults.calm()
                await asyncio.to_thread(fleet.producer.flush)
                await until_settled(fleet, load)
                problems += await discrepancies(fleet, load)
            except AssertionError as error:
                problems.append(str(error))
        await observer.sample()
        figures = {"samples": observer.samples, "faults": len(faults.done), **summary(fleet, load)}
        return Outcome([*observer.violations, *problems], faults.done, figures)


@asynccontextmanager
async def _running(*loops: Coroutine[object, object, None]) -> AsyncIterator[None]:
    """Run *loops* while the block lasts. One that fails fails the block at its end."""
    tasks = [asyncio.ensure_future(loop) for loop in loops]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    for task in tasks:
        with contextlib.suppress(asyncio.CancelledError):
            task.result()


async def _progress(plan: Plan, load: Load, observer: Observer, faults: Faults, tell: Callable[[str], None]) -> None:
    began = time.monotonic()
    told = 0
    while True:
        await asyncio.sleep(_PROGRESS_SECONDS)
        new, told = faults.done[told:], len(faults.done)
        tell(
            f"{time.monotonic() - began:5.0f} of {plan.seconds:.0f} s, {load.sent} records, {len(load.wanted)} jobs, "
            f"{observer.samples} samples, {len(observer.violations)} violations; "
            + "; ".join(" ".join(fault.split()[2:]) for fault in new)
        )


@asynccontextmanager
async def _opened(folder: Path) -> AsyncIterator[tuple[Fleet, EmbeddedPostgres, ApacheKafka | EmbeddedBroker]]:
    with _servers() as (postgres, brokers, registry, services):
        await migrate(postgres.url())
        kafka = OnApache(brokers) if isinstance(brokers, ApacheKafka) else OnEmbedded(brokers)
        async with opened_fleet(kafka, registry, postgres.url(), folder, services, Compiler()) as fleet:
            yield fleet, postgres, brokers


@contextmanager
def _servers() -> Iterator[tuple[EmbeddedPostgres, ApacheKafka | EmbeddedBroker, RegistryServer, ChaosServices]]:
    services = ChaosServices()
    with ExitStack() as stack:
        postgres = stack.enter_context(EmbeddedPostgres())
        brokers: ApacheKafka | EmbeddedBroker = EmbeddedBroker() if available() else ApacheKafka(BROKERS)
        stack.enter_context(brokers)
        registry = stack.enter_context(RegistryServer())
        services.start()
        stack.callback(services.stop)
        yield postgres, brokers, registry, services
