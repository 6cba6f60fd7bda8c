"""What a store would keep of one run, and what the run announces."""

from collections import Counter
from uuid import UUID

from schemas.errors import InputInvalid
from schemas.events import ANNOUNCES
from streams.testing.run import Published
from streams.workflow.items import TriedItem
from streams.workflow.plan import Plan
from streams.workflow.records import ComposedRecord
from streams.workflow.replay import StoredCheckpoint


class Kept:
    """Checkpoints, items, events and records of one run, with what its steps were called with."""

    def __init__(self, plan: Plan, job_id: UUID) -> None:
        self.checkpoints: list[StoredCheckpoint] = []
        self.items: dict[str, dict[int, TriedItem]] = {}
        self.events: list[str] = []
        self.published: list[Published] = []
        self.asked: dict[str, list[object]] = {}
        self.calls: Counter[str] = Counter()
        self._plan = plan
        self._job_id = job_id

    def announce(self, move: str, step: str | None = None) -> None:
        """Tell what a move of a run tells, if anything."""
        event = ANNOUNCES[move]
        if event is not None:
            self.events.append(f"{event.name} {step}" if step else event.name)

    def keep(self, checkpoint: StoredCheckpoint) -> None:
        """Keep a finished step as a replay will see it: without what was sent or told with it."""
        place, name = checkpoint.step_index, checkpoint.step
        self.checkpoints.append(StoredCheckpoint(place, name, checkpoint.skipped, checkpoint.response))

    def publish(self, step: str, record: ComposedRecord) -> None:
        """Keep what a step sends."""
        value = self.shown(record.type, record.value)
        key = str(self._job_id) if record.key is None else record.key.decode()
        self.published.append(Published(step, record.topic, key, record.type, value))

    def shown(self, full_name: str, data: bytes) -> object:
        """A message as plain JSON; None where it has no such form, which keeps no worker from sending it."""
        try:
            return self._plan.render(self._plan.schema_set.from_wire(full_name, data))
        except InputInvalid:
            return None

    def ask(self, step: str, request: object) -> None:
        """Note what a step was called with, or what was asked."""
        self.asked.setdefault(step, []).append(request)
