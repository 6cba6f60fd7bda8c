"""Requests as they come from the request topic.

A record ends in one of three ways, told apart here:

- It cannot name a run: a ContractError, and the record goes to the dead letters. Codes: `null-value`, `bad-utf8`,
  `not-json` (neither framed nor a JSON object), `bad-json`, `bad-protobuf`, `bad-index`, `duplicate-key` (one of the
  request's own keys stands twice), `job-id`, and those of `schemas.strict_json` where a key or the job id breaks them.
- It names a run that cannot be run: `Unusable`, and the run is born FAILED, so that whoever asked for it finds the
  reason under the id. Codes: `workflow-name`, `input` (left out, not JSON, not an object), `input-too-large`,
  `business-key`, `labels`, `unknown-key`, and those of `schemas.strict_json` for what is inside.
- It is a `Request`. Whether its workflow exists and takes its input is for others to say.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar
from uuid import UUID

from google.protobuf.message import DecodeError

from schemas import limits, strict_json
from schemas.errors import ContractError
from schemas.framing import is_framed
from schemas.ids import parse_job_id
from schemas.labels import labels_of
from schemas.messages import INDEXES, WorkflowRunRequest
from schemas.text import cut, escaped, unstorable

__all__ = ["UNKNOWN_NAME", "Request", "Unusable", "decode_json", "decode_protobuf", "is_framed"]

UNKNOWN_NAME: Final = "(unknown)"
"""The workflow name of a run whose request named none."""

_FIELDS: Final[Mapping[str, str]] = {
    "job_id": "job_id",
    "jobId": "job_id",
    "workflow_name": "workflow_name",
    "workflowName": "workflow_name",
    "input": "input",
    "business_key": "business_key",
    "businessKey": "business_key",
    "labels": "labels",
}

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class Request:
    """A request to run a stored workflow once.

    `input` is the JSON text of an object, exactly as it was sent, and can be stored. `business_key` and `labels` are
    None when there are none.
    """

    job_id: UUID
    workflow_name: str
    input: str
    business_key: str | None = None
    labels: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Unusable:
    """A request that names a run but cannot be run: the run is born FAILED with `reason`.

    The run keeps what was sent as `input`: JSON text of one string that holds the sent text of the input, with its
    escapes as they stood (`\\u0000` is then six plain characters that Postgres takes). Nothing is stripped, and since a
    string is not an object, the run cannot be started by mistake with an input that nobody sent. A bare character that
    cannot be stored, which is not JSON, is written as its escape; a text over 1 MiB is cut, with its length and SHA-256
    in the mark; an input that was left out is kept as an empty string. `workflow_name` is always fit to be stored,
    `business_key` and `labels` are kept where they are usable.
    """

    job_id: UUID
    workflow_name: str
    input: str
    code: str
    reason: str
    business_key: str | None = None
    labels: Mapping[str, str] | None = None


def decode_json(value: bytes | None) -> Request | Unusable:
    """Read the value of a record that is not framed: a JSON object with snake_case or camelCase keys.

    `input` may be an object, or a text that holds the JSON of one; so may `labels`. A key that is null is absent. A key
    that the request does not have is refused, since a misspelt one would be lost silently.

    Raises:
        ContractError: the record names no run; see the codes above.
    """
    if value is None:
        raise ContractError("the record has no value", code="null-value")
    try:
        document = value.decode()
    except UnicodeDecodeError as error:
        raise ContractError(f"not UTF-8 at byte {error.start}", code="bad-utf8") from None
    return _decide(_JsonRequest(document))


def decode_protobuf(payload: bytes, indexes: Sequence[int]) -> Request | Unusable:
    """Read the payload of a framed record. Fields that this version does not know are passed over, as Protobuf has it.

    Raises:
        ContractError: the record names no run; see the codes above.
    """
    if tuple(indexes) != INDEXES[WorkflowRunRequest]:
        raise ContractError(f"message indexes {list(indexes)} are not a request's", code="bad-index")
    try:
        message = WorkflowRunRequest.FromString(payload)
    except DecodeError:
        raise ContractError("the payload is not a WorkflowRunRequest", code="bad-protobuf") from None
    return _decide(_ProtobufRequest(message))


class _Sent(Protocol):
    """A request in the format it came in. `value` answers None for what is absent.

    `input_text` is empty where there is no input; `input_is_text` says that it travelled as a text of its own, so that
    a fault in it leaves the record readable.
    """

    input_text: str
    input_is_text: bool

    def value(self, field: str) -> object: ...

    def check_keys(self) -> None: ...


class _JsonRequest:
    """A JSON object, its members still as text, so that the input is kept exactly as it was sent."""

    def __init__(self, document: str) -> None:
        self._members: dict[str, str] = {}
        self._unknown: dict[str, str] = {}
        try:
            members = strict_json.members(document)
        except ContractError as error:
            code = "not-json" if error.code == "not-an-object" else error.code
            raise ContractError(f"the value {error}", code=code) from None
        for key, member in members:
            field = _FIELDS.get(key)
            if field is None:
                self._unknown[key] = member
            elif field in self._members:
                raise ContractError(f"the key {field} stands twice", code="duplicate-key")
            else:
                self._members[field] = member
        sent = self._members.get("input", "null")
        self.input_is_text = sent.startswith('"')
        self.input_text = _unquoted("input", sent) if self.input_is_text else "" if sent == "null" else sent

    def value(self, field: str) -> object:
        member = self._members.get(field, "null")
        return _unquoted(field, member) if member.startswith('"') else _parsed(field, member)

    def check_keys(self) -> None:
        for member in self._unknown.values():
            _parsed("a key that is not a request's", member)
        if self._unknown:
            names = ", ".join(repr(cut(key, 80)) for key in list(self._unknown)[:5])
            raise ContractError(f"a request has no key {names}", code="unknown-key")


class _ProtobufRequest:
    input_is_text = True

    def __init__(self, message: WorkflowRunRequest) -> None:
        self._message = message
        self.input_text = message.input

    def value(self, field: str) -> object:
        return getattr(self._message, field) or None

    def check_keys(self) -> None:
        """Every field that this version does not know is passed over."""


def _parsed(field: str, member: str) -> object:
    try:
        return strict_json.parse(member)
    except ContractError as error:
        raise ContractError(f"{field}: {error}", code=error.code) from None


def _unquoted(field: str, member: str) -> str:
    """Read a JSON string with whatever characters it has, as Protobuf would carry them: each field has its own rule."""
    try:
        return str(json.loads(member))
    except ValueError as error:
        raise ContractError(f"{field}: not JSON: {error}", code="bad-json") from None


def _decide(sent: _Sent) -> Request | Unusable:
    job_id = _job_id(sent.value("job_id"))
    faults: list[ContractError] = []

    def attempt(read: Callable[[], _Value], otherwise: _Value) -> _Value:
        try:
            return read()
        except ContractError as error:
            if error.code == "bad-json":  # the record itself does not parse: nothing read from it can be trusted
                raise
            faults.append(error)
            return otherwise

    attempt(sent.check_keys, None)
    workflow_name = attempt(lambda: _workflow_name(sent.value("workflow_name")), UNKNOWN_NAME)
    business_key = attempt(lambda: _business_key(sent.value("business_key")), None)
    labels = attempt(lambda: labels_of(sent.value("labels")), None)
    input_text = attempt(lambda: _input(sent), "")
    if not faults:
        return Request(job_id, workflow_name, input_text, business_key, labels)
    reason = "; ".join(map(str, faults))
    kept = _kept(sent.input_text)
    return Unusable(job_id, workflow_name, kept, faults[0].code, reason, business_key, labels)


def _job_id(value: object) -> UUID:
    if not isinstance(value, str):
        what = "is missing" if value is None else f"is {strict_json.kind_of(value)}, not a text"
        raise ContractError(f"job_id {what}", code="job-id")
    return parse_job_id(value)


def _workflow_name(value: object) -> str:
    if value is None:
        raise ContractError("workflow_name is missing", code="workflow-name")
    name = _short_text("workflow_name", value, code="workflow-name")
    if not name.strip():
        raise ContractError("workflow_name is blank", code="workflow-name")
    return name


def _business_key(value: object) -> str | None:
    return None if value is None else _short_text("business_key", value, code="business-key") or None


def _short_text(field: str, value: object, *, code: str) -> str:
    if not isinstance(value, str):
        raise ContractError(f"{field} is {strict_json.kind_of(value)}, not a text", code=code)
    if len(value) > limits.NAME:
        raise ContractError(f"{field} has {len(value)} characters, at most {limits.NAME} are allowed", code=code)
    if bad := unstorable(value):
        raise ContractError(f"{field} holds {bad}, which cannot be stored", code=code)
    return value


def _input(sent: _Sent) -> str:
    if not sent.input_text:
        raise ContractError("input is missing", code="input")
    size = _size(sent.input_text)
    if size > limits.INPUT_BYTES:
        message = f"input has {size} bytes, at most {limits.INPUT_BYTES} are allowed"
        raise ContractError(message, code="input-too-large")
    try:
        value = strict_json.parse(sent.input_text)
    except ContractError as error:
        code = "input" if error.code == "bad-json" and sent.input_is_text else error.code
        raise ContractError(f"input: {error}", code=code) from None
    if not isinstance(value, dict):
        raise ContractError(f"input is {strict_json.kind_of(value)}, not an object", code="input")
    return sent.input_text


def _kept(input_text: str) -> str:
    """Return what a run that cannot run keeps of its input: JSON text of one string."""
    size = _size(input_text)
    if size > limits.INPUT_BYTES:
        digest = hashlib.sha256(input_text.encode(errors="surrogatepass")).hexdigest()
        input_text = f"{input_text[: limits.INPUT_BYTES // 4]} … [cut, {size} bytes with SHA-256 {digest}]"
    return json.dumps(escaped(input_text), ensure_ascii=False)


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))
