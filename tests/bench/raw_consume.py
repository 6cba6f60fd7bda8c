"""The raw limit of Faust: an agent that counts, in a process of its own, with intake's settings and nothing of ours.

`python -m tests.bench.raw_consume BOOTSTRAP TOPIC GROUP COUNT SESSION_SECONDS FOLDER` writes `ready` once it may read,
and the time at which it had *COUNT* records.
"""

import asyncio
import sys
import time
from typing import Any, Final

import faust
import uvloop

_POLL_RECORDS: Final = 500
_NEVER_SECONDS: Final = 86_400.0


async def count(bootstrap: str, topic: str, group: str, records: int, session_seconds: float, folder: str) -> None:
    """Count *records* records, say when they were there, and go on until the process is ended."""
    app = faust.App(
        group,
        broker=f"kafka://{bootstrap}",
        datadir=folder,
        store="memory://",
        web_enabled=False,
        topic_allow_declare=False,
        topic_disable_leader=True,
        stream_wait_empty=False,
        stream_buffer_maxsize=4 * _POLL_RECORDS,
        broker_max_poll_records=_POLL_RECORDS,
        broker_session_timeout=session_seconds,
        broker_heartbeat_interval=session_seconds / 5,
        broker_commit_interval=_NEVER_SECONDS,
        consumer_auto_offset_reset="earliest",
    )
    source = app.topic(
        topic, key_type=bytes, value_type=bytes, key_serializer="raw", value_serializer="raw", acks=False
    )

    @app.agent(source, concurrency=1)
    async def counter(stream: Any) -> None:
        seen = 0
        async for _ in stream.events():
            seen += 1
            if seen == records:
                print(time.time(), flush=True)

    await app.start()
    while app.rebalancing or not app.tables.actives_ready or not app.consumer.assignment():  # noqa: ASYNC110  # no event tells
        await asyncio.sleep(0.05)
    print("ready", flush=True)
    await app.wait_until_stopped()


if __name__ == "__main__":
    bootstrap, topic, group, records, session_seconds, folder = sys.argv[1:]
    uvloop.run(count(bootstrap, topic, group, int(records), float(session_seconds), folder))
