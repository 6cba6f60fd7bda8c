"""The schema registry, asked as seldom as possible, and never for ever.

Three answers are kept apart, because callers act differently on them: the schema; "I do not know it" (UnknownSchema, an
answer); and no answer (RegistryUnavailable, an outage, also where the registry refuses us). While the registry is away
it is asked once per back-off, however many callers want something.
"""

import asyncio
import base64
import binascii
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from confluent_kafka.schema_registry import AsyncSchemaRegistryClient, RegisteredSchema, Schema
from confluent_kafka.schema_registry.error import SchemaRegistryError
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
from google.protobuf.message import DecodeError

from schemas.errors import ContractError, RegistryUnavailable, SettingsInvalid, UnknownSchema
from schemas.framing import frame
from schemas.registered import SchemaText
from streams.health import ServiceHealth
from streams.settings import Settings

log = logging.getLogger(__name__)

T = TypeVar("T")

FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 4.0
UNKNOWN_FOR_SECONDS: Final = 1.0
"""How long "I do not know it" is taken for an answer: a batch that is full of one unknown id asks once."""

NEWEST_FOR_SECONDS: Final = 1
"""How long the newest version of a subject is taken for the newest."""

PROTOBUF: Final = "PROTOBUF"


class SchemaRegistry:
    """A client of one Confluent-compatible registry; belongs to the event loop it is first used in.

    What the registry said is kept for the life of the process, since ids and schemas never change their meaning.
    """

    def __init__(
        self,
        url: str,
        *,
        username: str | None = None,
        password: str | None = None,
        timeout_seconds: float = 5.0,
        remember: int = 1_000,
    ) -> None:
        """Describe the client; nothing is asked yet.

        Args:
            url: Base URL; several, comma-separated, are tried in turn.
            username: User for basic authentication, with `password`.
            password: Its password.
            timeout_seconds: Longest wait for one answer, all in all.
            remember: Schemas of others that are kept, the latest used.

        Raises:
            SettingsInvalid: the URL cannot be used.
        """
        config: dict[str, object] = {"url": url, "timeout": timeout_seconds, "max.retries": 0}
        config["cache.latest.ttl.sec"] = NEWEST_FOR_SECONDS
        if username is not None:
            config["basic.auth.user.info"] = f"{username}:{password or ''}"
        try:
            self._client = AsyncSchemaRegistryClient(config)
        except (ValueError, TypeError) as error:
            raise SettingsInvalid([f"SCHEMA_REGISTRY_URL: {error}"]) from error
        self._timeout_seconds = timeout_seconds
        self._remember = remember
        self._ids: dict[tuple[str, str], int] = {}
        self._messages: OrderedDict[int, FileDescriptorProto] = OrderedDict()
        self._unknown: dict[object, tuple[float, UnknownSchema]] = {}
        self._asking = asyncio.Lock()
        self._outage: RegistryUnavailable | None = None
        self._ask_again_at = 0.0
        self._pause_seconds = FIRST_PAUSE_SECONDS

    @classmethod
    def from_settings(cls, settings: Settings) -> "SchemaRegistry":
        """Return the client of SCHEMA_REGISTRY_URL; the caller closes it. Raises SettingsInvalid when it is not set."""
        settings.require("schema_registry_url")
        password = settings.schema_registry_password
        return cls(
            settings.schema_registry_url or "",
            username=settings.schema_registry_username,
            password=password.get_secret_value() if password is not None else None,
        )

    async def close(self) -> None:
        """Let the connections go."""
        await self._client.aclose()

    def health(self) -> ServiceHealth:
        """Not ready while the last question had no answer."""
        outage = self._outage
        return ServiceHealth("registry", alive=True, ready=outage is None, detail=str(outage or ""))

    async def id_of(self, subject: str, schema: SchemaText) -> int:
        """Return the id under which *schema* is registered for *subject*. Nothing is registered, nothing guessed.

        Raises:
            UnknownSchema: it is not registered there: `workflow-runs schemas register` does that.
            RegistryUnavailable: no answer; ask again.
        """
        known = self._ids.get((subject, schema.text))
        if known is not None:
            return known
        try:
            found = await self._look_up(
                (subject, schema.text), lambda: self._client.lookup_schema(subject, _to_client(schema))
            )
        except UnknownSchema as error:
            raise UnknownSchema(
                f"version {schema.contract_version} of the contract is not registered under {subject}: {error}"
            ) from error
        return self._ids.setdefault((subject, schema.text), _id(found.schema_id))

    async def message_name(self, schema_id: int, indexes: Sequence[int]) -> str:
        """Return the full name of the message that a framed Protobuf value holds.

        Args:
            schema_id: As in the frame.
            indexes: The path of message indexes, as in the frame.

        Raises:
            UnknownSchema: the registry does not know the id, at least not yet.
            ContractError: code `not-protobuf` (the schema is of another format), `bad-index` (no message stands there)
                or `unreadable-schema`.
            RegistryUnavailable: no answer; ask again.
        """
        return _named(await self._file(schema_id), indexes)

    async def newest_frame(self, subject: str, message_name: str) -> bytes:
        """Return what stands before a value of that message type, by the newest version registered for *subject*.

        Raises:
            UnknownSchema: nothing is registered there, at least not yet.
            ContractError: code `not-protobuf` (the schema is of another format), `no-such-message` (it has none of
                that name) or `unreadable-schema`.
            RegistryUnavailable: no answer; ask again.
        """
        newest = await self._look_up(("newest", subject), lambda: self._client.get_latest_version(subject))
        schema_id = _id(newest.schema_id)
        return frame(schema_id, b"", _path_of(await self._file(schema_id), message_name, subject))

    async def version(self, subject: str, number: int | None = None) -> RegisteredSchema:
        """Return one version of a subject as it was registered, by default the newest.

        Raises:
            UnknownSchema: there is none.
            RegistryUnavailable: no answer; ask again.
        """
        return await self._look_up(
            ("version", subject, number), lambda: self._client.get_version(subject, number or "latest")
        )

    async def register(self, subject: str, schema: SchemaText) -> int:
        """Register *schema* under *subject* and return its id. Doing it again changes nothing.

        Raises:
            ContractError: code `incompatible` or `invalid-schema`: the registry refuses it, in its own words.
            RegistryUnavailable: no answer; call again.
        """
        registered = await self._ask(lambda: self._client.register_schema(subject, _to_client(schema)))
        self._unknown.pop((subject, schema.text), None)
        return self._ids.setdefault((subject, schema.text), _id(registered))

    async def _file(self, schema_id: int) -> FileDescriptorProto:
        known = self._messages.get(schema_id)
        if known is not None:
            self._messages.move_to_end(schema_id)
            return known
        schema = await self._look_up(schema_id, lambda: self._client.get_schema(schema_id, fmt="serialized"))
        if schema.schema_type != PROTOBUF:
            raise ContractError(f"schema {schema_id} is {schema.schema_type or 'AVRO'}", code="not-protobuf")
        file = _parsed(schema_id, schema.schema_str or "")
        self._messages[schema_id] = file
        if len(self._messages) > self._remember:
            self._messages.popitem(last=False)
        return file

    async def _look_up(self, key: object, question: Callable[[], Awaitable[T]]) -> T:
        """Ask for what may be unknown, and remember for a moment that it is."""
        until, unknown = self._unknown.get(key, (0.0, None))
        if unknown is not None and time.monotonic() < until:
            raise UnknownSchema(str(unknown))
        try:
            return await self._ask(question)
        except UnknownSchema as error:
            if len(self._unknown) >= self._remember:
                self._unknown.clear()
            self._unknown[key] = (time.monotonic() + UNKNOWN_FOR_SECONDS, error)
            raise

    async def _ask(self, question: Callable[[], Awaitable[T]]) -> T:
        """Put one question, unless the registry is known to be away; one at a time, so that an outage is met once."""
        async with self._asking:
            if self._outage is not None and time.monotonic() < self._ask_again_at:
                raise RegistryUnavailable(str(self._outage))
            try:
                async with asyncio.timeout(self._timeout_seconds):
                    answer = await question()
            except SchemaRegistryError as error:
                refusal = _refusal(error)
                if isinstance(refusal, RegistryUnavailable):
                    raise self._away(refusal) from error
                self._back()
                raise refusal from error
            except TimeoutError as error:
                waited = RegistryUnavailable(f"no answer from the schema registry within {self._timeout_seconds:g} s")
                raise self._away(waited) from error
            except Exception as error:  # the client lets every error of its HTTP and JSON libraries out
                raise self._away(RegistryUnavailable(f"schema registry: {error!r}")) from error
            self._back()
            return answer

    def _away(self, outage: RegistryUnavailable) -> RegistryUnavailable:
        if self._outage is None:
            log.warning("%s", outage)
        else:
            self._pause_seconds = min(2 * self._pause_seconds, LONGEST_PAUSE_SECONDS)
        self._outage = outage
        self._ask_again_at = time.monotonic() + self._pause_seconds
        return outage

    def _back(self) -> None:
        if self._outage is not None:
            log.info("the schema registry answers again")
        self._outage = None
        self._pause_seconds = FIRST_PAUSE_SECONDS


