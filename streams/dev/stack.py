"""Everything a worker needs, and workers, as processes of this machine: for the demo, for `dev` and for a first try."""

import json
import os
import signal
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self

from schemas.topics import load_topics
from streams.dev.apache import ApacheKafka
from streams.dev.broker import EmbeddedBroker
from streams.dev.guard import Guard
from streams.dev.ports import LOOPBACK, accepts, free_ports
from streams.dev.postgres import EmbeddedPostgres
from streams.dev.processes import ChildProcess, StartFailed
from streams.kafka.committed import committed_offsets

ROOT: Final = Path(__file__).parents[2]
WORKFLOWS: Final = Path(__file__).parent / "workflows"
GROUP: Final = "workflow-runs"

KafkaKind = Literal["embedded", "apache"]

# What the stack sets otherwise than the defaults, so that a story takes seconds.
QUICK_SETTINGS: Final[Mapping[str, str]] = {
    "LEASE_SECONDS": "4",
    "BACKOFF_BASE_SECONDS": "1",
    "KAFKA_SESSION_TIMEOUT_SECONDS": "3",
    "DRAIN_GRACE_SECONDS": "5",
}


@dataclass(frozen=True, slots=True)
class StackWorker:
    """One worker process: `name` is its worker id, `url` serves the verbs, `health_url` health and metrics."""

    name: str
    process: ChildProcess
    url: str
    health_url: str


