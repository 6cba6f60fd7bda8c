"""Permits: how many calls of this process are in flight to one target."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field


class Permit:
    """The right to one call to `target`. Giving it back twice is the same as once."""

    __slots__ = ("_permits", "target")

    def __init__(self, target: str, permits: "Permits") -> None:
        self.target = target
        self._permits: Permits | None = permits

    def hand_over(self) -> "Permit":
        """Return the same right for whoever outlives this call. Giving back this one changes nothing then."""
        permits, self._permits = self._permits, None
        other = Permit.__new__(Permit)
        other.target, other._permits = self.target, permits
        return other

    def release(self) -> None:
        """Give it back; whoever claims is told that there is room."""
        self._give_back(used=True)

    def return_unused(self) -> None:
        """Give back what a claim had reserved for nothing: that is no news to whoever claims."""
        self._give_back(used=False)

    def _give_back(self, *, used: bool) -> None:
        permits, self._permits = self._permits, None
        if permits is not None:
            permits.take_back(self.target, used=used)


_Turn = asyncio.Future[None]


@dataclass(slots=True)
class _Line:
    """Permits given out for one target, and who waits for one, the longest first.

    Those in `modest` come last, and leave the last permit to others.
    """

    given: int = 0
    waiting: deque[_Turn] = field(default_factory=deque)
    modest: deque[_Turn] = field(default_factory=deque)


class Permits:
    """The permits of one process. *limit_of* is asked each time, so a limit may change at any moment.

    *on_release* is told whenever a used permit came back that nobody was waiting for.
    """

    def __init__(self, limit_of: Callable[[str], int], *, on_release: Callable[[], None] = lambda: None) -> None:
        self._limit_of = limit_of
        self._on_release = on_release
        self._lines: dict[str, _Line] = {}

    def free(self, target: str) -> int:
        """How many permits a claim may reserve for *target* now: what runs in hand wait for is theirs.

        But for those that wait modestly: they leave the last permit to claims.
        """
        line = self._lines.get(target)
        taken = line.given + len(line.waiting) if line is not None else 0
        return max(0, self._limit_of(target) - taken)

    def reserve(self, target: str, most: int) -> list[Permit]:
        """Take up to *most* of the free permits of *target*, at once; possibly none."""
        return [self._give(target) for _ in range(min(most, self.free(target)))]

    async def take(self, target: str, *, wait_seconds: float, modest: bool = False) -> Permit | None:
        """Take one permit, waiting in line for up to *wait_seconds*; None when it did not become free.

        *modest*: for one of many calls of a run. It takes no permit that another run waits for, and, where a target has
        more than one, not the last that is free.
        """
        if self.free(target) > (self._left_to_others(target) if modest else 0):
            return self._give(target)
        turn: _Turn = asyncio.get_running_loop().create_future()
        line = self._lines.setdefault(target, _Line())
        queue = line.modest if modest else line.waiting
        queue.append(turn)
        try:
            async with asyncio.timeout(wait_seconds):
                await turn
        except TimeoutError:
            pass
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.take_back(target, used=True)
            raise
        finally:
            if turn in queue:
                queue.remove(turn)
            self._forget_if_idle(target)
        return Permit(target, self) if turn.done() and not turn.cancelled() else None

    def _give(self, target: str) -> Permit:
        self._lines.setdefault(target, _Line()).given += 1
        return Permit(target, self)

    def _left_to_others(self, target: str) -> int:
        return 1 if self._limit_of(target) > 1 else 0

    def take_back(self, target: str, *, used: bool) -> None:
        """Pass a permit that came back to whoever waits longest. For `Permit` alone, which does it once."""
        line = self._lines[target]
        line.given -= 1
        limit = self._limit_of(target)
        if _pass_on(line, line.waiting, limit) or _pass_on(line, line.modest, limit - self._left_to_others(target)):
            return
        self._forget_if_idle(target)
        if used:
            self._on_release()

    def _forget_if_idle(self, target: str) -> None:
        line = self._lines.get(target)
        if line is not None and line.given == 0 and not line.waiting and not line.modest:
            del self._lines[target]


def _pass_on(line: _Line, queue: deque[_Turn], limit: int) -> bool:
    """Give a permit to the first that still waits in *queue*, if there are fewer than *limit* out."""
    while queue and line.given < limit:
        turn = queue.popleft()
        if not turn.done():
            line.given += 1
            turn.set_result(None)
            return True
    return False
