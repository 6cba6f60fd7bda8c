"""The reduced form: what is published of a record that an operator gave up, since it cannot be published whole.

It depends on nothing but the row, so that it too is the same however often it is sent. An event keeps what consumers
keep order by (ids, number, type, status, time) and what its type must have; a dead letter keeps where it came from and
why. The store has the rest.
"""

import json
from dataclasses import replace
from typing import Final

from schemas import limits
from schemas.events import EventType
from schemas.text import cut, unstorable
from store.records import QueuedEvent, QueuedLetter

TEXT: Final = 200
"""Most code points of a verdict, an error or an operator's reason in a reduced record."""

LETTER_KEY_BYTES: Final = 1024

_UNTOLD: Final = "(skipped)"
"""Stands for a text that the event must have and the row has not, or not one that can be told."""

_NEED_STEP: Final = frozenset({EventType.STEP_CHECKPOINT, EventType.WAITING})
_NEED_ERROR: Final = frozenset({EventType.FAILED, EventType.DEAD})


def reduced_event(row: QueuedEvent, skip_reason: str) -> QueuedEvent:
    """Return *row* with its texts cut, without labels, trace and detail; `detail` says that it is so, and why."""
    return replace(
        row,
        workflow_name=_whole(row.workflow_name) or _UNTOLD,
        step=_whole(row.step) or _needed(row.type in _NEED_STEP),
        verdict=_cut(row.verdict) or _needed(row.type == EventType.COMPLETED),
        error=_cut(row.error) or _needed(row.type in _NEED_ERROR),
        detail=json.dumps({"skipped": cut(skip_reason, TEXT)}, ensure_ascii=False, separators=(",", ":")),
        business_key=_whole(row.business_key),
        labels=None,
        trace_context=None,
    )


def reduced_letter(row: QueuedLetter, skip_reason: str) -> QueuedLetter:
    """Return *row* without value and headers, and with no key that is large; its reason says so, and why."""
    letter = row.letter
    key = letter.key if letter.key is not None and len(letter.key) <= LETTER_KEY_BYTES else None
    reason = f"only this is published, the store has all of letter {row.letter_id}: {cut(skip_reason, TEXT)}"
    return replace(
        row, letter=replace(letter, key=key, value=None, headers=(), reason=f"{reason}; {cut(letter.reason, TEXT)}")
    )


def _cut(text: str | None) -> str | None:
    return None if text is None else cut(text, TEXT)


def _whole(text: str | None) -> str | None:
    """A text that something is found by is right as it is, or not there at all."""
    return text if text and len(text) <= limits.NAME and not unstorable(text) else None


def _needed(needed: bool) -> str | None:
    return _UNTOLD if needed else None
