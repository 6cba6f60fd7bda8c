"""What may be sent next: of each key one record at a time, in order, whatever becomes of each."""

from hypothesis import given
from hypothesis import strategies as st

from store.records import QueuedEvent
from streams.relay.window import Row, Window, key_of
from tests.relay.rows import event, job, letter


def _window(*rows: Row) -> Window:
    window = Window()
    for row in rows:
        window.add(row)
    return window


def _sendable(window: Window) -> list[Row]:
    found = []
    while (row := window.next()) is not None:
        found.append(row)
    return found


def test_of_one_job_the_next_event_goes_after_the_acknowledgement_of_the_one_before() -> None:
    first, second, third = (event(number, seq=number) for number in (1, 2, 3))
    window = _window(first, second, third)

    assert _sendable(window) == [first]
    assert window.acknowledged(first)
    assert _sendable(window) == [second]
    assert window.acknowledged(second)
    assert _sendable(window) == [third]


def test_jobs_and_letters_do_not_wait_for_each_other() -> None:
    rows: list[Row] = [event(1, job_id=job(1)), event(2, job_id=job(2)), letter(3), letter(4)]

    assert _sendable(_window(*rows)) == rows


def test_a_refused_event_takes_the_later_ones_of_its_job_out_of_hand() -> None:
    first, second, other = event(1), event(2), event(3, job_id=job(1))
    window = _window(first, second, other)
    _sendable(window)

    assert window.put_back(first, until=10.0)

    assert _sendable(window) == []
    assert set(window.skips()[0]) == {first.job_id, job(1)}
    assert window.next_wake() == 10.0
    window.wake_aside(9.9)
    assert not window.take_unread()
    window.wake_aside(10.0)
    assert window.take_unread()
    assert window.skips()[0] == [job(1)]


def test_a_job_is_left_out_of_reads_until_its_rows_have_left_the_queue() -> None:
    row = event(1)
    window = _window(row)
    _sendable(window)
    window.acknowledged(row)

    assert window.skips() == ([row.job_id], [])
    assert not window.take_unread()
    window.deleted([row])
    assert window.skips() == ([], [])
    assert window.take_unread()
    assert window.rows == 0


def test_nothing_is_read_again_for_a_job_that_no_read_left_out() -> None:
    row = event(1)
    window = _window(row)
    _sendable(window)
    window.acknowledged(row)
    window.deleted([row])

    assert not window.take_unread()


def test_rows_behind_one_that_waits_for_its_next_try_are_passed_over() -> None:
    window = Window()
    window.leave(event(1), until=10.0)
    window.add(event(1))
    window.add(event(2))

    assert _sendable(window) == []
    assert window.rows == 0


def test_what_was_lost_is_not_taken_for_what_came_back() -> None:
    before, again = event(1), event(1)
    window = _window(before)
    _sendable(window)
    assert window.forget({0})
    window.add(again)
    _sendable(window)

    assert not window.acknowledged(before)
    assert not window.put_back(before)
    assert window.acknowledged(again)


def test_only_the_lost_shards_are_forgotten() -> None:
    lost, kept = event(1, shard=3), event(2, shard=4, job_id=job(1))
    window = _window(lost, kept)

    assert window.holds({3})
    assert not window.forget({3})  # none of it was on its way
    assert not window.holds({3})
    assert window.holds({4})
    assert _sendable(window) == [kept]


def test_letters_are_counted_apart() -> None:
    window = _window(event(1), letter(2), letter(3))

    assert (window.rows, window.letters) == (3, 2)
    assert [len(keys) for keys in window.skips()] == [1, 2]


@given(
    jobs=st.lists(st.integers(0, 3), min_size=1, max_size=30),
    choices=st.lists(st.tuples(st.integers(0, 7), st.sampled_from(["ack", "refuse", "delete", "read"])), max_size=80),
)
def test_first_arrivals_are_in_order_whatever_happens(jobs: list[int], choices: list[tuple[int, str]]) -> None:
    """A queue, a broker that refuses at random, reads and deletions at random: the log of each job stays in order."""
    queue = [event(number, job_id=job(name), seq=number) for number, name in enumerate(jobs, 1)]
    window, on_its_way, acknowledged, arrived = Window(), list[QueuedEvent](), list[QueuedEvent](), list[QueuedEvent]()
    in_the_end = [(0, "read"), *[(0, "ack")] * 30, (0, "delete")] * 2 * len(queue)
    for now, (index, action) in enumerate([*choices, *in_the_end]):
        window.wake_aside(now)
        if action == "read":
            skipped, _ = window.skips()
            for row in queue[: 5 + len(skipped)]:
                if row.job_id not in skipped:
                    window.add(row)
        elif action == "delete":
            window.deleted(acknowledged)
            queue = [row for row in queue if row not in acknowledged]
            acknowledged = []
        elif on_its_way:
            row = on_its_way.pop(index % len(on_its_way))
            if action == "ack":
                assert window.acknowledged(row)
                arrived.append(row)
                acknowledged.append(row)
            else:
                assert window.put_back(row, until=now + index)
        while (row_to_send := window.next()) is not None:
            assert isinstance(row_to_send, QueuedEvent)
            assert key_of(row_to_send) not in {key_of(sent) for sent in on_its_way}
            on_its_way.append(row_to_send)

    for name in set(jobs):
        seqs = [row.seq for row in arrived if row.job_id == job(name)]
        assert seqs == sorted(set(seqs))
    assert len(arrived) == len(jobs)
