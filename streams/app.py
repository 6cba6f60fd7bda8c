"""The Faust App of intake: built anew after every crash, beside everything else that runs in this loop."""

import asyncio
import contextlib
import logging
import random
import tempfile
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

import faust
from faust.app.base import BootStrategy
from yarl import URL

from schemas.topics import Topic
from store.database import CommitPoint, passes
from streams.agents.accept import Accept
from streams.agents.held import HeldLetters
from streams.agents.intake import add_intake_agent
from streams.health import ServiceHealth
from streams.kafka.backpressure import Backpressure
from streams.kafka.faust_app import assignment_of, consumer_of, end_app, has_joined, run_app, waits_for
from streams.kafka.offsets import Offsets
from streams.kafka.registry import SchemaRegistry
from streams.kafka.retention_watch import RetentionWatch
from streams.kafka.security import KafkaSecurity
from streams.kafka.transport import IntakeTransport
from streams.kafka.watch import Reading
from streams.metrics import Metrics
from streams.parts.intake import build_intake_parts
from streams.parts.store import Store
from streams.settings import Settings

_log = logging.getLogger(__name__)

# aiokafka leaves the group for good after this long without a fetch; a full buffer or a spare worker fetches nothing.
_NEVER_SECONDS: Final = 315_360_000.0
_FIRST_DELAY_SECONDS: Final = 0.5
# An App that ran this long had nothing wrong with it at the start: the next one is built soon.
_GOOD_RUN_SECONDS: Final = 60.0


class GroupLost(Exception):
    """The consumer group did not take this worker back, for longer than any rebalance lasts."""


@dataclass(frozen=True, slots=True)
class IntakeSettings:
    """What intake needs to know. A batch has at most `batch_records` records and about `batch_bytes` bytes."""

    bootstrap: str
    security: KafkaSecurity
    group: str
    topic: Topic
    session_timeout_seconds: float = 10.0
    batch_records: int = 500
    batch_bytes: int = 8 << 20


class _NoProducer(BootStrategy):
    enable_kafka_producer = False


class _ConsumingApp(faust.App):
    BootStrategy = _NoProducer


def create_app(
    settings: IntakeSettings,
    *,
    accept: Accept,
    reading: Reading,
    folder: str,
    commit_point: CommitPoint = passes,
) -> faust.App:
    """Build an App that reads the request topic and does nothing else. Call it inside the running loop.

    Args:
        settings: The cluster, the group and the topic.
        accept: What becomes of each batch.
        reading: Where and when it reads.
        folder: An existing folder of the App's own, for what Faust writes.
        commit_point: Awaited at `intake.before_offset`, between the rows of a batch and its offsets.

    Raises:
        SettingsInvalid: a certificate cannot be used.
    """
    session = settings.session_timeout_seconds
    app = _ConsumingApp(
        settings.group,
        id_format="{id}",
        broker=[URL(f"kafka://{address.strip()}") for address in settings.bootstrap.split(",")],
        broker_credentials=_credentials(settings.security),
        datadir=folder,
        store="memory://",
        web_enabled=False,
        topic_allow_declare=False,
        topic_disable_leader=True,
        table_standby_replicas=0,
        # True would hold up every rebalance for as long as the store is away.
        stream_wait_empty=False,
        stream_buffer_maxsize=max(4 * settings.batch_records, 1_000),
        broker_max_poll_records=settings.batch_records,
        broker_max_poll_interval=_NEVER_SECONDS,
        broker_session_timeout=session,
        broker_heartbeat_interval=session / 5,
        broker_rebalance_timeout=max(30.0, session),
        broker_request_timeout=max(40.0, session),
        broker_commit_interval=_NEVER_SECONDS,
        # Faust's own: the default of five minutes is how long a new partition would stay unread.
        consumer_metadata_max_age_ms=5_000,
        consumer_auto_offset_reset="earliest",
    )
    offsets = Offsets(app)
    app.transport = IntakeTransport(
        app.conf.broker_consumer,
        app,
        starts=reading.starts,
        watch=reading.watch,
        backpressure=reading.backpressure,
        offsets=offsets,
        read_ahead_records=2 * settings.batch_records,
        read_ahead_bytes=settings.batch_bytes,
    )
    add_intake_agent(
        app,
        settings.topic.name,
        accept=accept,
        offsets=offsets,
        batch_records=settings.batch_records,
        batch_bytes=settings.batch_bytes,
        commit_point=commit_point,
    )
    app.task(offsets.run)
    return app


