"""What goes into a handler and comes out of it: messages of its own classes, or plain JSON for a job type."""

import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.message import EncodeError, Message

from schemas.errors import InputInvalid, WorkflowBroken
from streams.handlers.declarations import Declaration
from streams.workflow.descriptors import SchemaSet

JOB_REQUEST: Final = "workflow_runs.job.v1.Request"
JOB_RESULT: Final = "workflow_runs.job.v1.Result"


@dataclass(frozen=True, slots=True)
class Given:
    """A call as it comes: the serialized request, and the names of its types in the workflow's own schema.

    The schema is asked for where it is needed alone: a child process may have to be sent it.
    """

    payload: bytes
    request_type: str
    response_type: str
    schemas: Callable[[], SchemaSet]


@dataclass(frozen=True, slots=True)
class Served:
    """A declaration, and the class that its request is converted to; None stands for the workflow's own."""

    declaration: Declaration
    request_class: type[Message] | None

    def argument(self, given: Given) -> Any:
        """What the function is called with.

        Raises:
            WorkflowBroken: the handler was written for another type, or the request does not fit its class.
        """
        if self.declaration.is_job:
            return _json_of(given)
        if self.request_class is None:
            return given.schemas().from_wire(given.request_type, given.payload)
        expected = self.request_class.DESCRIPTOR.full_name
        if expected != given.request_type:
            raise WorkflowBroken(f"the handler of {self.declaration.name} takes {expected}, not {given.request_type}")
        return self.request_class.FromString(given.payload)

    def payload(self, result: object, given: Given) -> bytes:
        """The serialized response.

        Raises:
            WorkflowBroken: *result* is no response of the method; the message says what it is instead.
        """
        if self.declaration.is_job:
            return _wire_of(result, given)
        name = self.declaration.name
        if isinstance(result, Mapping):
            try:
                result = given.schemas().parse_json(given.response_type, result)
            except InputInvalid as error:
                text = f"what the handler of {name} returned is no {given.response_type}: {error}"
                raise WorkflowBroken(text) from None
        if not isinstance(result, Message):
            what = "nothing (None)" if result is None else f"a {type(result).__name__}"
            raise WorkflowBroken(f"the handler of {name} returned {what}, not a message of {given.response_type}")
        if (full_name := result.DESCRIPTOR.full_name) != given.response_type:
            raise WorkflowBroken(f"the handler of {name} returned {full_name}, not {given.response_type}")
        try:
            return result.SerializeToString(deterministic=True)
        except (EncodeError, ValueError) as error:  # a required field is missing, or it is larger than any message
            raise WorkflowBroken(f"what the handler of {name} returned cannot be sent: {error}") from None


def served(declaration: Declaration) -> Served:
    """Read the annotation of the request.

    Raises:
        TypeError: it cannot be resolved, or is no message class; with a sentence.
    """
    if declaration.is_job:
        return Served(declaration, None)
    code = declaration.function.__code__
    name = code.co_varnames[0] if code.co_argcount else ""
    try:
        annotation = typing.get_type_hints(declaration.function).get(name, Any)
    except Exception as error:  # noqa: BLE001  # an annotation is an expression of somebody else's
        raise TypeError(f"the annotations of the handler of {declaration.name} cannot be read: {error}") from None
    if annotation in (Any, object, Message):
        return Served(declaration, None)
    if not (isinstance(annotation, type) and issubclass(annotation, Message)):
        shown = getattr(annotation, "__name__", annotation)
        raise TypeError(f"the handler of {declaration.name} takes {shown}: annotate the request with a message class")
    return Served(declaration, annotation)


def _json_of(given: Given) -> object:
    schemas = given.schemas()
    rendered = schemas.to_json(schemas.from_wire(JOB_REQUEST, given.payload))
    data = rendered.get("data") if isinstance(rendered, Mapping) else None
    return data if data is not None else {}


def _wire_of(result: object, given: Given) -> bytes:
    try:
        message = given.schemas().parse_json(JOB_RESULT, {"value": result})
    except InputInvalid as error:
        raise WorkflowBroken(f"what the job returned is not JSON: {error}") from None
    return message.SerializeToString(deterministic=True)
