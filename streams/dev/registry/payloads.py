"""The registry's JSON: what calls carry and what answers say."""

import json

from aiohttp import web

from streams.dev.registry.model import (
    Compatibility,
    InvalidSchema,
    Reference,
    Refused,
    Schema,
    SchemaType,
    StoredSchema,
    SubjectVersion,
)
from streams.dev.registry.protobuf import ProtobufSchema
from streams.dev.registry.store import LATEST

CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"


async def _body(request: web.Request) -> dict[str, object]:
    try:
        body = await request.json()
    except ValueError:
        raise Refused(400, "the body is not JSON") from None
    if not isinstance(body, dict):
        raise Refused(400, "the body is not a JSON object")
    return body


async def schema_in(request: web.Request) -> Schema:
    """Return the schema in the body of a call. Raises Refused."""
    body = await _body(request)
    text, kind, references = body.get("schema"), body.get("schemaType") or SchemaType.AVRO, body.get("references") or []
    if body.get("metadata") or body.get("ruleSet"):
        raise Refused(422, "metadata and rule sets are not kept by this stand-in")
    if not isinstance(text, str):
        raise InvalidSchema("no schema text")
    if kind not in list(SchemaType):
        raise InvalidSchema(f"Invalid schema type {kind}")
    if not isinstance(references, list):
        raise InvalidSchema("references is not a list")
    return Schema(SchemaType(str(kind)), text, tuple(_reference(one) for one in references))


def _reference(one: object) -> Reference:
    match one:
        case {"name": str(name), "subject": str(subject), "version": int(version)}:
            return Reference(name, subject, version)
    raise InvalidSchema(f"a reference has name, subject and version: {json.dumps(one)}")


async def level_in(request: web.Request) -> Compatibility:
    """Return the compatibility level in the body of a call. Raises Refused."""
    wanted = (await _body(request)).get("compatibility")
    if wanted not in list(Compatibility):
        raise Refused(42203, f"Invalid compatibility level {wanted}")
    return Compatibility(str(wanted))


def subject_of(request: web.Request) -> str:
    """Return the subject in the path of a call."""
    return request.match_info["subject"]


def number_of(request: web.Request) -> int:
    """Return the version in the path of a call. Raises Refused."""
    text = request.match_info["version"]
    if text in ("latest", "-1"):
        return LATEST
    if not text.isdecimal() or int(text) < 1:
        raise Refused(42202, f"The specified version '{text}' is not a valid version id")
    return int(text)


def flag(request: web.Request, name: str) -> bool:
    """Tell whether a call sets this switch."""
    return request.query.get(name, "").lower() == "true"


def described(version: SubjectVersion, request: web.Request) -> dict[str, object]:
    """Return a version of a subject as the API shows it."""
    stored = version.stored
    return {"subject": version.subject, "version": version.number, "id": stored.id, **content(stored, request)}


def content(stored: StoredSchema, request: web.Request) -> dict[str, object]:
    """Return a schema as the API shows it, in the format that the call asks for."""
    schema, text = stored.schema, stored.schema.text
    if request.query.get("format") == "serialized" and isinstance(stored.parsed, ProtobufSchema):
        text = stored.parsed.serialized
    content: dict[str, object] = {"guid": stored.guid, "schema": text}
    if schema.type is not SchemaType.AVRO:
        content["schemaType"] = schema.type
    if schema.references:
        content["references"] = [
            {"name": one.name, "subject": one.subject, "version": one.version} for one in schema.references
        ]
    return content


def answer(value: object) -> web.Response:
    """Return the answer to a call that was done."""
    return web.json_response(value, content_type=CONTENT_TYPE)


def error(status: int, code: int, message: str) -> web.Response:
    """Return the answer to a call that was refused."""
    return web.json_response({"error_code": code, "message": message}, status=status, content_type=CONTENT_TYPE)
