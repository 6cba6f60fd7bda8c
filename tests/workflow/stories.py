"""Generated workflows of every kind of step over one message, and runs of them that are interrupted and resumed."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from hypothesis import strategies as st

from schemas.errors import StepFailed, WorkerError
from streams.workflow.items import TriedItem
from streams.workflow.outcomes import Asleep, Completed, Parked
from streams.workflow.plan import Plan
from streams.workflow.records import ComposedRecord
from streams.workflow.runner import CallRequest, StoredCheckpoint, run_segment
from tests.workflow.samples import EVALUATOR, Clock

SOURCE = """
syntax = "proto3";
package story.v1;
message Note { string text = 1; int64 count = 2; repeated Note notes = 3; }
service Notes { rpc Write(Note) returns (Note); }
"""
NOTE, WRITE = "story.v1.Note", "story.v1.Notes/Write"
INPUT: dict[str, Any] = {"text": "a", "count": 2, "notes": [{"text": "b", "count": 1}, {"text": "c"}]}
AT = datetime(2026, 1, 1, tzinfo=UTC)


@st.composite
def definitions(draw: st.DrawFn) -> dict[str, Any]:
    """One to six steps, each of which reads what came before it."""
    readable, steps = ["input"], []
    for index in range(draw(st.integers(1, 6))):
        name = f"s{index}"
        step = {"name": name, **draw(_works(readable))}
        if draw(st.booleans()):
            step["when"] = f"{draw(st.sampled_from(readable))}.count % 2 == {draw(st.integers(0, 1))}"
        steps.append(step)
        if "wait" not in step:  # nothing is to be read in its response
            readable.append(name)
    output = {"output": {"type": NOTE, **draw(_rules(readable))}} if draw(st.booleans()) else {}
    return {"schema": {"sources": {"story.proto": SOURCE}}, "inputType": NOTE, "steps": steps, **output}


def _works(readable: Sequence[str]) -> st.SearchStrategy[dict[str, Any]]:
    rules = _rules(readable)
    call = {"target": "notes", "method": WRITE}
    fan_out = {"items": "notes", "maxItems": 1_024, "collectType": NOTE, "collectInto": "notes"}
    edge = rules.map(lambda written: {"sources": list(readable), "produceType": NOTE, **written})
    return st.one_of(
        rules.map(lambda written: {**call, **written}),
        rules.map(lambda written: {**call, **written, "completion": "external"}),
        rules.map(lambda written: {"ask": {"topic": "t", "requestType": NOTE, "responseType": NOTE}, **written}),
        rules.map(lambda written: {"publish": {"topic": "t", "key": "input.text", "type": NOTE}, **written}),
        st.sampled_from([{"wait": {"forMs": 0}}, {"wait": {"forMs": 9}}, {"wait": {"until": "timestamp(99)"}}]),
        st.builds(
            lambda edge, most, policy: {
                **call,
                "edge": edge,
                "fanOut": {**fan_out, "maxConcurrency": most, "failurePolicy": policy},
            },
            edge,
            st.sampled_from([1, 3]),
            st.sampled_from(["FAIL_FAST", "CONTINUE"]),
        ),
    )


def _rules(readable: Sequence[str]) -> st.SearchStrategy[dict[str, Any]]:
    source = st.sampled_from(readable)
    text = source.flatmap(
        lambda name: st.sampled_from(
            [f"text = {name}.text", f"count = {name}.count", f"notes += {name}.notes", 'text = "x"', "-notes"]
        )
    )
    cel = source.flatmap(
        lambda name: st.sampled_from(
            [
                {"target": "text", "selector": f"{name}.text + target.text"},
                {"target": "count", "selector": f"{name}.count + 1", "filter": f"size({name}.notes) > 0"},
                {"target": "notes", "selector": f"{name}.notes.filter(note, note.count > 0)"},
            ]
        )
    )
    return st.fixed_dictionaries({"rules": st.lists(text, max_size=4), "celRules": st.lists(cel, max_size=2)})


class Crashed(WorkerError):
    """The process ends here."""


@dataclass
class Life:
    """One run over all of its segments. It crashes once, at the moment *at*, before or after that is kept."""

    plan: Plan
    at: int | None = None
    before: bool = False
    moments: int = 0
    stored: list[StoredCheckpoint] = field(default_factory=list)
    records: dict[str, list[ComposedRecord | None]] = field(default_factory=dict)
    calls: Counter[tuple[str, bytes]] = field(default_factory=Counter)
    items: dict[str, dict[int, TriedItem]] = field(default_factory=dict)
    questions: dict[str, object] = field(default_factory=dict)
    done_at_crash: frozenset[str] = frozenset()

    keeps = True

    async def lived(self) -> object:
        """Run to the end, and return the result."""
        while True:
            try:
                ended = await self._segment()
            except Crashed:
                self.done_at_crash = self._done()
                continue
            match ended:
                case Completed(result=result):
                    return result
                case Parked(step=step, step_index=index, request=request, record=record):
                    self.questions[step] = request
                    self.records.setdefault(step, []).append(record)
                    self.stored.append(StoredCheckpoint(index, step, False, {"text": step, "count": index}))
                case Asleep(step=step, step_index=index):
                    self.stored.append(StoredCheckpoint(index, step, False, {}))

    async def _segment(self) -> Completed | Parked | Asleep:
        return await run_segment(
            self.plan,
            self.plan.parse_input(INPUT),
            self.stored[:],
            call=self._call,
            checkpoint=self._checkpoint,
            clock=Clock(),
            evaluator=EVALUATOR,
            items=self,
            now=lambda: AT,
        )

    async def _call(self, request: CallRequest) -> bytes:
        self.calls[request.step, request.payload] += 1
        await asyncio.sleep(0)
        note: Any = self.plan.schema_set.from_wire(NOTE, request.payload)
        note.text, note.count = f"{note.text}!", note.count % 2**60 + 1
        payload: bytes = note.SerializeToString()
        return payload

    async def _checkpoint(self, checkpoint: StoredCheckpoint, next_target: str) -> None:
        self.records.setdefault(checkpoint.step, []).append(checkpoint.record)
        with_crash = self._crashes_now()
        if not (with_crash and self.before):
            entry = checkpoint
            self.stored.append(StoredCheckpoint(entry.step_index, entry.step, entry.skipped, entry.response))
        if with_crash:
            raise Crashed

    async def tried(self, step: str) -> Sequence[TriedItem]:
        return list(self.items.get(step, {}).values())

    async def keep(self, step: str, item: TriedItem, *, of: int) -> None:
        with_crash = self._crashes_now()
        if not (with_crash and self.before):
            self.items.setdefault(step, {})[item.index] = item
        if with_crash:
            raise Crashed

    def may_try_again(self, step: str, error: StepFailed, failed_tries: int) -> bool:
        return False

    def _done(self) -> frozenset[str]:
        """The steps and the branches whose call must never be made again."""
        branches = (f"{step}#{index}" for step, items in self.items.items() for index in items)
        steps = (kept.step for kept in self.stored)
        return frozenset([*branches, *steps])

    def _crashes_now(self) -> bool:
        self.moments += 1
        return self.moments - 1 == self.at
