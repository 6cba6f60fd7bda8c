"""What the Kafka client of intake meets and keeps to itself: brokers that say nothing, and a group that refuses it."""

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Any, Final

import aiokafka
from aiokafka import errors
from aiokafka.protocol.group import JoinGroupRequest, SyncGroupRequest

_log = logging.getLogger(__name__)

_SECONDS_BETWEEN_TRIES: Final = 2.0
# The brokers answer these when the whole group has come together.
_LONG_REQUESTS: Final = (JoinGroupRequest, SyncGroupRequest)
_GRANT: Final = "grant it to this worker's user, and it goes on by itself"
_REFUSALS: Final[Mapping[type[errors.KafkaError], str]] = {
    errors.InvalidSessionTimeoutError: (
        "the brokers refuse KAFKA_SESSION_TIMEOUT_SECONDS={session:g}: their group.min.session.timeout.ms and"
        " group.max.session.timeout.ms, 6 s and 30 min where nobody set them, leave no room for it; set another one and"
        " restart the worker"
    ),
    errors.GroupAuthorizationFailedError: (f"the right READ on the group {{group}} is missing: {_GRANT}"),
    errors.InconsistentGroupProtocolError: (
        "the group {group} is used by consumers that share partitions out in another way: stop them, or set another"
        " GROUP"
    ),
    errors.InvalidGroupIdError: "the brokers refuse the name of the group {group!r}: set another GROUP",
}


class ClientWatch:
    """Looks over the shoulder of one client, in its thread. The answers may be read from any thread.

    aiokafka stops to coordinate at the first refusal, until somebody asks it for its error. Here it tries again, every
    two seconds, since rights are granted and members leave while it runs.
    """

    def __init__(self, client: aiokafka.AIOKafkaConsumer, *, group: str, session_timeout_seconds: float) -> None:
        """Watch *client*, which is started and subscribes to nothing yet."""
        self._refused: str | None = None
        self._cluster = client._client.cluster
        self._subscribed = client.subscription
        self._group = group
        self._session_timeout_seconds = session_timeout_seconds
        self._coordinator = client._coordinator
        self._coordinator._push_error_to_user = self._refuse
        self._send = client._client.send
        client._client.send = self._send_and_wait
        self._asked_at: dict[object, float] = {}

    @property
    def refused(self) -> str | None:
        """Why the brokers do not let the client read, with the way out; None while they do."""
        if self._refused is None and (topics := self._cluster.unauthorized_topics):
            return f"the right READ on the topic {', '.join(sorted(topics))} is missing: {_GRANT}"
        return self._refused

    @property
    def missing(self) -> str | None:
        """Which topic is not there, with the way out; None while all are, as far as the brokers have said."""
        missing = [topic for topic in sorted(self._subscribed()) if not self._cluster.partitions_for_topic(topic)]
        if not missing:
            return None
        return (
            f"the topic {', '.join(missing)} is not there, or this worker's user has no right to see it: make it with"
            " `workflow-runs topics apply`, and it goes on by itself"
        )

    @property
    def silent_seconds(self) -> float:
        """For how long the oldest request that has no answer has been waiting for one."""
        now = time.monotonic()
        return now - min(tuple(self._asked_at.values()), default=now)

    def joined(self) -> None:
        """Note that the group took the client in."""
        self._refused = None

    async def _refuse(self, error: errors.KafkaError) -> None:
        refused = _REFUSALS.get(type(error), "the group {group} refuses this worker: {error!r}").format(
            group=self._group, session=self._session_timeout_seconds, error=error
        )
        if refused != self._refused:
            _log.error("%s", refused)
        self._refused = refused
        await asyncio.wait({self._coordinator._closing}, timeout=_SECONDS_BETWEEN_TRIES)
        self._coordinator.request_rejoin()

    async def _send_and_wait(self, node_id: int, request: Any, **how: Any) -> Any:
        if isinstance(request, _LONG_REQUESTS):
            return await self._send(node_id, request, **how)
        asked = object()
        self._asked_at[asked] = time.monotonic()
        try:
            return await self._send(node_id, request, **how)
        finally:
            del self._asked_at[asked]
