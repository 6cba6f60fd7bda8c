"""Our frames against those of an independent client, both ways."""

from uuid import uuid4

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.message import Message

from schemas.consume import read_event
from schemas.framing import frame, unframe
from schemas.messages import (
    INDEXES,
    WorkflowRunEvent,
    WorkflowRunRequest,
    WorkflowRunState,
    WorkflowStepCompletion,
)
from schemas.requests import Request, decode_protobuf

MESSAGES: list[Message] = [
    WorkflowRunEvent(event_id=str(uuid4()), job_id=str(uuid4()), seq=3, step="review"),
    WorkflowRunRequest(job_id=str(uuid4()), workflow_name="embed-text", input='{"text":"a"}'),
    WorkflowStepCompletion(job_id=str(uuid4()), step="review", response="{}"),
    WorkflowRunState(job_id=str(uuid4()), status="WAITING", seq=4),
]

CONTEXT = SerializationContext("any", MessageField.VALUE)


def name_of(message: Message) -> str:
    return type(message).__name__


@pytest.fixture
def client() -> SchemaRegistryClient:
    return SchemaRegistryClient.new_client({"url": f"mock://{uuid4()}"})


@pytest.mark.parametrize("message", MESSAGES, ids=name_of)
def test_their_frames_are_taken_apart(client: SchemaRegistryClient, message: Message) -> None:
    framed = ProtobufSerializer(type(message), client)(message, CONTEXT)
    assert framed is not None
    taken = unframe(framed)
    assert taken.indexes == INDEXES[type(message)]
    assert type(message).FromString(taken.payload) == message


@pytest.mark.parametrize("message", MESSAGES, ids=name_of)
def test_our_frames_are_theirs_byte_for_byte_and_they_read_them(client: SchemaRegistryClient, message: Message) -> None:
    theirs = ProtobufSerializer(type(message), client)(message, CONTEXT)
    assert theirs is not None
    ours = frame(unframe(theirs).schema_id, message.SerializeToString(deterministic=True), INDEXES[type(message)])
    assert ours == theirs
    read = ProtobufDeserializer(type(message), {"use.deprecated.format": False}, client)(ours, CONTEXT)
    assert read == message


def test_a_request_of_theirs_is_a_request_of_ours(client: SchemaRegistryClient) -> None:
    message = MESSAGES[1]
    framed = ProtobufSerializer(type(message), client)(message, CONTEXT)
    assert framed is not None
    taken = unframe(framed)
    assert isinstance(decode_protobuf(taken.payload, taken.indexes), Request)


def test_an_event_of_theirs_is_an_event_of_ours(client: SchemaRegistryClient) -> None:
    assert read_event(ProtobufSerializer(WorkflowRunEvent, client)(MESSAGES[0], CONTEXT)) == MESSAGES[0]
