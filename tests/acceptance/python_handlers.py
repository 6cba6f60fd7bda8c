"""Handlers that real workers serve in acceptance tests.

A request's text is JSON: what to do, and a folder in which each call leaves a line in `calls` or waits for a file `go`.
"""

import asyncio
import faulthandler
import json
import os
import time
from pathlib import Path
from typing import Any

from streams.handlers import Context, handler, job
from tests.handlers.steps import Reply


def _noted(text: str, context: Context, what: str) -> dict[str, Any]:
    asked: dict[str, Any] = json.loads(text)
    with (Path(asked["folder"]) / "calls").open("a") as file:
        file.write(f"{what} {context.job_id} {context.attempt}\n")
    return asked


@handler("steps.v1.Steps/Sync")
def in_a_thread(request: Any, context: Context) -> Any:
    asked = _noted(request.text, context, "begun")
    match asked["does"]:
        case "sleep":
            while not (Path(asked["folder"]) / "go").exists():
                time.sleep(1)  # the scenario itself: a step that blocks
        case "spin":
            while not (Path(asked["folder"]) / "go").exists():
                for _ in range(1_000_000):  # in Python itself, which lets go of its lock now and then
                    pass
        case "wait":
            while not (Path(asked["folder"]) / "go").exists():
                time.sleep(0.02)
        case "exit":
            os._exit(137)
        case "overflow":
            faulthandler._stack_overflow()  # type: ignore[attr-defined]
    _noted(request.text, context, "ended")
    return Reply(text="done")


@handler("steps.v1.Steps/Async")
async def in_the_loop(request: Any, context: Context) -> Any:
    asked = _noted(request.text, context, "begun")
    try:
        while not (Path(asked["folder"]) / "go").exists():  # noqa: ASYNC110  # another process makes it
            await asyncio.sleep(0.02)
    except asyncio.CancelledError:
        _noted(request.text, context, "cancelled")
        raise
    _noted(request.text, context, "ended")
    return Reply(text="done")


@handler("steps.v1.Steps/Write", transactional=True)
def writing(request: Any, context: Context) -> Any:
    context.connection.execute("insert into public.written (job_id) values (%s)", (context.job_id,))
    return Reply(text="written")


@job("reindex")
def reindex(data: dict[str, object], context: Context) -> object:
    context.progress(3, 3)
    return {"pages": data["pages"]}
