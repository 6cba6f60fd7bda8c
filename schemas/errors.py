"""Every error raised on purpose.

WorkerError                      retryable  HTTP
├── SettingsInvalid              no         500   the worker must not start; every broken setting is named
├── ContractError                no         422   bytes or fields break a published contract
│   └── UnknownSchema            no         422   the schema registry answered that it does not know a schema
├── InputInvalid                 no         400   the caller's input names the field, the limit and the way out
├── DefinitionInvalid            no         422   a workflow definition has findings
├── NotFound                     no         404   unknown id or name, or another tenant's
├── Conflict                     no         409   the same id stands for other content, or another state
├── JobCorrupt                   no         422   a stored definition or checkpoint can no longer be read
├── ResourceExhausted            no         429   a bound on concurrent work is reached
├── LeaseLost                    no         409   another worker holds the run: drop the work
├── MoveRefused                  no         422   Postgres refuses the content of this one move
├── ContentRefused               no         422   Postgres refuses the content of something in a batch: halve it
├── PositionMoved                no         409   another worker moved a partition's position: reassign
├── MigrationRefused             no         500   the database's tables are not those that this program knows
├── RecordRefused                no         422   Kafka refuses this one record, whenever it is sent
├── StoreUnavailable             yes        503   Postgres gave no answer: repeat the call
│   └── TablesRefuse             yes        503   a constraint that this program does not know stands against a row
├── BrokerUnavailable            yes        503   Kafka gave no answer: repeat the call
│   └── TopicUnavailable         yes        503   Kafka has no such topic, or does not let us write to it
├── RegistryUnavailable          yes        503   the schema registry gave no answer: repeat the call
├── EvaluatorUnavailable         yes        503   this machine cannot evaluate expressions now: repeat the call
├── SegmentInterrupted           no         409   a segment was stopped from outside: not a failure
└── StepFailed                   no         500   one step of one run
    ├── GateFailed               no         500   a step's condition cannot be decided
    ├── MappingFailed            no         500   a mapping rule cannot apply
    ├── ValidationFailed         no         500   a message breaks the rules of its type
    ├── CallFailed               by code    500   the call returned an error status
    ├── EdgeFailed               no         500   an edge produced more than its step may take
    ├── ItemFailed               by cause   500   one item of a step that fans out failed, and so the step
    ├── BudgetSpent              yes        500   the segment's time was used up before a call
    ├── WorkflowBroken           no         500   definition, checkpoints and code disagree
    ├── ExternalStepReached      no         500   a synchronous run met a step that a person answers
    ├── HandlerRetry             yes        500   a handler in Python asks to be called again
    ├── HandlerRejected          no         500   a handler in Python rejects what it was given
    ├── HandlerOverdue           yes        500   a handler in Python did not end in time
    └── HandlerDied              yes        500   a handler in Python ended as no function should
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class WorkerError(Exception):
    """The root. Caught at the edges (agents, driver, web, cli), never in between."""

    retryable: bool = False
    http_status: int = 500


class SettingsInvalid(WorkerError):
    """The settings cannot be used. `problems` has one sentence per broken setting."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


class ContractError(WorkerError):
    """Bytes or fields break a published contract. `code` is short, stable and fit for a header or a metric label."""

    http_status = 422

    def __init__(self, message: str, *, code: str = "contract") -> None:
        super().__init__(message)
        self.code = code


class UnknownSchema(ContractError):
    """The registry answered, and does not know the schema: nobody registered it, or not there yet. Never an outage."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="unknown-schema")


class InputInvalid(WorkerError):
    """What the caller sent cannot be used. `pointer` is the JSON pointer of the part at fault, empty for the whole."""

    http_status = 400

    def __init__(self, message: str, *, pointer: str = "", code: str = "invalid-input") -> None:
        super().__init__(message)
        self.pointer = pointer
        self.code = code


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault of a definition: `step` is empty at workflow level, `pointer` is a JSON pointer into the document."""

    step: str
    kind: str
    error: str
    pointer: str = ""


class DefinitionInvalid(WorkerError):
    """A definition does not parse or does not verify. `findings` are in step order and never empty."""

    http_status = 422

    def __init__(self, findings: Sequence[Finding]) -> None:
        first = findings[0]
        where = f"step {first.step}: " if first.step else ""
        more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
        super().__init__(f"{where}{first.error}{more}")
        self.findings = tuple(findings)