class IntakeService:
    """Intake for the life of a worker: one App after the other.

    An App that crashes, or that the group does not take back, is replaced by a new one after a back-off of 0.5 to 10 s.
    Nothing else in the process notices. A broker that is down is an outage like any other.
    """

    def __init__(
        self,
        settings: IntakeSettings,
        *,
        accept: Accept,
        reading: Reading,
        metrics: Metrics,
        commit_point: CommitPoint = passes,
        group_lost_seconds: float = 90.0,
        longest_delay_seconds: float = 10.0,
    ) -> None:
        self._settings = settings
        self._accept = accept
        self._reading = reading
        self._metrics = metrics
        self._commit_point = commit_point
        self._group_lost_seconds = group_lost_seconds
        self._longest_delay_seconds = longest_delay_seconds
        self._app: faust.App | None = None
        self._stopping = asyncio.Event()
        self._ended = asyncio.Event()
        self._hung = False
        self._last_crash = "it has not started yet"
        metrics.intake_held_partitions.set_function(lambda: len(self._held()))

    async def run(self) -> None:
        """Read until `stop` is called.

        Returns early only when an App does not end: `health` is then not alive, and the process must be left.
        """
        delay = _FIRST_DELAY_SECONDS
        try:
            while True:
                began = time.monotonic()
                await self._run_one()
                if self._stopping.is_set() or self._hung:
                    return
                if time.monotonic() - began > _GOOD_RUN_SECONDS:
                    delay = _FIRST_DELAY_SECONDS
                self._metrics.intake_rebuilds.inc()
                _log.warning("intake is built anew in %.1f s: %s", delay, self._last_crash)
                await self._unless_stopping(delay * random.uniform(0.9, 1.1))
                delay = min(delay * 2, self._longest_delay_seconds)
        finally:
            self._ended.set()

    async def stop(self) -> bool:
        """Read nothing more, let the batch in hand and its offsets through, and leave the group: 8 s at most.

        Returns:
            Whether it ended in time. If not, leave the process: a thread of the Kafka client is still in it.
        """
        self._stopping.set()
        await self._ended.wait()
        return not self._hung

    async def crash(self, reason: Exception) -> None:
        """End the App that runs now, as if *reason* had escaped from it. The next one is built as ever."""
        if self._app is not None:
            await self._app.crash(reason)

    def history_changed(self) -> None:
        """The database was put back or failed over: read from where its rows end now. What is in hand is dropped."""
        if (consumer := consumer_of(self._app)) is not None:
            consumer.read_anew("the database was put back or failed over")

    def health(self) -> ServiceHealth:
        """Ready while partitions can be read and stored; a worker to which none is assigned is ready too.

        So is one that stands still because too much is queued: that is no fault, and the detail tells. One that holds
        some of its partitions and reads others is ready but degraded.
        """
        if self._hung:
            return ServiceHealth("intake", alive=False, ready=False, detail="the app did not end: restart the process")
        waits = self._waits_for()
        assignment, holds = assignment_of(self._app), self._held()
        lost = ", ".join(f"{count} offsets of {topic}" for topic, count in sorted(self._reading.starts.lost.items()))
        held_back = self._reading.backpressure.reason
        told = [
            waits or (f"stands still: {held_back}" if held_back else "reading"),
            *holds,
            self._reading.watch.told(),
            f"lost to retention: {lost}" if lost else None,
        ]
        stands_still = assignment is not None and 0 < len(assignment.partitions) == len(holds)
        return ServiceHealth(
            "intake",
            alive=True,
            ready=waits is None and not stands_still,
            degraded=bool(holds),
            detail="; ".join(filter(None, told)),
        )

    def _held(self) -> Collection[str]:
        """Why each of the partitions that stand still does."""
        assignment = assignment_of(self._app)
        return assignment.holds.told if assignment is not None else []

    def _waits_for(self) -> str | None:
        if self._app is None:
            return f"no app runs: {self._last_crash}"
        return waits_for(self._app) or self._accept.waits_for

    async def _run_one(self) -> None:
        """Run one App until it stops or crashes; what it wrote and started is gone afterwards."""
        with tempfile.TemporaryDirectory(prefix="workflow-runs-") as folder:
            app = create_app(
                self._settings,
                accept=self._accept,
                reading=self._reading,
                folder=folder,
                commit_point=self._commit_point,
            )
            self._app = app
            running = asyncio.create_task(run_app(app), name="intake: app")
            watching = asyncio.create_task(self._watch(app), name="intake: watchdog")
            stopping = asyncio.create_task(self._stopping.wait())
            try:
                await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
                self._last_crash = _reason(app, running)
            finally:
                self._app = None
                for task in (running, watching, stopping):
                    task.cancel()
                await asyncio.gather(running, watching, stopping, return_exceptions=True)
                self._hung = not await end_app(app)

    async def _watch(self, app: faust.App) -> None:
        """Crash the App when it is out of the group for too long: aiokafka can leave it and never come back."""
        last_joined = time.monotonic()
        while True:
            await asyncio.sleep(min(1.0, self._group_lost_seconds / 10))
            if has_joined(app):
                last_joined = time.monotonic()
            elif time.monotonic() - last_joined > self._group_lost_seconds:
                await app.crash(GroupLost(f"out of the group for {self._group_lost_seconds:g} s"))
                return

    async def _unless_stopping(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)


