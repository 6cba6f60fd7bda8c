"""Records that no run can be made of stand in nobody's way, and none is lost."""

import asyncio
from uuid import uuid4

import pytest

from schemas.registered import schema_text
from streams.kafka.registry import SchemaRegistry
from tests.acceptance.fleet import EMBED_TEXT_LOG, WORKFLOW, Fleet
from tests.acceptance.producer import Request
from tests.agents.hostile import hostile_values
from tests.kafka.reading import Read, read

pytestmark = pytest.mark.embedded


async def known_id(fleet: Fleet) -> int:
    """The id of our own schema text at the registry."""
    client = SchemaRegistry(fleet.registry.url)
    try:
        return await client.id_of(fleet.topics.requests.subject or "", schema_text())
    finally:
        await client.close()


def header(letter: Read, name: str) -> str:
    """What a dead letter says about why it is one."""
    return (dict(letter.headers)[f"__connect.errors.{name}"] or b"").decode()


@pytest.mark.case("D02")
@pytest.mark.spec(98, 99)
async def test_d02_poison_ends_as_dead_letters_and_the_good_requests_between_run(fleet: Fleet) -> None:
    [worker] = await fleet.started("worker-a", held_seconds=1)
    poison = [
        (key, value, code) for value, code in hostile_values(await known_id(fleet)).values() for key in (None, b"a key")
    ]
    good = [Request(uuid4(), WORKFLOW, {"text": f"text {number}"}) for number in range(len(poison) + 1)]
    unknown = Request(uuid4(), "no-such", {})
    fleet.producer.put(good[0], partition=0)
    for (key, value, _), request in zip(poison, good[1:], strict=True):
        fleet.producer.put_value(value, key, partition=0)
        fleet.producer.put(request, partition=0)
    fleet.producer.put(unknown, partition=1)
    await asyncio.to_thread(fleet.producer.flush)

    jobs = [request.job_id for request in good]
    await fleet.until_stored([*jobs, unknown.job_id], seconds=5)
    await fleet.until_all(jobs, "COMPLETED")
    await fleet.until_told(jobs, EMBED_TEXT_LOG)
    await fleet.until_all([unknown.job_id], "FAILED")
    [failed] = await fleet.until_told([unknown.job_id], ["FAILED"])
    assert "no-such" in (failed.event.error or "")
    assert failed.event.status == "FAILED"
    assert await fleet.one("select count(*) from run") == len(good) + 1
    await fleet.until_read_up()

    source = fleet.topics.requests.name
    letters = await asyncio.to_thread(
        read, fleet.kafka.bootstrap, fleet.topics.dead_letters_of(source).name, len(poison)
    )
    by_offset = {header(letter, "offset"): letter for letter in letters}
    assert len(letters) == len(poison)
    for number, (key, value, code) in enumerate(poison):
        letter = by_offset[str(2 * number + 1)]
        assert (letter.key, letter.value) == (key, value)
        assert header(letter, "exception.class.name") == code
        assert header(letter, "exception.message")
        assert (header(letter, "topic"), header(letter, "partition")) == (source, "0")
    assert await worker.count("dead_letters_total") == len(poison)
    assert await worker.count("requests_total") == len(good) + 1 + len(poison)
