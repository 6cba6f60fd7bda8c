"""Compares how long the request topic keeps records with how long the store remembers their ids."""

import asyncio
import logging
from typing import Final

from schemas.errors import BrokerUnavailable, SettingsInvalid
from schemas.topics import Topic
from streams.health import ServiceHealth
from streams.kafka.topic_admin import TopicAdmin
from streams.kafka.topics import outlives_memory

log = logging.getLogger(__name__)

CALM_SECONDS: Final = 3_600.0
AWAY_SECONDS: Final = 30.0


class RetentionWatch:
    """Asks at the start, and each hour, since an operator may change a topic at any time.

    A topic that keeps more than is remembered endangers nothing by itself: what is read that late becomes a dead letter
    with the code `too-old`. It is told before that happens, in the log and in health.
    """

    def __init__(self, admin: TopicAdmin, topic: Topic, *, remember_seconds: float) -> None:
        self._admin = admin
        self._topic = topic
        self._remember_seconds = remember_seconds
        self._finding = ""

    async def run(self) -> None:
        """Watch until cancelled. A broker that is away is asked again."""
        while True:
            pause_seconds = await self.look()
            await asyncio.sleep(pause_seconds)

    async def look(self) -> float:
        """Compare once; return in how many seconds to compare again."""
        try:
            config = await self._admin.config(self._topic.name)
        except BrokerUnavailable:
            return AWAY_SECONDS  # intake tells of the outage
        except SettingsInvalid as error:
            self._tell(f"the retention of {self._topic.name} cannot be read: {error}")
            return CALM_SECONDS
        if config is None:
            return AWAY_SECONDS
        finding = outlives_memory(self._topic.name, config, self._remember_seconds)
        self._tell("" if finding is None else str(finding))
        return CALM_SECONDS

    def health(self) -> ServiceHealth:
        """Always ready: the detail is a warning, and the service degraded while there is one."""
        return ServiceHealth("retention", alive=True, ready=True, detail=self._finding, degraded=bool(self._finding))

    def _tell(self, finding: str) -> None:
        if finding and finding != self._finding:
            log.warning("%s", finding)
        self._finding = finding
