"""What a relay has in hand when the database turns out to have been put back."""

from tests.relay.bench import RelayBench, Running, first_arrivals, id_of


async def test_what_was_acknowledged_before_is_not_marked_in_the_database_that_came_back(bench: RelayBench) -> None:
    """Its places in the queue may stand for other events by now, which nobody has published."""
    jobs = await bench.runs(5)
    relays: list[Running] = []
    dropped: list[str] = []

    async def put_back(point: str) -> None:
        if point == "relay.before_mark" and not dropped:
            dropped.append(point)
            relays[0].relay.history_changed()

    async with bench.relay(commit_point=put_back) as running:
        relays.append(running)
        await bench.until_published()
    records = await bench.published(2 * len(jobs))
    assert len(records) > len(jobs)
    assert len(first_arrivals(records)) == len(jobs)
    assert {id_of(record): record.value for record in records} == {
        id_of(record): record.value for record in first_arrivals(records)
    }
