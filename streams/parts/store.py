"""The store, and the verbs over it."""

import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from store.answers import Answers
from store.control import Control
from store.database import CommitPoint, Database, passes
from store.dead_letters import DeadLetters
from store.definitions import Definitions
from store.looks import Looks
from store.notify import Listener, Notifier
from store.positions import Positions
from store.queries import Queries
from store.relay_queue import RelayQueue
from store.submit import Submits
from streams.evaluator.evaluators import OperationsEvaluator
from streams.parts.engine import build_compiler, build_own_calls
from streams.parts.evaluator import build_evaluator
from streams.settings import Settings
from streams.verbs.definition_source import DefinitionCompiler
from streams.verbs.plans import Plans
from streams.verbs.run import PlanCalls
from streams.verbs.submit import Submitter
from streams.verbs.verbs import Engine, Verbs, VerbStores


@dataclass(frozen=True, slots=True)
class Store:
    """The store and what speaks to it, not opened yet. `listener` hears wake-ups, `notifier` sends them."""

    database: Database
    listener: Listener
    notifier: Notifier
    looks: Looks
    definitions: Definitions
    submits: Submits
    answers: Answers
    control: Control
    queries: Queries
    positions: Positions
    relay_queue: RelayQueue
    dead_letters: DeadLetters
    plans: Plans
    submitter: Submitter
    evaluator: OperationsEvaluator
    compiler: DefinitionCompiler
    call_cap_seconds: float

    def verbs(self, actor: str, calls: PlanCalls | None = None) -> Verbs:
        """Return the verbs over this store; what they store says that *actor* did it.

        run-workflow calls with *calls*, and is unavailable without.
        """
        return Verbs(
            VerbStores(
                definitions=self.definitions,
                submits=self.submits,
                answers=self.answers,
                control=self.control,
                queries=self.queries,
                plans=self.plans,
                submitter=self.submitter,
            ),
            Engine(self.compiler, calls, self.call_cap_seconds),
            actor=actor,
        )


def build_store(settings: Settings, *, commit_point: CommitPoint = passes) -> Store:
    """Build the store of DATABASE_URL. *commit_point* is awaited by name around every commit, for tests of crashes.

    Raises:
        SettingsInvalid: the URL is missing or is none.
    """
    settings.require("database_url")
    url = settings.database_url or ""
    database = Database(url, pool_size=settings.database_pool)
    listener = Listener(settings.listen_url or url)
    notifier = Notifier(database, listener)
    looks = Looks(database, most_queued=settings.max_queued)
    definitions = Definitions(database)
    evaluator = build_evaluator(settings)
    plans = Plans(definitions, evaluator)
    database.history.on_changed(plans.forget_names)
    return Store(
        database=database,
        listener=listener,
        notifier=notifier,
        looks=looks,
        definitions=definitions,
        submits=Submits(database, on_committed=notifier.notify, commit_point=commit_point),
        answers=Answers(database, on_committed=notifier.notify, commit_point=commit_point),
        control=Control(database, on_committed=notifier.notify, commit_point=commit_point),
        queries=Queries(database),
        positions=Positions(database, on_committed=notifier.notify),
        relay_queue=RelayQueue(database),
        dead_letters=DeadLetters(database, on_committed=notifier.notify, looks=looks),
        plans=plans,
        submitter=Submitter(plans, max_attempts=settings.max_attempts),
        evaluator=evaluator,
        compiler=build_compiler(settings, evaluator),
        call_cap_seconds=settings.call_cap_seconds,
    )


@dataclass(frozen=True, slots=True)
class BareVerbs:
    """The verbs of a process without a store, and what must be closed after them."""

    verbs: Verbs
    close: Callable[[], Awaitable[None]]


def build_bare_verbs(settings: Settings, calls: PlanCalls | None) -> BareVerbs:
    """Build the verbs of a process without a store: those that need none work."""
    evaluator = build_evaluator(settings)
    engine = Engine(build_compiler(settings, evaluator), calls, settings.call_cap_seconds)
    return BareVerbs(Verbs(None, engine), evaluator.close)


@asynccontextmanager
async def open_verbs(settings: Settings, *, calls: bool = False) -> AsyncIterator[Verbs]:
    """Open the verbs on the store of the settings; without DATABASE_URL those that need one are unavailable.

    With *calls*, run-workflow can be called: the file of targets is read then, and the modules of handlers imported.

    Raises:
        SettingsInvalid: a setting or a file that it names cannot be used.
    """
    own = build_own_calls(settings) if calls else None
    plan_calls = own.calls if own is not None else None
    try:
        if settings.database_url is None:
            bare = build_bare_verbs(settings, plan_calls)
            try:
                yield bare.verbs
            finally:
                await bare.close()
            return
        store = build_store(settings)
        await store.database.open()
        try:
            yield store.verbs(f"cli:{settings.worker_id}", plan_calls)
            await store.notifier.close()
        finally:
            await store.evaluator.close()
            await store.database.close()
    finally:
        if own is not None:
            await own.close()


def new_owner(worker_id: str) -> str:
    """Return the name that stands in this process's leases: a worker that is started again is another owner."""
    return f"{worker_id}/{os.getpid()}-{secrets.token_hex(3)}"
