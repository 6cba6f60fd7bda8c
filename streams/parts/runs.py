"""What drives runs."""

from dataclasses import dataclass

from store.committer import Committer
from store.database import CommitPoint, passes
from store.items import Items
from store.leases import Leases
from store.moves import Moves
from store.prune import Prune
from store.upkeep import Upkeep
from streams.calls.grpc_calls import GrpcCalls
from streams.calls.targets import Targets
from streams.driver.driver import Driver, DriverLimits
from streams.driver.handled import Handlers
from streams.driver.pruning import Pruning
from streams.metrics import Metrics
from streams.parts.engine import UnkeptCalls, build_grpc_calls, build_targets
from streams.parts.handlers import build_handlers
from streams.parts.store import Store
from streams.settings import Settings
from streams.workflow.plan import ENGINE_LEVEL


@dataclass(frozen=True, slots=True)
class Runs:
    """What drives runs, and prunes settled ones: the driver and what must be closed after it."""

    driver: Driver
    pruning: Pruning
    committer: Committer
    leases: Leases
    targets: Targets
    calls: GrpcCalls
    handlers: Handlers

    @property
    def unkept_calls(self) -> UnkeptCalls:
        """The calls of runs that are not kept, under the same permits as all others."""
        return UnkeptCalls(self.targets, self.calls, self.handlers.calls, self.driver.permits)


def build_runs(
    settings: Settings, store: Store, owner: str, metrics: Metrics, *, commit_point: CommitPoint = passes
) -> Runs:
    """Build the driver and what it stands on.

    Raises:
        SettingsInvalid: the file of targets or the modules of handlers cannot be used.
    """
    targets = build_targets(settings)
    calls = build_grpc_calls(settings, targets)
    committer = Committer(store.database, on_committed=store.notifier.notify, commit_point=commit_point)
    leases = Leases(
        store.database,
        owner=owner,
        lease_seconds=settings.lease_seconds,
        engine_level=ENGINE_LEVEL,
        commit_point=commit_point,
    )
    handlers = build_handlers(settings, store, metrics, commit_point=commit_point)
    driver = Driver(
        leases=leases,
        moves=Moves(committer),
        items=Items(store.database),
        upkeep=Upkeep(
            store.database,
            lease_seconds=settings.lease_seconds,
            max_lost_leases=settings.max_lost_leases,
            on_committed=store.notifier.notify,
            looks=store.looks,
            commit_point=commit_point,
        ),
        plans=store.plans,
        evaluator=store.evaluator,
        calls=calls,
        targets=targets,
        handlers=handlers,
        listener=store.listener,
        metrics=metrics,
        limits=DriverLimits(
            in_flight=settings.in_flight,
            lease_seconds=settings.lease_seconds,
            backoff_base_seconds=settings.backoff_base_seconds,
            backoff_cap_seconds=settings.backoff_cap_seconds,
        ),
    )
    prune = Prune(
        store.database,
        prune_after_seconds=settings.prune_after_seconds,
        remember_seconds=settings.remember_seconds,
    )
    return Runs(driver, Pruning(prune=prune, metrics=metrics), committer, leases, targets, calls, handlers)
