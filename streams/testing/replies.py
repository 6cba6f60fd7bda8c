"""What is prepared for the calls of a run, and what a call may end with instead of a reply."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from google.protobuf.message import Message

from schemas.errors import CallFailed, InputInvalid
from streams.testing.handlers import Handlers
from streams.workflow.callbacks import CallRequest
from streams.workflow.descriptors import SchemaSet


class NotPrepared(AssertionError):
    """What a test prepared does not go with what the run does; the sentence names the method and the step."""


class Failure(CallFailed):
    """A status other than OK, as a service gives it. Prepare it in place of a reply, or raise it in a function."""

    status: ClassVar[str] = "UNKNOWN"

    def __init__(self, detail: str = "") -> None:
        super().__init__(self.status, detail)
        self.detail = detail


class Cancelled(Failure):
    """CANCELLED."""

    status = "CANCELLED"


class Unknown(Failure):
    """UNKNOWN."""


class InvalidArgument(Failure):
    """INVALID_ARGUMENT."""

    status = "INVALID_ARGUMENT"


class DeadlineExceeded(Failure):
    """DEADLINE_EXCEEDED: one of the three that are tried again by default."""

    status = "DEADLINE_EXCEEDED"


class NotFound(Failure):
    """NOT_FOUND."""

    status = "NOT_FOUND"


class AlreadyExists(Failure):
    """ALREADY_EXISTS."""

    status = "ALREADY_EXISTS"


class PermissionDenied(Failure):
    """PERMISSION_DENIED."""

    status = "PERMISSION_DENIED"


class ResourceExhausted(Failure):
    """RESOURCE_EXHAUSTED: one of the three that are tried again by default."""

    status = "RESOURCE_EXHAUSTED"


class FailedPrecondition(Failure):
    """FAILED_PRECONDITION."""

    status = "FAILED_PRECONDITION"


class Aborted(Failure):
    """ABORTED."""

    status = "ABORTED"


class OutOfRange(Failure):
    """OUT_OF_RANGE."""

    status = "OUT_OF_RANGE"


class Unimplemented(Failure):
    """UNIMPLEMENTED."""

    status = "UNIMPLEMENTED"


class Internal(Failure):
    """INTERNAL."""

    status = "INTERNAL"


class Unavailable(Failure):
    """UNAVAILABLE: one of the three that are tried again by default."""

    status = "UNAVAILABLE"


class DataLoss(Failure):
    """DATA_LOSS."""

    status = "DATA_LOSS"


class Unauthenticated(Failure):
    """UNAUTHENTICATED."""

    status = "UNAUTHENTICATED"


Reply = Mapping[str, object] | Message | Failure | Callable[[Any, Any], Any]
"""What one call ends with: JSON of the response, a message of its type, a failure, or what a function makes of it."""


class Replies:
    """Prepared replies by method. A list is used up one by one, anything else serves every call."""

    def __init__(self, prepared: Mapping[str, Reply | Sequence[Reply]], schemas: SchemaSet, handlers: Handlers) -> None:
        self._standing: dict[str, Reply] = {}
        self._in_turn: dict[str, deque[Reply]] = {}
        for method, reply in prepared.items():
            if isinstance(reply, Sequence):
                self._in_turn[method] = deque(reply)
            else:
                self._standing[method] = reply
        self._used: dict[str, int] = {}
        self._schemas = schemas
        self._handlers = handlers

    async def reply(self, request: CallRequest, *, attempt: int) -> bytes:
        """The serialized response of one call.

        Raises:
            StepFailed: the call fails, as it was prepared to.
            NotPrepared: there is nothing, or nothing more, for this call, or it is no response of the method.
        """
        method = request.method.removeprefix("/")
        reply = self._next(method, request.step)
        if isinstance(reply, Failure):
            raise CallFailed(reply.code, reply.detail, step=request.step)
        if callable(reply):
            return await self._handlers.call(reply, request, attempt=attempt)
        return self._serialized(reply, method, request)

    def _next(self, method: str, step: str) -> Reply:
        if method in self._standing:
            return self._standing[method]
        in_turn = self._in_turn.get(method)
        used = self._used.get(method, 0)
        if not in_turn:
            what = f"all {used} of its replies are used up" if used else "no reply is prepared for it"
            raise NotPrepared(f"step {step} calls {method}, and {what}: prepare one in calls[{method!r}]")
        self._used[method] = used + 1
        return in_turn.popleft()

    def _serialized(self, reply: object, method: str, request: CallRequest) -> bytes:
        where = f"the reply that is prepared for {method}, which step {request.step} calls"
        wanted = request.response_type
        if isinstance(reply, Message):
            if (given := reply.DESCRIPTOR.full_name) != wanted:
                raise NotPrepared(f"{where}, is a {given}, not a {wanted}")
            return reply.SerializeToString(deterministic=True)
        try:
            return self._schemas.parse_json(wanted, reply).SerializeToString(deterministic=True)
        except InputInvalid as error:
            raise NotPrepared(f"{where}, is no {wanted}: {error}") from None
