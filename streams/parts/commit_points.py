"""Commit points: the places around each commit where a test stops the process, to show that any stop is harmless.

The product has no switch for them. What stops a process comes from an entry point that only the [dev] extra fills.
"""

from importlib.metadata import entry_points
from typing import Final

from store.database import CommitPoint, passes

GROUP: Final = "workflow_runs.commit_points"
"""Entry points of this group name a function that takes nothing and returns a `CommitPoint`, or None for none."""

_COMMITS: Final = (
    "submit",
    "intake",
    "claim",
    "item",
    "checkpoint",
    "transactional",
    "park",
    "retry",
    "release",
    "complete",
    "fail",
    "give_up",
    "answer",
    "cancel",
    "expire",
    "wake",
    "remind",
    "overdue",
)
_BETWEEN: Final = ("intake.before_offset", "relay.acknowledged", "relay.before_mark", "relay.after_mark")

COMMIT_POINTS: Final = (
    *(f"{commit}.{side}_commit" for commit in _COMMITS for side in ("before", "after")),
    *_BETWEEN,
)
"""Every commit point by name. A flush passes those of each kind of move in it."""


def find_commit_point() -> CommitPoint:
    """Return the commit point that an installed entry point names; without one, or its extra, nothing ever stops."""
    for entry in entry_points(group=GROUP):
        try:
            found: CommitPoint | None = entry.load()()
        except ModuleNotFoundError:  # the entry point is there without the extra that it belongs to
            continue
        if found is not None:
            return found
    return passes
