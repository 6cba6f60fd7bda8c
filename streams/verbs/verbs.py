"""All verbs by name, over one store."""

from collections.abc import Awaitable, Callable, Collection, Mapping
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
from streams.verbs.complete import complete_step
from streams.verbs.control import cancel_job
from streams.verbs.plans import Plans
from streams.verbs.query import get_job, list_jobs
from streams.verbs.submit import Submitter, SubmitWorkflow
from streams.verbs.workflows import list_workflows, put_workflow
from streams.workflow.descriptors import Protoc
from streams.workflow.evaluation import Evaluator

NAMES: Final = (
    "submit-workflow",
    "get-job",
    "list-jobs",
    "complete-step",
    "cancel-job",
    "put-workflow",
    "list-workflows",
)

Verb = Callable[[str, object], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class VerbStores:
    """What the verbs stand on. `own_topics` are those of the workers themselves, which no step may send to."""

    definitions: Definitions
    submits: Submits
    answers: Answers
    control: Control
    queries: Queries
    plans: Plans
    protoc: Protoc
    evaluator: Evaluator
    submitter: Submitter
    own_topics: Collection[str] = ()


class Verbs:
    """The verbs. Without a store each is listed and answers that it is unavailable, whatever it is called with."""

    def __init__(self, stores: VerbStores | None, *, actor: str = "local") -> None:
        self._verbs: Mapping[str, Verb] = {} if stores is None else _verbs(stores, actor)

    async def call(self, name: str, given: object, *, tenant_id: str = "default") -> Answer:
        """Call one verb with its JSON and return its JSON.

        Raises:
            NotFound: there is no verb of that name.
            StoreUnavailable: no store is configured, or Postgres gave no answer.
            InputInvalid, Conflict, JobCorrupt: the call is refused; each verb says when.
        """
        if name not in NAMES:
            raise NotFound(f"there is no verb {name!r}; there are {', '.join(NAMES)}")
        if not self._verbs:
            raise StoreUnavailable("no store is configured: set WORKFLOW_RUNS_DATABASE_URL")
        return await self._verbs[name](tenant_id, given)


def _verbs(stores: VerbStores, actor: str) -> dict[str, Verb]:
    protoc, evaluator = stores.protoc, stores.evaluator
    submit = SubmitWorkflow(
        stores.definitions, stores.submits, stores.plans, protoc, evaluator, stores.submitter, stores.own_topics
    )
    put = partial(put_workflow, stores.definitions, stores.plans, protoc, evaluator)
    return {
        "submit-workflow": submit,
        "get-job": partial(get_job, stores.queries),
        "list-jobs": partial(list_jobs, stores.queries),
        "complete-step": partial(complete_step, stores.queries, stores.answers, stores.plans),
        "cancel-job": partial(cancel_job, stores.control),
        "put-workflow": partial(put, actor=actor, own_topics=stores.own_topics),
        "list-workflows": partial(list_workflows, stores.definitions),
    }
