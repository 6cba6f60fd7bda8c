"""What calls handlers in Python."""

from store.database import CommitPoint, passes
from store.handler_transactions import HandlerTransactions
from store.progress import Progress
from streams.driver.handled import Handlers
from streams.driver.progress import ProgressBoard
from streams.handlers.calls import HandlerCalls
from streams.handlers.registry import load_registry
from streams.metrics import Metrics
from streams.parts.store import Store
from streams.settings import Settings


def build_handlers(
    settings: Settings, store: Store, metrics: Metrics, *, commit_point: CommitPoint = passes
) -> Handlers:
    """Import the modules of HANDLERS and build what calls them.

    Raises:
        SettingsInvalid: a module cannot be used; one sentence per fault.
    """
    calls = HandlerCalls(
        load_registry(settings.handlers),
        default_permits=settings.permits_per_target,
        call_cap_seconds=settings.call_cap_seconds,
        metrics=metrics,
    )
    transactions = HandlerTransactions(
        store.database,
        settings.database_url or "",
        on_committed=store.notifier.notify,
        in_thread=calls.in_thread,
        in_loop=calls.in_loop,
        commit_point=commit_point,
    )
    return Handlers(calls, transactions, ProgressBoard(Progress(store.database)))
