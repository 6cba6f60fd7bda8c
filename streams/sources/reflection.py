"""The schema of a running service, by gRPC server reflection (v1, else v1alpha, which is the same on the wire)."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

import grpc
import grpc.aio
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from schemas.errors import CallFailed, InputInvalid, NotFound
from streams.calls.channels import Channels
from streams.calls.targets import Target
from streams.workflow.descriptor_files import WELL_KNOWN_BYTES, ordered_files, serialized
from streams.workflow.limits import MAX_DESCRIPTOR_SET_BYTES, MAX_SCHEMA_FILES

SECONDS: Final = 30.0
"""How long one schema may take, all in all."""

_VERSIONS: Final = ("v1", "v1alpha")
_OF_THE_SERVER: Final = ("grpc.reflection.", "grpc.health.", "grpc.channelz.")
_NOT_FOUND: Final = 5


def _messages() -> tuple[type[Any], type[Any]]:
    """The request and the response of the reflection service, as far as they are used, in a pool of their own."""
    field = descriptor_pb2.FieldDescriptorProto
    one, many = field.LABEL_OPTIONAL, field.LABEL_REPEATED
    file = descriptor_pb2.FileDescriptorProto(name="reflection.proto", package="reflection", syntax="proto3")

    def message(name: str, *fields: tuple[str, int, int, int | str]) -> None:
        declared = file.message_type.add(name=name)
        for field_name, number, label, kind in fields:
            made = declared.field.add(name=field_name, number=number, label=label)
            if isinstance(kind, str):
                made.type, made.type_name = field.TYPE_MESSAGE, f".reflection.{kind}"
            else:
                made.type = kind  # type: ignore[assignment]

    text, data, number = field.TYPE_STRING, field.TYPE_BYTES, field.TYPE_INT32
    message(
        "Request", ("file_by_filename", 3, one, text), ("file_containing_symbol", 4, one, text),
        ("list_services", 7, one, text),
    )  # fmt: skip
    message("Files", ("file_descriptor_proto", 1, many, data))
    message("Service", ("name", 1, one, text))
    message("Services", ("service", 1, many, "Service"))
    message("Error", ("error_code", 1, one, number), ("error_message", 2, one, text))
    message("Response", ("files", 4, one, "Files"), ("services", 6, one, "Services"), ("error", 7, one, "Error"))
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    found = (pool.FindMessageTypeByName(f"reflection.{name}") for name in ("Request", "Response"))
    request, response = (message_factory.GetMessageClass(descriptor) for descriptor in found)
    return request, response


_Request, _Response = _messages()
# A request that asks for nothing but a list still names it: the member is set, with whatever text.
_LIST: Final = "*"


async def reflected(target: Target, *, tls: bool = False, services: Sequence[str] = ()) -> bytes:
    """A serialized FileDescriptorSet of *services*, or of all that the server names, with all that they import.

    Raises:
        NotFound: the server does not have one of *services*, or no service at all.
        InputInvalid: what it has is no schema, or over a limit.
        CallFailed: it has no reflection, or gave no answer within `SECONDS`; retryable as any call is.
    """
    channels = Channels(message_bytes=MAX_DESCRIPTOR_SET_BYTES)
    try:
        async with asyncio.timeout(SECONDS):
            for version in _VERSIONS:
                try:
                    return await _ask(channels, target, tls or target.tls, version, services)
                except grpc.aio.AioRpcError as error:
                    if error.code() is not grpc.StatusCode.UNIMPLEMENTED or version == _VERSIONS[-1]:
                        raise _failed(error, target) from None
    except TimeoutError:
        raise CallFailed("DEADLINE_EXCEEDED", f"{target.name} gave no schema within {SECONDS:g} s") from None
    finally:
        await channels.close()
    raise AssertionError("the last version answers or raises")


async def _ask(channels: Channels, target: Target, tls: bool, version: str, services: Sequence[str]) -> bytes:
    metadata = (("authorization", f"Bearer {target.token}"),) if target.token is not None else ()
    async with channels.to(target.address, tls=tls, credentials=target.credentials) as channel:
        # The method takes a stream of questions. Each gets a stream of its own here, which is the same to a server: one
        # that refuses the stream says why, while a question written to a stream that has ended hides the reason.
        method: Any = channel.unary_stream(
            f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
            request_serializer=_Request.SerializeToString,
            response_deserializer=_Response.FromString,
        )
        questions = _Questions(lambda request: method(request, metadata=metadata), target.name)
        return await questions.descriptor_set(services)


class _Questions:
    """Asks one server, and gathers the files that it tells."""

    def __init__(self, ask: Callable[[Any], Any], name: str) -> None:
        self._ask = ask
        self._name = name
        self._files: dict[str, Any] = {}
        self._bytes = 0

    async def descriptor_set(self, services: Sequence[str]) -> bytes:
        for service in services or await self._services():
            await self._take(_Request(file_containing_symbol=service), f"the service {service}")
        # Servers may answer with the file alone, and leave its imports to be asked for.
        waiting = list(self._files)
        for name in waiting:  # grows while it is walked
            for imported in self._files[name].dependency:
                if imported not in self._files and imported not in WELL_KNOWN_BYTES:
                    waiting += await self._take(_Request(file_by_filename=imported), f"the file {imported}")
        files = descriptor_pb2.FileDescriptorSet(file=self._files.values())
        return serialized(ordered_files(files.SerializeToString()).values())

    async def _services(self) -> list[str]:
        answer = await self._answer(_Request(list_services=_LIST), "its services")
        names = [service.name for service in answer.services.service]
        if not (own := [name for name in names if not name.startswith(_OF_THE_SERVER)]):
            raise NotFound(f"{self._name} serves nothing but {', '.join(names) or 'nothing'}")
        return own

    async def _take(self, request: Any, what: str) -> list[str]:
        """Ask for files and keep those that are new; return their names."""
        answer = await self._answer(request, what)
        new = []
        for data in answer.files.file_descriptor_proto:
            file = descriptor_pb2.FileDescriptorProto.FromString(data)
            if file.name not in self._files:
                self._files[file.name] = file
                self._bytes += len(data)
                new.append(file.name)
        if self._bytes > MAX_DESCRIPTOR_SET_BYTES or len(self._files) > MAX_SCHEMA_FILES:
            limit = f"{MAX_DESCRIPTOR_SET_BYTES:,} bytes or {MAX_SCHEMA_FILES:,} files"
            raise InputInvalid(f"the schema of {self._name} is over the limit of {limit}: name the services you call")
        return new

    async def _answer(self, request: Any, what: str) -> Any:
        call = self._ask(request)
        try:
            answer = await call.read()
        finally:
            call.cancel()
        if answer is grpc.aio.EOF:  # type: ignore[attr-defined]  # unknown to the stubs
            raise CallFailed("UNAVAILABLE", f"{self._name} ended the stream before it told {what}")
        if answer.HasField("error"):
            if answer.error.error_code == _NOT_FOUND:
                raise NotFound(f"{self._name} does not know {what}: {answer.error.error_message}")
            raise CallFailed("UNKNOWN", f"{self._name} does not tell {what}: {answer.error.error_message}")
        return answer


def _failed(error: grpc.aio.AioRpcError, target: Target) -> CallFailed:
    detail = error.details() or ""
    if target.token is not None:
        detail = detail.replace(target.token, "***")
    if error.code() is grpc.StatusCode.UNIMPLEMENTED:
        detail = f"{target.name} has no server reflection: use its .proto files or a descriptor set instead"
    return CallFailed(error.code().name, detail)
