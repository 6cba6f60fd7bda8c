"""A step's call of a handler in Python: on behalf of which run, under which permit, in which transaction."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from schemas.errors import SegmentInterrupted, StepFailed, WorkflowBroken
from store.handler_transactions import HandlerTransaction, HandlerTransactions
from store.records import HeldRun
from streams.driver.permits import Permit
from streams.driver.progress import ProgressBoard
from streams.handlers.calls import HandlerCalls, OnBehalf
from streams.workflow.callbacks import CallRequest
from streams.workflow.descriptors import SchemaSet


@dataclass(frozen=True, slots=True)
class Handlers:
    """What handlers of a process are called with."""

    calls: HandlerCalls
    transactions: HandlerTransactions
    board: ProgressBoard

    def serves(self, target: str) -> bool:
        """Whether a handler of this process serves *target*."""
        return self.calls.serves(target)

    async def close(self) -> None:
        """End the connections and processes of handlers. What still runs in a thread ends with the process."""
        await self.transactions.close()
        await self.calls.close()


class HandlerSteps:
    """The calls of handlers for one claimed run, and the transaction that the last of them has left open."""

    def __init__(self, held: HeldRun, handlers: Handlers) -> None:
        self._held = held
        self._handlers = handlers
        self._transaction: HandlerTransaction | None = None

    async def call(self, request: CallRequest, *, attempt: int, schemas: SchemaSet, permit: Permit) -> bytes:
        """Call the handler of a step. The permit goes with it, and is free once the handler has really ended.

        Raises as `HandlerCalls`, and StoreUnavailable: the transaction was lost, or there is none.
        """
        served = self._handlers.calls.registry.find(request.target)
        if served is None:
            raise SegmentInterrupted(f"this worker does not serve the target {request.target}")
        if served.declaration.transactional:
            if request.attempt is not None:  # the call of an item, and its step has one checkpoint for all of them
                raise WorkflowBroken(f"the transactional handler of {served.declaration.name} cannot serve items")
            transaction = await self._handlers.transactions.begin(
                is_async=served.declaration.is_async, seconds=request.timeout_seconds
            )
            return await self._in(transaction, request, attempt, schemas, permit)
        on_behalf = self._on_behalf(attempt, shows_progress=request.attempt is None)
        held_on = permit.hand_over()
        response = await self._handlers.calls(request, on_behalf, schemas=schemas, on_end=held_on.release)
        await self._handlers.board.flush(self._held)
        return response

    def take_transaction(self) -> HandlerTransaction | None:
        """The transaction that the step's checkpoint is to be committed with, once."""
        transaction, self._transaction = self._transaction, None
        return transaction

    @contextlib.contextmanager
    def ending(self) -> Iterator[None]:
        """Around the work on the run: a transaction whose checkpoint was never written is rolled back at its end."""
        try:
            yield
        finally:
            if (transaction := self.take_transaction()) is not None:
                transaction.abandon()
                transaction.dispose()

    async def _in(
        self, transaction: HandlerTransaction, request: CallRequest, attempt: int, schemas: SchemaSet, permit: Permit
    ) -> bytes:
        held_on = permit.hand_over()
        ended = False

        def on_end() -> None:
            nonlocal ended
            ended = True
            held_on.release()
            transaction.dispose()

        on_behalf = self._on_behalf(attempt, transaction)
        try:
            response = await self._handlers.calls(request, on_behalf, schemas=schemas, on_end=on_end)
        except BaseException as error:
            transaction.abandon()
            if ended:  # else the connection is closed when the handler ends: it may still use it
                transaction.dispose()
            if isinstance(error, StepFailed):
                raise transaction.explained(error) from error.__cause__
            raise
        self._transaction = transaction
        await self._handlers.board.flush(self._held)
        return response

    def _on_behalf(
        self, attempt: int, transaction: HandlerTransaction | None = None, *, shows_progress: bool = True
    ) -> OnBehalf:
        held, board = self._held, self._handlers.board

        def report(done: int, total: int) -> None:
            if shows_progress:  # the progress of a step that fans out is that of its items
                board.report(held, done, total)

        return OnBehalf(
            job_id=held.job_id,
            tenant_id=held.claim.tenant_id,
            attempt=attempt,
            report=report,
            connection=transaction.connection if transaction is not None else None,
        )
