"""Schemas compiled once for all tests of the engine."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from streams.evaluator.protoc import ProtocChild
from streams.workflow.compiler import Compiled, compile_definition
from streams.workflow.descriptors import SchemaSet
from streams.workflow.plan import Plan
from tests.workflow.mail import mail_all
from tests.workflow.samples import EVALUATOR, plan_of, source


@pytest.fixture(scope="session")
def protoc() -> ProtocChild:
    """The real compiler. It keeps its results, so that a schema used by many tests is compiled once."""
    return ProtocChild()


@pytest.fixture(scope="session")
def kit(protoc: ProtocChild) -> SchemaSet:
    """`kit.v1.Kit` has every kind of field."""
    return SchemaSet.from_bytes(asyncio.run(protoc({"kit.proto": source("kit.proto")}, None)))


@pytest.fixture
def compiled(protoc: ProtocChild) -> Callable[[object], Compiled]:
    """Compile a definition; raises DefinitionInvalid as the engine does."""
    return lambda document: asyncio.run(compile_definition(document, protoc=protoc, evaluator=EVALUATOR))


@pytest.fixture
def compiled_plan(protoc: ProtocChild) -> Callable[[object], Awaitable[Plan]]:
    """The plan of a definition."""
    return lambda document: plan_of(document, protoc)


@pytest.fixture
async def plan(compiled_plan: Callable[[object], Awaitable[Plan]]) -> Plan:
    """A step that sends one mail per item, and continues behind those that fail."""
    return await compiled_plan(mail_all())


@pytest.fixture
async def fail_fast(compiled_plan: Callable[[object], Awaitable[Plan]]) -> Plan:
    """The same, failing with the first."""
    return await compiled_plan(mail_all(failurePolicy="FAIL_FAST"))
