"""Threads for sync handlers: never those of a loop's default pool, which other parts of the process wait for."""

import contextvars
import queue
import sys
import threading
from collections.abc import Callable
from typing import Final

_IDLE_SECONDS: Final = 10.0

# A thread that computes in Python lets others run after this long. What else is at work in the process waits for it at
# every turn, once for each thread that computes: Python's own 5 ms would make a worker some hundred times slower.
_SWITCH_SECONDS: Final = 0.0002


class Threads:
    """As many threads as there are calls at once; one that has been idle for a while ends.

    How many there can be is bounded by who calls: each call holds a permit until its function has returned. The threads
    do not hold up the end of the process, whatever they are at.
    """

    def __init__(self, *, idle_seconds: float = _IDLE_SECONDS) -> None:
        sys.setswitchinterval(min(sys.getswitchinterval(), _SWITCH_SECONDS))
        self._idle_seconds = idle_seconds
        self._lock = threading.Lock()
        self._work: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._free = 0
        """Threads that wait for work and are not promised to any that was put in already."""

    def start(self, work: Callable[[], object]) -> None:
        """Run *work*, which must not raise, in a thread of its own and in a copy of the caller's context.

        Raises:
            RuntimeError: this machine has no thread left; nothing was done.
        """
        call = contextvars.copy_context().run
        with self._lock:
            if self._free > 0:
                self._free -= 1
            else:
                threading.Thread(target=self._serve, name="handler", daemon=True).start()
            self._work.put(lambda: call(work))

    def _serve(self) -> None:
        while True:
            try:
                work = self._work.get(timeout=self._idle_seconds)
            except queue.Empty:
                with self._lock:
                    if self._free > 0:
                        self._free -= 1
                        return
                continue
            work()
            del work  # else it is kept alive while the thread waits
            with self._lock:
                self._free += 1
