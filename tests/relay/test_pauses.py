"""A topic in trouble is left alone a little longer each time, and is soon itself again."""

from streams.relay.pauses import Pauses


class _Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_pauses_grow_while_the_trouble_lasts_and_begin_short_after_it() -> None:
    clock = _Clock()
    pauses = Pauses(clock)
    lengths = []
    for _ in range(6):
        pauses.pause("events", "away")
        until = pauses.until("events")
        assert until is not None
        lengths.append(until - clock.now)
        clock.now = until

    assert lengths == [0.5, 1.0, 2.0, 4.0, 5.0, 5.0]
    pauses.well("events")
    pauses.pause("events", "away")
    assert pauses.until("events") == clock.now + 0.5


def test_what_fails_during_a_pause_makes_it_no_longer() -> None:
    clock = _Clock()
    pauses = Pauses(clock)

    assert [pauses.pause("events", "away") for _ in range(3)] == [True, False, False]
    assert pauses.until("events") == 100.5


def test_topics_are_paused_apart() -> None:
    pauses = Pauses(_Clock())
    pauses.pause("letters", "no rights")

    assert pauses.until("events") is None
    assert str(pauses) == "letters: no rights"


def test_the_end_of_a_pause_is_told_once() -> None:
    clock = _Clock()
    pauses = Pauses(clock)
    pauses.pause("events", "away")

    assert not pauses.take_ended()
    assert pauses.next_end() == 100.5
    clock.now = 100.5
    assert pauses.take_ended()
    assert not pauses.take_ended()
    assert pauses.next_end() is None
    assert pauses.until("events") is None


def test_trouble_that_nothing_confirms_is_forgotten() -> None:
    clock = _Clock()
    pauses = Pauses(clock)
    pauses.pause("events", "away")
    clock.now += 10.4
    assert str(pauses)
    clock.now += 0.1

    assert str(pauses) == ""
    assert pauses.pause("events", "away")
