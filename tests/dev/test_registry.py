"""The registry's stand-in, asked by confluent-kafka's own client."""

import base64
import json
import sys
import uuid
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_tools import protoc

from streams.dev.registry.server import RegistryServer

PARCEL = 'syntax = "proto3"; package demo; message Parcel { string id = 1; int64 gram_count = 2; }'
ORDER = 'syntax = "proto3"; package demo; import "demo/parcel.proto"; message Order { demo.Parcel parcel = 1; }'
RECORD = {"type": "record", "name": "Parcel", "namespace": "demo", "fields": [{"name": "id", "type": "string"}]}


@pytest.fixture
def client(registry: RegistryServer) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": registry.url}) as client:
        yield client


@pytest.fixture
def subject() -> str:
    return f"parcels/{uuid.uuid4().hex}-value"


def _protobuf(text: str, *references: SchemaReference) -> Schema:
    return Schema(text, "PROTOBUF", list(references))


def _avro(*fields: dict[str, object]) -> Schema:
    return Schema(json.dumps({**RECORD, "fields": [*RECORD["fields"], *fields]}), "AVRO")


def _forget(client: SchemaRegistryClient) -> None:
    """Let the client ask the registry again."""
    clear: Callable[[], None] = client.clear_caches
    clear()


def _descriptor(text: str) -> FileDescriptorProto:
    return FileDescriptorProto.FromString(base64.b64decode(text))


def test_a_schema_has_one_id_in_every_subject_and_a_version_in_each(client: SchemaRegistryClient, subject: str) -> None:
    schema_id = client.register_schema(subject, _protobuf(PARCEL))
    assert client.register_schema(f"{subject}-other", _protobuf(PARCEL)) == schema_id
    _forget(client)
    assert client.register_schema(subject, _protobuf(PARCEL)) == schema_id
    found = client.lookup_schema(subject, _protobuf(PARCEL))
    assert (found.schema_id, found.version, found.subject) == (schema_id, 1, subject)
    assert subject in client.get_subjects()
    assert set(client.get_subjects_by_schema_id(schema_id)) >= {subject, f"{subject}-other"}


def test_a_schema_is_read_by_id_as_text_and_as_a_descriptor(client: SchemaRegistryClient, subject: str) -> None:
    schema_id = client.register_schema(subject, _protobuf(PARCEL))
    _forget(client)
    assert client.get_schema(schema_id).schema_str == PARCEL
    _forget(client)
    serialized = client.get_schema(schema_id, fmt="serialized").schema_str
    assert serialized is not None
    file = _descriptor(serialized)
    assert [field.name for field in file.message_type[0].field] == ["id", "gram_count"]


def test_the_descriptor_of_a_registered_text_is_the_same_schema(client: SchemaRegistryClient, subject: str) -> None:
    schema_id = client.register_schema(subject, _protobuf(PARCEL))
    _forget(client)
    serialized = client.get_schema(schema_id, fmt="serialized").schema_str
    assert serialized is not None
    assert client.lookup_schema(subject, _protobuf(serialized)).schema_id == schema_id


def test_versions_are_numbered_and_the_newest_is_found(client: SchemaRegistryClient, subject: str) -> None:
    client.register_schema(subject, _protobuf(PARCEL))
    newer = client.register_schema(subject, _protobuf(PARCEL.replace("}", "bool rush = 3; }")))
    assert client.get_versions(subject) == [1, 2]
    assert client.get_latest_version(subject).schema_id == newer
    assert client.get_version(subject, 1).version == 1


def test_an_imported_schema_is_found_through_its_reference(client: SchemaRegistryClient, subject: str) -> None:
    client.register_schema(f"{subject}-parcel", _protobuf(PARCEL))
    reference = SchemaReference("demo/parcel.proto", f"{subject}-parcel", 1)
    schema_id = client.register_schema(subject, _protobuf(ORDER, reference))
    _forget(client)
    assert client.get_schema(schema_id).references == [reference]
    assert client.get_referenced_by(f"{subject}-parcel", 1) == [schema_id]
    with pytest.raises(SchemaRegistryError) as refused:
        client.delete_subject(f"{subject}-parcel")
    assert refused.value.error_code == 42206


@pytest.mark.parametrize(
    "schema",
    [
        _protobuf("syntax = 'proto3'; message {"),
        _protobuf(ORDER),
        _protobuf(ORDER, SchemaReference("demo/parcel.proto", "nobody", 1)),
        _protobuf(base64.b64encode(b"\xff\xff").decode()),
        Schema("{", "AVRO"),
        Schema('"nothing"', "AVRO"),
        Schema("{", "JSON"),
    ],
)
def test_what_is_no_schema_is_refused(client: SchemaRegistryClient, subject: str, schema: Schema) -> None:
    with pytest.raises(SchemaRegistryError) as refused:
        client.register_schema(subject, schema)
    assert (refused.value.http_status_code, refused.value.error_code) == (422, 42201)


