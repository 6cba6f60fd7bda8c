"""Job types: what a run of one is, before any worker takes it."""

from streams.evaluator.evaluators import InProcessEvaluator
from streams.evaluator.protoc import ProtocChild
from streams.handlers.jobs import is_job_definition, job_definition
from streams.workflow.compiler import compile_definition
from tests.driver.python_steps import calling


async def test_the_definition_of_a_job_type_verifies_and_waits_for_a_worker_that_serves_it() -> None:
    compiled = await compile_definition(job_definition("reindex"), protoc=ProtocChild(), evaluator=InProcessEvaluator())

    assert compiled.plan.name == "reindex"
    assert compiled.plan.next_target(0) == "job:reindex"
    assert compiled.plan.next_target(1) == "local:engine"
    assert compiled.engine_level == 2


def test_a_job_definition_is_told_from_a_workflow_of_that_name() -> None:
    assert is_job_definition(job_definition("reindex"))
    assert not is_job_definition({**calling("Sync"), "name": "reindex"})
    assert not is_job_definition({})
