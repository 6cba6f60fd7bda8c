"""Wherever a run is interrupted, it ends as one that never was: whatever its steps are."""

import asyncio
from collections import Counter
from typing import Any

from hypothesis import HealthCheck, given, settings

from streams.evaluator.protoc import ProtocChild
from tests.workflow.samples import plan_of
from tests.workflow.stories import Life, definitions


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
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
            # What was in flight is called again, with the same bytes; nothing else is.
            assert crashed.calls.keys() == whole.calls.keys()
            again = Counter(step.partition("#")[0] for step, _ in (crashed.calls - whole.calls).elements())
            assert len(again) <= 1
            assert all(crashed.calls[call] <= 1 + times for call, times in whole.calls.items())
            if not before and not crashed.items:
                assert crashed.calls == whole.calls
            for step, records in crashed.records.items():
                assert set(records) == set(whole.records[step])
