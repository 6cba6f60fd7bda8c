"""Stops intake while more is queued than the workers get through: Kafka keeps it better than the tables do."""

import logging
from collections.abc import Mapping
from typing import Final

from streams.metrics import Metrics

_log = logging.getLogger(__name__)

_GO_ON_SHARE: Final = 0.9


class Backpressure:
    """Says whether intake may read, by how many due runs were counted last.

    It holds from `most_queued` on, and goes on below nine tenths of it. The partitions stand still meanwhile; nothing
    is lost and membership of the group is kept. What was fetched or being fetched when it began is still stored.
    """

    def __init__(self, most_queued: int, metrics: Metrics) -> None:
        self.most_queued = most_queued
        self.reason: str | None = None
        """Why intake must not read now, and what the queued runs wait for; None while it may."""
        self._metrics = metrics

    def holds_at(self, queued: int) -> bool:
        """Whether intake stands still once *queued* due runs are counted."""
        return queued >= self.most_queued * (_GO_ON_SHARE if self.reason else 1)

    def counted(self, queued: int, waiting: Mapping[str, int]) -> None:
        """Take a new count. *waiting* has the targets that most runs wait for, with their numbers."""
        was_held = self.reason is not None
        self.reason = _reason(queued, waiting) if self.holds_at(queued) else None
        self._metrics.intake_held_back.set(self.reason is not None)
        if self.reason is not None and not was_held:
            _log.warning("intake stands still: %s", self.reason)
        elif self.reason is None and was_held:
            _log.info("intake goes on: %d due runs are queued", queued)


def _reason(queued: int, waiting: Mapping[str, int]) -> str:
    told = ", ".join(f"{count} for {target}" for target, count in waiting.items())
    return f"{queued} or more due runs are queued{': ' if told else ''}{told}"
