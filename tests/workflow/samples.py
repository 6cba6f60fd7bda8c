"""Sources, definitions and a recording service for tests of the engine."""

import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from google.protobuf.message import Message

from schemas.errors import Finding
from streams.evaluator.evaluators import InProcessEvaluator
from streams.workflow.compiler import compile_definition
from streams.workflow.descriptors import Protoc, SchemaSet
from streams.workflow.mapping import CompiledMapping, compile_rule
from streams.workflow.plan import Plan
from streams.workflow.runner import Asleep, CallRequest, Completed, Parked, StoredCheckpoint, run_segment

EVALUATOR = InProcessEvaluator()

DATA = Path(__file__).with_name("data")

INPUT: dict[str, object] = {"applicant": "ana", "amountCents": "250000", "tags": ["new"], "rush": True}

ANSWER = {"approved": True, "note": "fine"}
RESPONSES: dict[str, object] = {"score": {"value": 0.7, "model": "v3"}, "notify": {"id": "m-1"}}


def source(name: str) -> str:
    """The text of a .proto file of the test data."""
    return (DATA / name).read_text()


def descriptor_set(name: str) -> bytes:
    return (DATA / "descriptor_sets" / f"{name}.pb").read_bytes()


def loan() -> dict[str, Any]:
    """A definition of three steps, the second answered from outside, with an output mapping. The caller's to change."""
    return {
        "name": "loan-intake",
        "schema": {"sources": {"loan.proto": source("loan.proto")}, "root": "loan.proto"},
        "inputType": "loan.v1.Application",
        "deadlineMs": 45_000,
        "steps": [
            {
                "name": "score",
                "target": "scorer:9443",
                "tls": True,
                "method": "loan.v1.Scorer/Score",
                "rules": ["applicant = input.applicant", "cents = input.amount_cents"],
                "deadlineMs": 8_000,
            },
            {
                "name": "desk",
                "method": "loan.v1.Desk/Decide",
                "rules": ["applicant = input.applicant", "tags = input.tags"],
                "completion": "external",
            },
            {
                "name": "notify",
                "target": "mailer",
                "method": "loan.v1.Mailer/Send",
                "rules": ["to = input.applicant", "labels += input.tags", 'labels += "auto"'],
            },
        ],
        "output": {
            "type": "loan.v1.Outcome",
            "rules": [
                "applicant = input.applicant",
                "approved = desk.approved",
                "note = desk.note",
                "mail_id = notify.id",
            ],
        },
    }


def loan_with(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """The loan definition after *change*."""
    document = copy.deepcopy(loan())
    change(document)
    return document


def found(findings: list[Finding] | tuple[Finding, ...]) -> list[tuple[str, str, str]]:
    """Findings without their sentences."""
    return [(finding.step, finding.kind, finding.pointer) for finding in findings]


def mapped(
    schemas: SchemaSet,
    *rules: str,
    given: Mapping[str, object] | None = None,
    type_name: str = "kit.v1.Kit",
    given_type: str = "kit.v1.Kit",
) -> Any:
    """The message that *rules* build, with *given* as the input."""
    scope = {"input": schemas.parse_json(given_type, dict(given or {}))}
    types = {"input": schemas.message(given_type)}
    target = schemas.message(type_name)
    compiled = [compile_rule(rule, target, types, schemas) for rule in rules]
    return CompiledMapping.into(target, compiled).build(scope, step="s")


class Service:
    """Answers calls from a table of JSON responses by step, and keeps what it was asked."""

    def __init__(self, schemas: SchemaSet, responses: Mapping[str, object]) -> None:
        self._schemas = schemas
        self._responses = responses
        self.requests: list[CallRequest] = []

    @property
    def called(self) -> list[str]:
        return [request.step for request in self.requests]

    async def __call__(self, request: CallRequest) -> bytes:
        self.requests.append(request)
        response = self._responses[request.step]
        if isinstance(response, BaseException):
            raise response
        if isinstance(response, bytes):
            return response
        message: Message = self._schemas.parse_json(request.response_type, response)
        return message.SerializeToString()


class Log:
    """Keeps checkpoints as a store would."""

    def __init__(self) -> None:
        self.stored: list[StoredCheckpoint] = []
        self.targets: list[str] = []

    async def __call__(self, checkpoint: StoredCheckpoint, next_target: str) -> None:
        self.stored.append(checkpoint)
        self.targets.append(next_target)


class Clock:
    """Monotonic seconds that move only when told."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


async def segment(
    plan: Plan,
    service: Service,
    log: Log | None = None,
    *,
    given: object = None,
    stored: list[StoredCheckpoint] | None = None,
    clock: Callable[[], float] | None = None,
    refuse_external: bool = False,
) -> Completed | Parked | Asleep:
    """Run one segment of *plan*, by default over the loan input."""
    return await run_segment(
        plan,
        plan.parse_input(INPUT if given is None else given),
        list(log.stored if stored is None and log is not None else stored or []),
        call=service,
        checkpoint=log or Log(),
        clock=clock or Clock(),
        evaluator=EVALUATOR,
        refuse_external=refuse_external,
    )


async def plan_of(document: object, protoc: Protoc) -> Plan:
    return (await compile_definition(document, protoc=protoc, evaluator=EVALUATOR)).plan


def entry(index: int, step: str, response: object, *, skipped: bool = False) -> StoredCheckpoint:
    return StoredCheckpoint(index, step, skipped, response)


SCORED = entry(0, "score", {"value": 0.7, "model": "v3"})
DECIDED = entry(1, "desk", ANSWER)
NOTIFIED = entry(2, "notify", {"id": "m-1"})
