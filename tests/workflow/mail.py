"""A step that sends the mails of a campaign, one call each, and what keeps its items."""

import asyncio
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from schemas.errors import CallFailed, StepFailed
from streams.workflow.items import NOTHING_KEPT, Items, ItemStatus, TriedItem
from streams.workflow.plan import Plan
from streams.workflow.runner import Asleep, CallRequest, Completed, Parked, run_segment
from tests.workflow.samples import EVALUATOR, Clock, Log, source

EDGE: dict[str, Any] = {"sources": ["input"], "produceType": "mail.v1.MailBatch", "rules": ["mails += input.drafts"]}
FAN_OUT: dict[str, Any] = {
    "items": "mails",
    "maxItems": 100,
    "maxConcurrency": 4,
    "failurePolicy": "CONTINUE",
    "collectType": "mail.v1.SentBatch",
    "collectInto": "sent_mails",
}


def mail_all(*, edge: Mapping[str, Any] | None = None, **fan_out: Any) -> dict[str, Any]:
    """One step that fans out, with the edge and the fan-out changed as told."""
    step = {
        "name": "mailall",
        "target": "mailer",
        "method": "mail.v1.Mailer/Send",
        "edge": {**EDGE, **(edge or {})},
        "fanOut": {**FAN_OUT, **fan_out},
    }
    return {
        "name": "campaign",
        "schema": {"sources": {"mail.proto": source("mail.proto")}},
        "inputType": "mail.v1.Campaign",
        "steps": [step],
    }


def campaign(count: int) -> dict[str, Any]:
    """So many mails, to `0`, `1`, ..."""
    return {"drafts": [{"to": str(index)} for index in range(count)]}


def tried(
    index: int, status: ItemStatus, failed_tries: int = 0, *, response: object = None, error: str | None = None
) -> TriedItem:
    """One mail of such a campaign, after a try."""
    to = str(index).encode()
    request = b"\n" + bytes([len(to)]) + to
    return TriedItem(index, status, failed_tries, hashlib.sha256(request).hexdigest(), response, error)


def sent(*indexes: int) -> list[dict[str, str]]:
    return [{"id": f"m-{index}"} for index in indexes]


class Mailer:
    """Sends mails: a response for each, unless told to fail or to hold one by its place."""

    def __init__(self, plan: Plan) -> None:
        self._schemas = plan.schema_set
        self.requests: list[CallRequest] = []
        self.failing: dict[int, BaseException] = {}
        self.holding: dict[int, asyncio.Event] = {}
        self.cancelled: list[int] = []
        self.in_flight = 0
        self.most_in_flight = 0

    @property
    def called(self) -> list[int]:
        return [int(request.step.partition("#")[2]) for request in self.requests]

    async def __call__(self, request: CallRequest) -> bytes:
        self.requests.append(request)
        index = int(request.step.partition("#")[2])
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await (self.holding[index].wait() if index in self.holding else asyncio.sleep(0))
            if index in self.failing:
                raise self.failing[index]
            given: Any = self._schemas.from_wire("mail.v1.Mail", request.payload)
            return self._schemas.parse_json("mail.v1.Sent", {"id": f"m-{given.to}"}).SerializeToString()
        except asyncio.CancelledError:
            self.cancelled.append(index)
            raise
        finally:
            self.in_flight -= 1


class Kept:
    """Keeps items as a store would, through JSON text. *most* is the number of tries that each has."""

    keeps = True

    def __init__(self, *items: TriedItem, most: int = 3) -> None:
        self.items = {item.index: item for item in items}
        self.most = most
        self.failing: Exception | None = None

    async def tried(self, step: str) -> list[TriedItem]:
        return list(self.items.values())

    async def keep(self, step: str, item: TriedItem, *, of: int) -> None:
        await asyncio.sleep(0)
        if self.failing is not None:
            raise self.failing
        final = (ItemStatus.COMPLETED, ItemStatus.FAILED)
        assert item.index not in self.items or self.items[item.index].status not in final, "it was final"
        kept = json.loads(json.dumps([item.response, item.input]))
        self.items[item.index] = replace(item, response=kept[0], input=kept[1])

    async def until(self, done: Iterable[int]) -> None:
        """Wait until the items of these places are done, and no others."""
        while self.of(ItemStatus.COMPLETED) != list(done):  # noqa: ASYNC110  # it is reached by running on
            await asyncio.sleep(0)

    def may_try_again(self, step: str, error: StepFailed, failed_tries: int) -> bool:
        return error.retryable and failed_tries < self.most

    def of(self, status: ItemStatus) -> list[int]:
        return sorted(index for index, item in self.items.items() if item.status is status)


def gone(code: str = "UNAVAILABLE") -> CallFailed:
    return CallFailed(code, "gone", step="mailall")


async def mailed(
    plan: Plan,
    mailer: Mailer,
    *,
    count: int,
    log: Log | None = None,
    items: Items = NOTHING_KEPT,
    clock: Callable[[], float] | None = None,
) -> Completed | Parked | Asleep:
    """Run one segment over a campaign of so many mails."""
    return await run_segment(
        plan,
        plan.parse_input(campaign(count)),
        list(log.stored if log is not None else ()),
        call=mailer,
        checkpoint=log or Log(),
        clock=clock or Clock(),
        evaluator=EVALUATOR,
        items=items,
    )


def result(completed: object) -> Any:
    assert isinstance(completed, Completed)
    return completed.result


async def ticks(times: int = 20) -> None:
    """Let everything run that can."""
    for _ in range(times):
        await asyncio.sleep(0)
