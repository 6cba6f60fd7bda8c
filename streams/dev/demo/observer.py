"""What can be seen from outside while the story plays: acknowledged requests, events as they come, calls as made."""

import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from streams.dev.demo.ledger import CALLED_STEPS, Call
from streams.dev.demo.screen import Screen
from streams.dev.processes import interrupt_held_back
from streams.dev.stack import Stack

HERE: Final = Path(__file__).parent
SERVICES: Final = ("tokenizer", "embedder")


class Observer:
    """Runs the independent producer and consumer, and reads the services' call logs.

    A context manager. Ctrl-C may come when it was entered and its block not yet: `close` ends it all the same.
    """

    def __init__(self, stack: Stack, screen: Screen, names: Mapping[str, str]) -> None:
        self._stack = stack
        self._screen = screen
        self._names = names
        self._events: list[dict[str, Any]] = []
        self._counts: Counter[str] = Counter()
        self._consumer: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self.produced: dict[int, int] = {}

    def __enter__(self) -> Self:
        with interrupt_held_back():
            self._consumer = subprocess.Popen(
                self._command("consumer.py", self._stack.topics.events.name),
                stdout=subprocess.PIPE,
                stdin=subprocess.DEVNULL,
                text=True,
                cwd=self._stack.folder,
                start_new_session=True,
            )
            self._stack.watch(self._consumer.pid)
            self._reader = threading.Thread(target=self._read, args=[self._consumer], name="events", daemon=True)
            self._reader.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the consumer, if it runs. To close twice is harmless."""
        if self._consumer is None:
            return
        self._consumer.kill()
        self._consumer.wait()
        if self._reader is not None:
            self._reader.join(5)
        if self._consumer.stdout is not None:
            self._consumer.stdout.close()

    def produce(self, requests: Sequence[Mapping[str, str]]) -> None:
        """Have the independent producer send *requests*; it has ended when this returns."""
        lines = "".join(f"{json.dumps(request)}\n" for request in requests)
        command = self._command("producer.py", self._stack.topics.requests.name)
        done = subprocess.run(command, input=lines, capture_output=True, text=True, cwd=self._stack.folder, check=True)
        for line in done.stdout.splitlines():
            told = json.loads(line)
            end = told["offset"] + 1
            self.produced[told["partition"]] = max(end, self.produced.get(told["partition"], 0))
        self._screen.told(f"producer: {len(requests)} requests acknowledged by {len(self.produced)} partitions")

    def events(self) -> list[dict[str, Any]]:
        """Every event so far, in the order in which the consumer read them."""
        return list(self._events)

    def count(self, what: str) -> int:
        """How many distinct events of one kind there were, such as `WAITING review` or `COMPLETED`."""
        return self._counts[what]

    def summary(self) -> str:
        return f"{len(self._events)} events, {self._counts['COMPLETED']} of {len(self._names)} completed"

    def calls(self) -> list[Call]:
        """Every call that a service answered or was answering when its caller went away."""
        return [
            Call(entry["job_id"], entry["step"], int(entry["attempt"]), entry["status"])
            for entry in self._log()
            if entry["event"] == "begun"
        ]

    def calls_in_flight(self) -> set[str]:
        """The jobs whose call a service has begun and not ended."""
        begun = Counter(entry["job_id"] for entry in self._log() if entry["event"] == "begun")
        ended = Counter(entry["job_id"] for entry in self._log() if entry["event"] == "ended")
        return set(begun - ended)

    def _log(self) -> list[dict[str, Any]]:
        lines = [
            line
            for service in SERVICES
            if (log := self._stack.call_log(service)).exists()
            for line in log.read_text("utf-8").splitlines(keepends=True)
        ]
        entries = [json.loads(line) for line in lines if line.endswith("\n")]
        return [entry for entry in entries if entry["step"] in CALLED_STEPS]

    def _read(self, consumer: "subprocess.Popen[str]") -> None:
        assert consumer.stdout is not None
        for line in consumer.stdout:
            event = json.loads(line)
            self._events.append(event)
            if event["duplicate"]:
                continue
            what = f"{event['type']} {event['step']}".strip()
            self._counts[what] += 1
            again = f"  (try {event['attempt']})" if event["attempt"] > 1 else ""
            self._screen.told(f"{event['business_key']}  {event['seq']}  {what}{again}")

    def _command(self, script: str, topic: str) -> list[str]:
        return [sys.executable, str(HERE / script), self._stack.bootstrap, self._stack.registry_url, topic]
