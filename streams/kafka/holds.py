"""Partitions that stand still while the others of their assignment go on."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Final

log = logging.getLogger(__name__)

_SECONDS_BETWEEN_LOOKS: Final = 1.0

_Partition = tuple[str, int]  # topic and number

Heals = Callable[[], Awaitable[bool]]
"""Says whether a hold is over; asked again while it says no."""


@dataclass(slots=True)
class _Hold:
    offset: int
    told: str
    heals: Heals


class Holds:
    """Each hold says why, with the way out, and knows how to find out that it is over. It ends with the assignment."""

    def __init__(self) -> None:
        self._holds: dict[_Partition, _Hold] = {}
        self._any = asyncio.Event()

    def __contains__(self, partition: _Partition) -> bool:
        return partition in self._holds

    def __len__(self) -> int:
        return len(self._holds)

    @property
    def told(self) -> Collection[str]:
        """Why each of the partitions stands still."""
        return [hold.told for hold in self._holds.values()]

    def stop(self, partition: _Partition, offset: int) -> bool:
        """Whether *partition* stands still at *offset*, or before it."""
        return partition in self._holds and offset >= self._holds[partition].offset

    def add(self, partition: _Partition, offset: int, told: str, heals: Heals) -> None:
        """Let *partition* stand still at *offset*, because of what is *told*, until *heals* says that it need not."""
        log.error("one partition stands still: %s", told)
        self._holds[partition] = _Hold(offset, told, heals)
        self._any.set()

    async def until_healed(self) -> str:
        """Ask each hold every second whether it is over, and return which one is as soon as one is."""
        await self._any.wait()
        while True:
            await asyncio.sleep(_SECONDS_BETWEEN_LOOKS)
            for (topic, number), hold in list(self._holds.items()):
                if await hold.heals():
                    return f"{topic}[{number}] need not stand still any more"
