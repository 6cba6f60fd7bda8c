"""One librdkafka producer and the thread that serves it."""

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from streams.kafka.outgoing import OutgoingRecord

POLL_SECONDS: Final = 0.1

Answer = tuple[asyncio.Future[None], KafkaError | None]
"""The future of one record, and why it failed; None: acknowledged."""


class PolledProducer:
    """A librdkafka producer whose answers reach the event loop in batches, one loop wake-up for all that came at once.

    Both callbacks run in the loop. `purge`, `abandon` and `close` return without waiting for any broker.
    """

    def __init__(
        self,
        config: Mapping[str, object],
        loop: asyncio.AbstractEventLoop,
        *,
        on_answers: Callable[[Sequence[Answer]], None],
        on_error: Callable[["PolledProducer", KafkaError], None],
    ) -> None:
        self._loop = loop
        self._on_answers = on_answers
        self._on_error = on_error
        self._answers: list[Answer] = []
        self._stopping = threading.Event()
        self._producer = Producer({**config, "error_cb": self._failed})
        self._thread = threading.Thread(target=self._serve, name="kafka-producer", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether answers are still served."""
        return self._thread.is_alive()

    def produce(self, record: OutgoingRecord, answer: asyncio.Future[None]) -> None:
        """Queue one record; *answer* is handed to `on_answers` when its fate is known.

        Raises:
            BufferError: the queue is full.
            KafkaException: the record is refused here and now, or the client is broken.
        """

        def delivered(error: KafkaError | None, _: Message) -> None:
            self._answers.append((answer, error))

        self._producer.produce(
            record.topic,
            record.value,
            record.key,
            on_delivery=delivered,
            timestamp=record.timestamp_ms or 0,
            headers=list(record.headers),
        )

    def purge(self) -> None:
        """Forget every record: each is answered as purged."""
        if not self._stopping.is_set():
            self._producer.purge(blocking=False)

    def abandon(self) -> None:
        """Forget everything, and end the thread in its own time. To do it twice is harmless."""
        self.purge()
        self._stopping.set()

    async def close(self, *, timeout_seconds: float = 2.0) -> None:
        """Forget everything and wait for the thread, at most *timeout_seconds*."""
        self.abandon()
        await asyncio.to_thread(self._thread.join, timeout_seconds)

    def _serve(self) -> None:
        while not self._stopping.is_set():
            self._poll(POLL_SECONDS)
        self._poll(0)
        self._producer.close()

    def _poll(self, seconds: float) -> None:
        try:
            self._producer.poll(seconds)
        except KafkaException as error:  # how librdkafka tells that it is broken for good
            self._failed(error.args[0])
        if self._answers:
            answers, self._answers = self._answers, []
            self._in_loop(self._on_answers, answers)

    def _failed(self, error: KafkaError) -> None:
        self._in_loop(self._on_error, self, error)

    def _in_loop(self, callback: Callable[..., None], *args: object) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:  # the loop is closed: nobody is left to be told
            self._stopping.set()
