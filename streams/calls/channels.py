"""gRPC channels of one process: one per address and transport, opened at the first call and kept."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import grpc
import grpc.aio

from schemas.errors import ResourceExhausted
from streams.calls.credentials import ANONYMOUS, Credentials

MOST_CHANNELS: Final = 64

_OPTIONS: Final = (
    # A restarted service is found again within two seconds; the default backs off for up to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 2_000),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.dns_min_time_between_resolutions_ms", 2_000),
    # Servers end a connection that is pinged more often than each five minutes. Switching the pings on also bounds how
    # long sent bytes may stay unacknowledged (TCP_USER_TIMEOUT), which is what finds a black hole under a call.
    ("grpc.keepalive_time_ms", 301_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # A call goes to the address that its target names, never through a proxy that the environment happens to name.
    ("grpc.enable_http_proxy", 0),
    # Without this, channels of two workers in one process would share connections and their back-off.
    ("grpc.use_local_subchannel_pool", 1),
)


@dataclass(frozen=True, slots=True)
class _Way:
    """What tells one channel from another."""

    address: str
    tls: bool
    credentials: Credentials
    message_bytes: int


@dataclass(slots=True)
class _Shared:
    channel: grpc.aio.Channel
    calls: int = 0
    used_at: float = field(default_factory=time.monotonic)


class Channels:
    """At most *most* live channels. One that no call uses gives way to a new one, the longest idle first.

    With TLS a server is checked against *root_certificates* (PEM), by default those that gRPC brings, unless a target
    has authorities of its own.
    """

    def __init__(
        self, *, message_bytes: int, most: int = MOST_CHANNELS, root_certificates: bytes | None = None
    ) -> None:
        self._most = most
        self._message_bytes = message_bytes
        self._root_certificates = root_certificates
        self._shared: dict[_Way, _Shared] = {}

    def __len__(self) -> int:
        return len(self._shared)

    @asynccontextmanager
    async def to(
        self, address: str, *, tls: bool, credentials: Credentials = ANONYMOUS, message_bytes: int | None = None
    ) -> AsyncIterator[grpc.aio.Channel]:
        """The channel to *address*, which stays open at least as long as this block.

        *credentials* are for TLS; *message_bytes* lowers the limit of this process.

        Raises:
            ResourceExhausted: every channel there may be is in use; try again later.
        """
        way = _Way(address, tls, credentials, min(message_bytes or self._message_bytes, self._message_bytes))
        shared = self._shared.get(way)
        displaced = None
        if shared is None:
            displaced = self._make_room()
            shared = self._shared[way] = _Shared(self._open(way))
        shared.calls += 1
        try:
            if displaced is not None:
                await displaced.close(grace=None)
            yield shared.channel
        finally:
            shared.calls -= 1
            shared.used_at = time.monotonic()

    async def close(self) -> None:
        """Close every channel; a call that is still in flight is cancelled."""
        shared, self._shared = self._shared, {}
        for one in shared.values():
            await one.channel.close(grace=None)

    def _make_room(self) -> grpc.aio.Channel | None:
        if len(self._shared) < self._most:
            return None
        idle = [key for key, shared in self._shared.items() if shared.calls == 0]
        if not idle:
            raise ResourceExhausted(f"all {self._most} channels of this worker are in use")
        return self._shared.pop(min(idle, key=lambda key: self._shared[key].used_at)).channel

    def _open(self, way: _Way) -> grpc.aio.Channel:
        # The scheme is written out: "unix:9000" is a host and a port here, and another scheme to gRPC.
        address = f"dns:///{way.address}"
        options: list[tuple[str, int | str]] = [
            *_OPTIONS,
            ("grpc.max_send_message_length", way.message_bytes),
            ("grpc.max_receive_message_length", way.message_bytes),
        ]
        if not way.tls:
            return grpc.aio.insecure_channel(address, options=options)
        given = way.credentials
        if given.server_name is not None:
            options.append(("grpc.ssl_target_name_override", given.server_name))
        authorities = given.authorities or self._root_certificates
        credentials = grpc.ssl_channel_credentials(authorities, given.key, given.certificate)
        return grpc.aio.secure_channel(address, credentials, options=options)
