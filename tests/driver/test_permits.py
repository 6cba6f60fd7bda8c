"""Permits: as many calls to a target as allowed, none leaked, none doubled."""

import asyncio

import pytest

from streams.driver.permits import Permit, Permits


class Limits(dict[str, int]):
    """The limits of targets, as they are now."""

    def __call__(self, target: str) -> int:
        return self.get(target, 0)


@pytest.fixture
def limits() -> Limits:
    return Limits(slow=2, quick=1)


@pytest.fixture
def permits(limits: Limits) -> Permits:
    return Permits(limits)


def test_a_claim_reserves_what_is_free_and_no_more(permits: Permits) -> None:
    assert [permit.target for permit in permits.reserve("slow", 5)] == ["slow", "slow"]
    assert permits.free("slow") == 0
    assert permits.free("quick") == 1
    assert permits.reserve("slow", 1) == []


def test_a_permit_given_back_twice_counts_once(permits: Permits) -> None:
    first, _ = permits.reserve("slow", 2)
    first.release()
    first.release()
    assert permits.free("slow") == 1


def test_a_target_that_is_not_served_has_no_permits(permits: Permits) -> None:
    assert permits.free("elsewhere") == 0


def test_a_limit_that_shrinks_below_what_is_given_out_leaves_nothing_free(permits: Permits, limits: Limits) -> None:
    first, _ = permits.reserve("slow", 2)
    limits["slow"] = 1
    first.release()
    assert permits.free("slow") == 0


async def test_who_waits_gets_the_next_permit_before_any_claim(permits: Permits) -> None:
    [held] = permits.reserve("quick", 1)
    waiting = asyncio.create_task(permits.take("quick", wait_seconds=10))
    await asyncio.sleep(0)

    held.release()

    assert permits.free("quick") == 0
    permit = await waiting
    assert permit is not None
    permit.release()
    assert permits.free("quick") == 1


async def test_permits_go_out_in_the_order_of_asking(permits: Permits) -> None:
    [held] = permits.reserve("quick", 1)
    order: list[str] = []

    async def call(name: str) -> None:
        permit = await permits.take("quick", wait_seconds=10)
        assert permit is not None
        order.append(name)
        permit.release()

    async with asyncio.TaskGroup() as group:
        for name in ("first", "second", "third"):
            group.create_task(call(name))
            await asyncio.sleep(0)
        held.release()
    assert order == ["first", "second", "third"]


async def test_waiting_ends_without_a_permit_and_leaves_nothing_behind(permits: Permits) -> None:
    [held] = permits.reserve("quick", 1)

    assert await permits.take("quick", wait_seconds=0.01) is None

    held.release()
    assert permits.free("quick") == 1


async def test_who_is_cancelled_while_waiting_takes_nothing_along(permits: Permits) -> None:
    [held] = permits.reserve("quick", 1)
    waiting = asyncio.create_task(permits.take("quick", wait_seconds=10))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    held.release()
    assert permits.free("quick") == 1


async def test_who_is_cancelled_just_after_its_turn_came_passes_it_on(permits: Permits) -> None:
    [held] = permits.reserve("quick", 1)
    cancelled = asyncio.create_task(permits.take("quick", wait_seconds=10))
    next_one = asyncio.create_task(permits.take("quick", wait_seconds=10))
    await asyncio.sleep(0)

    held.release()
    cancelled.cancel()

    permit = await next_one
    assert permit is not None
    permit.release()
    assert permits.free("quick") == 1


async def test_the_claim_loop_hears_of_a_permit_nobody_waited_for(limits: Limits) -> None:
    heard: list[None] = []
    permits = Permits(limits, on_release=lambda: heard.append(None))
    [held] = permits.reserve("quick", 1)
    held.release()
    assert len(heard) == 1


def test_the_claim_loop_does_not_hear_of_its_own_reservations(limits: Limits) -> None:
    heard: list[None] = []
    permits = Permits(limits, on_release=lambda: heard.append(None))
    [unused] = permits.reserve("quick", 1)
    unused.return_unused()
    assert heard == []
    assert permits.free("quick") == 1


def test_a_permit_names_its_target(permits: Permits) -> None:
    [permit] = permits.reserve("quick", 1)
    assert isinstance(permit, Permit)
    assert permit.target == "quick"


async def test_a_modest_call_leaves_the_last_permit_and_comes_after_the_others() -> None:
    permits = Permits(lambda target: 3)
    first, second = [await permits.take("tokenizer", wait_seconds=1, modest=True) for _ in range(2)]
    assert first is not None
    assert second is not None
    modest = asyncio.create_task(permits.take("tokenizer", wait_seconds=5, modest=True))
    await asyncio.sleep(0)
    assert permits.free("tokenizer") == 1
    [reserved] = permits.reserve("tokenizer", 5)
    other = asyncio.create_task(permits.take("tokenizer", wait_seconds=5))
    await asyncio.sleep(0)

    first.release()
    taken = await other
    assert taken is not None
    assert not modest.done()
    second.release()
    await asyncio.sleep(0)
    assert not modest.done()
    reserved.return_unused()
    assert await modest is not None


async def test_the_only_permit_of_a_target_is_for_modest_calls_too() -> None:
    permits = Permits(lambda target: 1)
    assert await permits.take("tokenizer", wait_seconds=0.01, modest=True) is not None
    assert await permits.take("tokenizer", wait_seconds=0.01, modest=True) is None
