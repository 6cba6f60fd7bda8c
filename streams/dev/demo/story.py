"""The story, chapter by chapter. It knows the running parts only from outside: the verbs, the topics, the call logs."""

import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar

from streams.dev.demo.ledger import Call, Evidence, Ledger, balance
from streams.dev.demo.observer import Observer
from streams.dev.demo.screen import Screen
from streams.dev.stack import Stack

RUNS: Final = 20
FLAKY: Final = 5
"""The embedder answers UNAVAILABLE once for this order."""
SLOW: Final = range(11, 17)
"""For these orders the embedder takes its time, so that a worker can be killed in the middle of a step."""
WAIT_SECONDS: Final = 45.0

Value = TypeVar("Value")


class StoryFailed(RuntimeError):
    """Something did not happen in time, or happened otherwise than the story tells."""


class Story:
    """Plays the story on a started stack. `play` returns the ledger; StoryFailed means that it broke off."""

    def __init__(self, stack: Stack, screen: Screen) -> None:
        self._stack = stack
        self._screen = screen
        self._names = {str(uuid.uuid4()): f"order-{number:02}" for number in range(1, RUNS + 1)}
        self._ids = {name: job_id for job_id, name in self._names.items()}
        self._observer = Observer(stack, screen, self._names)
        self._taken_over: frozenset[str] = frozenset()
        self._url = stack.workers[0].url

    def play(self) -> Ledger:
        try:
            with self._observer:
                self._ask()
                self._kill_a_worker()
                self._answer()
                self._show_one_row()
                return self._balance()
        finally:
            self._observer.close()

    def _ask(self) -> None:
        self._screen.chapter(f"{RUNS} requests from an independent producer; events to an independent consumer")
        self._screen.prose(
            f"order-{FLAKY:02}: the embedder will answer UNAVAILABLE once. "
            f"order-{SLOW[0]:02} to order-{SLOW[-1]:02}: it will be slow."
        )
        self._observer.produce(list(self._requests()))

    def _requests(self) -> Iterator[dict[str, str]]:
        for number, (job_id, name) in enumerate(self._names.items(), start=1):
            words = f"{name} says hello"
            if number == FLAKY:
                words = f"unavailable-once {words}"
            if number in SLOW:
                words = f"slow {words}"
            given = json.dumps({"text": words})
            yield {"job_id": job_id, "workflow_name": "embed-text", "input": given, "business_key": name}

    def _kill_a_worker(self) -> None:
        slow = {self._ids[f"order-{number:02}"] for number in SLOW}
        owners = self._until("a slow call in the middle of its step", lambda: self._holders(slow))
        worker = next(worker for worker in self._stack.workers if owners[0].startswith(worker.name))
        self._url = next(other.url for other in self._stack.workers if other is not worker)
        worker.process.kill()
        self._screen.chapter(f"{worker.name} is killed with SIGKILL in the middle of a step")
        held = [job for job in self._running() if str(job["leaseOwner"]).startswith(worker.name)]
        self._taken_over = frozenset(str(job["jobId"]) for job in held)
        names = ", ".join(sorted(self._names[job_id] for job_id in self._taken_over))
        self._screen.prose(f"It held {names}. The other worker takes them over when their leases end.")

    def _holders(self, slow: set[str]) -> list[str]:
        """Workers that hold a run whose slow call has begun and not ended."""
        begun = self._observer.calls_in_flight() & slow
        return [str(job["leaseOwner"]) for job in self._running() if job["jobId"] in begun]

    def _running(self) -> list[dict[str, Any]]:
        jobs = self._verb("list-jobs", {"status": "RUNNING"})["jobs"]
        rows = [self._verb("get-job", {"jobId": job["jobId"]})["job"] for job in jobs]
        return [row for row in rows if row["status"] == "RUNNING"]

    def _answer(self) -> None:
        self._until(f"{RUNS} runs to park at review", lambda: self._observer.count("WAITING review") == RUNS)
        self._screen.chapter("Every run waits for a person; the answers come through the complete-step verb")
        first, second = self._ids["order-01"], self._ids["order-02"]
        asked = self._verb("get-job", {"jobId": first})["job"]["composedRequest"]
        self._screen.prose(f"order-01 asks: {json.dumps(asked)}")
        wrong = self._complete(first, {"approved": "perhaps"}, expect=400)
        self._screen.prose(f"order-01, answered wrongly: {wrong['message']}")
        self._expect(self._verb("get-job", {"jobId": first})["job"]["status"] == "WAITING", "order-01 no longer waits")
        for job_id, name in self._names.items():
            self._complete(job_id, {"approved": True, "note": f"seen: {name}"})
        again = self._complete(second, {"approved": True, "note": "seen: order-02"})
        self._expect(again.get("alreadyDone") is True and again.get("same") is True, f"second answer: {again}")
        self._screen.prose(f"order-02, answered twice: {json.dumps(again)}")
        self._until(f"{RUNS} runs to complete", lambda: self._observer.count("COMPLETED") == RUNS)

    def _complete(self, job_id: str, response: dict[str, object], *, expect: int = 200) -> dict[str, Any]:
        call = {"jobId": job_id, "stepName": "review", "response": response}
        return self._verb("complete-step", call, expect=expect)

    def _show_one_row(self) -> None:
        self._screen.chapter(f"The row of order-{SLOW[0]:02}, whole")
        row = self._verb("get-job", {"jobId": self._ids[f"order-{SLOW[0]:02}"]})["job"]
        row.pop("workflowDefinition", None)
        for name, value in row.items():
            self._screen.line(f"  {name:16} {json.dumps(value) if isinstance(value, dict | list) else value}")

    def _balance(self) -> Ledger:
        produced = self._observer.produced
        self._until("the last offsets to be committed", lambda: self._stack.committed_offsets() == produced)
        jobs = self._verb("list-jobs", {"limit": 500})["jobs"]
        evidence = Evidence(
            names=self._names,
            rows={str(job["jobId"]): job for job in jobs},
            events=self._observer.events(),
            calls=[Call(c.job_id, c.step, c.attempt, c.outcome) for c in self._observer.calls()],
            taken_over=self._taken_over,
            produced=produced,
            committed=self._stack.committed_offsets(),
        )
        ledger = balance(evidence)
        self._screen.chapter("The ledger")
        for line in ledger.lines:
            self._screen.line(f"  {line}")
        for problem in ledger.problems:
            self._screen.line(f"  NOT EXACT: {problem}")
        return ledger

    def _verb(self, name: str, call: Mapping[str, object], *, expect: int = 200) -> dict[str, Any]:
        status, answer = self._stack.verb(self._url, name, call)
        self._expect(status == expect, f"{name} answered {status}: {answer}")
        return answer

    def _until(self, what: str, look: Callable[[], Value]) -> Value:
        deadline = time.monotonic() + WAIT_SECONDS
        while not (seen := look()):
            if time.monotonic() > deadline:
                raise StoryFailed(f"waited {WAIT_SECONDS:.0f} s in vain for {what}")
            self._stack.check()
            self._screen.awaiting(f"{what} ({self._observer.summary()})")
            time.sleep(0.05)
        return seen

    def _expect(self, held: bool, otherwise: str) -> None:
        if not held:
            raise StoryFailed(otherwise)
