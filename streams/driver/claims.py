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
SUSPECT_LOST_LEASES: Final = 2


class Claims:
    """Looks for due runs when it is told of some, when room came free, and each second at the latest.

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

    @property
    def failing(self) -> bool:
        """Whether the last look had no answer from the store."""
        return self._failures > 0

    def room(self) -> None:
        """A run has ended, or a permit came back: look again, if the last look left anything for want of room."""
        if self._wants_room:
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
            async with asyncio.timeout(POLL_SECONDS * random.uniform(0.7, 1.0)):
                await self._wake.wait()
        except TimeoutError:
            pass
        self._wake.clear()

    async def _look(self) -> bool:
        """Claim what there is room for; return whether to look again at once."""
        self._wake.clear()
        room = self._in_flight - len(self._held)
        if room <= 0:
            self._wants_room = True
            return False
        due = [target for target in await self._leases.targets() if self._serves(target)]
        if not due or self._stopped:
            self._wants_room = False
            return False
        shares = share(min(room, MOST_PER_CLAIM), {target: self._permits.free(target) for target in due})
        taken = await self._claim(shares)
        if self._suspects_are_due():
            await self._claim(dict.fromkeys(due, 1), suspects=True)
        left = [target for target in due if taken[target] == shares[target]]
        self._wants_room = bool(left)
        # Due runs may all be another's, or for newer workers: without a catch the next look can wait.
        room_left = len(self._held) < self._in_flight and any(self._permits.free(target) > 0 for target in left)
        return room_left and bool(taken)

    def _suspects_are_due(self) -> bool:
        now = time.monotonic()
        if now < self._next_suspect_look or len(self._held) >= self._in_flight:
            return False
        self._next_suspect_look = now + POLL_SECONDS
        return all(holding.run.claim.lost_leases < SUSPECT_LOST_LEASES for holding in self._held)

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
