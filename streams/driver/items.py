"""The items of a run in hand: read when a step needs them, and kept in batches, one move after the other."""

import asyncio
import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from schemas.errors import StepFailed
from store.items import Items
from store.moves import Moves
from store.records import ItemStatus, StoredItem
from streams.driver.held import Holding
from streams.driver.patience import until_answered
from streams.workflow import items as engine
from streams.workflow.items import TriedItem

MOVE_BYTES: Final = 1 << 20
"""Of one move, about: a run of very large items still leaves room to others in a flush. One item may be larger."""

_LAST_MOVE_SECONDS: Final = 0.2


class HeldItems:
    """The engine's `Items` over the store: what finishes while a move is on its way goes into the next one."""

    keeps = True

    def __init__(
        self,
        holding: Holding,
        *,
        items: Items,
        moves: Moves,
        patience_seconds: float,
        may_try_again: Callable[[StepFailed, int], bool],
    ) -> None:
        self._holding = holding
        self._run = holding.run
        self._items = items
        self._moves = moves
        self._patience_seconds = patience_seconds
        self._may_try_again = may_try_again
        self._counted: set[str] = set()
        self._waiting: list[tuple[StoredItem, asyncio.Future[None]]] = []
        self._writing: asyncio.Task[None] | None = None

    async def tried(self, step: str) -> Sequence[TriedItem]:
        """What earlier claims kept of a step's items. Raises StoreUnavailable."""
        stored = await until_answered(
            lambda: self._items.of_step(self._run.job_id, step),
            for_seconds=self._patience_seconds,
            before_waiting=self._holding.drop_permit,
        )
        if stored:
            self._counted.add(step)
        return [
            TriedItem(
                item.item_index,
                engine.ItemStatus(item.status),
                item.attempt,
                item.input_hash,
                item.response,
                item.error,
            )
            for item in stored
        ]

    async def keep(self, step: str, item: TriedItem, *, of: int) -> None:
        """Keep one item. A step with items is the only one of its run at work, so what waits is all of one step.

        Raises:
            LeaseLost, MoveRefused, StoreUnavailable: as `Moves.items` says.
        """
        stored = StoredItem(
            item.index,
            ItemStatus(item.status),
            item.failed_tries,
            item.input_hash,
            item.response,
            item.error,
            item.input,
        )
        kept = asyncio.get_running_loop().create_future()
        self._waiting.append((stored, kept))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write(step, of))
        await kept

    def may_try_again(self, step: str, error: StepFailed, failed_tries: int) -> bool:
        return self._may_try_again(error, failed_tries)

    async def close(self) -> None:
        """Let the moves under way end, but wait no longer than that takes where the store answers."""
        if self._writing is not None and not self._writing.done():
            await asyncio.wait({self._writing}, timeout=_LAST_MOVE_SECONDS)
            self._writing.cancel()

    async def _write(self, step: str, of: int) -> None:
        while self._waiting:
            batch = self._next_batch()
            items = [item for item, _ in batch]
            new_items = 0 if step in self._counted else of
            move = partial(self._moves.items, self._run, step=step, items=items, new_items=new_items)
            try:
                await until_answered(move, for_seconds=self._patience_seconds)
            except Exception as error:  # noqa: BLE001  # whatever it was, those who wait must learn of it
                for _, kept in batch:
                    if not kept.done():
                        kept.set_exception(error)
            else:
                self._counted.add(step)
                for _, kept in batch:
                    if not kept.done():
                        kept.set_result(None)

    def _next_batch(self) -> list[tuple[StoredItem, "asyncio.Future[None]"]]:
        """Take what waits, up to a size, the first one whatever its size."""
        size = count = 0
        for item, _ in self._waiting:
            size += len(json.dumps(item.response)) + len(json.dumps(item.input))
            if count and size > MOVE_BYTES:
                break
            count += 1
        batch, self._waiting = self._waiting[:count], self._waiting[count:]
        return batch
