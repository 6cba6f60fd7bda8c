"""A rolling upgrade: what a newer release wrote is left to its workers, and fails nowhere."""

from dataclasses import replace
from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from schemas.requests import Request
from store.definitions import Definitions
from store.leases import Leases
from store.records import StoredDefinition, Submission
from store.submit import Submits
from streams.evaluator.evaluators import InProcessEvaluator
from streams.verbs.plans import NewerDefinition, Plans
from streams.verbs.submit import Origin, Submitter
from streams.workflow.plan import ENGINE_LEVEL
from tests.driver.stories import embed_text
from tests.driver.world import World

_NEWER = ENGINE_LEVEL + 1


async def newer_definition(world: World) -> StoredDefinition:
    """What a newer release stored: its document has a key that this one would refuse."""
    compiled = await world.compiler(embed_text())
    document = {**compiled.document, "fromTheFuture": True, "runDeadlineMs": 3_600_000}
    definition = StoredDefinition(b"\7" * 32, "embed-text", document, compiled.descriptor_set, _NEWER)
    await Definitions(world.database).put_workflow(
        definition, tenant_id="default", name="embed-text", created_by="a newer release"
    )
    return definition


async def prepared(world: World) -> Submission:
    request = Request(uuid4(), "embed-text", '{"text": "a"}')
    return await Submitter(Plans(Definitions(world.database), InProcessEvaluator()), max_attempts=3).prepare(
        request, Origin("default")
    )


async def submitted(world: World, submission: Submission) -> UUID:
    return (await Submits(world.database, on_committed=lambda payloads: None).submit(submission)).job_id


async def test_a_request_for_a_newer_workflow_is_queued_for_newer_workers(world: World) -> None:
    definition = await newer_definition(world)
    newer = await submitted(world, await prepared(world))
    async with world.worker():
        ours = await world.run()
        await world.until_status(ours, "COMPLETED")
        row = await world.row(newer)
    assert (row["status"], row["fence"], row["error"], row["engine_level"]) == ("QUEUED", 0, None, _NEWER)
    assert row["deadline_at"] - row["created_at"] == timedelta(hours=1), "what of it can be read counts"
    assert await world.log(newer) == ["ACCEPTED"]

    leases = Leases(world.database, owner="newer:1", lease_seconds=30, engine_level=_NEWER)
    [held] = await leases.claim({str(row["next_target"]): 1})
    assert (held.job_id, held.claim.definition_hash) == (newer, definition.definition_hash)


async def test_a_run_that_a_newer_release_parked_waits_for_its_answer_there(world: World) -> None:
    definition = await newer_definition(world)
    with pytest.raises(NewerDefinition, match=f"needs engine level {_NEWER}") as refused:
        await Plans(Definitions(world.database), InProcessEvaluator()).by_hash(definition.definition_hash)
    assert (refused.value.retryable, refused.value.http_status) == (True, 503)


async def test_only_the_level_decides_and_not_what_the_definition_says(world: World) -> None:
    """Of our own level, the same unknown key is a fault of the definition."""
    definition = await newer_definition(world)
    ours = replace(definition, definition_hash=b"\6" * 32, engine_level=ENGINE_LEVEL)
    await Definitions(world.database).put_workflow(ours, tenant_id="default", name="embed-text", created_by="test")
    submission = await prepared(world)
    assert submission.error is not None
    assert "fromTheFuture" in submission.error
