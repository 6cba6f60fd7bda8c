"""How a long-running service says how it is."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServiceHealth:
    """One service, now.

    `alive` False means that it cannot recover by itself and the process should be restarted; an outage of Postgres or
    Kafka never does that. `ready` False means that it cannot work at this moment. `degraded` True means that it works,
    and somebody has to look: something lasts that it cannot mend, such as one run whose event no topic takes. `detail`
    says why, or how it is.
    """

    name: str
    alive: bool
    ready: bool
    detail: str = ""
    degraded: bool = False


HealthCheck = Callable[[], ServiceHealth]


def all_alive(services: Iterable[ServiceHealth]) -> bool:
    """Whether no service is dead."""
    return all(service.alive for service in services)


def all_ready(services: Iterable[ServiceHealth]) -> bool:
    """Whether every service can work now."""
    return all(service.alive and service.ready for service in services)


def any_degraded(services: Iterable[ServiceHealth]) -> bool:
    """Whether some service works with a trouble that somebody has to mend."""
    return any(service.degraded for service in services)
