"""Turns at something scarce, shared fairly: those of one key are served in order, and the keys one after the other."""

import asyncio
from collections import OrderedDict, deque


class Turns:
    """At most *most* turns at a time. However many wait for one key, another key waits for one of them at most."""

    def __init__(self, most: int) -> None:
        self._free = most
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    async def take(self, key: str) -> None:
        """Wait for a turn; give it back by `give_back`. Whoever is cancelled meanwhile has none."""
        if self._free > 0:
            self._free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give_back()
            raise

    def give_back(self) -> None:
        """Pass a turn on to whoever is next."""
        while self._waiting:
            key, queue = self._waiting.popitem(last=False)
            while queue and (turn := queue.popleft()).done():
                pass  # whoever waited for it gave up
            if queue:
                self._waiting[key] = queue
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
