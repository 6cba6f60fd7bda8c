"""The engine's surroundings in one process: what compiles definitions, and what makes calls."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from schemas.errors import BudgetSpent, SegmentInterrupted, SettingsInvalid, WorkflowBroken
from schemas.topics import load_topics
from streams.calls.grpc_calls import CallContext, GrpcCalls
from streams.calls.targets import Targets
from streams.driver.permits import Permits
from streams.evaluator.protoc import ProtocChild
from streams.handlers.calls import HandlerCalls, OnBehalf
from streams.handlers.registry import load_registry
from streams.metrics import Metrics
from streams.settings import Settings
from streams.sources.registered_types import RegisteredTypes
from streams.verbs.definition_source import DefinitionCompiler
from streams.workflow.callbacks import CallRequest
from streams.workflow.descriptors import SchemaSet
from streams.workflow.evaluation import Evaluator
from streams.workflow.names import handler_target, is_job_target

_TENANT = "default"


def build_compiler(settings: Settings, evaluator: Evaluator) -> DefinitionCompiler:
    """Build what compiles definitions; it reads no types before the first definition that names one."""
    return DefinitionCompiler(ProtocChild(), evaluator, build_types(settings), _own_topics(settings))


def build_types(settings: Settings) -> RegisteredTypes:
    """Build the types of the settings; nothing is read yet."""
    return RegisteredTypes(settings.types_dir, settings.types_modules)


def build_targets(settings: Settings) -> Targets:
    """Build the targets of the settings. Raises SettingsInvalid: the file of targets cannot be used."""
    return Targets(settings.targets_file, allowed=settings.targets_allowed, default_permits=settings.permits_per_target)


def build_grpc_calls(settings: Settings, targets: Targets) -> GrpcCalls:
    """Build what calls services; it opens nothing before the first call, and must be closed."""
    return GrpcCalls(targets, message_bytes=settings.message_bytes, call_cap_seconds=settings.call_cap_seconds)


def build_handler_calls(settings: Settings, metrics: Metrics) -> HandlerCalls:
    """Import the modules of HANDLERS and build what calls them. Raises SettingsInvalid, one sentence per fault."""
    return HandlerCalls(
        load_registry(settings.handlers),
        default_permits=settings.permits_per_target,
        call_cap_seconds=settings.call_cap_seconds,
        metrics=metrics,
    )


def _own_topics(settings: Settings) -> frozenset[str]:
    """The workers' own topics, which steps must not send to; none where they are not described: the relay looks too."""
    try:
        return frozenset(topic.name for topic in load_topics(settings.topics_file).all())
    except SettingsInvalid:
        return frozenset()


@dataclass(frozen=True, slots=True)
class UnkeptCalls:
    """The calls of runs that are not kept, real ones, under the permits of this process.

    A transactional handler has nothing to commit with there, and is not called.
    """

    targets: Targets
    services: GrpcCalls
    handlers: HandlerCalls
    permits: Permits

    async def __call__(self, request: CallRequest, context: CallContext, *, schemas: SchemaSet) -> bytes:
        """Make one call; see `streams.verbs.run.PlanCalls`."""
        served = self.handlers.registry.find(request.target)
        if served is None and not self.targets.serves(request.target):
            way_out = (
                "name the module of its handler in HANDLERS"
                if request.target == handler_target(request.method.removeprefix("/")) or is_job_target(request.target)
                else "name it in TARGETS_FILE, or allow its address in TARGETS_ALLOWED"
            )
            raise SegmentInterrupted(f"the target {request.target} is not served here: {way_out}")
        asked_at = time.monotonic()
        permit = await self.permits.take(request.target, wait_seconds=request.timeout_seconds)
        left = request.timeout_seconds - (time.monotonic() - asked_at)
        if permit is None:
            raise BudgetSpent(f"the call had no permit for {request.target} in time", step=request.step)
        if served is None:
            try:
                return await self.services(replace(request, timeout_seconds=left), context)
            finally:
                permit.release()
        if served.declaration.transactional:
            permit.release()
            text = f"the transactional handler of {served.declaration.name} needs a run that is kept"
            raise WorkflowBroken(f"{text}: submit the workflow as a job (submit-workflow)", step=request.step)
        on_behalf = OnBehalf(context.job_id, _TENANT, context.attempt, report=lambda done, total: None)
        return await self.handlers(
            replace(request, timeout_seconds=left), on_behalf, schemas=schemas, on_end=permit.release
        )


@dataclass(frozen=True, slots=True)
class OwnCalls:
    """What a process calls with that drives no runs: a command, or a worker that only serves the web."""

    calls: UnkeptCalls
    close: Callable[[], Awaitable[None]]


def build_own_calls(settings: Settings) -> OwnCalls:
    """Build the calls of a process that drives no runs. They must be closed.

    Raises:
        SettingsInvalid: the file of targets or the modules of handlers cannot be used.
    """
    targets = build_targets(settings)
    services, handlers = build_grpc_calls(settings, targets), build_handler_calls(settings, Metrics())

    def most(target: str) -> int:
        if handlers.serves(target):
            return handlers.permits_of(target)
        found = targets.find(target)
        return found.permits if found is not None else 1

    async def close() -> None:
        await services.close()
        await handlers.close()

    return OwnCalls(UnkeptCalls(targets, services, handlers, Permits(most)), close)
