"""Records to Kafka, each with its own acknowledgement.

librdkafka keeps the order of what it is given per partition, keeps repeating through outages for ever (there is no
message time-out here), and with idempotence never writes a record twice for one `produce`. What it cannot know is
whether a record it was told to forget (`purge`, `close`, a rebuilt client) reached the broker: those are
BrokerUnavailable, and the caller sends them again.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from confluent_kafka import KafkaError, KafkaException

from schemas.errors import BrokerUnavailable, RecordRefused, TopicUnavailable
from schemas.topics import Topics
from streams.health import ServiceHealth
from streams.kafka.outgoing import OutgoingRecord
from streams.kafka.polling import Answer, PolledProducer
from streams.kafka.security import KafkaSecurity

log = logging.getLogger(__name__)

BATCH_BYTES: Final = 1_000_000
SILENCE_SECONDS: Final = 15.0
"""How long the broker may be silent, or an error be the last word, before the producer says it is not ready."""

REFUSALS: Final = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.INVALID_MSG_SIZE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        KafkaError._INVALID_ARG,
        KafkaError._BAD_MSG,
    }
)
"""Errors that speak of the record. All others, also about rights and missing topics, are the broker's or an operator's
to mend, and no record is to blame."""


class EventProducer:
    """One idempotent producer for everything a process sends; belongs to the event loop it was started in.

    Partitions are chosen as Java's default partitioner does, so that consumers which join topics by key find theirs.
    """

    def __init__(
        self,
        bootstrap: str,
        security: KafkaSecurity,
        *,
        largest_record_bytes: int = 16 << 20,
        batch_bytes: int = BATCH_BYTES,
        client_id: str = "workflow-runs-relay",
        overrides: Mapping[str, object] | None = None,
    ) -> None:
        """Describe the producer; nothing is connected before `start`.

        Args:
            bootstrap: Brokers, `host:port[,host:port]`.
            security: How to prove who we are.
            largest_record_bytes: A larger record is refused without asking a broker.
            batch_bytes: Bytes sent to one partition at once. Not above the least `max.message.bytes` of the topics
                produced to: a batch over that limit is refused as a whole, with the innocent records in it.
            client_id: How broker logs and quotas call us.
            overrides: Further librdkafka properties; they win.
        """
        self._config: dict[str, object] = {
            "bootstrap.servers": bootstrap,
            "client.id": client_id,
            "enable.idempotence": True,
            "acks": "all",
            "message.timeout.ms": 0,
            "partitioner": "murmur2_random",
            "linger.ms": 5,
            "message.max.bytes": largest_record_bytes,
            "batch.size": batch_bytes,
            "queue.buffering.max.messages": 20_000,
            "queue.buffering.max.kbytes": max(64 << 10, 4 * (largest_record_bytes >> 10)),
            # A connection through which nothing comes back is dropped, so that a healed network is used again soon.
            "socket.timeout.ms": 10_000,
            "socket.keepalive.enable": True,
            "reconnect.backoff.max.ms": 2_000,
            "topic.metadata.refresh.interval.ms": 30_000,
            # The errors come through `error_cb` as well, where they are told once.
            "log_level": 2,
            **security.client_config(),
            **(overrides or {}),
        }
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client: PolledProducer | None = None
        self._one_by_one: PolledProducer | None = None
        self._closed = False
        self._outstanding: dict[asyncio.Future[None], OutgoingRecord] = {}
        self._settled = asyncio.Event()
        self._heard_at = time.monotonic()
        self._trouble: tuple[float, str] | None = None
        self._nobody_reachable = False

    @classmethod
    def for_topics(cls, bootstrap: str, security: KafkaSecurity, topics: Topics) -> "EventProducer":
        """Describe a producer whose limits are those of *topics*, see `__init__`."""
        sizes = [topic.max_message_bytes for topic in topics.all()]
        return cls(
            bootstrap,
            security,
            largest_record_bytes=max(1_000, *sizes),
            batch_bytes=min(BATCH_BYTES, *sizes),
        )

    async def start(self) -> None:
        """Make the client. A broker that is away is no error: it is looked for until it is there.

        Raises:
            BrokerUnavailable: librdkafka refuses the configuration; the message names the property.
        """
        self._loop = asyncio.get_running_loop()
        self._client = self._new_client(self._settle_batched)

    async def produce(self, record: OutgoingRecord) -> asyncio.Future[None]:
        """Hand one record to the client; wait only while its buffer is full.

        Records of one partition are written in the order they were handed over, but past a refused one. Where that
        matters, hand over a key's next record when its predecessor is acknowledged.

        Returns:
            A future that is done when the broker has acknowledged the record. It raises RecordRefused when Kafka
            refuses this very record, and BrokerUnavailable when nothing is known about it: send it again. An outage
            alone never ends it.

        Raises:
            RecordRefused: the record cannot be sent as it is; nothing was sent.
            BrokerUnavailable: the producer is closed, or its client has just broken; nothing was sent.
        """
        answer: asyncio.Future[None] = self._running_loop().create_future()
        while True:
            if self._client is None or self._closed:
                raise BrokerUnavailable("the producer is closed")
            try:
                self._client.produce(record, answer)
            except BufferError:
                self._settled.clear()
                await self._settled.wait()
                continue
            except KafkaException as error:
                raise _translated(error.args[0]) from error
            if not self._outstanding:
                self._heard_at = time.monotonic()
            self._outstanding[answer] = record
            return answer

    @property
    def in_flight(self) -> int:
        """How many records were handed over and are neither acknowledged nor refused yet."""
        return len(self._outstanding)

    async def flush(self, *, timeout_seconds: float) -> int:
        """Wait until everything handed over is acknowledged or refused; return how many records are not, in time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                while self._outstanding:
                    self._settled.clear()
                    await self._settled.wait()
        return len(self._outstanding)

    def purge(self) -> None:
        """Forget everything not acknowledged: each of those futures raises BrokerUnavailable, within milliseconds."""
        for client in self._clients():
            client.purge()

    async def close(self, *, timeout_seconds: float = 5.0) -> int:
        """Send what waits, within the time-out, then let go whatever the network does.

        Returns:
            How many records were given up; their futures raise BrokerUnavailable.
        """
        self._closed = True
        try:
            return await self.flush(timeout_seconds=timeout_seconds)
        finally:
            clients = self._clients()
            self._client = self._one_by_one = None
            for client in clients:
                client.abandon()
            self._give_up("the producer is closed")
            for client in clients:
                await client.close()

    def health(self) -> ServiceHealth:
        """Not ready while the broker is silent or unreachable; `detail` has Kafka's own words, a wrong password say."""
        now = time.monotonic()
        if self._client is None or not self._client.alive:
            return ServiceHealth("producer", alive=self._client is None, ready=False, detail="not running")
        concerns_us = self._nobody_reachable or self._outstanding  # an idle connection may well be closed
        if self._trouble is not None and now - self._trouble[0] < SILENCE_SECONDS and concerns_us:
            return ServiceHealth("producer", alive=True, ready=False, detail=self._trouble[1])
        silent = now - self._heard_at
        if self._outstanding and silent > SILENCE_SECONDS:
            waiting = f"{len(self._outstanding)} records wait, no acknowledgement for {silent:.0f} s"
            return ServiceHealth("producer", alive=True, ready=False, detail=waiting)
        return ServiceHealth("producer", alive=True, ready=True, detail=f"{len(self._outstanding)} records in flight")

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            raise RuntimeError("the producer was not started")
        return self._loop

    def _clients(self) -> list[PolledProducer]:
        return [client for client in (self._client, self._one_by_one) if client is not None]

    def _new_client(self, on_answers: Callable[[Sequence[Answer]], None], **overrides: object) -> PolledProducer:
        config = {**self._config, **{name.replace("_", "."): value for name, value in overrides.items()}}
        try:
            return PolledProducer(config, self._running_loop(), on_answers=on_answers, on_error=self._note)
        except KafkaException as error:
            raise BrokerUnavailable(f"the producer cannot be made: {error.args[0]}") from error

    def _settle_batched(self, answers: Sequence[Answer]) -> None:
        """Answers of the client that sends in batches: of a refused batch, only one record may be the cause."""
        final: list[Answer] = []
        for future, error in answers:
            suspect = error is not None and error.code() in REFUSALS
            if not (suspect and future in self._outstanding and self._sent_alone(future)):
                final.append((future, error))
        self._settle(final)

    def _sent_alone(self, future: asyncio.Future[None]) -> bool:
        """Send the record again in a batch of its own; False when that cannot be done now."""
        try:
            if self._one_by_one is None:
                self._one_by_one = self._new_client(self._settle, batch_num_messages=1, linger_ms=0)
            self._one_by_one.produce(self._outstanding[future], future)
        except (BufferError, KafkaException, BrokerUnavailable):
            return False
        return True

    def _settle(self, answers: Sequence[Answer]) -> None:
        broken = False
        for future, error in answers:
            self._outstanding.pop(future, None)
            if error is None:
                self._heard_at = time.monotonic()
                self._trouble = None
                self._nobody_reachable = False
            elif error.code() not in _PURGED | REFUSALS:
                self._trouble = (time.monotonic(), error.str())
            if future.done():  # its caller was cancelled, or it was given up with an earlier client
                continue
            if error is None:
                future.set_result(None)
            else:
                broken |= error.code() in _BROKEN
                _fail(future, _translated(error))
        self._settled.set()
        if broken:
            self._make_anew()

    def _note(self, client: PolledProducer, error: KafkaError) -> None:
        now, text = time.monotonic(), error.str()
        news = self._trouble is None or now - self._trouble[0] > SILENCE_SECONDS
        if news:
            log.warning("Kafka: %s", text)
        self._nobody_reachable |= error.code() in _NOBODY_REACHABLE
        if error.code() == KafkaError._ALL_BROKERS_DOWN and self._trouble is not None and not news:
            text = self._trouble[1]  # why the last of them cannot be reached says more
        self._trouble = (now, text)
        if error.fatal() and client in self._clients():
            self._make_anew()

    def _make_anew(self) -> None:
        """Replace a client whose numbering of records no broker takes any more: it would fail from now on."""
        if self._closed:
            return
        log.warning("the Kafka producer is broken and made anew: %s", self._trouble and self._trouble[1])
        broken = self._clients()
        self._client, self._one_by_one = self._new_client(self._settle_batched), None
        for client in broken:
            client.abandon()
        self._give_up("the producer was made anew")

    def _give_up(self, why: str) -> None:
        given_up, self._outstanding = self._outstanding, {}
        for future in given_up:
            if not future.done():
                _fail(future, BrokerUnavailable(why))
        self._settled.set()


_OF_THE_TOPIC: Final = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    }
)
_PURGED: Final = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})
_NOBODY_REACHABLE: Final = frozenset({KafkaError._ALL_BROKERS_DOWN, KafkaError._AUTHENTICATION, KafkaError._SSL})
_BROKEN: Final = frozenset(
    {
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
        KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
        KafkaError.UNKNOWN_PRODUCER_ID,
        KafkaError._FENCED,
        KafkaError._FATAL,
    }
)


def _fail(future: asyncio.Future[None], error: RecordRefused | BrokerUnavailable) -> None:
    future.set_exception(error)
    future.exception()  # a caller that has gone away must not be told off for not looking


def _translated(error: KafkaError) -> RecordRefused | BrokerUnavailable:
    text = f"{error.name()}: {error.str()}"
    if error.code() in _OF_THE_TOPIC:
        return TopicUnavailable(text, code=error.name())
    return RecordRefused(text, code=error.name()) if error.code() in REFUSALS else BrokerUnavailable(text)
