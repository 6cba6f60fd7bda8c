"""The demo tells its story to the end, and leaves nothing behind when it is broken off."""

import re
from pathlib import Path

import pytest

from tests.docs.processes import running

pytestmark = [pytest.mark.acceptance, pytest.mark.embedded, pytest.mark.timeout(300)]

# Alone on a machine the whole story takes half a minute.
BUSY_SECONDS = 140


def test_the_demo_ends_with_an_exact_ledger_and_leaves_no_process_behind(tmp_path: Path) -> None:
    with running("demo", folder=tmp_path) as demo:
        demo.until("is killed with SIGKILL in the middle of a step", seconds=BUSY_SECONDS)
        family = demo.family()
        assert demo.wait(seconds=BUSY_SECONDS) == 0, demo.output
    told = demo.output
    assert "\033" not in told
    assert "requests 20, rows 20: 20 COMPLETED" in told
    assert re.search(r"events 120: 6 for each run, in order, without a gap; \d+ redelivered", told)
    assert re.search(r"order-05 embed: 2 calls, since 1 answered UNAVAILABLE and was retried", told)
    assert re.search(r"order-\d\d embed: 2 calls, since the worker was killed in the middle of it", told)
    assert "offsets committed 20 of 20" in told
    assert "NOT EXACT" not in told
    assert told.rstrip().endswith("The ledger is exact.")
    assert demo.left_behind(family) == []


@pytest.mark.parametrize("moment", ["Postgres at", "worker-1 at", "is killed with SIGKILL in the middle of a step"])
def test_ctrl_c_in_the_middle_leaves_no_process_behind(tmp_path: Path, moment: str) -> None:
    with running("demo", folder=tmp_path) as demo:
        demo.until(moment, seconds=BUSY_SECONDS)
        family = demo.family()
        assert len(family) > 3
        demo.interrupt()
        assert demo.wait(seconds=BUSY_SECONDS) == 130, demo.output
    assert demo.left_behind(family) == []
    assert "Traceback" not in demo.output
