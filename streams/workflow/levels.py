"""Which engine a definition needs: the least level that knows every key it uses."""

from collections.abc import Mapping
from typing import Final

from streams.workflow.names import is_served_in_process

ENGINE_LEVEL: Final = 2
"""Raised whenever a definition can say something that older engines do not know. A worker claims only what it knows."""

_KEYS_OF_2: Final = frozenset({"runDeadlineMs", "validate"})
_STEP_KEYS_OF_2: Final = frozenset(
    {
        "when",
        "celRules",
        "edge",
        "fanOut",
        "validate",
        "publish",
        "ask",
        "wait",
        "retry",
        "answerWithinMs",
        "remindAfterMs",
    }
)


def level_of(document: Mapping[str, object]) -> int:
    """The level that a definition needs. One whose form is not sound needs any: it is refused elsewhere."""
    steps, output = document.get("steps"), document.get("output")
    newer = (
        not _KEYS_OF_2.isdisjoint(document)
        or (isinstance(output, Mapping) and "celRules" in output)
        or (isinstance(steps, list) and any(isinstance(step, Mapping) and _is_newer(step) for step in steps))
    )
    return 2 if newer else 1


def _is_newer(step: Mapping[str, object]) -> bool:
    return not _STEP_KEYS_OF_2.isdisjoint(step) or is_served_in_process(str(step.get("target")))
