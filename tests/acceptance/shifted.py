"""A command in a process whose clock is wrong: `python -m tests.acceptance.shifted SECONDS worker`.

What is shifted is the time of day as Python code sees it, that of the libraries too: `time.time`, `time.time_ns`, the
real-time clock of `time.clock_gettime`; `localtime`, `gmtime` and `strftime` of now; `datetime.now`, `utcnow`, `today`.
Monotonic clocks are right on a machine whose date is wrong, and are left alone. What asks the system by itself, as
librdkafka, libpq and gRPC's core do, sees the right time.
"""

import ctypes
import datetime
import gc
import sys
import time
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any


def shift(seconds: float) -> None:
    """Shift this process's clock. Whoever imported a function of `time` by name before keeps the right one."""
    shifted: dict[str, Callable[..., Any]] = {
        "time": partial(_plus, time.time, seconds),
        "time_ns": partial(_plus, time.time_ns, int(seconds * 1e9)),
        "clock_gettime": partial(_of_clock, time.clock_gettime, seconds),
        "localtime": partial(_read, time.localtime),
        "gmtime": partial(_read, time.gmtime),
        "strftime": partial(_written, time.strftime),
    }
    for name, function in shifted.items():  # partials, since a plain function becomes a method where a class keeps it
        setattr(time, name, function)
    _shift_dates(datetime.timedelta(seconds=seconds))


def _plus(clock: Callable[[], float], seconds: float) -> float:
    return clock() + seconds


def _of_clock(clock_gettime: Callable[[int], float], seconds: float, clock: int) -> float:
    return clock_gettime(clock) + (seconds if clock == time.CLOCK_REALTIME else 0)


def _read(read: Callable[[float], time.struct_time], at: float | None = None) -> time.struct_time:
    return read(time.time() if at is None else at)


def _written(write: Callable[[str, time.struct_time], str], form: str, at: time.struct_time | None = None) -> str:
    return write(form, at or time.localtime())


def _shift_dates(by: datetime.timedelta) -> None:
    """Change the types themselves, so that it counts wherever they were imported."""
    now = datetime.datetime.now
    changes: dict[type, dict[str, Callable[..., Any]]] = {
        datetime.datetime: {
            "now": lambda cls, tz=None: now(tz) + by,
            "utcnow": lambda cls: now(datetime.UTC).replace(tzinfo=None) + by,
            "today": lambda cls: now() + by,
        },
        datetime.date: {"today": lambda cls: (now() + by).date()},
    }
    for kind, methods in changes.items():
        [own] = [found for found in gc.get_referents(kind.__dict__) if isinstance(found, dict)]
        own.update({name: classmethod(method) for name, method in methods.items()})
        ctypes.pythonapi.PyType_Modified(ctypes.py_object(kind))


def _run(seconds: float, arguments: list[str]) -> None:
    right = SimpleNamespace(time=time.time)
    shift(seconds)
    from streams.cli.main import main
    from streams.settings import quiet_grpc

    quiet_grpc()
    import grpc.aio._utils

    # Its deadlines are made by the time of day and counted down by the core: on a real machine, by the same clock.
    vars(grpc.aio._utils)["time"] = right
    main(arguments)


if __name__ == "__main__":
    _run(float(sys.argv[1]), sys.argv[2:])
