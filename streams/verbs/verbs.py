"""All verbs by name, over one store."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from schemas.errors import NotFound, StoreUnavailable
from store.answers import Answers
from store.control import Control
from store.definitions import Definitions
from store.queries import Queries
from store.submit import Submits
from streams.verbs.answers import Answer
from streams.verbs.check import check_workflow, describe_workflow
from streams.verbs.complete import complete_step
from streams.verbs.control import cancel_job
from streams.verbs.definition_source import DefinitionCompiler, DefinitionSource
from streams.verbs.plans import Plans
from streams.verbs.query import get_job, list_jobs
from streams.verbs.run import PlanCalls, RunWorkflow
from streams.verbs.submit import Submitter, SubmitWorkflow
from streams.verbs.workflows import list_workflows, put_workflow

NAMES: Final = (
    "submit-workflow",
    "get-job",
    "list-jobs",
    "complete-step",
    "cancel-job",
    "put-workflow",
    "list-workflows",
    "check-workflow",
    "describe-workflow",
    "run-workflow",
)

Verb = Callable[[str, object], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class VerbStores:
    """The store, as the verbs that need one stand on it."""

    definitions: Definitions
    submits: Submits
    answers: Answers
    control: Control
    queries: Queries
    plans: Plans
    submitter: Submitter


@dataclass(frozen=True, slots=True)
class Engine:
    """What the verbs need that only look at a definition, or run it without keeping anything.

    `calls` None: nothing can be called here, and run-workflow is unavailable.
    """

    compiler: DefinitionCompiler
    calls: PlanCalls | None
    longest_seconds: float


class Verbs:
    """The verbs. What needs a store that is not there, or an engine, is listed and answers that it is unavailable."""

    def __init__(self, stores: VerbStores | None, engine: Engine | None = None, *, actor: str = "local") -> None:
        self._verbs: dict[str, Verb] = {}
        if engine is not None:
            self._verbs |= _of_definitions(engine, stores.plans if stores is not None else None)
        if engine is not None and stores is not None:
            self._verbs |= _of_store(stores, engine.compiler, actor)

    async def call(self, name: str, given: object, *, tenant_id: str = "default") -> Answer:
        """Call one verb with its JSON and return its JSON.

        Raises:
            NotFound: there is no verb of that name.
            StoreUnavailable: no store is configured, or Postgres gave no answer.
            InputInvalid, Conflict, JobCorrupt, ResourceExhausted: the call is refused; each verb says when.
        """
        if name not in NAMES:
            raise NotFound(f"there is no verb {name!r}; there are {', '.join(NAMES)}")
        if (verb := self._verbs.get(name)) is None:
            if name == "run-workflow" and self._verbs:
                raise StoreUnavailable("this process makes no calls: submit the workflow as a job (submit-workflow)")
            raise StoreUnavailable("no store is configured: set WORKFLOW_RUNS_DATABASE_URL")
        return await verb(tenant_id, given)


def _of_definitions(engine: Engine, plans: Plans | None) -> dict[str, Verb]:
    source = DefinitionSource(engine.compiler, plans)
    verbs: dict[str, Verb] = {
        "check-workflow": partial(check_workflow, source),
        "describe-workflow": partial(describe_workflow, source),
    }
    if engine.calls is not None:
        evaluator = engine.compiler.evaluator
        verbs["run-workflow"] = RunWorkflow(source, evaluator, engine.calls, longest_seconds=engine.longest_seconds)
    return verbs


def _of_store(stores: VerbStores, compiler: DefinitionCompiler, actor: str) -> dict[str, Verb]:
    return {
        "submit-workflow": SubmitWorkflow(stores.definitions, stores.submits, stores.plans, compiler, stores.submitter),
        "get-job": partial(get_job, stores.queries),
        "list-jobs": partial(list_jobs, stores.queries),
        "complete-step": partial(complete_step, stores.queries, stores.answers, stores.plans),
        "cancel-job": partial(cancel_job, stores.control),
        "put-workflow": partial(put_workflow, stores.definitions, stores.plans, compiler, actor=actor),
        "list-workflows": partial(list_workflows, stores.definitions),
    }