class NotFound(WorkerError):
    """Nothing of that id or name, or it is another tenant's: the two are answered alike."""

    http_status = 404


class Conflict(WorkerError):
    """The same id stands for other content, or the run is in another state than the call needs."""

    http_status = 409

    def __init__(self, message: str, details: Mapping[str, object] | None = None) -> None:
        super().__init__(message)
        self.details = dict(details or {})


class JobCorrupt(WorkerError):
    """A stored definition, input or checkpoint can no longer be read."""

    http_status = 422


class ResourceExhausted(WorkerError):
    """A bound on concurrent work is reached; the message names the bound. Try later."""

    http_status = 429


class LeaseLost(WorkerError):
    """The run is no longer held under this claim; nothing was written. Stop the work and write nothing more."""

    http_status = 409

    def __init__(self, job_id: object, fence: int) -> None:
        super().__init__(f"claim {fence} no longer holds the lease of run {job_id}")
        self.job_id = job_id
        self.fence = fence


class MoveRefused(WorkerError):
    """Postgres refuses the content of this one move (SQLSTATE class 22, 54, or a content constraint)."""

    http_status = 422


class ContentRefused(WorkerError):
    """Postgres refuses the content of something in a batch; nothing of the batch was written.

    Send it again in halves: what is refused alone is the one at fault.
    """

    http_status = 422


class PositionMoved(WorkerError):
    """A partition's position is not where this worker left it: another one reads it, or it was put back.

    Nothing of the batch was written. Read the positions again, as at an assignment, before anything else.
    """

    http_status = 409

    def __init__(self, topic: str, partition: int) -> None:
        super().__init__(f"the position of {topic}[{partition}] was moved by somebody else")
        self.topic = topic
        self.partition = partition


class MigrationRefused(WorkerError):
    """The database's tables cannot be used or migrated by this program; nothing was applied. The message says why."""


class RecordRefused(WorkerError):
    """Kafka refuses this one record (too large, say). Sent again as it is, it will most likely be refused again.

    `code` is the name of Kafka's error. Nothing about the record's neighbours follows from it.
    """

    http_status = 422

    def __init__(self, message: str, *, code: str) -> None:
        super().__init__(message)
        self.code = code


class StoreUnavailable(WorkerError):
    """No usable answer from Postgres. A commit in flight has an unknown outcome: repeat the call."""

    retryable = True
    http_status = 503


class TablesRefuse(StoreUnavailable):
    """A constraint that this program does not know stands against a row: the tables are not those it was written for.

    Nothing was written. What was sent is not at fault, so it is kept until the tables or the program are mended.
    `constraint` names it, empty where Postgres does not say.
    """

    def __init__(self, message: str, *, constraint: str) -> None:
        super().__init__(message)
        self.constraint = constraint


class BrokerUnavailable(WorkerError):
    """Kafka gave no answer; nothing is known about what was sent. Repeat the call."""

    retryable = True
    http_status = 503


class TopicUnavailable(BrokerUnavailable):
    """Kafka has no such topic, or does not let us write to it: an operator's to mend, where the topic is meant.

    `code` is the name of Kafka's error.
    """

    def __init__(self, message: str, *, code: str) -> None:
        super().__init__(message)
        self.code = code


class RegistryUnavailable(WorkerError):
    """The schema registry gave no answer: an outage, never a verdict about a schema. Repeat the call."""

    retryable = True
    http_status = 503


class EvaluatorUnavailable(WorkerError):
    """This machine could not evaluate now (no process, no memory, no time): nothing is known about the expression."""

    retryable = True
    http_status = 503


class SegmentInterrupted(WorkerError):
    """A segment was stopped (drain, lost lease, no permit, its time). Never a failure of the run: release it."""

    http_status = 409


class FailureKind(StrEnum):
    """Why a step failed; the stored error text begins with it."""

    GATE = "GATE"
    MAPPING = "MAPPING"
    GRPC = "GRPC"
    VALIDATION = "VALIDATION"
    DEADLINE = "DEADLINE"
    WORKFLOW = "WORKFLOW"
    EDGE = "EDGE"
    STRUCTURED = "STRUCTURED"
    EXTERNAL = "EXTERNAL"


