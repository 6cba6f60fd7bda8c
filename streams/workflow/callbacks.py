"""What the engine asks of whoever drives it: to make calls, and to keep what came of them."""

from dataclasses import dataclass
from typing import Protocol

from streams.workflow.replay import StoredCheckpoint


@dataclass(frozen=True, slots=True)
class CallRequest:
    """One call to make. `target` is a name or `host:port`, `method` the full path `/package.Service/Method`.

    `payload` is the serialized request, the same bytes on every try from the same checkpoints. The call of an item has
    the name of its branch as `step`, such as `notify#3`, and the number of the item's own try as `attempt`.
    """

    step: str
    step_index: int
    target: str
    tls: bool
    method: str
    payload: bytes
    timeout_seconds: float
    response_type: str
    attempt: int | None = None


class Call(Protocol):
    """Makes one unary call within its time-out and returns the serialized response.

    Raises:
        CallFailed: any status other than OK.
        Any other WorkerError (SegmentInterrupted, say) ends the segment and passes through untouched.
    """

    async def __call__(self, request: CallRequest) -> bytes: ...


class Checkpoints(Protocol):
    """Stores one finished step. `next_target` is where the run goes on from there.

    Raises:
        Any WorkerError (StoreUnavailable, LeaseLost) ends the segment and passes through untouched.
    """

    async def __call__(self, checkpoint: StoredCheckpoint, next_target: str) -> None: ...
