"""Functions in Python as replies: handlers as workers call them, or any function that takes a request and a context."""

import asyncio
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from streams.handlers.context import Context
from streams.handlers.declarations import Declaration, RunsIn, declared_in
from streams.handlers.running import awaited, called
from streams.handlers.values import Given, Served, served
from streams.workflow.callbacks import CallRequest
from streams.workflow.descriptors import SchemaSet
from streams.workflow.names import JOB_METHOD, handler_target


@dataclass(frozen=True, slots=True)
class Handlers:
    """On behalf of which run functions are called, and over which schema."""

    job_id: UUID
    schemas: SchemaSet
    connection: object = None

    async def call(self, function: Callable[[Any, Any], Any], request: CallRequest, *, attempt: int) -> bytes:
        """The serialized response that *function* makes. A sync one runs in a thread, as in a worker.

        Raises:
            StepFailed: it raised, or what it returned is no response; as in a worker.
            TypeError: the annotation of its request is no message class.
        """
        method = self.schemas.method(request.method.removeprefix("/"))
        given = Given(request.payload, method.input_type.full_name, request.response_type, lambda: self.schemas)
        context = Context(
            job_id=self.job_id,
            tenant_id="default",
            step=request.step,
            attempt=attempt,
            deadline=datetime.now(UTC) + timedelta(seconds=request.timeout_seconds),
            transaction=self.connection,
        )
        serving = _serving(function, request.method.removeprefix("/"), request.target)
        if serving.declaration.is_async:
            return await awaited(serving, given, context)
        return await asyncio.to_thread(called, serving, given, context)


def job_type_of(function: Callable[[Any, Any], Any]) -> str:
    """The name that `@job` gave to *function*; that of the function itself where it was not decorated."""
    module = sys.modules.get(function.__module__)
    declared = declared_in(module) if module is not None else []
    names = (one.name for one in declared if one.is_job and one.function is function)
    return next(names, function.__name__)


def _serving(function: Callable[[Any, Any], Any], method: str, target: str) -> Served:
    is_job = method == JOB_METHOD
    is_async = inspect.iscoroutinefunction(function)
    declaration = Declaration(
        name=target.partition(":")[2] if is_job else method,
        target=target if is_job else handler_target(method),
        function=function,
        place=getattr(function, "__module__", ""),
        is_async=is_async,
        runs_in=RunsIn.LOOP if is_async else RunsIn.THREAD,
        transactional=False,
        timeout_seconds=None,
        permits=None,
    )
    return served(declaration) if inspect.isfunction(function) else Served(declaration, None)
