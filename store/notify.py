"""Wake-ups between processes: NOTIFY after a commit, LISTEN in every process that waits for work.

Nothing rests on them. Whoever waits also looks by itself from time to time, so that a lost wake-up costs that time and
no more. Payloads: `ready` (a run was queued: it is due now, or later), `relay` (there is something to publish),
`resend` (what failed to be published is to be tried at once), `positions` (an operator changed where intake reads),
`cancelled:<job id>`.
"""

import asyncio
import logging
import random
from collections import defaultdict
from collections.abc import Callable, Collection
from typing import Final
from uuid import UUID

import psycopg

from schemas.errors import StoreUnavailable, WorkerError
from store.database import Connection, Database, connection_info, open_connection, run_statement, translated

READY: Final = "ready"
RELAY: Final = "relay"
RESEND: Final = "resend"
POSITIONS: Final = "positions"
CONNECTION: Final = "connection"
"""Never sent: whoever subscribes to it is woken when the connection to Postgres is lost, and when it is there again."""
_CANCELLED: Final = "cancelled:"

OnCommitted = Callable[[Collection[str]], None]
"""Told what a commit made possible, as payloads. Returns at once and never raises."""

_PING_SECONDS: Final = 30.0
_ANSWER_SECONDS: Final = 5.0
_FIRST_DELAY_SECONDS: Final = 0.1
_LONGEST_DELAY_SECONDS: Final = 5.0
_PAUSE_SECONDS: Final = 0.02

_log = logging.getLogger(__name__)


def cancelled(job_id: UUID) -> str:
    """Return the payload that stops the holder of a run."""
    return f"{_CANCELLED}{job_id}"


class Listener:
    """Hands wake-ups to those who wait in this process, from here and from elsewhere.

    `connected` is False while wake-ups from elsewhere are missed. Behind a transaction pooler nothing would ever
    arrive: give it a URL that goes to Postgres itself.
    """

    def __init__(self, url: str, *, application_name: str = "workflow-runs listen") -> None:
        """Connect to nothing yet.

        Raises:
            SettingsInvalid: *url* is no connection URL.
        """
        self._conninfo = connection_info(url, application_name, _ANSWER_SECONDS)
        self._events: defaultdict[str, list[asyncio.Event]] = defaultdict(list)
        self._on_cancelled: list[Callable[[UUID], None]] = []
        self.connected = False

    def subscribe(self, kind: str) -> asyncio.Event:
        """Return an event of the caller's own that is set by each wake-up of *kind*; the caller clears it."""
        event = asyncio.Event()
        self._events[kind].append(event)
        return event

    def on_cancelled(self, callback: Callable[[UUID], None]) -> None:
        """Have *callback* called with the id of each run that is cancelled anywhere. It must not raise or block."""
        self._on_cancelled.append(callback)

    def wake(self, payload: str) -> None:
        """Hand a wake-up to this process. A payload that nobody here knows is passed over."""
        if payload.startswith(_CANCELLED):
            self._cancel(payload.removeprefix(_CANCELLED))
        for event in self._events.get(payload, ()):
            event.set()

    async def run(self) -> None:
        """Listen until cancelled. A lost connection is opened again for ever; each time every event is set once."""
        delay = _FIRST_DELAY_SECONDS
        while True:
            try:
                connection = await open_connection(self._conninfo)
                async with connection:
                    await run_statement(connection, "notify/listen", {}, _ANSWER_SECONDS)
                    delay = _FIRST_DELAY_SECONDS
                    self._begin()
                    await self._receive(connection)
            except StoreUnavailable as error:
                _log.warning("no wake-ups from other processes: %s", error)
            finally:
                self._end()
            await asyncio.sleep(delay * random.uniform(0.8, 1.2))
            delay = min(delay * 2, _LONGEST_DELAY_SECONDS)

    def _begin(self) -> None:
        self.connected = True
        self._wake_all()  # whatever was missed meanwhile

    def _end(self) -> None:
        if self.connected:
            self.connected = False
            self._wake_all()  # whoever waits for wake-ups alone looks by itself from now on

    def _wake_all(self) -> None:
        for events in self._events.values():
            for event in events:
                event.set()

    async def _receive(self, connection: Connection) -> None:
        while True:
            with translated():
                async for notification in connection.notifies(timeout=_PING_SECONDS):
                    self.wake(notification.payload)
            await run_statement(connection, "database/ping", {}, _ANSWER_SECONDS)  # a half-open one raises here

    def _cancel(self, text: str) -> None:
        try:
            job_id = UUID(text)
        except ValueError:
            _log.debug("passed over a wake-up that names no run: %r", text)
            return
        for callback in self._on_cancelled:
            callback(job_id)


class Notifier:
    """Sends wake-ups after commits: to this process at once, to the others in one statement for all that gather.

    Pass `notify` wherever an `on_committed` is asked for.
    """

    def __init__(self, database: Database, listener: Listener | None = None) -> None:
        self._database = database
        self._listener = listener
        self._gathered: set[str] = set()
        self._sending: asyncio.Task[None] | None = None

    def notify(self, payloads: Collection[str]) -> None:
        """Wake whoever waits for *payloads*, here and elsewhere. Returns at once; a failure only costs the wake-up."""
        if self._listener is not None:
            for payload in payloads:
                self._listener.wake(payload)
        self._gathered.update(payloads)
        if self._gathered and self._sending is None:
            self._sending = asyncio.get_running_loop().create_task(self._send())

    async def close(self) -> None:
        """Wait until everything is sent, or failed."""
        if self._sending is not None:
            await self._sending

    async def _send(self) -> None:
        """Send until nothing gathers any more; the pause bounds how often a busy process sends."""
        try:
            while self._gathered:
                payloads, self._gathered = sorted(self._gathered), set()
                try:
                    await self._database.rows("notify/send", {"payloads": payloads})
                except (WorkerError, psycopg.Error) as error:
                    _log.debug("a wake-up was not sent: %s", error)
                await asyncio.sleep(_PAUSE_SECONDS)
        finally:
            self._sending = None
