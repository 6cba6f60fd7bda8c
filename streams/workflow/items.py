"""The items of a step that fans out: one call each, kept one by one, so that none that is done runs again."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from schemas.errors import StepFailed


class ItemStatus(StrEnum):
    """Where an item stands once it has been tried. QUEUED: it is tried again; the others are final."""

    QUEUED = "QUEUED"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True)
class TriedItem:
    """One item after a try.

    `failed_tries` counts those so far. `input_hash` is the SHA-256 of its request, in hexadecimal digits. `response` is
    plain JSON of a COMPLETED item, `error` the text of the last failure; `input` is what a FAILED item was called with,
    as plain JSON where it has any.
    """

    index: int
    status: ItemStatus
    failed_tries: int
    input_hash: str
    response: object | None = None
    error: str | None = None
    input: object | None = None


class Items(Protocol):
    """Keeps the items of one run, and says how often one may be tried."""

    @property
    def keeps(self) -> bool:
        """Whether what is kept is there in a later segment: a step may then go on where its budget ended."""

    async def tried(self, step: str) -> Sequence[TriedItem]:
        """What earlier segments kept of a step's items.

        Raises:
            Any WorkerError (StoreUnavailable, say) ends the segment and passes through untouched.
        """

    async def keep(self, step: str, item: TriedItem, *, of: int) -> None:
        """Keep one item of so many; nothing else of the segment waits meanwhile but its branch.

        Raises:
            Any WorkerError (StoreUnavailable, LeaseLost) ends the segment and passes through untouched.
        """

    def may_try_again(self, step: str, error: StepFailed, failed_tries: int) -> bool:
        """Whether an item that failed with *error*, the last of so many failed tries, is tried again later."""


class UnkeptItems:
    """`Items` of a run that nothing outlives: no item is tried twice."""

    keeps = False

    async def tried(self, step: str) -> Sequence[TriedItem]:
        return ()

    async def keep(self, step: str, item: TriedItem, *, of: int) -> None:
        """Nothing to do: the segment itself has it."""

    def may_try_again(self, step: str, error: StepFailed, failed_tries: int) -> bool:
        return False


NOTHING_KEPT: Final = UnkeptItems()
