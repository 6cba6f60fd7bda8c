"""Topics that cannot be published to for the moment: each is left alone a little longer each time."""

import time
from collections.abc import Callable
from typing import Final

FIRST_SECONDS: Final = 0.5
LONGEST_SECONDS: Final = 5.0


class Pauses:
    """Which topics are paused, why and until when. An outage is nobody's fault and counts against no record."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}
        self._seconds: dict[str, float] = {}
        self._reasons: dict[str, str] = {}

    def pause(self, topic: str, reason: str) -> bool:
        """Leave *topic* alone, twice as long as the time before; say whether this is news: it was well till now."""
        if self.until(topic) is not None:
            return False
        is_news = topic not in self._reasons
        seconds = self._seconds.get(topic, FIRST_SECONDS)
        self._until[topic] = self._clock() + seconds
        self._seconds[topic] = min(2 * seconds, LONGEST_SECONDS)
        self._reasons[topic] = reason
        return is_news

    def until(self, topic: str) -> float | None:
        """Until when *topic* is paused; None when it is not."""
        until = self._until.get(topic, 0.0)
        return until if until > self._clock() else None

    def well(self, topic: str) -> None:
        """Something was published to *topic*: the next pause is a short one again."""
        for state in (self._until, self._seconds, self._reasons):
            state.pop(topic, None)

    def take_ended(self) -> bool:
        """Whether a pause ended since the last call."""
        now = self._clock()
        ended = [topic for topic, until in self._until.items() if until <= now]
        for topic in ended:
            del self._until[topic]
        return bool(ended)

    def next_end(self) -> float | None:
        """When the next pause ends; None when there is none."""
        return min(self._until.values(), default=None)

    def __str__(self) -> str:
        return "; ".join(f"{topic}: {reason}" for topic, reason in sorted(self._reasons.items()))