class Stack:
    """Postgres, a broker, the registry stand-in, two example services and workers. A context manager."""

    def __init__(self, *, kafka: KafkaKind = "embedded", workers: int = 2, tell: Callable[[str], None]) -> None:
        """Describe the stack; *tell* hears one line for each thing that runs."""
        self._exit = ExitStack()
        self._tell = tell
        self._kafka_kind = kafka
        self._worker_count = workers
        self.workers: list[StackWorker] = []
        self.topics = load_topics(ROOT / "topics.yaml")

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._exit.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self.workers:
            if worker.process.running:
                worker.process.send(signal.SIGTERM)
        for worker in self.workers:
            worker.process.stop(grace_seconds=12)
        self._exit.close()

    def _start(self) -> None:
        self._guard = Guard()
        self._exit.callback(self._guard.close)
        self.folder = self._guard.make_folder("stack")
        ports = free_ports(3)
        servers = self._begin_servers(ports)
        postgres = self._exit.enter_context(EmbeddedPostgres())
        self._tell(f"Postgres at {LOOPBACK}:{postgres.port}")
        is_apache = self._kafka_kind == "apache"
        broker: ApacheKafka | EmbeddedBroker = ApacheKafka() if is_apache else EmbeddedBroker()
        self._exit.enter_context(broker)
        self.bootstrap = broker.bootstrap
        self._tell(f"{'Apache Kafka' if is_apache else 'Kafka-compatible broker'} at {self.bootstrap}")
        for (name, server), port in zip(servers.items(), ports, strict=False):
            server.wait_until(partial(accepts, port), deadline_seconds=30)
            self._tell(f"{name} at {LOOPBACK}:{port}")
        self.settings = self._settings(postgres.url(), ports)
        self._prepare()
        # Picked only now: what others start meanwhile picks ports too, and nothing is reserved.
        self._start_workers(free_ports(2 * self._worker_count))

    def _begin_servers(self, ports: list[int]) -> dict[str, ChildProcess]:
        """Start the registry and the services; they come up while Postgres does."""
        self.registry_url = f"http://{LOOPBACK}:{ports[0]}"
        modules = {
            "registry": ["streams.dev.registry"],
            "tokenizer": ["streams.dev.services", "tokenizer", "--calls", str(self.call_log("tokenizer"))],
            "embedder": ["streams.dev.services", "embedder", "--calls", str(self.call_log("embedder"))],
        }
        servers = {}
        for (name, arguments), port in zip(modules.items(), ports, strict=False):
            command = [sys.executable, "-m", *arguments, "--port", str(port)]
            servers[name] = self._process(name, command, os.environ)
            servers[name].start()
        return servers

    def _settings(self, database_url: str, ports: list[int]) -> dict[str, str]:
        targets = self.folder / "targets.yaml"
        targets.write_text(
            f'tokenizer: {{address: "{LOOPBACK}:{ports[1]}"}}\nembedder: {{address: "{LOOPBACK}:{ports[2]}"}}\n'
        )
        return {
            "DATABASE_URL": database_url,
            "KAFKA_BOOTSTRAP": self.bootstrap,
            "SCHEMA_REGISTRY_URL": self.registry_url,
            "TOPICS_FILE": str(ROOT / "topics.yaml"),
            "TARGETS_FILE": str(targets),
            "WORKFLOWS_DIR": str(WORKFLOWS),
            "GROUP": GROUP,
            **QUICK_SETTINGS,
        }

    def environment(self, **more: str) -> dict[str, str]:
        """Return the environment of a process of ours on this stack; settings of the caller's own are left out."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("WORKFLOW_RUNS_")}
        return {**inherited, **{f"WORKFLOW_RUNS_{name}": value for name, value in {**self.settings, **more}.items()}}

    def call_log(self, service: str) -> Path:
        """Return the file to which a service writes one JSON line per call begun and per call ended."""
        return self.folder / f"{service}.calls"

    def verb(self, url: str, name: str, call: Mapping[str, object]) -> tuple[int, dict[str, Any]]:
        """Call a verb of the worker at *url*; return the HTTP status and the JSON it answered."""
        request = urllib.request.Request(
            f"{url}/verbs/{name}", json.dumps(call).encode(), {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=15) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as refused:
            return refused.code, json.load(refused)
        except (urllib.error.URLError, OSError) as error:
            time.sleep(0.5)  # a worker that is ending closes its door first
            self.check()
            raise StartFailed(f"{url} does not answer: {error}") from error

    def committed_offsets(self) -> dict[int, int]:
        """Return the committed offset of each partition of the request topic that has one."""
        requests = self.topics.requests
        partitions = [(requests.name, number) for number in range(requests.partitions)]
        committed = committed_offsets({"bootstrap.servers": self.bootstrap}, GROUP, partitions)
        return {number: offset for (_, number), offset in committed.items() if offset}

    def watch(self, pid: int) -> None:
        """Have the process group *pid* ended when this process is gone, however it ended."""
        self._guard.watch(pid, signal.SIGKILL)

    def check(self) -> None:
        """Raise StartFailed when a worker ended that nobody killed."""
        for worker in self.workers:
            if not worker.process.running and (code := worker.process.returncode) not in (0, -9):
                raise StartFailed(f"{worker.name} ended with {code}:\n{worker.process.tail()}")

    def _prepare(self) -> None:
        """Run our own commands that make an empty stack ready, side by side."""
        commands = (("migrate",), ("topics", "apply"), ("schemas", "register"))
        runs = [
            self._process(" ".join(c), [sys.executable, "-m", "streams.cli", *c], self.environment()) for c in commands
        ]
        for run in runs:
            run.start()
        for run in runs:
            if code := run.wait(timeout_seconds=60):
                raise StartFailed(f"workflow-runs {run.name} ended with {code}:\n{run.tail()}")
        self._tell("migrated, topics created, schemas registered")

    def _start_workers(self, ports: list[int]) -> None:
        for number in range(1, self._worker_count + 1):
            name = f"worker-{number}"
            web, health = f"{LOOPBACK}:{ports[2 * number - 2]}", f"{LOOPBACK}:{ports[2 * number - 1]}"
            environment = self.environment(WORKER_ID=name, HTTP_BIND=web, HEALTH_BIND=health)
            process = self._process(name, [sys.executable, "-m", "streams.cli", "worker"], environment)
            process.start()
            self.workers.append(StackWorker(name, process, f"http://{web}", f"http://{health}"))
        for worker in self.workers:
            worker.process.wait_until(partial(_ready, worker.health_url), deadline_seconds=40)
            self._tell(f"{worker.name} at {worker.url}")

    def _process(self, name: str, command: list[str], environment: Mapping[str, str]) -> ChildProcess:
        process = ChildProcess(
            name,
            command,
            log=self.folder / f"{name.replace(' ', '-')}.log",
            folder=ROOT,
            environment=environment,
            guard=self._guard,
        )
        return self._exit.enter_context(process)


def _ready(health_url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{health_url}/readyz", timeout=2) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False
