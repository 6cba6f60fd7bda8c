"""Calls of handlers that cannot even begin: whoever holds a permit for one gets it back."""

import asyncio
from uuid import UUID

import pytest

from schemas.errors import HandlerDied, SegmentInterrupted
from streams.evaluator.protoc import ProtocChild
from streams.handlers.calls import HandlerCalls, OnBehalf
from streams.handlers.registry import load_registry
from streams.handlers.threads import Threads
from streams.metrics import Metrics
from streams.workflow.callbacks import CallRequest
from streams.workflow.descriptors import SchemaSet
from tests.handlers.steps import SOURCE


@pytest.fixture(scope="module")
def schemas() -> SchemaSet:
    return SchemaSet.from_bytes(asyncio.run(ProtocChild()({"steps.proto": SOURCE}, None)))


def request(method: str) -> CallRequest:
    return CallRequest("work", 0, f"local:steps.v1.Steps/{method}", False, f"/steps.v1.Steps/{method}", b"", 5, "Reply")


async def called(calls: HandlerCalls, method: str, schemas: SchemaSet) -> tuple[BaseException, int]:
    ends: list[int] = []
    on_behalf = OnBehalf(UUID(int=1), "default", 1, lambda done, total: None)
    with pytest.raises((HandlerDied, SegmentInterrupted)) as caught:
        await calls(request(method), on_behalf, schemas=schemas, on_end=lambda: ends.append(1))
    return caught.value, len(ends)


async def test_a_call_of_what_nobody_serves_is_interrupted(schemas: SchemaSet) -> None:
    error, ends = await called(HandlerCalls(load_registry([]), metrics=Metrics()), "Sync", schemas)

    assert (type(error), ends) == (SegmentInterrupted, 1)


async def test_a_call_for_which_there_is_no_thread_left_is_a_failed_try(
    schemas: SchemaSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Threads, "start", none_left)
    error, ends = await called(
        HandlerCalls(load_registry(["tests.handlers.steps"]), metrics=Metrics()), "Sync", schemas
    )

    assert (type(error), ends) == (HandlerDied, 1)
    assert "can't start new thread" in str(error)


def test_a_handler_has_the_permits_that_it_says_and_a_transactional_one_no_more_than_connections() -> None:
    registry = load_registry(["tests.handlers.steps", "tests.handlers.transactional"])
    calls = HandlerCalls(registry, default_permits=8, metrics=Metrics())

    named = {name: calls.permits_of(f"local:steps.v1.Steps/{name}") for name in ("Sync", "Child", "Write", "Nobody")}
    assert named == {"Sync": 4, "Child": 8, "Write": 4, "Nobody": 0}
