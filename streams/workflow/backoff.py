"""How long to wait before the next try."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

_JITTER: Final = 0.1
# Enough to reach any cap from any base; beyond about a thousand a float overflows.
_MOST_DOUBLINGS: Final = 64


@dataclass(frozen=True, slots=True)
class Backoff:
    """`base_seconds`, doubled after each failed try, never over `cap_seconds`."""

    base_seconds: float
    cap_seconds: float
    spread: Callable[[], float] = random.random

    def delay_seconds(self, failures: int) -> float:
        """Seconds to wait after *failures* failed tries, at least 1.

        `base * 2 ** (failures - 1)` plus up to 10 %, so that runs that failed together do not come back together. The
        cap includes that addition, and any number of failures is fine.
        """
        doubled = self.base_seconds * 2.0 ** min(failures - 1, _MOST_DOUBLINGS)
        floor = min(doubled, self.cap_seconds / (1 + _JITTER))
        return min(floor * (1 + _JITTER * self.spread()), self.cap_seconds)
