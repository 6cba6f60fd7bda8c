"""Declaring handlers: the decorators leave a function as it is, and note in its module what it serves.

Nothing is registered anywhere else, so a module can be imported by tests and by any number of workers.
"""

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from types import FunctionType, ModuleType
from typing import Any, Final, Literal, TypeVar

from streams.workflow.names import handler_target, is_job_target, job_target

F = TypeVar("F", bound=Callable[..., Any])

_NOTED: Final = "__workflow_runs_handlers__"
_METHOD: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*/[A-Za-z_]\w*", re.ASCII)


class RunsIn(StrEnum):
    """Where a handler runs: never in the loop of the worker, which nothing may hold up."""

    THREAD = "thread"
    LOOP = "loop"
    CHILD = "child"


@dataclass(frozen=True, slots=True)
class Declaration:
    """One decorated function. `name` is the method or the job type, `place` its file and line.

    `timeout_seconds` and `permits` None leave it to the step and to the worker.
    """

    name: str
    target: str
    function: Callable[..., Any]
    place: str
    is_async: bool
    runs_in: RunsIn
    transactional: bool
    timeout_seconds: float | None
    permits: int | None

    @property
    def is_job(self) -> bool:
        return is_job_target(self.target)


def handler(
    method: str,
    *,
    process: Literal["child"] | None = None,
    transactional: bool = False,
    timeout_seconds: float | None = None,
    permits: int | None = None,
) -> Callable[[F], F]:
    """Serve *method* (`package.Service/Method`) for steps with the target `local`.

    The function takes the request and a `Context`, and returns the response: a message, or a mapping that is read as
    its JSON. Annotated with a generated class, the request is of that class; else it is of the workflow's own.

    Args:
        process: "child" runs it in a process of its own, whose death harms no other run.
        transactional: It gets a database connection, and what it writes is committed with the step's checkpoint.
        timeout_seconds: Ends a call that lasts longer, also where the step would allow more.
        permits: How many calls one worker may have at work at once; by default PERMITS_PER_TARGET of the settings.

    Raises:
        ValueError, TypeError: the method is none, or the function cannot serve; with a sentence that says why.
    """
    if not _METHOD.fullmatch(method):
        raise ValueError(f"{method!r} is no method: write package.Service/Method")
    return _declaring(method, handler_target(method), process, transactional, timeout_seconds, permits)


def job(
    job_type: str,
    *,
    process: Literal["child"] | None = None,
    transactional: bool = False,
    timeout_seconds: float | None = None,
    permits: int | None = None,
) -> Callable[[F], F]:
    """Make a function a job type: a run of that name calls it once, with the run's input as a dict and a `Context`.

    It returns a JSON value or None, which is the run's result. The arguments are those of `handler`.

    Raises:
        ValueError, TypeError: the name is none, or the function cannot serve; with a sentence that says why.
    """
    if not is_job_target(job_target(job_type)):
        raise ValueError(f"{job_type!r} is no job type: write letters, digits, _ . -, beginning with a letter")
    return _declaring(job_type, job_target(job_type), process, transactional, timeout_seconds, permits)


def declared_in(module: ModuleType) -> list[Declaration]:
    """What a module declares, in its order, functions included that another one of the same name has hidden since."""
    noted: list[Declaration] = vars(module).get(_NOTED, [])
    return list(noted)


def declared_by(module: ModuleType) -> Iterator[Declaration]:
    """What a module brings along: its own, those it imports by name, and those of the modules below it so far."""
    yield from declared_in(module)
    for value in list(vars(module).values()):
        if isinstance(value, FunctionType) and (home := sys.modules.get(value.__module__)) not in (None, module):
            yield from (one for one in declared_in(home) if one.function is value)
    below = f"{module.__name__}."
    for name in sorted(name for name in list(sys.modules) if name.startswith(below)):
        yield from declared_in(sys.modules[name])


def _declaring(
    name: str, target: str, process: str | None, transactional: bool, timeout_seconds: float | None, permits: int | None
) -> Callable[[F], F]:
    if process not in (None, "child"):
        raise ValueError(f'process is {process!r}: leave it out, or write "child"')
    if process == "child" and transactional:
        raise ValueError(f"{name} cannot be transactional in a child process: the connection is the worker's")
    if timeout_seconds is not None and not 0 < timeout_seconds <= 86_400:
        raise ValueError(f"timeout_seconds of {name} is {timeout_seconds}: give seconds, at most 86400")
    if permits is not None and not 1 <= permits <= 10_000:
        raise ValueError(f"permits of {name} is {permits}: give 1 to 10000")

    def declare(function: F) -> F:
        is_async = _check(name, function)
        runs_in = RunsIn.CHILD if process else RunsIn.LOOP if is_async else RunsIn.THREAD
        code = function.__code__
        declaration = Declaration(
            name=name,
            target=target,
            function=function,
            place=f"{code.co_filename}:{code.co_firstlineno}",
            is_async=is_async,
            runs_in=runs_in,
            transactional=transactional,
            timeout_seconds=timeout_seconds,
            permits=permits,
        )
        noted: list[Declaration] = function.__globals__.setdefault(_NOTED, [])
        # A module that is loaded again keeps its names, and declares the same once more.
        noted[:] = [one for one in noted if (one.target, one.place) != (target, declaration.place)] + [declaration]
        return function

    return declare


def _check(name: str, function: object) -> bool:
    """Whether the function is async; raises TypeError when it cannot serve."""
    if not inspect.isfunction(function):
        raise TypeError(f"what serves {name} must be a function, not {type(function).__name__}")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"{function.__qualname__} yields: what serves {name} must return its result")
    try:
        inspect.signature(function).bind(None, None)
    except TypeError:
        raise TypeError(f"{function.__qualname__} must take two arguments, the request and the context") from None
    return inspect.iscoroutinefunction(function)
