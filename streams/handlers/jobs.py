"""Job types: the definition that a run of one has, which says no more than its name."""

from collections.abc import Mapping
from typing import Any, Final

from streams.workflow.names import JOB_METHOD, job_target

STEP: Final = "job"
"""The one step of a job type's run."""

_DEADLINE_MS: Final = 86_400_000
"""A day: what really bounds a job is its own `timeout_seconds`, and CALL_CAP_SECONDS of the settings."""

_FILE: Final = "workflow_runs/job.proto"
_SOURCE: Final = """\
syntax = "proto3";

package workflow_runs.job.v1;

import "google/protobuf/struct.proto";

// What a run of a job type is given: a JSON object.
message Request {
  google.protobuf.Struct data = 1;
}

// What its function returned: any JSON value.
message Result {
  google.protobuf.Value value = 1;
}

service Job {
  rpc Run(Request) returns (Result);
}
"""


def job_definition(job_type: str) -> dict[str, Any]:
    """The definition that the workflow named like *job_type* stands for: one step, which a worker with that job serves.

    It holds nothing of the function, so every worker makes the same one, and it changes with neither code nor release.
    """
    return {
        "name": job_type,
        "schema": {"sources": {_FILE: _SOURCE}, "root": _FILE},
        "inputType": "google.protobuf.Struct",
        "deadlineMs": _DEADLINE_MS,
        "steps": [{"name": STEP, "target": job_target(job_type), "method": JOB_METHOD, "rules": ["data = input"]}],
    }


def is_job_definition(document: Mapping[str, object]) -> bool:
    """Whether *document* is what some release makes for a job type."""
    steps = document.get("steps")
    return isinstance(steps, list) and [step.get("target") for step in steps if isinstance(step, dict)] == [
        job_target(str(document.get("name")))
    ]
