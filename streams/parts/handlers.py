"""What calls handlers in Python."""

from typing import Final

from schemas.errors import SettingsInvalid
from store.database import CommitPoint, passes
from store.handler_transactions import HandlerTransactions
from store.progress import Progress
from streams.driver.handled import Handlers
from streams.driver.progress import ProgressBoard
from streams.handlers.jobs import is_job_definition, job_definition
from streams.metrics import Metrics
from streams.parts.engine import build_handler_calls
from streams.parts.store import Store
from streams.settings import Settings

_TENANT: Final = "default"


async def store_job_types(handlers: Handlers, store: Store, *, actor: str) -> None:
    """Store the workflow of each job type that is served here, so that every worker can take requests for it.

    Raises:
        SettingsInvalid: another workflow has the name of a job type.
        StoreUnavailable: Postgres gave no answer.
    """
    verbs = store.verbs(actor=actor)
    for job_type in handlers.calls.registry.job_types:
        stored = await store.definitions.workflow(_TENANT, job_type)
        known = await store.definitions.get(stored.definition_hash) if stored is not None else None
        if known is not None and not is_job_definition(known.document):
            raise SettingsInvalid([f"HANDLERS: the job type {job_type} has the name of a stored workflow: rename one"])
        answer = await verbs.call("put-workflow", {"workflow": job_definition(job_type)}, tenant_id=_TENANT)
        if answer["ok"] is not True:
            raise SettingsInvalid([f"HANDLERS: the job type {job_type} cannot be stored: {answer['error']}"])


def build_handlers(
    settings: Settings, store: Store, metrics: Metrics, *, commit_point: CommitPoint = passes
) -> Handlers:
    """Import the modules of HANDLERS and build what calls them.

    Raises:
        SettingsInvalid: a module cannot be used; one sentence per fault.
    """
    calls = build_handler_calls(settings, metrics)
    transactions = HandlerTransactions(
        store.database,
        settings.database_url or "",
        on_committed=store.notifier.notify,
        in_thread=calls.in_thread,
        in_loop=calls.in_loop,
        commit_point=commit_point,
    )
    return Handlers(calls, transactions, ProgressBoard(Progress(store.database)))