def test_what_is_not_there_is_told_apart(client: SchemaRegistryClient, subject: str) -> None:
    def code(call: Any, *arguments: object) -> int:
        with pytest.raises(SchemaRegistryError) as refused:
            call(*arguments)
        assert refused.value.http_status_code == 404
        return int(refused.value.error_code)

    assert code(client.get_schema, 999_999) == 40403
    assert code(client.get_versions, subject) == 40401
    client.register_schema(subject, _protobuf(PARCEL))
    assert code(client.get_version, subject, 7) == 40402
    assert code(client.lookup_schema, subject, _avro()) == 40403


def test_protobuf_versions_must_read_what_earlier_ones_wrote(client: SchemaRegistryClient, subject: str) -> None:
    client.register_schema(subject, _protobuf(PARCEL))
    retyped = _protobuf(PARCEL.replace("int64 gram_count", "string gram_count"))
    assert client.test_compatibility(subject, _protobuf(PARCEL.replace("}", "bool rush = 3; }")))
    assert not client.test_compatibility(subject, retyped)
    assert not client.test_compatibility_all_versions(subject, retyped)
    with pytest.raises(SchemaRegistryError, match=r"field 2 \(gram_count\) of Parcel has another type") as refused:
        client.register_schema(subject, retyped)
    assert refused.value.http_status_code == 409
    client.set_compatibility(subject, "NONE")
    assert client.register_schema(subject, retyped)


@pytest.mark.parametrize(
    ("field", "level", "passes"),
    [
        ({"name": "grams", "type": "int"}, "BACKWARD", False),
        ({"name": "grams", "type": "int", "default": 0}, "BACKWARD", True),
        ({"name": "grams", "type": "int"}, "FORWARD", True),
        ({"name": "grams", "type": "int"}, "FULL", False),
        ({"name": "note", "type": ["null", "string"], "default": None}, "FULL_TRANSITIVE", True),
    ],
)
def test_an_avro_field_more_passes_as_its_default_and_the_level_allow(
    client: SchemaRegistryClient, subject: str, field: dict[str, object], level: str, passes: bool
) -> None:
    client.register_schema(subject, _avro())
    client.set_compatibility(subject, level)
    assert client.test_compatibility(subject, _avro(field)) is passes


def test_deleting_hides_first_and_forgets_only_when_told_so(client: SchemaRegistryClient, subject: str) -> None:
    client.register_schema(subject, _protobuf(PARCEL))
    assert client.delete_subject(subject) == [1]
    assert subject not in client.get_subjects()
    assert subject in client.get_subjects(deleted=True)
    _forget(client)
    client.register_schema(subject, _protobuf(PARCEL))
    assert client.get_versions(subject) == [2]
    assert client.delete_version(subject, 2) == 2
    assert client.delete_subject(subject, permanent=True) == [1, 2]
    assert subject not in client.get_subjects(deleted=True)


def test_faults_are_met_by_the_next_calls_alone(registry: RegistryServer) -> None:
    with SchemaRegistryClient({"url": registry.url, "max.retries": 0}) as client:
        registry.fail_next(1, status=503)
        with pytest.raises(SchemaRegistryError) as refused:
            client.get_subjects()
        assert refused.value.http_status_code == 503
        assert isinstance(client.get_subjects(), list)
    assert registry.requests()[-2:] == ["GET /subjects", "GET /subjects"]


def test_protobuf_serdes_go_through_with_references(
    registry: RegistryServer,
    client: SchemaRegistryClient,
    subject: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    package = f"case_{uuid.uuid4().hex}"
    (tmp_path / package).mkdir()
    (tmp_path / package / "parcel.proto").write_text(PARCEL.replace("demo", package))
    (tmp_path / package / "order.proto").write_text(ORDER.replace("demo", package))
    sources = [str(path.relative_to(tmp_path)) for path in tmp_path.glob("*/*.proto")]
    assert protoc.main(["protoc", f"-I{tmp_path}", f"--python_out={tmp_path}", *sources]) == 0
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    orders, parcels = import_module(f"{package}.order_pb2"), import_module(f"{package}.parcel_pb2")
    order = orders.Order(parcel=parcels.Parcel(id="p1", gram_count=2**40))

    context = SerializationContext(subject, MessageField.VALUE)
    value = ProtobufSerializer(orders.Order, client)(order, context)
    assert value is not None
    assert value[5] == 0
    with SchemaRegistryClient({"url": registry.url}) as other:  # one that has cached nothing
        assert ProtobufDeserializer(orders.Order, {}, other)(value, context) == order


def test_avro_serdes_go_through(client: SchemaRegistryClient, subject: str) -> None:
    context = SerializationContext(subject, MessageField.VALUE)
    value = AvroSerializer(client, json.dumps(RECORD))({"id": "p1"}, context)
    assert value is not None
    assert AvroDeserializer(client)(value, context) == {"id": "p1"}


def test_a_registry_that_is_killed_comes_back_empty_on_its_port() -> None:
    with RegistryServer() as registry:
        url = registry.url
        with SchemaRegistryClient({"url": url}) as client:
            client.register_schema("kept-value", _protobuf(PARCEL))
        registry.kill()
        registry.start()
        with SchemaRegistryClient({"url": url}) as client:
            assert client.get_subjects() == []