class StepFailed(WorkerError):
    """One step of one run failed. `str()` is the stored text `KIND: message`; `step` is empty at workflow level.

    `event_detail` is what the event tells besides, as plain JSON; None: nothing.
    """

    kind: FailureKind = FailureKind.WORKFLOW
    event_detail: Mapping[str, object] | None = None

    def __init__(self, message: str, *, step: str = "") -> None:
        super().__init__(f"{self.kind}: {message}")
        self.step = step


class GateFailed(StepFailed):
    """A step's `when` failed or is no truth value; the message has the expression. Never read as false."""

    kind = FailureKind.GATE


class MappingFailed(StepFailed):
    """A mapping rule cannot apply; the message has the rule's text. `step` is `output` for the output mapping."""

    kind = FailureKind.MAPPING


class ValidationFailed(StepFailed):
    """A message breaks rules that its schema declares. The text has `path: message` of each, the event their ids."""

    kind = FailureKind.VALIDATION

    def __init__(self, message: str, *, step: str = "", event_detail: Mapping[str, object]) -> None:
        super().__init__(message, step=step)
        self.event_detail = event_detail


RETRYABLE_CODES: Final = frozenset({"UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED"})


class CallFailed(StepFailed):
    """A call ended with a status other than OK. `code` is gRPC's name of it; three codes are retryable by default."""

    kind = FailureKind.GRPC

    def __init__(self, code: str, detail: str, *, step: str = "", retryable: bool | None = None) -> None:
        super().__init__(f"{code}: {detail}" if detail else code, step=step)
        self.code = code
        self.retryable = code in RETRYABLE_CODES if retryable is None else retryable


class EdgeFailed(StepFailed):
    """What an edge produced cannot be delivered to its step; nothing was called."""

    kind = FailureKind.EDGE


class ItemFailed(StepFailed):
    """One item of a step that fans out failed, and so does the step: with the item's kind, and naming its branch.

    `failed_tries` are the item's own, which count here instead of the step's.
    """

    def __init__(self, message: str, *, kind: str, step: str, retryable: bool, failed_tries: int) -> None:
        self.kind = FailureKind(kind)
        super().__init__(message, step=step)
        self.retryable = retryable
        self.failed_tries = failed_tries

    @classmethod
    def of(cls, error: StepFailed, branch: str, *, step: str, retryable: bool, failed_tries: int) -> "ItemFailed":
        """What *error* means for the step whose item failed so."""
        message = str(error).removeprefix(f"{error.kind}: ")
        kind = error.kind
        failure = cls(f"{branch}: {message}", kind=kind, step=step, retryable=retryable, failed_tries=failed_tries)
        failure.event_detail = error.event_detail
        return failure

    @classmethod
    def kept(cls, text: str, *, step: str, failed_tries: int) -> "ItemFailed":
        """A final failure again, by the text of one that was raised earlier."""
        kind, _, message = text.partition(": ")
        return cls(message, kind=kind, step=step, retryable=False, failed_tries=failed_tries)


class BudgetSpent(StepFailed):
    """The segment's budget was used up before a call; nothing was sent."""

    kind = FailureKind.DEADLINE
    retryable = True


class WorkflowBroken(StepFailed):
    """Definition, checkpoints and code disagree, or an exception nobody expected escaped a step."""

    kind = FailureKind.WORKFLOW


class ExternalStepReached(StepFailed):
    """A synchronous run met a step that somebody outside answers: submit a job instead."""

    kind = FailureKind.EXTERNAL


class HandlerRetry(StepFailed):
    """A handler asks to be called again, `after_seconds` from now; None leaves the delay to the usual back-off."""

    retryable = True

    def __init__(self, message: str, *, step: str = "", after_seconds: float | None = None) -> None:
        super().__init__(message, step=step)
        self.after_seconds = after_seconds


class HandlerRejected(StepFailed):
    """A handler rejects what it was given; the message is its reason. Calling it again would not help."""

    kind = FailureKind.VALIDATION


class HandlerOverdue(StepFailed):
    """A handler did not end within its time. It may still be at work; what it comes to is thrown away."""

    kind = FailureKind.DEADLINE
    retryable = True


class HandlerDied(StepFailed):
    """A handler ended as no function should: its process died, or it raised what is no Exception (SystemExit, say)."""

    retryable = True
