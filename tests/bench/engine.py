"""What the engine alone can do: steps a second with calls that take no time, and where that time goes.

    python -m tests.bench.engine

One process, one core, neither Kafka nor Postgres. Asserts nothing.
"""

import asyncio
import copy
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.message import Message

from streams.evaluator.child_evaluator import ChildEvaluator
from streams.evaluator.evaluators import InProcessEvaluator, OperationsEvaluator
from streams.evaluator.protoc import ProtocChild
from streams.workflow.compiler import compile_definition, load_plan
from streams.workflow.plan import Plan, PlannedCall, PlannedStep
from streams.workflow.runner import CallRequest, Completed, StoredCheckpoint, run_segment
from tests.workflow.samples import INPUT, RESPONSES, loan

SECONDS: Final = 2.0
STEPS: Final = 20

_CALLED: Final[Mapping[str, object]] = {"loan.v1.Score": RESPONSES["score"], "loan.v1.Sent": RESPONSES["notify"]}


def document(*, expressions: bool) -> dict[str, Any]:
    """Steps in a row, of two and of four rules by turns; with *expressions* each has a gate and a CEL rule, too."""
    whole = loan()
    score, _, notify = whole["steps"]
    score["rules"] = ["applicant = input.applicant", "cents = input.amount_cents"]
    notify["rules"] = ["to = input.applicant", "labels += input.tags", 'labels += "auto"', "subject = score0.model"]
    if expressions:
        score |= {"when": "input.rush", "celRules": [{"target": "cents", "selector": "input.amount_cents * 2"}]}
        notify |= {
            "when": "score0.value > 0.5",
            "celRules": [{"target": "subject", "selector": "'for ' + score0.model"}],
        }
    steps = []
    for number in range(STEPS // 2):
        steps += [
            {**copy.deepcopy(score), "name": f"score{number}"},
            {**copy.deepcopy(notify), "name": f"notify{number}"},
        ]
    return {**whole, "steps": steps, "output": {"type": "loan.v1.Outcome", "rules": ["applicant = input.applicant"]}}


@dataclass(frozen=True, slots=True)
class Engine:
    """A plan, and calls that answer at once."""

    plan: Plan
    evaluator: OperationsEvaluator
    responses: Mapping[str, bytes]

    async def run(self) -> Completed:
        """One whole run."""
        ended = await run_segment(
            self.plan,
            self.plan.parse_input(INPUT),
            [],
            call=self._call,
            checkpoint=self._checkpoint,
            clock=time.monotonic,
            evaluator=self.evaluator,
        )
        assert isinstance(ended, Completed)
        return ended

    async def _call(self, request: CallRequest) -> bytes:
        return self.responses[request.response_type]

    async def _checkpoint(self, checkpoint: StoredCheckpoint, next_target: str) -> None:
        """Nothing is kept."""

    async def parts(self) -> dict[str, float]:
        """Seconds of a step by part, on average over the steps, each done by itself with the same messages."""
        work = _Parts(self, self._scope(), [step for step in self.plan.steps if isinstance(step.work, PlannedCall)])
        seconds = {
            "mapping": await seconds_of(_later(work.map)),
            "CEL": await seconds_of(work.evaluate) if self.plan.steps[0].gate is not None else 0.0,
            "JSON": await seconds_of(_later(work.render)),
            "protobuf": await seconds_of(_later(work.serialize)),
        }
        return {part: taken / STEPS for part, taken in seconds.items()}

    def _scope(self) -> dict[str, Message]:
        plan = self.plan
        scope = {"input": plan.parse_input(INPUT)}
        for step in plan.steps:
            scope[step.name] = plan.schema_set.from_wire(step.output_type, self.responses[step.output_type])
        return scope


class _Parts:
    """What a segment does for each of its steps, part by part."""

    def __init__(self, engine: Engine, scope: dict[str, Message], steps: Sequence[PlannedStep]) -> None:
        self._plan, self._evaluator, self._scope = engine.plan, engine.evaluator, scope
        self._calls = [(step, step.work.request) for step in steps if isinstance(step.work, PlannedCall)]
        self._requests = [request.mapping.build(scope, step=step.name) for step, request in self._calls]
        self._answers = [(step.output_type, engine.responses[step.output_type]) for step in steps]
        self._messages = [self._plan.schema_set.from_wire(name, data) for name, data in self._answers]

    def map(self) -> None:
        for step, request in self._calls:
            request.mapping.build(self._scope, step=step.name)

    async def evaluate(self) -> None:
        for (step, request), built in zip(self._calls, self._requests, strict=True):
            assert step.gate is not None
            assert await step.gate.is_true(self._scope, self._evaluator)
            for rule in request.cel_rules:
                await rule.apply(built, self._scope, self._plan.schema_set, self._evaluator)

    def render(self) -> None:
        for message in self._messages:
            self._plan.render(message)

    def serialize(self) -> None:
        for request in self._requests:
            request.SerializeToString(deterministic=True)
        for name, data in self._answers:
            self._plan.schema_set.from_wire(name, data)


def _later(work: Callable[[], None]) -> Callable[[], Awaitable[None]]:
    async def done() -> None:
        work()

    return done


async def seconds_of(work: Callable[[], Awaitable[object]]) -> float:
    """How long *work* takes where nothing else gets in its way: the least of all the times that were taken."""
    least, give_up_at = float("inf"), time.perf_counter() + SECONDS
    while (began := time.perf_counter()) < give_up_at:
        await work()
        least = min(least, time.perf_counter() - began)
    return least


async def measure() -> None:
    protoc = ProtocChild()
    print(
        f"{'':24}{'steps/s':>10}  {'us/step':>8}  {'mapping':>8}  {'CEL':>8}  {'JSON':>8}  {'protobuf':>8}  {'rest':>8}"
    )
    for name, expressions, evaluator in (
        ("text rules", False, InProcessEvaluator()),
        ("gate, CEL, in process", True, InProcessEvaluator()),
        ("gate, CEL, in a child", True, ChildEvaluator()),
    ):
        compiled = await compile_definition(document(expressions=expressions), protoc=protoc, evaluator=evaluator)
        engine = Engine(compiled.plan, evaluator, _responses(compiled.plan))
        step = await seconds_of(engine.run) / STEPS
        parts = await engine.parts()
        shares = {**parts, "rest": step - sum(parts.values())}
        told = "  ".join(f"{share / step:8.0%}" for share in shares.values())
        print(f"{name:24}{1 / step:10,.0f}  {1e6 * step:8,.0f}  {told}")
        loading = await seconds_of(
            lambda c=compiled, e=evaluator: load_plan(c.document, c.descriptor_set, evaluator=e)  # type: ignore[misc]
        )
        print(
            f"{'':24}its plan of {STEPS} steps is loaded in {1e3 * loading:,.1f} ms: {loading / step:,.0f} steps' worth"
        )
        await evaluator.close()


def _responses(plan: Plan) -> Mapping[str, bytes]:
    return {name: plan.schema_set.parse_json(name, value).SerializeToString() for name, value in _CALLED.items()}


if __name__ == "__main__":
    asyncio.run(measure())
