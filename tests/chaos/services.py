"""Services whose answers follow from the text of a request alone, so that the outcome of each run is known before."""

from enum import StrEnum

import grpc

from tests.driver.stories import TOKENIZE, VECTOR
from tests.fixtures.grpc_server import Answer, ReceivedCall, ScriptedServer


class Kind(StrEnum):
    """The first word of a request's text, and what the second service does with it."""

    PLAIN = "plain"
    SLOW = "slow"
    FLAKY = "flaky"
    BROKEN = "broken"
    DOWN = "down"
    UNKNOWN = "unknown"

    @property
    def status(self) -> str:
        """How its run ends."""
        match self:
            case Kind.BROKEN | Kind.UNKNOWN:
                return "FAILED"
            case Kind.DOWN:
                return "DEAD"
            case _:
                return "COMPLETED"


class ChaosServices(ScriptedServer):
    """Both services of the story: the first hands the text on, the second does as its first word says."""

    slow_seconds = 1.5

    def _next(self, method: str, call: ReceivedCall) -> Answer:
        super()._next(method, call)
        if method == TOKENIZE:
            return Answer(call.request)  # a text and a list of one token have the same bytes
        word = call.request[2:].split(b" ", 1)[0].decode()
        match word:
            case Kind.SLOW:
                return Answer(VECTOR.payload, delay_seconds=self.slow_seconds)
            case Kind.FLAKY if call.metadata["attempt"] == "1":
                return Answer(status=grpc.StatusCode.UNAVAILABLE, details="at the first try")
            case Kind.BROKEN:
                return Answer(status=grpc.StatusCode.INVALID_ARGUMENT, details="never")
            case Kind.DOWN:
                return Answer(status=grpc.StatusCode.UNAVAILABLE, details="at every try")
            case _:
                return VECTOR
