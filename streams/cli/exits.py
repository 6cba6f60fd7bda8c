"""What the process's exit code says; one table for every command."""

from enum import IntEnum
from typing import Final

from schemas.errors import (
    BrokerUnavailable,
    Conflict,
    ContractError,
    InputInvalid,
    NotFound,
    SettingsInvalid,
    WorkerError,
)


class Exit(IntEnum):
    DONE = 0
    REFUSED = 1
    USAGE = 2
    UNAVAILABLE = 3
    UNKNOWN_ID = 4
    CONFLICT = 5
    GAVE_UP = 75
    INTERRUPTED = 130


MEANING: Final = {
    Exit.DONE: "done",
    Exit.REFUSED: "the work was refused or failed",
    Exit.USAGE: "the call or a setting is wrong",
    Exit.UNAVAILABLE: "store or broker unavailable: try again",
    Exit.UNKNOWN_ID: "unknown id",
    Exit.CONFLICT: "conflict: the id stands for other content",
    Exit.GAVE_UP: "the worker gave up: restart it",
    Exit.INTERRUPTED: "interrupted",
}

_USAGE: Final = (InputInvalid, SettingsInvalid, ContractError)


def exit_of(error: WorkerError) -> Exit:
    """Return the exit code for an error that ended a command."""
    if error.retryable or isinstance(error, BrokerUnavailable):
        return Exit.UNAVAILABLE
    if isinstance(error, Conflict):
        return Exit.CONFLICT
    if isinstance(error, NotFound):
        return Exit.UNKNOWN_ID
    if isinstance(error, _USAGE):
        return Exit.USAGE
    return Exit.REFUSED


def exit_of_answer(answer: dict[str, object]) -> Exit:
    """Return the exit code for a verb's answer."""
    if answer.get("ok") is True:
        return Exit.DONE
    return Exit.UNKNOWN_ID if str(answer.get("code", "")).startswith("unknown-") else Exit.REFUSED
