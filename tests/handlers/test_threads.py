"""Threads of sync handlers: as many as there are calls at once, and none that stays for nothing."""

import threading
from contextvars import ContextVar

from streams.handlers.threads import Threads
from tests.fixtures.eventually import wait_until

NAME: ContextVar[str] = ContextVar("name", default="nobody")


def count() -> int:
    return sum(thread.name == "handler" for thread in threading.enumerate())


def test_there_are_as_many_threads_as_calls_at_once_and_idle_ones_end() -> None:
    threads, before, gate, done = Threads(idle_seconds=0.05), count(), threading.Event(), threading.Semaphore(0)

    def wait() -> None:
        gate.wait(10)
        done.release()

    for _ in range(20):
        threads.start(wait)
    assert count() == before + 20
    gate.set()
    for _ in range(20):
        assert done.acquire(timeout=10)
    for _ in range(200):
        threads.start(done.release)
        assert done.acquire(timeout=10)
    assert count() <= before + 21
    wait_until(lambda: count() <= before)


def test_a_call_runs_in_the_context_of_whoever_started_it() -> None:
    seen: list[str] = []
    done = threading.Event()
    NAME.set("the caller")

    def look() -> None:
        seen.append(NAME.get())
        done.set()

    Threads().start(look)

    assert done.wait(10)
    assert seen == ["the caller"]
