"""check-workflow and describe-workflow: what is wrong with a definition, and what is in it. Nothing is stored."""

from schemas.errors import DefinitionInvalid, WorkflowBroken
from streams.verbs.answers import Answer
from streams.verbs.arguments import Arguments
from streams.verbs.definition_source import SOURCE_FIELDS, DefinitionSource, broken_answer
from streams.verbs.mermaid import flowchart
from streams.verbs.step_facts import described_plan
from streams.verbs.workflows import findings_answer
from streams.workflow.plan import Plan


async def check_workflow(source: DefinitionSource, tenant_id: str, given: object) -> Answer:
    """Answer every finding of a definition (`workflow`) or of what a name stands for (`workflowName`).

    `ok` is true and `findings` is empty when it may be stored and run.
    """
    plan = await _plan(source, tenant_id, given)
    return {"ok": True, "findings": []} if isinstance(plan, Plan) else plan


async def describe_workflow(source: DefinitionSource, tenant_id: str, given: object) -> Answer:
    """Answer what a workflow is made of: its types and steps as data, and as a Mermaid flowchart in `mermaid`."""
    plan = await _plan(source, tenant_id, given)
    if not isinstance(plan, Plan):
        return plan
    return {"ok": True, **described_plan(plan), "mermaid": flowchart(plan)}


async def _plan(source: DefinitionSource, tenant_id: str, given: object) -> Plan | Answer:
    try:
        return await source.plan(tenant_id, Arguments(given, SOURCE_FIELDS))
    except DefinitionInvalid as error:
        return findings_answer(error)
    except WorkflowBroken as error:
        return broken_answer(error)
