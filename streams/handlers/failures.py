"""How a call that ended in an exception is told, once, at the edge between people's code and ours."""

from schemas.errors import HandlerDied, HandlerRejected, HandlerRetry, StepFailed, WorkflowBroken
from streams.handlers.outcomes import Reject, Retry


def failure_of(error: BaseException, *, name: str, attempt: int) -> StepFailed:
    """The failure that *error* stands for. `name` is the handler's, `attempt` the number of its try."""
    match error:
        case StepFailed():
            return error
        case Retry(after=after):
            return HandlerRetry(f"the handler of {name} asks for another try: {text_of(error)}", after_seconds=after)
        case Reject():
            return HandlerRejected(text_of(error))
        case Exception():
            failure = WorkflowBroken(f"the handler of {name} raised {type(error).__name__}: {text_of(error)}")
            failure.__cause__ = error
            return failure
        case _:
            # SystemExit and its like ask for the end of a process: here they end one try, and never the worker.
            raised = f"{type(error).__name__}: {text_of(error)}"
            return HandlerDied(f"the handler of {name} raised {raised}, in try {attempt}")


def text_of(error: BaseException) -> str:
    """What an exception says of itself, even where saying it fails."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001  # `__str__` is people's code as well
        return "an exception that cannot be shown"
