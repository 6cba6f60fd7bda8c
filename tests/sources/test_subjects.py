"""Schemas of subjects, with all that they refer to, as definitions ask for them."""

from collections.abc import AsyncIterator, Callable
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient

from schemas.errors import CallFailed, ContractError, InputInvalid, RegistryUnavailable, UnknownSchema
from streams.calls.targets import Targets
from streams.dev.registry.server import RegistryServer
from streams.evaluator.protoc import ProtocChild
from streams.kafka.registry import SchemaRegistry
from streams.sources import subjects as ours
from streams.sources.fetched_schemas import Fetcher
from streams.sources.subjects import subject_sources
from streams.workflow.descriptors import SchemaSet, resolve_schema

MONEY = 'syntax = "proto3"; package base; message Money { int64 cents = 1; }'
ORDER = (
    'syntax = "proto3"; package shop; import "base/money.proto"; import "google/protobuf/timestamp.proto";'
    "message Order { base.Money price = 1; google.protobuf.Timestamp placed_at = 2; }"
)


@pytest.fixture
async def client(registry: RegistryServer) -> AsyncIterator[SchemaRegistry]:
    client = SchemaRegistry(registry.url, timeout_seconds=2)
    yield client
    await client.close()


@pytest.fixture
def subject(registry: RegistryServer) -> str:
    """A subject whose schema refers to that of another."""
    unique = uuid4().hex
    with SchemaRegistryClient({"url": registry.url}) as theirs:
        theirs.register_schema(f"{unique}-money", Schema(MONEY, "PROTOBUF"))
        reference = SchemaReference("base/money.proto", f"{unique}-money", 1)
        theirs.register_schema(f"{unique}-value", Schema(ORDER, "PROTOBUF", [reference]))
        theirs.register_schema(f"{unique}-avro", Schema('"string"', "AVRO"))
    return f"{unique}-value"


async def compiled(schema: object) -> SchemaSet:
    return await resolve_schema(schema, protoc=ProtocChild())


async def test_a_subject_comes_with_what_it_refers_to(client: SchemaRegistry, subject: str) -> None:
    found = await subject_sources(client, subject)

    assert found.version == 1
    assert set(found.sources) == {f"{subject}.proto", "base/money.proto"}
    schemas = await compiled({"sources": found.sources, "root": found.root})
    assert schemas.default_message() == "shop.Order"
    assert schemas.message("base.Money").full_name == "base.Money"


async def test_an_earlier_version_stays_what_it_was(
    client: SchemaRegistry, subject: str, registry: RegistryServer
) -> None:
    unique = subject.removesuffix("-value")
    with SchemaRegistryClient({"url": registry.url}) as theirs:
        theirs.register_schema(f"{unique}-money", Schema(MONEY.replace("}", "string currency = 2; }"), "PROTOBUF"))

    assert "currency" not in (await subject_sources(client, subject)).sources["base/money.proto"]
    assert "currency" in (await subject_sources(client, f"{unique}-money")).sources[f"{unique}-money.proto"]
    assert "currency" not in (await subject_sources(client, f"{unique}-money", 1)).sources[f"{unique}-money.proto"]


async def test_what_cannot_be_fetched_is_told_apart(
    client: SchemaRegistry, subject: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UnknownSchema):
        await subject_sources(client, "nobody-s")
    with pytest.raises(UnknownSchema):
        await subject_sources(client, subject, 7)
    with pytest.raises(ContractError, match="is AVRO, not PROTOBUF"):
        await subject_sources(client, subject.replace("-value", "-avro"))
    monkeypatch.setattr(ours, "MAX_DOCUMENT_BYTES", 100)
    with pytest.raises(InputInvalid, match="over the limit of 100 bytes"):
        await subject_sources(client, subject)


@pytest.fixture
def fetcher(registry: RegistryServer) -> Fetcher:
    return Fetcher(Targets, lambda: SchemaRegistry(registry.url))


async def schema(fetcher: Fetcher, given: object) -> Any:
    read: Any = await fetcher.fetched({"name": "x", "schema": given})
    assert read["name"] == "x"
    return read["schema"]


async def test_a_definition_asks_for_a_subject_and_holds_its_sources_then(fetcher: Fetcher, subject: str) -> None:
    given = await schema(fetcher, {"registrySubject": {"subject": subject, "version": 1}})

    assert sorted(given) == ["root", "sources"]
    assert (await compiled(given)).default_message() == "shop.Order"


async def test_a_definition_that_asks_nothing_stays_as_it_is(fetcher: Fetcher) -> None:
    for document in (None, {}, {"schema": 5}, {"schema": {"type": "a.B"}}):
        assert await fetcher.fetched(document) == document


@pytest.mark.parametrize(
    ("given", "fault", "pointer"),
    [
        ({"registrySubject": "orders"}, "must be an object", "/schema/registrySubject"),
        ({"registrySubject": {}}, "subject must be a text", "/schema/registrySubject/subject"),
        ({"registrySubject": {"subject": "a", "version": 0}}, "from 1 on", "/schema/registrySubject/version"),
        ({"registrySubject": {"subject": "a", "id": 1}}, '"id" is no key here', "/schema/registrySubject/id"),
        ({"registrySubject": {"subject": "nobody-s"}}, "not found", "/schema/registrySubject"),
        ({"reflection": {"target": 5}}, "target must be a text", "/schema/reflection/target"),
        ({"reflection": {"target": "nobody"}}, "neither a target of TARGETS_FILE nor", "/schema/reflection"),
        ({"reflection": {"target": "a", "services": "s"}}, "a list of texts", "/schema/reflection/services"),
        ({"reflection": {"target": "a:1", "tls": "yes"}}, "tls must be true or false", "/schema/reflection/tls"),
    ],
)
async def test_a_question_that_is_wrong_or_has_no_answer_is_told_with_its_pointer(
    given: object, fault: str, pointer: str, fetcher: Fetcher
) -> None:
    with pytest.raises(InputInvalid) as caught:
        await schema(fetcher, given)

    assert fault in str(caught.value)
    assert caught.value.pointer == pointer


async def test_no_answer_is_no_fault_of_the_definition(fetcher: Fetcher) -> None:
    away = Fetcher(Targets, lambda: SchemaRegistry("http://127.0.0.1:9"))

    with pytest.raises(RegistryUnavailable):
        await schema(away, {"registrySubject": {"subject": "orders"}})
    with pytest.raises(CallFailed, match="UNAVAILABLE"):
        await schema(fetcher, {"reflection": {"target": "localhost:1"}})


def test_the_fetcher_takes_names_and_any_address(fetcher: Fetcher) -> None:
    find: Callable[[str], Any] = fetcher.target
    assert find("10.0.0.7:9000").address == "10.0.0.7:9000"
    with pytest.raises(InputInvalid):
        find("unix:/tmp/socket")
