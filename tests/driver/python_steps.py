"""Workflows whose steps are handlers in Python; see tests/handlers/steps.py."""

import json
from typing import Any

from tests.handlers.steps import SOURCE

STEPS = "tests.handlers.steps"


def calling(method: str, *, deadline_ms: int = 30_000, step_deadline_ms: int = 0, **step: Any) -> dict[str, Any]:
    """One call of a handler of `steps.v1.Steps`: what it does is the run's input, what it answers the result."""
    return {
        "name": "python-step",
        "schema": {"sources": {"steps.proto": SOURCE}, "root": "steps.proto"},
        "inputType": "steps.v1.Ask",
        "deadlineMs": deadline_ms,
        "steps": [
            {
                "name": "work",
                "target": "local",
                "method": f"steps.v1.Steps/{method}",
                "rules": ["text = input.text"],
                "deadlineMs": step_deadline_ms,
                **step,
            }
        ],
    }


def asking(text: str) -> str:
    """The input of a run as its row has it."""
    return json.dumps({"text": text})
