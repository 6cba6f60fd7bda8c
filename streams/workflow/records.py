"""What a step sends to a topic."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ComposedRecord:
    """A message on its way to a topic. `key` None stands for the job's id.

    `value` is the serialized message of type `type`, the same bytes on every try from the same checkpoints.
    """

    topic: str
    key: bytes | None
    type: str
    value: bytes
