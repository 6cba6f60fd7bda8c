"""`workflow-runs` as an operator calls it: in a process of its own."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.acceptance.processes import environment

_SECONDS = 60.0


async def relay_command(database_url: str, *arguments: str) -> Any:
    """What `workflow-runs relay` prints with these arguments, as JSON; it must succeed."""
    settings = {"database_url": database_url, "worker_id": "operator"}
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "streams.cli", "relay", *arguments, "--json"],
        env=environment(settings),
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=True,
    )
    return json.loads(done.stdout)
