"""Plans are compiled once per definition, and a name is asked again after a second."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from schemas.errors import JobCorrupt
from store.database import Database
from store.definitions import Definitions
from streams.evaluator.evaluators import InProcessEvaluator
from streams.evaluator.protoc import ProtocChild
from streams.verbs import plans as plans_module
from streams.verbs.plans import Plans
from streams.verbs.workflows import stored_definition
from streams.workflow.compiler import Compiled, compile_definition, load_plan
from streams.workflow.evaluation import Evaluator
from streams.workflow.plan import Plan
from tests.driver.stories import embed_only, embed_text


@pytest.fixture
async def definitions(database_url: str) -> AsyncIterator[Definitions]:
    database = Database(database_url)
    await database.open()
    yield Definitions(database)
    await database.close()


async def compiled(document: dict[str, object]) -> Compiled:
    return await compile_definition(document, protoc=ProtocChild(), evaluator=InProcessEvaluator())


async def test_runs_that_are_claimed_together_compile_their_plan_once(
    definitions: Definitions, monkeypatch: pytest.MonkeyPatch
) -> None:
    definition = stored_definition(await compiled(embed_text()), "embed-text")
    await definitions.put(definition)
    loads = 0

    async def counted(document: object, descriptor_set: bytes, *, evaluator: Evaluator) -> Plan:
        nonlocal loads
        loads += 1
        return await load_plan(document, descriptor_set, evaluator=evaluator)

    monkeypatch.setattr(plans_module, "load_plan", counted)
    plans = Plans(definitions, InProcessEvaluator())

    found = await asyncio.gather(*(plans.by_hash(definition.definition_hash) for _ in range(20)))
    assert {id(plan) for plan in found} == {id(await plans.by_hash(definition.definition_hash))}
    assert loads == 1


async def test_one_caller_that_gives_up_does_not_take_the_plan_from_the_others(definitions: Definitions) -> None:
    definition = stored_definition(await compiled(embed_text()), "embed-text")
    await definitions.put(definition)
    plans = Plans(definitions, InProcessEvaluator())
    gives_up, waits = (asyncio.create_task(plans.by_hash(definition.definition_hash)) for _ in range(2))
    await asyncio.sleep(0)
    gives_up.cancel()
    assert (await waits).name == "embed-text"
    with pytest.raises(asyncio.CancelledError):
        await gives_up


async def test_a_definition_that_is_not_there_is_corrupt_each_time_until_it_is(definitions: Definitions) -> None:
    definition = stored_definition(await compiled(embed_text()), "embed-text")
    plans = Plans(definitions, InProcessEvaluator())
    for _ in range(2):
        with pytest.raises(JobCorrupt):
            await plans.by_hash(definition.definition_hash)
    await definitions.put(definition)
    assert (await plans.by_hash(definition.definition_hash)).name == "embed-text"


async def test_a_name_stands_for_its_newest_version_as_soon_as_it_is_forgotten(definitions: Definitions) -> None:
    plans = Plans(definitions, InProcessEvaluator())
    assert await plans.by_name("default", "embed") is None
    for document in (embed_text(), embed_only()):
        definition = stored_definition(await compiled(document), "embed")
        await definitions.put_workflow(definition, tenant_id="default", name="embed", created_by="test")
        plans.forget_name("default", "embed")
        named = await plans.by_name("default", "embed")
        assert named is not None
        assert named.workflow.definition_hash == definition.definition_hash
    assert await plans.by_name("other", "embed") is None
