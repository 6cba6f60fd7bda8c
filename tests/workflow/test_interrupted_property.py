"""Wherever a run is interrupted, it ends as one that never was: whatever its steps are."""

import asyncio
from typing import Any

from hypothesis import HealthCheck, given, settings

from streams.evaluator.protoc import ProtocChild
from tests.workflow.samples import plan_of
from tests.workflow.stories import Life, definitions


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(document=definitions())
def test_a_run_that_is_interrupted_anywhere_ends_like_one_that_never_was(
    document: dict[str, Any], protoc: ProtocChild
) -> None:
    asyncio.run(_interrupted_everywhere(document, protoc))


async def _interrupted_everywhere(document: dict[str, Any], protoc: ProtocChild) -> None:
    plan = await plan_of(document, protoc)
    whole = Life(plan)
    result = await whole.lived()
    for at in range(whole.moments):
        for before in (False, True):
            crashed = Life(plan, at=at, before=before)

            assert await crashed.lived() == result
            assert crashed.stored == whole.stored
            assert crashed.items == whole.items
            assert crashed.questions == whole.questions
            # What was in flight is called again, with the same bytes; nothing that was done is.
            assert crashed.calls.keys() == whole.calls.keys()
            for (branch, payload), times in whole.calls.items():
                again = 0 if branch in crashed.done_at_crash else 1
                assert times <= crashed.calls[branch, payload] <= times + again
            for step, records in crashed.records.items():
                assert set(records) == set(whole.records[step])
