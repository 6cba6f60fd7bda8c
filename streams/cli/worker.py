"""`workflow-runs worker`."""

import gc
import logging
import os
import sys
from collections.abc import Awaitable
from typing import NoReturn

import click
import uvloop

from streams.logs import set_up_logging
from streams.settings import load_settings, quiet_grpc


@click.command()
@click.option(
    "--handlers",
    multiple=True,
    metavar="MODULE",
    help="Serve the handlers in Python of this module; may be repeated. Else those of HANDLERS. Found from here, too.",
)
def worker(handlers: tuple[str, ...]) -> None:
    """Run a worker: intake, runs, relay and web, or the ROLES of the settings.

    SIGTERM drains: calls in flight get DRAIN_GRACE_SECONDS, then the runs are released for other workers. A second
    SIGTERM ends the grace. The process exits 75 when it gave up and wants to be started again.
    """
    settings = load_settings(**({"handlers": handlers} if handlers else {}))
    settings.require_for_roles()
    set_up_logging(settings.log_format, settings.log_level)
    quiet_grpc()
    if os.getcwd() not in sys.path:
        # As with `python -m`: modules of handlers stand beside where the worker is started, as a rule.
        sys.path.insert(0, os.getcwd())
    from streams.worker import run_worker

    # What is imported stays to the end: the collector, which stops everything while it looks, may leave it out.
    gc.collect()
    gc.freeze()
    uvloop.run(_run(run_worker(settings)))


async def _run(worker: Awaitable[int]) -> NoReturn:
    code = await worker
    logging.shutdown()
    # Hard, and before the loop is closed: a task or a client's thread may still wait for a server that never answers.
    # Everything that matters is done.
    os._exit(code)
