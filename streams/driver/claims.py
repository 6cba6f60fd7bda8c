"""The claim loop: takes as many due runs as this process has room for, and not one more."""

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from schemas.errors import StoreUnavailable
from store.leases import Leases
from store.notify import READY, Listener
from store.records import HeldRun
from streams.driver.held import Held, Holding
from streams.driver.patience import PAUSE
from streams.driver.permits import Permit, Permits

log = logging.getLogger(__name__)

POLL_SECONDS: Final = 1.0
MOST_PER_CLAIM: Final = 50
_AFTER_SECONDS: Final = 0.005  # looked just before it is due, a run would be left
SUSPECT_LOST_LEASES: Final = 2


class Claims:
    """Looks for due runs when it is told of some, when room came free, and when the next one is due.

    It looks each second while anything is due that it did not take, and while nobody would tell it. What is due and was
    told to nobody, since a process died between commit and wake-up, is found by housekeeping, which wakes it.

    A claim asks only for targets that this process serves, and reserves the permit of each run's first call before it
    is made, so that nothing claimed has to wait. Runs whose last two claims ran out are taken one at a time.
    """

    def __init__(
        self,
        *,
        leases: Leases,
        listener: Listener,
        held: Held,
        permits: Permits,
        serves: Callable[[str], bool],
        in_flight: int,
        start: Callable[[Holding], None],
    ) -> None:
        self._leases = leases
        self._listener = listener
        self._held = held
        self._permits = permits
        self._serves = serves
        self._in_flight = in_flight
        self._start = start
        self._wake = listener.subscribe(READY)
        self._stopped = False
        self._wants_room = True
        self._next_suspect_look = 0.0
        self._failures = 0
        self._unheld_runs = False
        self._left_due = False
        self._next_due = float("inf")

    @property
    def failing(self) -> bool:
        """Whether the last look had no answer from the store."""
        return self._failures > 0

    def room(self) -> None:
        """A run has ended, or a permit came back: look again, if the last look left anything for want of room."""
        if self._wants_room:
            self._wake.set()

    def wake(self) -> None:
        """Something may be due: look."""
        self._wake.set()

    def wake_after(self, seconds: float) -> None:
        """A run was put off for so long: look when it is due, and not only at the next poll after that."""
        asyncio.get_running_loop().call_later(seconds, self._wake.set)

    def history_changed(self) -> None:
        """The database may say that this process holds runs that it does not: hand those back before the next claim."""
        self._unheld_runs = True
        self._wake.set()

    def stop(self) -> None:
        """Claim nothing more. A claim under way still counts, and its runs are handed over."""
        self._stopped = True
        self._wake.set()

    async def run(self) -> None:
        """Claim until stopped or cancelled. A store that is away is asked again, at growing intervals."""
        while not self._stopped:
            try:
                if self._failures or self._unheld_runs:
                    # A claim whose answer was lost may have taken runs that nobody here works on.
                    self._unheld_runs = False
                    await self._leases.release_unheld(self._held.runs())
                more = await self._look()
            except StoreUnavailable as error:
                self._failures += 1
                if self._failures == 1:
                    log.warning("no runs are claimed: %s", error)
                await asyncio.sleep(PAUSE.delay_seconds(self._failures))
                continue
            self._failures = 0
            if not more:
                await self._wait()

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(self._pause_seconds()):
                await self._wake.wait()
        except TimeoutError:
            pass
        self._wake.clear()

    def _pause_seconds(self) -> float | None:
        """How long to wait for a wake-up; None is until it comes."""
        if self._left_due or not self._listener.connected:
            return POLL_SECONDS * random.uniform(0.7, 1.0)
        until_due = self._next_due - time.monotonic()
        return None if until_due == float("inf") else max(until_due, 0.0) + _AFTER_SECONDS

    async def _look(self) -> bool:
        """Claim what there is room for; return whether to look again at once."""
        self._wake.clear()
        self._left_due, self._next_due = False, float("inf")
        room = self._in_flight - len(self._held)
        if room <= 0:
            self._wants_room = True
            return False
        due = await self._due()
        if not due or self._stopped:
            self._wants_room = False
            return False
        shares = share(min(room, MOST_PER_CLAIM), {target: self._permits.free(target) for target in due})
        taken = await self._claim(shares)
        if self._suspects_are_due():
            await self._claim_suspect(due)
        left = [target for target in due if taken[target] == shares[target]]
        self._wants_room = bool(left) or self._holds_suspect()
        # Due runs may all be another's, or for newer workers: without a catch the next look can wait.
        room_left = len(self._held) < self._in_flight and any(self._permits.free(target) > 0 for target in left)
        return room_left and bool(taken)

    async def _due(self) -> list[str]:
        """The targets, of those that are served here, which have a due run; notes when the others will have one."""
        asked_at = time.monotonic()
        targets = await self._leases.targets()
        # A target that is not served now may be so in a second: its file can change.
        self._left_due = any(due_in <= 0 for due_in in targets.values())
        coming = [due_in for target, due_in in targets.items() if due_in > 0 and self._serves(target)]
        self._next_due = asked_at + min(coming, default=float("inf"))
        return [target for target, due_in in targets.items() if due_in <= 0 and self._serves(target)]

    def _suspects_are_due(self) -> bool:
        if time.monotonic() < self._next_suspect_look or len(self._held) >= self._in_flight:
            return False
        return not self._holds_suspect()

    def _holds_suspect(self) -> bool:
        return any(holding.run.claim.lost_leases >= SUSPECT_LOST_LEASES for holding in self._held)

    async def _claim_suspect(self, due: Sequence[str]) -> None:
        """Claim one run of *due* whose last two claims ran out. Where there is none, the next look is a second away."""
        self._next_suspect_look = time.monotonic() + POLL_SECONDS
        if await self._claim(dict.fromkeys(due, 1), suspects=True):
            self._next_suspect_look = 0.0

    async def _claim(self, most: Mapping[str, int], *, suspects: bool = False) -> Counter[str]:
        """Claim up to *most* runs per target with a permit for each, and start them; return how many were taken."""
        reserved = {target: self._permits.reserve(target, number) for target, number in most.items()}
        free = {target: len(permits) for target, permits in reserved.items() if permits}
        try:
            with self._held.claiming():
                runs = await self._leases.claim(free, suspects=suspects) if free else []
                self._take(runs, reserved)
        finally:
            for permit in (permit for permits in reserved.values() for permit in permits):
                permit.return_unused()
        return Counter(run.claim.target for run in runs)

    def _take(self, runs: Sequence[HeldRun], reserved: Mapping[str, list[Permit]]) -> None:
        for run in runs:
            permits = reserved.get(run.claim.target)
            holding = Holding(run, permits.pop() if permits else None)
            self._held.add(holding)
            self._start(holding)


def share(room: int, free: Mapping[str, int]) -> Counter[str]:
    """Divide *room* over targets as evenly as that goes, at most as many as are *free* of each.

    Which targets get the odd ones is left to chance, so that none is always the last.
    """
    order = random.sample(list(free), len(free))
    shares: Counter[str] = Counter()
    while room > 0 and (open_ones := [target for target in order if shares[target] < free[target]]):
        for target in open_ones[:room]:
            shares[target] += 1
            room -= 1
    return shares
