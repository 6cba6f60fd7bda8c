"""`workflow-runs` as an operator calls it: in a process of its own."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.acceptance.fleet import Fleet
from tests.acceptance.processes import environment

_SECONDS = 60.0


async def relay_command(database_url: str, *arguments: str) -> Any:
    """What `workflow-runs relay` prints with these arguments, as JSON; it must succeed."""
    return await _printed({"database_url": database_url}, "relay", *arguments)


async def intake_command(fleet: Fleet, *arguments: str) -> Any:
    """What `workflow-runs intake` prints with these arguments on the topic and group of *fleet*; it must succeed."""
    return await _printed(fleet.settings("operator"), "intake", *arguments)


async def _printed(settings: Mapping[str, str], *arguments: str) -> Any:
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "streams.cli", *arguments, "--json"],
        env=environment({**settings, "worker_id": "operator"}),
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=True,
    )
    return json.loads(done.stdout)
