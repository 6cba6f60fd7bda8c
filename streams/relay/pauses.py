"""Topics that cannot be published to for the moment: each is left alone a little longer each time."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

FIRST_SECONDS: Final = 0.5
LONGEST_SECONDS: Final = 5.0
REMEMBERED_SECONDS: Final = 2 * LONGEST_SECONDS
"""How long after its pause a topic counts as troubled, while nothing shows that it is well."""


@dataclass(slots=True)
class _Pause:
    until: float
    seconds: float
    reason: str
    noticed: bool = False


class Pauses:
    """Which topics are paused, why and until when. An outage is nobody's fault and counts against no record."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._pauses: dict[str, _Pause] = {}

    def pause(self, topic: str, reason: str) -> bool:
        """Leave *topic* alone, twice as long as the time before; say whether that is news.

        A pause that has begun is not made longer: what fails meanwhile had been sent before.
        """
        now = self._clock()
        last = self._troubled(topic)
        if last is not None and last.until > now:
            return False
        seconds = FIRST_SECONDS if last is None else min(2 * last.seconds, LONGEST_SECONDS)
        self._pauses[topic] = _Pause(now + seconds, seconds, reason)
        return last is None

    def until(self, topic: str) -> float | None:
        """Until when *topic* is paused; None when it is not."""
        pause = self._pauses.get(topic)
        return pause.until if pause is not None and pause.until > self._clock() else None

    def well(self, topic: str) -> None:
        """Something was published to *topic*: the next pause is a short one again."""
        self._pauses.pop(topic, None)

    def take_ended(self) -> bool:
        """Whether a pause ended since the last call."""
        now = self._clock()
        ended = [pause for pause in self._pauses.values() if pause.until <= now and not pause.noticed]
        for pause in ended:
            pause.noticed = True
        return bool(ended)

    def next_end(self) -> float | None:
        """When the next pause ends that `take_ended` has not told of; None when there is none."""
        return min((pause.until for pause in self._pauses.values() if not pause.noticed), default=None)

    def __str__(self) -> str:
        """The troubled topics and why, in one line."""
        return "; ".join(
            f"{topic}: {pause.reason}" for topic, pause in sorted(self._pauses.items()) if self._troubled(topic)
        )

    def _troubled(self, topic: str) -> _Pause | None:
        pause = self._pauses.get(topic)
        return pause if pause is not None and self._clock() < pause.until + REMEMBERED_SECONDS else None
