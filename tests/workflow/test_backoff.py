"""Back-off: doubling, capped, spread, and never a number that cannot be stored."""

import random

import pytest

from streams.workflow.backoff import Backoff


@pytest.mark.spec(59)
@pytest.mark.parametrize(("failures", "floor"), [(1, 5.0), (2, 10.0), (3, 20.0), (10, 2560.0)])
def test_each_failure_doubles_the_delay_and_adds_up_to_a_tenth(failures: int, floor: float) -> None:
    least = Backoff(5, 3600, spread=lambda: 0.0)
    most = Backoff(5, 3600, spread=lambda: 1.0)

    assert least.delay_seconds(failures) == floor
    assert most.delay_seconds(failures) == pytest.approx(floor * 1.1)


@pytest.mark.parametrize("failures", [11, 30, 45, 62, 64, 1100, 10**9])
def test_a_delay_never_exceeds_its_cap_however_many_tries_failed(failures: int) -> None:
    delays = [Backoff(5, 3600).delay_seconds(failures) for _ in range(100)]

    assert 3600 / 1.1 <= min(delays) < max(delays) <= 3600


def test_runs_that_failed_together_do_not_come_back_together() -> None:
    spread = random.Random(7).random
    delays = [Backoff(5, 3600, spread=spread).delay_seconds(1) for _ in range(200)]

    tenths = [sum(1 for delay in delays if int(delay * 10) == tenth) for tenth in range(50, 56)]
    assert max(tenths) < 100


def test_a_base_above_the_cap_waits_for_the_cap() -> None:
    assert Backoff(10, 2, spread=lambda: 1.0).delay_seconds(1) == 2
