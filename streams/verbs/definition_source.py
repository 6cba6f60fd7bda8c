"""What a verb takes as its workflow: a definition that comes along, or the name of a stored one."""

from collections.abc import Collection
from dataclasses import dataclass

from schemas.errors import InputInvalid, StoreUnavailable, WorkflowBroken
from streams.verbs.answers import UNKNOWN_WORKFLOW, Answer, refused
from streams.verbs.arguments import Arguments
from streams.verbs.plans import Plans
from streams.workflow.compiler import Compiled, compile_definition
from streams.workflow.descriptors import NO_TYPES, Protoc, Types
from streams.workflow.evaluation import Evaluator
from streams.workflow.plan import Plan

SOURCE_FIELDS = ("workflow", "workflowName")


@dataclass(frozen=True, slots=True)
class DefinitionCompiler:
    """Compiles definitions with what this process has. No step may send to *own_topics*, those of the workers."""

    protoc: Protoc
    evaluator: Evaluator
    types: Types = NO_TYPES
    own_topics: Collection[str] = ()

    async def compile(self, document: object, *, name: str | None = None) -> Compiled:
        """Verify a definition and pin its schema; raises as `compile_definition` does."""
        return await compile_definition(
            document,
            name=name,
            protoc=self.protoc,
            evaluator=self.evaluator,
            types=self.types,
            own_topics=self.own_topics,
        )


@dataclass(frozen=True, slots=True)
class DefinitionSource:
    """Finds the plan that a call speaks of. `plans` None: there is no store, and so no stored workflow."""

    compiler: DefinitionCompiler
    plans: Plans | None

    async def plan(self, tenant_id: str, arguments: Arguments) -> Plan | Answer:
        """The plan of `workflow` or `workflowName`; a refusal where there is no stored workflow of that name.

        Raises:
            InputInvalid: the call has both or neither of the fields.
            DefinitionInvalid: the definition that came along has findings.
            WorkflowBroken, NewerDefinition: this release cannot read the stored one.
            StoreUnavailable: Postgres gave no answer, or no store is configured.
            EvaluatorUnavailable: expressions could not be checked now; call again.
        """
        document, name = arguments.object("workflow"), arguments.text("workflowName")
        if document is not None and name is None:
            return (await self.compiler.compile(document)).plan
        if name is None or document is not None:
            raise InputInvalid("give either workflow, a definition, or workflowName, the name of a stored one")
        if self.plans is None:
            raise StoreUnavailable("no store is configured: set WORKFLOW_RUNS_DATABASE_URL, or send the definition")
        named = await self.plans.by_name(tenant_id, name)
        return named.plan if named is not None else refused(UNKNOWN_WORKFLOW, f"there is no stored workflow {name!r}")


def broken_answer(error: WorkflowBroken) -> Answer:
    """Return the refusal of a stored definition that can no longer be read."""
    finding = {"step": error.step, "kind": "workflow", "error": str(error)}
    return refused("findings", str(error), failedStep=error.step or None, findings=[finding])
