"""What `publish` and `ask` steps send to topics of others, as it is kept beside the step's own event."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One record on its way out: `value` is the serialized message of type `type`, without the frame of its schema.

    `headers` have names and texts in their order; each name stands once.
    """

    step_index: int
    topic: str
    type: str
    key: bytes
    value: bytes
    headers: Sequence[tuple[str, str]]

    def row(self) -> dict[str, object]:
        """The record as an element of the statement's JSON array."""
        return {
            "step_index": self.step_index,
            "topic": self.topic,
            "type": self.type,
            "key": base64.b64encode(self.key).decode(),
            "value": base64.b64encode(self.value).decode(),
            "headers": list(self.headers),
        }


@dataclass(frozen=True, slots=True)
class QueuedRecord:
    """One record of a step to publish: its place in the queue, the record, and what stands beside it.

    `seq` is that of the event of the same commit, which follows it, and `occurred_at` its time. `value` is None where
    it is large: ask for it when its turn has come. `skip_reason` is set when an operator gave it up,
    and `wait_seconds` is that of `QueuedEvent`.
    """

    shard: int
    id: int
    job_id: UUID
    seq: int
    occurred_at: datetime
    definition_hash: bytes
    topic: str
    type: str
    key: bytes
    value: bytes | None
    headers: Sequence[tuple[str, str]]
    attempts: int
    wait_seconds: float | None
    skip_reason: str | None = None
