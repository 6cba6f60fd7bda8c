"""Schemas of running services, fetched by reflection from real servers."""

import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool
from grpc_reflection.v1alpha import reflection, reflection_pb2

from schemas.errors import CallFailed, InputInvalid, NotFound
from streams.calls.credentials import Credentials
from streams.calls.targets import Target
from streams.sources import reflection as ours
from streams.sources.reflection import reflected
from streams.workflow.descriptors import SchemaSet
from tests.fixtures.certificates import Authority

FILES = {
    "base.proto": ("base", (), "Money"),
    "shop.proto": ("shop", ("base.proto", "google/protobuf/timestamp.proto"), "Order"),
    "desk.proto": ("desk", ("base.proto",), "Ticket"),
}


def pool() -> descriptor_pool.DescriptorPool:
    made = descriptor_pool.DescriptorPool()
    timestamp = descriptor_pool.Default().FindFileByName("google/protobuf/timestamp.proto")
    made.AddSerializedFile(timestamp.serialized_pb)
    for name, (package, imports, message) in FILES.items():
        file = descriptor_pb2.FileDescriptorProto(name=name, package=package, dependency=imports, syntax="proto3")
        file.message_type.add(name=message)
        one = f".{package}.{message}"
        file.service.add(name="Service").method.add(name="Make", input_type=one, output_type=".base.Money")
        made.AddSerializedFile(file.SerializeToString())
    return made


SERVICES = ("shop.Service", "desk.Service", "grpc.reflection.v1alpha.ServerReflection")
Answers = Callable[[Iterator[Any], grpc.ServicerContext], Iterator[Any]]


class Reflecting(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # generic in the stubs alone
    """Serves reflection in one version, as *answers* does; notes which versions were asked for, and the metadata."""

    def __init__(self, version: str, answers: Answers) -> None:
        self.asked: list[str] = []
        self.metadata: dict[str, str] = {}
        self._method = f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo"
        self._answers = answers

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        self.asked.append(details.method)
        self.metadata = {key: str(value) for key, value in details.invocation_metadata}
        if details.method != self._method:
            return None
        return grpc.stream_stream_rpc_method_handler(
            self._answers,
            request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
            response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
        )


def whole(services: tuple[str, ...] = SERVICES) -> Answers:
    """Answers as gRPC's own implementation does: a file with all that it imports."""
    servicer: Any = reflection.ReflectionServicer(services, pool())
    answers: Answers = servicer.ServerReflectionInfo
    return answers


@contextmanager
def serving(handler: Reflecting, credentials: grpc.ServerCredentials | None = None) -> Iterator[str]:
    server = grpc.server(ThreadPoolExecutor(2), handlers=[handler])
    port = (
        server.add_insecure_port("localhost:0")
        if credentials is None
        else server.add_secure_port("localhost:0", credentials)
    )
    server.start()
    yield f"localhost:{port}"
    server.stop(grace=None).wait()


@pytest.fixture
async def serve() -> AsyncIterator[Callable[..., Target]]:
    with ExitStack() as stack:

        def start(handler: Reflecting) -> Target:
            address = stack.enter_context(serving(handler))
            return Target(address, address, tls=False, permits=1)

        yield start


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
async def test_all_services_of_a_server_come_with_what_they_import(version: str, serve: Callable[..., Target]) -> None:
    handler = Reflecting(version, whole())

    schemas = SchemaSet.from_bytes(await reflected(serve(handler)))

    assert schemas.method("shop.Service/Make").output_type.full_name == "base.Money"
    assert schemas.method("desk.Service/Make").input_type.full_name == "desk.Ticket"
    assert handler.asked[0].startswith("/grpc.reflection.v1.")  # the current version is asked first


async def test_named_services_come_alone(serve: Callable[..., Target]) -> None:
    schemas = SchemaSet.from_bytes(await reflected(serve(Reflecting("v1", whole())), services=["desk.Service"]))

    assert schemas.method("desk.Service/Make").name == "Make"
    with pytest.raises(InputInvalid):
        schemas.message("shop.Order")


async def test_a_server_that_tells_one_file_at_a_time_is_asked_for_the_others(serve: Callable[..., Target]) -> None:
    def one_by_one(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        for request in requests:
            [answer] = whole()(iter([request]), context)
            files = answer.file_descriptor_response.file_descriptor_proto
            asked = request.file_by_filename
            if files:
                kept = next(data for data in files if _answers(data, asked))
                del files[:]
                files.append(kept)
            yield answer

    def _answers(data: bytes, asked: str) -> bool:
        name = descriptor_pb2.FileDescriptorProto.FromString(data).name
        return name == asked if asked else name in ("shop.proto", "desk.proto")

    schemas = SchemaSet.from_bytes(await reflected(serve(Reflecting("v1", one_by_one))))

    assert schemas.message("base.Money").full_name == "base.Money"


async def test_the_same_server_gives_the_same_bytes_twice(serve: Callable[..., Target]) -> None:
    target = serve(Reflecting("v1", whole()))

    assert await reflected(target) == await reflected(target)


async def test_a_service_that_is_not_there_is_named(serve: Callable[..., Target]) -> None:
    with pytest.raises(NotFound, match=r"does not know the service shop\.Other"):
        await reflected(serve(Reflecting("v1", whole())), services=["shop.Other"])
    with pytest.raises(NotFound, match="serves nothing but grpc"):
        await reflected(serve(Reflecting("v1", whole(SERVICES[2:]))))


async def test_a_server_without_reflection_is_told_so(serve: Callable[..., Target]) -> None:
    with pytest.raises(CallFailed, match=r"has no server reflection: use its \.proto files") as failed:
        await reflected(serve(Reflecting("v9", whole())))
    assert not failed.value.retryable


async def test_a_server_that_is_away_or_silent_is_told_apart_from_one_that_answers(
    serve: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CallFailed, match="UNAVAILABLE") as away:
        await reflected(Target("away", "localhost:1", tls=False, permits=1))
    assert away.value.retryable

    def nothing(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        yield from ()

    with pytest.raises(CallFailed, match="ended the stream before it told its services"):
        await reflected(serve(Reflecting("v1alpha", nothing)))

    def silent(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        gone = threading.Event()
        context.add_callback(gone.set)
        gone.wait(10)
        yield from ()

    monkeypatch.setattr(ours, "SECONDS", 0.3)
    with pytest.raises(CallFailed, match=r"gave no schema within 0\.3 s"):
        await reflected(serve(Reflecting("v1", silent)))


async def test_a_schema_over_the_limit_is_refused(
    serve: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ours, "MAX_SCHEMA_FILES", 2)

    with pytest.raises(InputInvalid, match=r"over the limit of .* 2 files: name the services you call"):
        await reflected(serve(Reflecting("v1", whole())))


async def test_a_target_on_tls_is_asked_on_tls_with_its_token() -> None:
    authority = Authority()
    issued = authority.issue("localhost")
    handler = Reflecting("v1", whole())
    credentials = grpc.ssl_server_credentials([(issued.key, issued.certificate)])
    with serving(handler, credentials) as address:
        target = Target(
            "desk",
            address,
            tls=True,
            permits=1,
            credentials=Credentials(authorities=authority.certificate),
            token="token-0",
        )
        assert await reflected(target)
        assert handler.metadata["authorization"] == "Bearer token-0"
        with pytest.raises(CallFailed, match="UNAVAILABLE"):
            await reflected(Target("desk", address, tls=True, permits=1))
