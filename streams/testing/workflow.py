"""A workflow under test."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, Literal, TypeVar
from uuid import UUID

from streams.evaluator.child_evaluator import ChildEvaluator
from streams.evaluator.evaluators import InProcessEvaluator, OperationsEvaluator
from streams.evaluator.protoc import ProtocChild
from streams.handlers.jobs import job_definition
from streams.sources.definition_files import read_definition_file
from streams.sources.registered_types import RegisteredTypes
from streams.sources.schema_files import embedded
from streams.testing.handlers import Handlers, job_type_of
from streams.testing.replies import Replies, Reply
from streams.testing.run import Run
from streams.testing.simulation import Simulation
from streams.workflow.compiler import compile_definition
from streams.workflow.descriptors import NO_TYPES, Types
from streams.workflow.names import JOB_METHOD
from streams.workflow.plan import Plan, PlannedAnswer, PlannedAsk, PlannedCall, PlannedFanOut

T = TypeVar("T")

JOB_ID: Final = UUID("0b7f6f0e-6a2f-4d0c-9a51-2f5a0d8d2c11")
"""The id of runs that are given none: always the same, so that records and requests are the same in each test run."""


class Workflow:
    """A definition that was compiled and verified. Load it once, and run it as often as you like."""

    def __init__(
        self, plan: Plan, *, evaluator: Callable[[], OperationsEvaluator], functions: Mapping[str, Reply]
    ) -> None:
        self._plan = plan
        self._evaluator = evaluator
        self._functions = functions

    @classmethod
    def load(
        cls,
        source: str | Path | Mapping[str, object],
        *,
        types_dir: str | Path | None = None,
        types_modules: Sequence[str] = (),
        evaluator: Literal["in_process", "child"] = "in_process",
    ) -> "Workflow":
        """Compile a definition: a file of YAML or JSON as the commands take them, or the document itself.

        Args:
            source: A path, or plain JSON values.
            types_dir: A folder of descriptor sets whose types the schema may name, as TYPES_DIR of the settings.
            types_modules: Generated modules whose types it may name, as TYPES_MODULES.
            evaluator: What evaluates expressions: this process, or a child process with the limits that workers have by
                default. The child costs a good second for each run.

        Raises:
            DefinitionInvalid: it does not verify; `findings` has all that is wrong with it.
            InputInvalid: the file cannot be read, or names a schema that cannot; the sentence says where.
            SettingsInvalid: the folder or a module of types cannot be used.
        """
        document = _read(Path(source)) if isinstance(source, str | Path) else source
        types = RegisteredTypes(Path(types_dir) if types_dir is not None else None, types_modules)
        types.open()
        build = _BUILDERS[evaluator]
        return cls(_compiled(document, build, types), evaluator=build, functions={})

    @classmethod
    def of_job(cls, function: Callable[[Any, Any], Any]) -> "Workflow":
        """The workflow of a job type: its one step calls *function*, which `@job` may decorate or not."""
        plan = _compiled(job_definition(job_type_of(function)), InProcessEvaluator)
        return cls(plan, evaluator=InProcessEvaluator, functions={JOB_METHOD: function})

    def run(
        self,
        input: Mapping[str, object] | str,
        *,
        calls: Mapping[str, Reply | Sequence[Reply]] | None = None,
        answers: Mapping[str, Mapping[str, object]] | None = None,
        crash_after: Sequence[str] = (),
        max_attempts: int = 3,
        job_id: UUID = JOB_ID,
        connection: object = None,
    ) -> Run:
        """Submit one run and follow it to its end, or to where it waits for an answer that is not prepared.

        Args:
            input: The input as plain JSON or JSON text. Where the workflow has it validated, and it breaks a rule, the
                run is FAILED from its birth.
            calls: What each method (`package.Service/Method`) replies: JSON of the response, a message, a failure such
                as `Unavailable()`, or a function of the request and a `Context`, such as a handler. A list has one of
                these for each call, in order; anything else serves every call.
            answers: What somebody answers to each step that is answered from outside. One without an answer here is
                reminded, and fails, as the workflow says; else it waits.
            crash_after: Steps after whose checkpoint the worker that wrote it dies. None is at work where an answer or
                the end of a wait is written, so none dies there.
            max_attempts: How often a step is tried that says nothing of that itself, as MAX_ATTEMPTS of the settings.
            job_id: The run's id.
            connection: What a transactional handler gets as its connection.

        Raises:
            NotPrepared: a call has no reply, or a reply or an answer does not fit; it names method and step.
            InputInvalid: the input does not fit the workflow's input type: it could not have been submitted.
            ValueError: *calls*, *answers* or *crash_after* name what the workflow does not have.
        """
        plan = self._plan
        calls = {**self._functions, **(calls or {})}
        answers = answers or {}
        _check_names("calls", calls, _methods(plan), "no step calls that")
        _check_names("answers", answers, _answered(plan), "no step of that name is answered from outside")
        _check_names("crash_after", crash_after, {step.name for step in plan.steps}, "there is no such step")
        handlers = Handlers(job_id, plan.schema_set, connection)
        replies = Replies(calls, plan.schema_set, handlers)
        given = plan.parse_input(input)

        async def simulated() -> Run:
            evaluator = self._evaluator()
            try:
                simulation = Simulation(
                    plan,
                    given,
                    replies=replies,
                    answers=answers,
                    crash_after=crash_after,
                    max_attempts=max_attempts,
                    evaluator=evaluator,
                    job_id=job_id,
                )
                return await simulation.run()
            finally:
                await evaluator.close()

        return _finished(simulated())


_BUILDERS: Final[Mapping[str, Callable[[], OperationsEvaluator]]] = {
    "in_process": InProcessEvaluator,
    "child": ChildEvaluator,
}


def _read(path: Path) -> object:
    file = read_definition_file(path)
    return embedded(file.document, file.folder)


def _compiled(document: object, build: Callable[[], OperationsEvaluator], types: Types = NO_TYPES) -> Plan:
    async def plan() -> Plan:
        evaluator = build()
        try:
            compiled = await compile_definition(document, protoc=ProtocChild(), evaluator=evaluator, types=types)
            return compiled.plan
        finally:
            await evaluator.close()

    return _finished(plan())


def _finished(work: Coroutine[Any, Any, T]) -> T:
    """Run *work* to its end, also where a loop is running already: in an async test, say."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


def _methods(plan: Plan) -> set[str]:
    calls = [step.work.call if isinstance(step.work, PlannedFanOut) else step.work for step in plan.steps]
    return {call.method_path.removeprefix("/") for call in calls if isinstance(call, PlannedCall)}


def _answered(plan: Plan) -> set[str]:
    return {step.name for step in plan.steps if isinstance(step.work, PlannedAnswer | PlannedAsk)}


def _check_names(argument: str, given: Mapping[str, object] | Sequence[str], known: set[str], fault: str) -> None:
    for name in given:
        if name not in known:
            there_are = f"there are {', '.join(sorted(known))}" if known else "there are none"
            raise ValueError(f"{argument} names {name!r}, and {fault}: {there_are}")
