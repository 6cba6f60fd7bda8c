"""The store, and the verbs over it."""

import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from schemas.errors import SettingsInvalid
from schemas.topics import load_topics
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
from streams.evaluator.protoc import ProtocChild
from streams.parts.evaluator import build_evaluator
from streams.settings import Settings
from streams.verbs.plans import Plans
from streams.verbs.submit import Submitter
from streams.verbs.verbs import Verbs, VerbStores


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
    protoc: ProtocChild
    evaluator: OperationsEvaluator
    own_topics: frozenset[str]

    def verbs(self, actor: str) -> Verbs:
        """Return the verbs over this store; what they store says that *actor* did it."""
        return Verbs(
            VerbStores(
                definitions=self.definitions,
                submits=self.submits,
                answers=self.answers,
                control=self.control,
                queries=self.queries,
                plans=self.plans,
                protoc=self.protoc,
                evaluator=self.evaluator,
                submitter=self.submitter,
                own_topics=self.own_topics,
            ),
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
        positions=Positions(database),
        relay_queue=RelayQueue(database),
        dead_letters=DeadLetters(database, on_committed=notifier.notify, looks=looks),
        plans=plans,
        submitter=Submitter(plans, max_attempts=settings.max_attempts),
        protoc=ProtocChild(),
        evaluator=evaluator,
        own_topics=_own_topics(settings),
    )


def _own_topics(settings: Settings) -> frozenset[str]:
    """The workers' own topics, which steps must not send to; none where they are not described: the relay looks too."""
    try:
        return frozenset(topic.name for topic in load_topics(settings.topics_file).all())
    except SettingsInvalid:
        return frozenset()


@asynccontextmanager
async def open_verbs(settings: Settings) -> AsyncIterator[Verbs]:
    """Open the verbs on the store of the settings; without DATABASE_URL each of them is unavailable."""
    if settings.database_url is None:
        yield Verbs(None)
        return
    store = build_store(settings)
    await store.database.open()
    try:
        yield store.verbs(actor=f"cli:{settings.worker_id}")
        await store.notifier.close()
    finally:
        await store.evaluator.close()
        await store.database.close()


def new_owner(worker_id: str) -> str:
    """Return the name that stands in this process's leases: a worker that is started again is another owner."""
    return f"{worker_id}/{os.getpid()}-{secrets.token_hex(3)}"
