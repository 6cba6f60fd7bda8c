"""The registry is asked seldom, never for ever, and its silence is never taken for an answer."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from uuid import uuid4

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from schemas.errors import ContractError, RegistryUnavailable, SettingsInvalid, UnknownSchema
from schemas.framing import unframe
from schemas.messages import WorkflowRunRequest
from schemas.registered import SchemaText, schema_text
from schemas.topics import Topics, load_topics
from streams.dev.ports import free_port
from streams.dev.registry.server import RegistryServer
from streams.kafka import schemas as our_schemas
from streams.kafka.registry import SchemaRegistry

OURS = schema_text()
OTHERS = SchemaText(
    1, "PROTOBUF", 'syntax = "proto3"; package acme.v1; message A { message B { int32 n = 1; } } message C {}'
)


@pytest.fixture
def subject() -> str:
    return f"{uuid4().hex}-value"


@pytest.fixture
async def client(registry: RegistryServer) -> AsyncIterator[SchemaRegistry]:
    client = SchemaRegistry(registry.url, timeout_seconds=2)
    yield client
    await client.close()


@pytest.fixture
def independent(registry: RegistryServer) -> Iterator[SchemaRegistryClient]:
    """A plain client of the same registry."""
    with SchemaRegistryClient({"url": registry.url}) as client:
        yield client


@pytest.fixture
def asked(registry: RegistryServer) -> Callable[[], int]:
    """How many calls the registry received since the test began."""
    before = len(registry.requests())
    return lambda: len([call for call in registry.requests()[before:] if "/subjects" in call or "/schemas" in call])


async def test_our_own_text_is_looked_up_once_and_never_registered(
    client: SchemaRegistry, subject: str, asked: Callable[[], int]
) -> None:
    with pytest.raises(UnknownSchema, match=subject):
        await client.id_of(subject, OURS)
    registered = await client.register(subject, OURS)

    fresh = [await client.id_of(subject, OURS) for _ in range(100)]

    assert set(fresh) == {registered}
    assert asked() == 2


async def test_the_id_is_that_of_our_text_also_after_another_one_was_registered(
    client: SchemaRegistry, registry: RegistryServer, independent: SchemaRegistryClient, subject: str
) -> None:
    ours = await client.register(subject, OURS)
    later = OURS.text.replace("optional string labels = 5;", "optional string labels = 5; optional string more = 6;")
    theirs = independent.register_schema(subject, Schema(later, "PROTOBUF"))
    anew = SchemaRegistry(registry.url)

    assert await anew.id_of(subject, OURS) == ours != theirs
    await anew.close()


async def test_registering_again_changes_nothing(
    client: SchemaRegistry, registry: RegistryServer, independent: SchemaRegistryClient, subject: str
) -> None:
    first = await client.register(subject, OURS)
    anew = SchemaRegistry(registry.url)

    assert await anew.register(subject, OURS) == first
    assert independent.get_versions(subject) == [1]
    await anew.close()


async def test_a_frame_of_any_producer_names_its_message(
    client: SchemaRegistry, independent: SchemaRegistryClient
) -> None:
    # Clients send their compiled descriptor, not the text that we have.
    serializer = ProtobufSerializer(WorkflowRunRequest, independent)
    topic = uuid4().hex
    value = serializer(WorkflowRunRequest(job_id="x"), SerializationContext(topic, MessageField.VALUE))
    assert value is not None
    framed = unframe(value)

    assert await client.message_name(framed.schema_id, framed.indexes) == WorkflowRunRequest.DESCRIPTOR.full_name


async def test_messages_are_named_by_their_path(client: SchemaRegistry, subject: str, asked: Callable[[], int]) -> None:
    schema_id = await client.register(subject, OTHERS)

    assert await client.message_name(schema_id, (0,)) == "acme.v1.A"
    assert await client.message_name(schema_id, (0, 0)) == "acme.v1.A.B"
    assert await client.message_name(schema_id, (1,)) == "acme.v1.C"
    for path in ((2,), (1, 0), (0, 1), (-1,)):
        with pytest.raises(ContractError) as refused:
            await client.message_name(schema_id, path)
        assert refused.value.code == "bad-index"
    assert asked() == 2


async def test_a_schema_of_another_format_is_told_apart(
    client: SchemaRegistry, independent: SchemaRegistryClient, subject: str
) -> None:
    avro = independent.register_schema(subject, Schema('"string"', "AVRO"))

    with pytest.raises(ContractError) as refused:
        await client.message_name(avro, (0,))
    assert refused.value.code == "not-protobuf"


async def test_an_unknown_id_is_an_answer_and_asked_once_for_a_whole_batch(
    client: SchemaRegistry, asked: Callable[[], int]
) -> None:
    for _ in range(50):
        with pytest.raises(UnknownSchema):
            await client.message_name(4_000_000, (0,))

    assert asked() == 1
    assert client.health().ready


async def test_an_unknown_id_is_asked_again_later(client: SchemaRegistry, asked: Callable[[], int]) -> None:
    with pytest.raises(UnknownSchema):
        await client.message_name(4_000_001, (0,))
    await asyncio.sleep(1.05)  # seconds: an unknown schema stays unknown for one
    with pytest.raises(UnknownSchema):
        await client.message_name(4_000_001, (0,))

    assert asked() == 2


@pytest.mark.parametrize("status", [401, 403, 429, 500, 503])
async def test_a_refusal_to_answer_is_an_outage(
    client: SchemaRegistry, registry: RegistryServer, subject: str, status: int
) -> None:
    registry.fail_next(1, status=status)

    with pytest.raises(RegistryUnavailable):
        await client.id_of(subject, OURS)
    assert not client.health().ready


async def test_an_outage_is_met_once_per_back_off_however_many_ask(
    client: SchemaRegistry, registry: RegistryServer, subject: str, asked: Callable[[], int]
) -> None:
    registry.fail_next(1)

    answers = await asyncio.gather(*(client.id_of(subject, OURS) for _ in range(200)), return_exceptions=True)

    assert {type(answer) for answer in answers} == {RegistryUnavailable}
    assert asked() == 1


async def test_it_is_asked_again_by_itself_after_the_outage(
    client: SchemaRegistry, registry: RegistryServer, subject: str
) -> None:
    await client.register(subject, OURS)
    anew = SchemaRegistry(registry.url, timeout_seconds=0.3)
    registry.pause()
    began = time.monotonic()
    with pytest.raises(RegistryUnavailable, match="no answer"):
        await anew.id_of(subject, OURS)
    assert time.monotonic() - began < 1
    registry.resume()

    async with asyncio.timeout(5):
        while True:
            try:
                assert await anew.id_of(subject, OURS) > 0
                break
            except RegistryUnavailable:
                await asyncio.sleep(0.05)
    assert anew.health().ready
    await anew.close()


async def test_nobody_there_is_an_outage() -> None:
    client = SchemaRegistry(f"http://127.0.0.1:{free_port()}")

    with pytest.raises(RegistryUnavailable):
        await client.register("any", OURS)
    await client.close()


async def test_a_text_that_the_registry_refuses_says_so(client: SchemaRegistry, subject: str) -> None:
    with pytest.raises(ContractError) as refused:
        await client.register(subject, SchemaText(1, "PROTOBUF", "no schema at all"))
    assert refused.value.code == "invalid-schema"
    assert client.health().ready


def test_an_unusable_url_is_a_broken_setting() -> None:
    with pytest.raises(SettingsInvalid, match="SCHEMA_REGISTRY_URL"):
        SchemaRegistry("ftp://registry")


async def test_every_subject_gets_every_version_of_the_contract(client: SchemaRegistry) -> None:
    topics = _topics(uuid4().hex)
    before = await our_schemas.check(client, topics)

    registered = await our_schemas.register(client, topics)
    again = await our_schemas.register(client, topics)

    names = [topics.requests.subject, topics.events.subject, topics.answers.subject]
    assert [(subject.name, subject.schema_id) for subject in before] == [(name, None) for name in names]
    assert [subject.name for subject in registered] == names
    assert again == registered == await our_schemas.check(client, topics)
    assert str(registered[0]) == f"{names[0]}: contract version 1, schema id {registered[0].schema_id}"


def _topics(name: str) -> Topics:
    return load_topics(f"""
{name}-requests: {{role: requests, partitions: 1}}
{name}-events: {{role: events, partitions: 1}}
{name}-answers: {{role: answers, partitions: 1}}
""")


async def test_a_frame_names_the_message_in_the_newest_schema_of_its_subject(
    client: SchemaRegistry, subject: str, asked: Callable[[], int]
) -> None:
    with pytest.raises(UnknownSchema, match=subject):
        await client.newest_frame(subject, "acme.v1.C")
    schema_id = await client.register(subject, OTHERS)
    await asyncio.sleep(1.1)  # as long as an unknown subject is remembered
    for name, indexes in (("acme.v1.A", (0,)), ("acme.v1.A.B", (0, 0)), ("acme.v1.C", (1,))):
        found = unframe(await client.newest_frame(subject, name) + b"payload")
        assert (found.schema_id, found.indexes, found.payload) == (schema_id, indexes, b"payload")
    before = asked()
    await client.newest_frame(subject, "acme.v1.A")
    assert asked() == before, "asked once in a while"


@pytest.mark.parametrize("name", ["acme.v1.D", "acme.v1.A.C", "A", "acme.v1.", "acme.v2.A", "acme.v1"])
async def test_a_message_that_the_newest_schema_has_not_is_said_to_be_missing(
    client: SchemaRegistry, subject: str, name: str
) -> None:
    await client.register(subject, OTHERS)
    with pytest.raises(ContractError, match="has no message") as refused:
        await client.newest_frame(subject, name)
    assert refused.value.code == "no-such-message"
