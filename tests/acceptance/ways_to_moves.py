"""How a worker comes to each move of a run, and what must have been called and told once another has finished it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from grpc import StatusCode

from tests.driver.stories import (
    EMBED,
    TOKENIZE,
    TOKENS,
    VECTOR,
    embed_after_a_pause,
    embed_each,
    embed_reviewed_text,
    embed_text,
    embed_text_reviewed_within,
)
from tests.fixtures.grpc_server import Answer

_AWAY = Answer(status=StatusCode.UNAVAILABLE)
_NO = Answer(status=StatusCode.INVALID_ARGUMENT)
_STEPS = ("ACCEPTED", "STEP_CHECKPOINT tokenize", "STEP_CHECKPOINT embed", "COMPLETED")


@dataclass(frozen=True)
class Way:
    """A run that makes the move on its way to the end.

    `calls` are those of tokenize and embed when the worker died before the commit, `calls_after` when it died after
    it. Only the step in hand may be called again, once: its call had no checkpoint yet.
    """

    calls: tuple[int, int]
    calls_after: tuple[int, int]
    log: tuple[str, ...] = _STEPS
    document: Mapping[str, Any] = field(default_factory=embed_text)
    embed: tuple[Answer, ...] = (VECTOR,)
    max_attempts: int = 3

    @property
    def scripts(self) -> dict[str, tuple[Answer, ...]]:
        return {TOKENIZE: (TOKENS,), EMBED: self.embed}


WAYS: dict[str, Way] = {
    "claim": Way(calls=(1, 1), calls_after=(1, 1)),
    "item": Way(calls=(2, 1), calls_after=(1, 1), document=embed_each()),
    "checkpoint": Way(calls=(2, 1), calls_after=(1, 1)),
    "park": Way(
        calls=(1, 1),
        calls_after=(1, 1),
        log=(*_STEPS[:2], "WAITING review", "STEP_CHECKPOINT review", *_STEPS[2:]),
        document=embed_reviewed_text(),
    ),
    "retry": Way(calls=(1, 2), calls_after=(1, 2), embed=(_AWAY, VECTOR)),
    "release": Way(calls=(1, 2), calls_after=(1, 2)),
    "complete": Way(calls=(1, 1), calls_after=(1, 1)),
    "fail": Way(calls=(1, 2), calls_after=(1, 1), log=(*_STEPS[:2], "FAILED embed"), embed=(_NO,)),
    "give_up": Way(calls=(1, 2), calls_after=(1, 1), log=(*_STEPS[:2], "DEAD embed"), embed=(_AWAY,), max_attempts=1),
    "expire": Way(calls=(1, 1), calls_after=(1, 1)),
    "wake": Way(
        calls=(1, 1),
        calls_after=(1, 1),
        log=(*_STEPS[:2], "WAITING pause", "STEP_CHECKPOINT pause", *_STEPS[2:]),
        document=embed_after_a_pause(100),
    ),
    "remind": Way(
        calls=(1, 0),
        calls_after=(1, 0),
        log=(*_STEPS[:2], "WAITING review", "WAITING review", "FAILED review"),
        document=embed_text_reviewed_within(1_500, remindAfterMs=50),
    ),
    "overdue": Way(
        calls=(1, 0),
        calls_after=(1, 0),
        log=(*_STEPS[:2], "WAITING review", "FAILED review"),
        document=embed_text_reviewed_within(100),
    ),
}
"""By move. `submit`, `answer` and `cancel` are calls of a verb, `intake` and `relay` have their own tests."""
