"""The life of a run as one table: where each move starts, where it leads, what it announces and who may make it.

The statements below `store/sql` repeat each arrow as a guard in their WHERE, because Postgres has the last word; a test
tries every move from every status and compares.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from schemas.events import ANNOUNCES, EventType, Status


class Move(StrEnum):
    """What can happen to a run. The values are the names in `schemas.events.ANNOUNCES`."""

    SUBMIT = "submit"
    REFUSE = "refuse"
    CLAIM = "claim"
    RENEW = "renew"
    ITEM = "item"
    CHECKPOINT = "checkpoint"
    PARK = "park"
    RETRY = "retry"
    RELEASE = "release"
    COMPLETE = "complete"
    FAIL = "fail"
    GIVE_UP = "give_up"
    EXPIRE = "expire"
    ANSWER = "answer"
    REJECT_ANSWER = "reject_answer"
    WAKE = "wake"
    REMIND = "remind"
    OVERDUE = "overdue"
    CANCEL = "cancel"


class Mover(StrEnum):
    """Who may make a move. A holder proves itself: every write of its names the claim's fence and owner."""

    ANYONE = "anyone"
    WORKER = "worker"
    HOLDER = "holder"
    HOUSEKEEPING = "housekeeping"


@dataclass(frozen=True, slots=True)
class Arrow:
    """One move. `sources` is empty where the run comes into being; `leads_to` says what is announced on arrival."""

    sources: frozenset[Status]
    leads_to: Mapping[Status, EventType | None]
    by: Mover


def _arrow(move: Move, sources: set[Status], target: Status, by: Mover) -> tuple[Move, Arrow]:
    return move, Arrow(frozenset(sources), MappingProxyType({target: ANNOUNCES[move]}), by)


_NEW: Final[set[Status]] = set()
_QUEUED: Final = {Status.QUEUED}
_RUNNING: Final = {Status.RUNNING}
_WAITING: Final = {Status.WAITING}

MOVES: Final[Mapping[Move, Arrow]] = MappingProxyType(
    dict(
        (
            _arrow(Move.SUBMIT, _NEW, Status.QUEUED, Mover.ANYONE),
            _arrow(Move.REFUSE, _NEW, Status.FAILED, Mover.ANYONE),
            _arrow(Move.CLAIM, _QUEUED, Status.RUNNING, Mover.WORKER),
            _arrow(Move.RENEW, _RUNNING, Status.RUNNING, Mover.HOLDER),
            _arrow(Move.ITEM, _RUNNING, Status.RUNNING, Mover.HOLDER),
            _arrow(Move.CHECKPOINT, _RUNNING, Status.RUNNING, Mover.HOLDER),
            _arrow(Move.PARK, _RUNNING, Status.WAITING, Mover.HOLDER),
            _arrow(Move.RETRY, _RUNNING, Status.QUEUED, Mover.HOLDER),
            _arrow(Move.RELEASE, _RUNNING, Status.QUEUED, Mover.HOLDER),
            _arrow(Move.COMPLETE, _RUNNING, Status.COMPLETED, Mover.HOLDER),
            _arrow(Move.FAIL, _RUNNING, Status.FAILED, Mover.HOLDER),
            _arrow(Move.GIVE_UP, _RUNNING, Status.DEAD, Mover.HOLDER),
            (
                Move.EXPIRE,
                Arrow(
                    frozenset(_RUNNING),
                    MappingProxyType({Status.QUEUED: ANNOUNCES["expire"], Status.DEAD: ANNOUNCES["expire_at_ceiling"]}),
                    Mover.HOUSEKEEPING,
                ),
            ),
            _arrow(Move.ANSWER, _WAITING, Status.QUEUED, Mover.ANYONE),
            _arrow(Move.REJECT_ANSWER, _WAITING, Status.FAILED, Mover.ANYONE),
            _arrow(Move.WAKE, _WAITING, Status.QUEUED, Mover.HOUSEKEEPING),
            _arrow(Move.REMIND, _WAITING, Status.WAITING, Mover.HOUSEKEEPING),
            _arrow(Move.OVERDUE, _QUEUED | _WAITING, Status.FAILED, Mover.HOUSEKEEPING),
            _arrow(Move.CANCEL, _QUEUED | _RUNNING | _WAITING, Status.CANCELLED, Mover.ANYONE),
        )
    )
)
"""Every move the store can make."""

TERMINAL: Final = frozenset(Status) - frozenset().union(*(arrow.sources for arrow in MOVES.values()))
"""Where no move starts: the run is settled, and stays as it is."""
