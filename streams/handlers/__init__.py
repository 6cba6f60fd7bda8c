"""Handlers in Python: functions that serve steps in the worker's own process, and job types.

    declarations  the decorators, and what a module declares
    registry      what the modules named in HANDLERS serve, checked at start
    context       what a handler is told, outcomes: what it may raise
    calls         one call: by which runner, for how long, and what came of it
    threads, loop_thread, children: the runners; frames and child: the process of a handler that asks for one
    values        messages and JSON on their way in and out

What people import stands here, and needs neither Kafka nor Postgres.
"""

from streams.handlers.context import Context
from streams.handlers.declarations import handler, job
from streams.handlers.outcomes import Reject, Retry

__all__ = ["Context", "Reject", "Retry", "handler", "job"]
