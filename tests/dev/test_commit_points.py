"""Where a process stops, and that nothing stops unless the extra of the developers is there and asked to."""

import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest

from schemas.errors import SettingsInvalid
from store.database import passes
from streams.dev.commit_points import EXIT_CODE, VARIABLE, StopAt, from_environment, parse
from streams.parts import commit_points
from streams.parts.commit_points import COMMIT_POINTS, find_commit_point

_POINT = "checkpoint.after_commit"


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("claim.before_commit", StopAt("claim.before_commit")),
        ("relay.before_mark:3", StopAt("relay.before_mark", 3)),
    ],
)
def test_a_point_and_its_passage_are_read(text: str, read: StopAt) -> None:
    assert parse(text) == read


@pytest.mark.parametrize("text", ["nowhere", "claim.before_commit:0", "claim.before_commit:x", f"{_POINT}:1:stop:1"])
def test_what_names_no_point_is_refused(text: str) -> None:
    with pytest.raises(SettingsInvalid, match=VARIABLE):
        parse(text)


def test_nothing_stops_without_being_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert from_environment() is None
    assert find_commit_point() is passes
    monkeypatch.setenv(VARIABLE, _POINT)
    assert find_commit_point() == StopAt(_POINT)


def test_without_the_extra_nothing_is_loaded_whatever_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, _POINT)
    absent = EntryPoint("dev", "no_such_package.commit_points:from_environment", commit_points.GROUP)
    monkeypatch.setattr(commit_points, "entry_points", lambda group: [absent])
    assert find_commit_point() is passes


async def test_a_point_that_is_not_listed_is_a_bug() -> None:
    with pytest.raises(ValueError, match="not listed"):
        await StopAt(_POINT)("somewhere.else")


@pytest.mark.parametrize(("stop", "code"), [("kill", -9), ("exit", EXIT_CODE)])
def test_the_process_stops_at_that_passage_and_at_no_earlier_one(stop: str, code: int) -> None:
    program = f"""
import asyncio
from streams.dev.commit_points import parse
async def main():
    stop_at = parse("{_POINT}:2:{stop}")
    for point in ("{_POINT}", "{COMMIT_POINTS[0]}"):
        await stop_at(point)
    print("passed", flush=True)
    await stop_at("{_POINT}")
    print("too far", flush=True)
asyncio.run(main())"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (code, "passed\n")
