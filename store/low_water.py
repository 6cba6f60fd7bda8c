"""Where a claim may begin to look.

Claimed runs leave dead entries at the low end of the claim index, which nobody clears while some transaction stays open
elsewhere. So a claim begins at the longest due run that the last one took, a little earlier, and passes over them.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, cast

from store.database import Row

FULL_LOOK_SECONDS: Final = 10.0
"""At the latest after this time a claim looks at everything again, for what came to stand below the mark."""

_LAG: Final = timedelta(seconds=2)  # a run becomes visible later than the time it is due from
_SHORT_PAUSE_SECONDS: Final = 1.0
_SHARE: Final = 20
_BEGINNING: Final = "-infinity"


class LowWater:
    """The marks of one claimer, one per target. Call `begin` before each claim and `end` after it.

    A claim that found less than it wanted is followed by a full look within a second, or later where full looks are
    slow: they take a twentieth of the time at most.
    """

    def __init__(self) -> None:
        self._marks: dict[str, datetime] = {}
        self._full_look_at = 0.0
        self._pause = _SHORT_PAUSE_SECONDS
        self._short = False
        self._began_at = 0.0
        self._full = False

    def begin(self, targets: Iterable[str]) -> dict[str, str]:
        """Return from when on to look, as Postgres reads it, for each target."""
        self._began_at = time.monotonic()
        since = self._began_at - self._full_look_at
        self._full = since >= (self._pause if self._short else FULL_LOOK_SECONDS)
        if self._full:
            return dict.fromkeys(targets, _BEGINNING)
        return {t: self._marks[t].isoformat() if t in self._marks else _BEGINNING for t in targets}

    def end(self, wanted: Mapping[str, int], rows: Sequence[Row]) -> None:
        """Move the marks up to what was taken."""
        self._short = len(rows) < sum(wanted.values())
        if self._full:
            self._full_look_at = time.monotonic()
            took = self._full_look_at - self._began_at
            self._pause = min(max(took * _SHARE, _SHORT_PAUSE_SECONDS), FULL_LOOK_SECONDS)
            self._marks = {target: mark for target, mark in self._marks.items() if target in wanted}
        longest_due: dict[str, datetime] = {}
        for row in rows:  # longest due first
            longest_due.setdefault(cast(str, row["target"]), cast(datetime, row["run_after"]))
        for target, run_after in longest_due.items():
            mark = run_after - _LAG
            self._marks[target] = mark if self._full else max(mark, self._marks.get(target, mark))
