"""A step that fans out ends the same way wherever it was interrupted, and calls no item that is done."""

import asyncio
from collections import Counter
from dataclasses import dataclass

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemas.errors import CallFailed, ItemFailed
from streams.evaluator.protoc import ProtocChild
from streams.workflow.items import ItemStatus
from streams.workflow.plan import Plan
from streams.workflow.runner import CallRequest, Completed
from tests.workflow.mail import Kept, Mailer, mail_all, mailed, sent
from tests.workflow.samples import Log, plan_of

TRIES = 3
MOST_SEGMENTS = 60


@dataclass(frozen=True)
class Story:
    """How often each item fails before it succeeds, and after how many turns of the loop each segment is stopped."""

    failures: list[int]
    concurrency: int
    stops: list[int]


stories = st.builds(
    Story,
    failures=st.lists(st.integers(0, TRIES), max_size=8),
    concurrency=st.sampled_from([1, 2, 64]),
    stops=st.lists(st.integers(1, 30), max_size=6),
)
PLANS: dict[int, Plan] = {}


class Flaky(Mailer):
    """Fails each item as often as its story says, over all segments."""

    def __init__(self, plan: Plan, failures: list[int]) -> None:
        super().__init__(plan)
        self.left = dict(enumerate(failures))
        self.succeeded: Counter[int] = Counter()

    async def __call__(self, request: CallRequest) -> bytes:
        index = int(request.step.partition("#")[2])
        await asyncio.sleep(0)
        if self.left[index] > 0:
            self.left[index] -= 1
            raise CallFailed("UNAVAILABLE", "later", step="mailall")
        response = await super().__call__(request)
        self.succeeded[index] += 1
        return response


async def told(story: Story, plan: Plan) -> tuple[object, Flaky, Kept, int]:
    """Run segment after segment until the run is complete, stopping some in the middle; count those stopped."""
    mailer, kept, log, stopped = Flaky(plan, story.failures), Kept(most=TRIES), Log(), 0
    stops = list(story.stops)
    for _ in range(MOST_SEGMENTS):
        running = asyncio.create_task(mailed(plan, mailer, count=len(story.failures), log=log, items=kept))
        if stops:
            for _ in range(stops.pop()):
                await asyncio.sleep(0)
            stopped += running.cancel()
        try:
            completed = await running
        except (asyncio.CancelledError, ItemFailed):
            continue
        assert isinstance(completed, Completed)
        return completed.result, mailer, kept, stopped
    raise AssertionError("it never ended")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(story=stories)
def test_an_interrupted_fan_out_ends_like_an_uninterrupted_one(story: Story, protoc: ProtocChild) -> None:
    if story.concurrency not in PLANS:
        PLANS[story.concurrency] = asyncio.run(plan_of(mail_all(maxConcurrency=story.concurrency), protoc))
    result, mailer, kept, stopped = asyncio.run(told(story, PLANS[story.concurrency]))

    done, failed = kept.of(ItemStatus.COMPLETED), kept.of(ItemStatus.FAILED)
    assert sorted(done + failed) == list(range(len(story.failures)))
    assert isinstance(result, dict)
    assert result["sentMails"] == sent(*done)
    if not stopped:
        assert failed == [index for index, failures in enumerate(story.failures) if failures == TRIES]
        assert mailer.succeeded == Counter(done)
    assert all(mailer.succeeded[index] <= 1 + stopped for index in range(len(story.failures)))
    assert set(done) >= {index for index, failures in enumerate(story.failures) if failures < TRIES}
