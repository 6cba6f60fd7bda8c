"""What is in hand when the database turns out to have been put back."""

from store.history import Place
from store.looks import Looks
from tests.driver.stories import EMBED, TOKENIZE
from tests.driver.world import World

_FAR_AHEAD = Place(1, 1 << 60)


async def test_calls_in_flight_are_cut_at_once_and_their_runs_begin_again_as_the_rows_say(world: World) -> None:
    async with world.worker(lease_seconds=300) as worker:
        history = worker.database.history
        history.on_changed(worker.driver.history_changed)
        with world.server.holding(EMBED) as hold:
            job_id = await world.run()
            await hold.arrived()
            [call] = world.calls_of(job_id, EMBED)
            history.see(_FAR_AHEAD)
            await Looks(worker.database).look()
            assert await call.was_cut()
            assert call.cut.is_set()
            await hold.arrived()
            assert history.changes == 1
        row = await world.until_status(job_id, "COMPLETED")

        assert [checkpoint["fence"] for checkpoint in row["checkpoints"]] == [1, 2]
        assert (row["fence"], row["attempt"], row["lost_leases"]) == (2, 0, 0)
        assert [len(world.calls_of(job_id, method)) for method in (TOKENIZE, EMBED)] == [1, 2]
        assert await world.log(job_id) == ["ACCEPTED", "STEP_CHECKPOINT tokenize", "STEP_CHECKPOINT embed", "COMPLETED"]
        assert worker.count("leases_lost_total") == 1
