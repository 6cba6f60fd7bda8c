"""Schemas and evaluators for tests of expressions."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from streams.evaluator.child_evaluator import ChildEvaluator
from streams.evaluator.evaluators import InProcessEvaluator, OperationsEvaluator
from streams.evaluator.protoc import ProtocChild
from streams.workflow.descriptors import SchemaSet
from tests.workflow.samples import source


@pytest.fixture(scope="session")
def kit() -> SchemaSet:
    """`kit.v1.Kit` has every kind of field."""
    return SchemaSet.from_bytes(asyncio.run(ProtocChild()({"kit.proto": source("kit.proto")}, None)))


@pytest.fixture
async def child() -> AsyncIterator[ChildEvaluator]:
    evaluator = ChildEvaluator()
    yield evaluator
    await evaluator.close()


@pytest.fixture(params=["child", "in_process"])
async def evaluator(request: pytest.FixtureRequest) -> AsyncIterator[OperationsEvaluator]:
    """Each of the evaluators that the setting EVALUATOR names."""
    evaluator = ChildEvaluator() if request.param == "child" else InProcessEvaluator()
    yield evaluator
    await evaluator.close()