def _to_client(schema: SchemaText) -> Schema:
    return Schema(schema.text, schema.schema_type)


def _id(schema_id: int | None) -> int:
    if not schema_id:
        raise RegistryUnavailable("the schema registry answered without an id")
    return schema_id


def _refusal(error: SchemaRegistryError) -> ContractError | RegistryUnavailable:
    match error.http_status_code:
        case 404:
            return UnknownSchema(str(error))
        case 409:
            return ContractError(str(error), code="incompatible")
        case 422:
            return ContractError(str(error), code="invalid-schema")
        case _:  # 401 and 403 too: whom it lets in says nothing about a schema
            return RegistryUnavailable(f"schema registry: {error}")


def _parsed(schema_id: int, text: str) -> FileDescriptorProto:
    try:
        return FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, DecodeError) as error:
        raise ContractError(
            f"schema {schema_id} did not come as a Protobuf descriptor: {error}", code="unreadable-schema"
        ) from error


def _named(file: FileDescriptorProto, indexes: Sequence[int]) -> str:
    messages: Sequence[DescriptorProto] = file.message_type
    names = [file.package] if file.package else []
    for index in indexes:
        if not 0 <= index < len(messages):
            raise ContractError(f"message indexes {list(indexes)} name no message of its schema", code="bad-index")
        names.append(messages[index].name)
        messages = messages[index].nested_type
    return ".".join(names)


def _path_of(file: FileDescriptorProto, message_name: str, subject: str) -> list[int]:
    """The path of message indexes that leads to the message of that full name."""
    prefix = f"{file.package}." if file.package else ""
    messages: Sequence[DescriptorProto] = file.message_type
    path: list[int] = []
    for name in message_name.removeprefix(prefix).split(".") if message_name.startswith(prefix) else [""]:
        index = next((index for index, message in enumerate(messages) if message.name == name), None)
        if index is None:
            text = f"the newest schema of {subject} has no message {message_name}"
            raise ContractError(text, code="no-such-message")
        path.append(index)
        messages = messages[index].nested_type
    return path