def _reason(app: faust.App, running: "asyncio.Task[None]") -> str:
    error = app.crash_reason
    if error is None and running.done() and not running.cancelled():
        error = running.exception()
    return repr(error) if error is not None else "it stopped"


def _credentials(security: KafkaSecurity) -> Any:
    context = security.ssl_context()
    if security.uses_sasl:
        return faust.SASLCredentials(
            username=security.username,
            password=security.password,
            mechanism=security.mechanism,
            ssl_context=context,
        )
    return None if context is None else faust.SSLCredentials(context)


@dataclass(frozen=True, slots=True)
class Intake:
    """Intake with what goes on beside it, and what must be closed after it."""

    service: IntakeService
    held: HeldLetters
    retention: RetentionWatch
    registry: SchemaRegistry


def build_intake(
    settings: Settings,
    store: Store,
    metrics: Metrics,
    *,
    backpressure: Backpressure,
    commit_point: CommitPoint = passes,
) -> Intake:
    """Build intake of the request topic that TOPICS_FILE declares, which stands still while *backpressure* says so.

    Raises:
        SettingsInvalid: topics.yaml or a setting of Kafka or the registry cannot be used.
    """
    parts = build_intake_parts(settings, store, metrics, backpressure)
    service = IntakeService(
        _intake_settings(settings, parts.topic),
        accept=parts.accept,
        reading=parts.reading,
        metrics=metrics,
        commit_point=commit_point,
    )
    return Intake(service, parts.held, parts.retention, parts.registry)


def _intake_settings(settings: Settings, topic: Topic) -> IntakeSettings:
    return IntakeSettings(
        bootstrap=settings.kafka_bootstrap or "",
        security=KafkaSecurity.from_settings(settings),
        group=settings.group,
        topic=topic,
        session_timeout_seconds=settings.kafka_session_timeout_seconds,
        batch_records=settings.batch_records,
        batch_bytes=settings.batch_bytes,
    )
