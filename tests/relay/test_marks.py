"""Where reads of the queue begin: past what is done, and never past what is not visible yet."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from store.records import QueuedEvent
from streams.relay.marks import ASK_SECONDS, FULL_READ_SECONDS, Marks
from streams.relay.window import Window
from tests.relay.rows import event, job

NOBODY = frozenset[str]()


def _read(marks: Marks, *ids: int, now: float = 1.0, limit: int = 100) -> dict[int, int]:
    """Where a read of shard 0 begins that finds these rows."""
    low = dict(marks.begin("event", now))
    marks.end("event", [0], [event(id) for id in ids], limit)
    return low


def _settled_up_to(id: int) -> Marks:
    """Marks after a read up to *id*, at which nobody was writing."""
    marks = Marks()
    _read(marks, id)
    marks.note_writers(NOBODY, 2.0)
    marks.note_writers(NOBODY, 3.0)
    _read(marks, id)
    return marks


def test_the_first_reads_begin_at_the_beginning() -> None:
    marks = Marks()

    assert _read(marks, 3, 9) == _read(marks, 3, 9) == {}


def test_a_read_begins_behind_what_all_could_see_before() -> None:
    assert _read(_settled_up_to(9)) == {0: 10}


def test_no_read_passes_ids_that_somebody_may_still_hold() -> None:
    marks = Marks()
    _read(marks, 3, 9)
    marks.note_writers(frozenset({"slow", "quick"}), 2.0)
    marks.note_writers(frozenset({"slow"}), 3.0)
    _read(marks, 9)
    assert _read(marks, 9) == {}

    marks.note_writers(frozenset({"another"}), 4.0)
    _read(marks, 5, 9)  # the row of the slow one is among those that this one finds
    assert _read(marks) == {0: 10}


def test_a_read_that_ran_into_its_limit_moves_the_mark_to_its_last_row_only() -> None:
    marks = _settled_up_to(9)
    marks.lower("event", 0, 2)

    assert _read(marks, 2, 4, limit=2) == {0: 2}
    assert _read(marks) == {0: 5}


def test_what_was_left_out_is_found_again() -> None:
    marks = _settled_up_to(9)
    marks.lower("event", 0, 4)
    marks.lower("event", 0, 7)
    marks.lower("letter", 0, 1)

    assert _read(marks, 4) == {0: 4}
    assert _read(marks) == {0: 10}


def test_shards_that_were_lost_are_read_from_the_beginning() -> None:
    marks = _settled_up_to(9)
    marks.begin("event", 4.0)
    marks.forget([0])  # while the read is under way
    marks.end("event", [0], [event(12)], 100)

    assert _read(marks) == {}
    marks.note_writers(NOBODY, 5.0)
    _read(marks)
    assert _read(marks) == {}


def test_everything_is_read_now_and_then() -> None:
    marks = _settled_up_to(9)

    assert _read(marks, now=1.0 + FULL_READ_SECONDS) == {}
    assert _read(marks, now=2.0 + FULL_READ_SECONDS) == {0: 10}


def test_events_and_letters_have_marks_of_their_own_and_what_is_pending_stands_above_both() -> None:
    marks = _settled_up_to(9)
    assert marks.lowest(4.0) == {}  # no letters were read yet
    marks.begin("letter", 4.0)
    marks.end("letter", [0], [], 4)
    assert marks.lowest(4.0) == {0: 10}

    marks.lower("letter", 0, 3)
    assert marks.lowest(4.0) == {0: 3}
    assert _read(marks) == {0: 10}
    assert marks.lowest(1.0 + FULL_READ_SECONDS) == {}


def test_who_writes_is_asked_while_something_new_is_read_and_not_often() -> None:
    marks = Marks()
    assert not marks.must_ask(1.0)
    _read(marks, 9)
    assert marks.must_ask(1.0)
    marks.note_writers(NOBODY, 1.0)
    assert not marks.must_ask(1.0 + ASK_SECONDS / 2)
    assert marks.must_ask(1.0 + ASK_SECONDS)
    marks.note_writers(NOBODY, 1.0 + ASK_SECONDS)
    assert not marks.must_ask(100.0)


@dataclass
class _Store:
    """A queue as transactions fill it: ids are given out at once, rows are visible after the commit."""

    visible: list[QueuedEvent] = field(default_factory=list)
    open: dict[int, QueuedEvent] = field(default_factory=dict)
    written: int = 0
    seqs: dict[int, int] = field(default_factory=dict)

    def write(self, name: int) -> None:
        """Begin a transaction that gives a job its next event, unless one of the job's is open: that holds its lock."""
        if name not in self.open:
            self.written += 1
            self.seqs[name] = self.seqs.get(name, 0) + 1
            self.open[name] = event(self.written, job_id=job(name), seq=self.seqs[name])

    def commit(self, name: int) -> None:
        if name in self.open:
            self.visible.append(self.open.pop(name))
            self.visible.sort(key=lambda row: row.id)

    def writers(self) -> frozenset[str]:
        return frozenset(str(row.id) for row in self.open.values())


