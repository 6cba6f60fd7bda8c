"""put-workflow and list-workflows: the definitions that requests name."""

import re
from typing import Final

from schemas.errors import DefinitionInvalid, Finding, InputInvalid
from store.definitions import Definitions
from store.records import StoredDefinition, StoredWorkflow
from streams.verbs.answers import Answer, timestamp
from streams.verbs.arguments import Arguments
from streams.verbs.definition_source import DefinitionCompiler
from streams.verbs.plans import Plans
from streams.workflow.compiler import Compiled

WORKFLOW_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,200}")


async def put_workflow(
    definitions: Definitions,
    plans: Plans,
    compiler: DefinitionCompiler,
    tenant_id: str,
    given: object,
    *,
    actor: str,
) -> Answer:
    """Store a definition under its name, or under `name`, if it verifies; else answer every finding.

    `created` is false when the newest version is the same definition: storing it again changes nothing. Runs that were
    submitted before keep the definition they were submitted with.
    """
    arguments = Arguments(given, ("name", "workflow"))
    document = arguments.value("workflow")
    name = arguments.text("name")
    try:
        compiled = await compiler.compile(document, name=name)
    except DefinitionInvalid as error:
        return findings_answer(error)
    name = name or compiled.plan.name
    if name is None or not WORKFLOW_NAME.fullmatch(name):
        raise InputInvalid(
            f"name must match {WORKFLOW_NAME.pattern}: give it here or in the definition", pointer="/name"
        )
    workflow, created = await definitions.put_workflow(
        stored_definition(compiled, name), tenant_id=tenant_id, name=name, created_by=actor
    )
    plans.forget_name(tenant_id, name)
    return {"ok": True, "created": created, **_described(workflow)}


async def list_workflows(definitions: Definitions, tenant_id: str, given: object) -> Answer:
    """Answer the newest version of each stored workflow by name. `nextCursor` is there when more follow."""
    arguments = Arguments(given, ("limit", "cursor"))
    limit = arguments.limit()
    found = await definitions.workflows(tenant_id, limit=limit + 1, after=arguments.text("cursor"))
    answer: Answer = {"ok": True, "workflows": [_described(workflow) for workflow in found[:limit]]}
    if len(found) > limit:
        answer["nextCursor"] = found[limit - 1].name
    return answer


def stored_definition(compiled: Compiled, name: str) -> StoredDefinition:
    """Return what the store pins of a compiled definition."""
    return StoredDefinition(
        definition_hash=compiled.definition_hash,
        name=name,
        document=compiled.document,
        descriptor_set=compiled.descriptor_set,
        engine_level=compiled.engine_level,
    )


def findings_answer(error: DefinitionInvalid) -> Answer:
    """Return the refusal of a definition: the first finding as the error, and all of them in order."""
    first = error.findings[0]
    answer: Answer = {"ok": False, "code": "findings", "error": str(error)}
    if first.step:
        answer["failedStep"] = first.step
    return {**answer, "findings": [_finding(finding) for finding in error.findings]}


def _finding(finding: Finding) -> Answer:
    entry: Answer = {"step": finding.step, "kind": finding.kind, "error": finding.error}
    return {**entry, "pointer": finding.pointer} if finding.pointer else entry


def _described(workflow: StoredWorkflow) -> Answer:
    return {
        "name": workflow.name,
        "version": workflow.version,
        "definitionHash": workflow.definition_hash.hex(),
        "createdAt": timestamp(workflow.created_at),
        "createdBy": workflow.created_by,
    }
