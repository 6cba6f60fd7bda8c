"""Plans of stored definitions, compiled once per definition."""

import asyncio
import gc
import time
from collections import OrderedDict
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from schemas.errors import JobCorrupt, WorkerError
from store.definitions import Definitions
from store.records import StoredDefinition, StoredWorkflow
from streams.workflow.compiler import load_plan
from streams.workflow.definition import run_deadline_of
from streams.workflow.evaluation import Evaluator
from streams.workflow.plan import ENGINE_LEVEL, Plan

PLANS_KEPT: Final = 256
"""Each takes some 200 kB for a small schema, most of it outside Python's heap."""

DROPPED_PER_COLLECTION: Final = 64
NAME_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class NamedPlan:
    """The newest version of a stored workflow, ready to run."""

    workflow: StoredWorkflow
    plan: Plan


class NewerDefinition(WorkerError):
    """A newer release stored this definition, and this one may misread it. Leave its runs to workers of that release.

    A caller who must have an answer from the definition itself gets it there: to ask again may reach one.
    """

    retryable = True
    http_status = 503

    def __init__(self, definition: StoredDefinition) -> None:
        super().__init__(
            f"the definition {definition.definition_hash.hex()} needs engine level {definition.engine_level}, "
            f"and this release has {ENGINE_LEVEL}"
        )
        self.definition_hash = definition.definition_hash
        self.engine_level = definition.engine_level
        self.run_deadline_ms = run_deadline_of(definition.document)


class Plans:
    """A bounded cache over the definitions of the store.

    A definition never changes, so its plan is kept by hash. What a name stands for may change at any time: it is asked
    again after a second, so that an edit is seen within that time.
    """

    def __init__(self, definitions: Definitions, evaluator: Evaluator) -> None:
        """*evaluator* checks the expressions of plans, and is there for whoever runs them."""
        self._definitions = definitions
        self.evaluator = evaluator
        self._plans: OrderedDict[bytes, Plan] = OrderedDict()
        self._dropped = 0
        self._compiling: dict[bytes, asyncio.Task[Plan]] = {}
        self._names: OrderedDict[tuple[str, str], tuple[float, StoredWorkflow | None]] = OrderedDict()

    async def by_hash(self, definition_hash: bytes) -> Plan:
        """Return the plan of a pinned definition.

        Raises:
            JobCorrupt: the store has no such definition.
            NewerDefinition: it has one that only a newer release can read.
            WorkflowBroken: it has one, which this version cannot read; every finding is in the message.
            StoreUnavailable: Postgres gave no answer; call again.
            EvaluatorUnavailable: its expressions could not be checked now; call again.
        """
        if (plan := self._plans.get(definition_hash)) is not None:
            self._plans.move_to_end(definition_hash)
            return plan
        # Runs of one workflow are claimed together: the first compiles for all of them.
        compiling = self._compiling.get(definition_hash)
        if compiling is None:
            compiling = asyncio.create_task(self._compile(definition_hash))
            self._compiling[definition_hash] = compiling
            compiling.add_done_callback(partial(self._compiled, definition_hash))
        return await asyncio.shield(compiling)

    async def _compile(self, definition_hash: bytes) -> Plan:
        stored = await self._definitions.get(definition_hash)
        if stored is None:
            raise JobCorrupt(f"the store has no definition {definition_hash.hex()}")
        if stored.engine_level > ENGINE_LEVEL:
            raise NewerDefinition(stored)
        plan = await load_plan(stored.document, stored.descriptor_set, evaluator=self.evaluator)
        self.keep(definition_hash, plan)
        return plan

    def keep(self, definition_hash: bytes, plan: Plan) -> None:
        """Keep the plan of a definition that was just compiled and stored, until many others have come."""
        self._plans[definition_hash] = plan
        self._plans.move_to_end(definition_hash)
        self._dropped += _bound(self._plans, PLANS_KEPT)
        if self._dropped >= DROPPED_PER_COLLECTION:
            # A plan's message classes are cycles, and the pool that they hold is memory that Python does not count: by
            # itself the collector would look for them when hundreds of megabytes have gathered.
            self._dropped = 0
            gc.collect()

    def _compiled(self, definition_hash: bytes, task: "asyncio.Task[Plan]") -> None:
        self._compiling.pop(definition_hash, None)
        if not task.cancelled():
            task.exception()  # whoever waited may be gone

    async def by_name(self, tenant_id: str, name: str) -> NamedPlan | None:
        """Return what *name* stands for now, or None when this tenant stored nothing under it. Raises as `by_hash`."""
        asked_at, workflow = self._names.get((tenant_id, name), (-NAME_SECONDS, None))
        if time.monotonic() - asked_at >= NAME_SECONDS:
            workflow = await self._definitions.workflow(tenant_id, name)
            self._names[tenant_id, name] = (time.monotonic(), workflow)
            self._names.move_to_end((tenant_id, name))
            _bound(self._names, PLANS_KEPT)
        if workflow is None:
            return None
        return NamedPlan(workflow, await self.by_hash(workflow.definition_hash))

    def forget_name(self, tenant_id: str, name: str) -> None:
        """Ask the store again at the next use: this process has just stored a new version."""
        self._names.pop((tenant_id, name), None)

    def forget_names(self) -> None:
        """Ask the store again for every name: it may have been put back to an earlier state."""
        self._names.clear()


def _bound(cache: OrderedDict[Any, Any], most: int) -> int:
    """Drop what was not used for longest; return how many were dropped."""
    dropped = max(0, len(cache) - most)
    for _ in range(dropped):
        cache.popitem(last=False)
    return dropped