@dataclass
class _Relay:
    """What the relay does with window and marks."""

    store: _Store
    window: Window = field(default_factory=Window)
    marks: Marks = field(default_factory=Marks)
    on_its_way: list[QueuedEvent] = field(default_factory=list)
    acknowledged: list[QueuedEvent] = field(default_factory=list)
    arrived: list[QueuedEvent] = field(default_factory=list)

    def read(self, limit: int) -> None:
        for (kind, shard), id in self.window.take_unread().items():
            self.marks.lower(kind, shard, id)
        self.marks.note_writers(self.store.writers(), 0.0)
        skipped, _ = self.window.skips()
        # The clock stands still: no read of everything makes up for what the marks pass over.
        low = self.marks.begin("event", 0.0).get(0, 0)
        rows = [row for row in self.store.visible if row.id >= low and row.job_id not in skipped][:limit]
        self.marks.end("event", [0], rows, limit)
        for row in rows:
            self.window.add(row)

    def settle(self, row: QueuedEvent, taken: bool, until: float) -> None:
        if not taken:
            assert self.window.put_back(row, until=until)
            return
        assert self.window.acknowledged(row)
        self.arrived.append(row)
        self.acknowledged.append(row)

    def delete(self) -> None:
        self.store.visible = [row for row in self.store.visible if row not in self.acknowledged]
        self.window.deleted(self.acknowledged)
        self.acknowledged = []

    def send(self) -> None:
        while (row := self.window.next()) is not None:
            assert isinstance(row, QueuedEvent)
            self.on_its_way.append(row)


_ACTIONS = ["write", "commit", "read", "ack", "refuse", "delete"]


@settings(max_examples=300)
@given(st.lists(st.tuples(st.sampled_from(_ACTIONS), st.integers(0, 3)), min_size=40, max_size=120))
def test_marks_neither_lose_an_event_nor_bring_two_of_a_job_out_of_order(steps: Sequence[tuple[str, int]]) -> None:
    """Transactions that end late, reads with a limit and refusals, in any order."""
    store = _Store()
    relay = _Relay(store)
    in_the_end: list[tuple[str, int]] = [("commit", name) for name in range(4)]
    in_the_end += [("read", 3), *[("ack", 0)] * 8, ("delete", 0)] * (len(steps) + 1)
    for now, (action, number) in enumerate([*steps, *in_the_end]):
        relay.window.wake_aside(now)
        match action:
            case "write":
                store.write(number)
            case "commit":
                store.commit(number)
            case "read":
                relay.read(number + 1)
            case "delete":
                relay.delete()
            case _ if relay.on_its_way:
                row = relay.on_its_way.pop(number % len(relay.on_its_way))
                relay.settle(row, action == "ack", now + number)
        relay.send()

    assert len(relay.arrived) == store.written
    for name, seqs in store.seqs.items():
        assert [row.seq for row in relay.arrived if row.job_id == job(name)] == list(range(1, seqs + 1))
