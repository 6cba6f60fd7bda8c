"""Whether the database is still the one this process has worked with, or an earlier state of it that was put back.

A restore or a failover to a replica that was behind takes commits away. What this process holds in memory then speaks
of rows that are gone: claims, positions, places in the relay's queue. So every new connection is asked where the
server's log stands, and the greatest place seen so far is kept. Another timeline, or a place before it, is another
history.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

log = logging.getLogger(__name__)

OnHistoryChanged = Callable[[], None]
"""Drops what is held in memory of the old history. Returns at once and never raises."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a server's log stands: the timeline and how many bytes of it are safe."""

    timeline: int
    position: int

    def __str__(self) -> str:
        """As Postgres writes it, with the timeline in front."""
        return f"timeline {self.timeline}, {self.position >> 32:X}/{self.position & 0xFFFFFFFF:X}"


def is_other_history(newest: Place | None, now: Place) -> bool:
    """Whether a server that stands at *now* cannot hold all that it held at *newest*, the greatest place seen of it."""
    return newest is not None and (now.timeline != newest.timeline or now.position < newest.position)


class History:
    """The history that one process has seen. One per `Database`."""

    def __init__(self) -> None:
        self.changes = 0
        """How often it changed: what was read or claimed under a lower number is void."""
        self._newest: Place | None = None
        self._on_changed: list[OnHistoryChanged] = []

    def on_changed(self, callback: OnHistoryChanged) -> None:
        """Have *callback* called at each change, before any connection to the changed database is used."""
        self._on_changed.append(callback)

    def see(self, place: Place) -> None:
        """Take note of where the server stands. A change is noticed here, and everybody is told before this returns."""
        before = self._newest
        if is_other_history(before, place):
            self.changes += 1
            log.error(
                "the database was put back or failed over: it stood at %s and stands at %s. What is held is dropped, "
                "requests are read again, and events of lost moves are issued anew under new ids",
                *(before, place),
            )
            self._newest = place
            for callback in self._on_changed:
                callback()
        elif before is None or place.position > before.position:
            self._newest = place
