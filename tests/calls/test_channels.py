"""Channels: one per address and transport, kept, and as many as there may be."""

from collections.abc import AsyncIterator

import pytest

from schemas.errors import ResourceExhausted
from streams.calls.channels import Channels
from streams.calls.credentials import Credentials

A, B, C = "127.0.0.1:9001", "127.0.0.1:9002", "127.0.0.1:9003"


@pytest.fixture
async def channels() -> AsyncIterator[Channels]:
    channels = Channels(message_bytes=4096, most=2)
    yield channels
    await channels.close()


@pytest.mark.spec(49)
async def test_calls_to_one_address_share_its_channel_and_tls_has_another(channels: Channels) -> None:
    async with channels.to(A, tls=False) as plain, channels.to(A, tls=False) as again, channels.to(A, tls=True) as tls:
        assert plain is again
        assert plain is not tls
    async with channels.to(A, tls=False) as later:
        assert later is plain


async def test_targets_at_one_address_share_no_channel_when_they_are_secured_or_limited_otherwise(
    channels: Channels,
) -> None:
    other = Credentials(server_name="scorer.internal")
    async with channels.to(A, tls=True) as anonymous, channels.to(A, tls=True, credentials=other) as named:
        assert anonymous is not named
        async with channels.to(A, tls=True, credentials=Credentials(server_name="scorer.internal")) as again:
            assert again is named
    async with channels.to(A, tls=False, message_bytes=1_024) as small, channels.to(A, tls=False) as large:
        assert small is not large


async def test_the_channel_that_was_idle_longest_gives_way(channels: Channels) -> None:
    for address in (A, B, A):
        async with channels.to(address, tls=False) as kept:
            pass
    async with channels.to(C, tls=False):
        assert len(channels) == 2
    async with channels.to(A, tls=False) as again:
        assert again is kept


async def test_a_channel_in_use_never_gives_way(channels: Channels) -> None:
    async with channels.to(A, tls=False) as first, channels.to(B, tls=False):
        with pytest.raises(ResourceExhausted, match="all 2 channels of this worker are in use"):
            async with channels.to(C, tls=False):
                pass
        async with channels.to(A, tls=False) as again:
            assert again is first
