"""For consumers of the events topic: read an event, and see each one once.

Events come at least once: after a crash of a relay some come again, byte for byte the same. A consumer that keeps what
it did in memory loops like this:

    seen = Deduplicator(capacity=100_000)
    while (message := consumer.poll()) is not None:
        event = read_event(message.value())
        if event.event_id not in seen:
            handle(event)
            seen.add(event.event_id)
        consumer.commit(message)

The id is added after the event was handled, so that a handler that fails meets the event again. The memory ends with
the process: a consumer whose effects outlive it stores `event_id` in the transaction of the effect, under a unique
key, and lets the second insert do nothing. Within a run, `seq` tells the order: 1, 2, 3 without a gap.
"""

from collections import OrderedDict

from google.protobuf.message import DecodeError

from schemas.errors import ContractError
from schemas.framing import unframe
from schemas.messages import INDEXES, WorkflowRunEvent


def read_event(value: bytes | None) -> WorkflowRunEvent:
    """Read the value of a record of the events topic.

    No registry is asked: fields are only ever added, so any version of the contract can be read. A `type` that this
    version does not know is kept as its number: pass such an event by.

    Raises:
        ContractError: code `null-value`, `not-framed`, `bad-magic`, `bad-index` or `bad-protobuf`. The record is not
            one of ours or was damaged: put it aside, it reads no better later.
    """
    if value is None:
        raise ContractError("the record has no value", code="null-value")
    framed = unframe(value)
    if framed.indexes != INDEXES[WorkflowRunEvent]:
        raise ContractError(f"message indexes {list(framed.indexes)} are not an event's", code="bad-index")
    try:
        return WorkflowRunEvent.FromString(framed.payload)
    except DecodeError:
        raise ContractError("the payload is not a WorkflowRunEvent", code="bad-protobuf") from None


class Deduplicator:
    """Remembers the last *capacity* event ids, forgetting the one that was neither added nor met for longest.

    One consumer's memory: it is not shared between threads or processes. An id takes about 150 bytes.
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError(f"capacity is {capacity}, at least 1 is needed")
        self._capacity = capacity
        self._ids: OrderedDict[str, None] = OrderedDict()

    def __contains__(self, event_id: str) -> bool:
        if event_id not in self._ids:
            return False
        self._ids.move_to_end(event_id)
        return True

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, event_id: str) -> None:
        """Remember *event_id*, once its event is handled."""
        self._ids[event_id] = None
        self._ids.move_to_end(event_id)
        if len(self._ids) > self._capacity:
            self._ids.popitem(last=False)
