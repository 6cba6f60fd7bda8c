"""The testing kit for people who write workflows: a run from its submission to its end, in one call of a plain test.

    from streams.testing import Unavailable, Workflow

    def test_a_reply_that_fails_once_is_asked_for_again() -> None:
        run = Workflow.load("embed-text.json").run(
            {"text": "a"},
            calls={"acme.v1.Tokenizer/Tokenize": [Unavailable(), {"tokens": ["a"]}], ...},
            answers={"review": {"approved": True}},
        )
        assert run.status == "COMPLETED"

It drives the engine that workers drive, with the evaluator that they have, and needs neither Postgres nor Kafka nor a
service: what services reply and people answer is prepared. Back-off, waits and deadlines take no time.

    workflow     what is loaded, and run
    replies      what is prepared for calls, and what a call may end with
    handlers     functions in Python as replies
    simulation   segment after segment, as workers would run them; kept: what they leave behind
    run          what became of it
"""

from streams.testing.replies import (
    Aborted,
    AlreadyExists,
    Cancelled,
    DataLoss,
    DeadlineExceeded,
    FailedPrecondition,
    Failure,
    Internal,
    InvalidArgument,
    NotFound,
    NotPrepared,
    OutOfRange,
    PermissionDenied,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
    Unimplemented,
    Unknown,
)
from streams.testing.run import Item, Published, Run
from streams.testing.workflow import Workflow

__all__ = [
    "Aborted",
    "AlreadyExists",
    "Cancelled",
    "DataLoss",
    "DeadlineExceeded",
    "FailedPrecondition",
    "Failure",
    "Internal",
    "InvalidArgument",
    "Item",
    "NotFound",
    "NotPrepared",
    "OutOfRange",
    "PermissionDenied",
    "Published",
    "ResourceExhausted",
    "Run",
    "Unauthenticated",
    "Unavailable",
    "Unimplemented",
    "Unknown",
    "Workflow",
]
