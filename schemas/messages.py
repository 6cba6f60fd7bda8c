"""The contract's messages, under names that do not change when the generated code moves.

A consumer or a producer needs no more than these classes and a Kafka client:

    from schemas.messages import WorkflowRunRequest

    request = WorkflowRunRequest(job_id=str(job_id), workflow_name="embed-text", input='{"text": "a"}')
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from google.protobuf.message import Message

from schemas.gen.workflow_runs.v1.workflow_runs_pb2 import (
    WorkflowRunEvent,
    WorkflowRunRequest,
    WorkflowRunState,
    WorkflowStepCompletion,
)

__all__ = [
    "INDEXES",
    "WorkflowRunEvent",
    "WorkflowRunRequest",
    "WorkflowRunState",
    "WorkflowStepCompletion",
]

INDEXES: Final[Mapping[type[Message], tuple[int, ...]]] = MappingProxyType(
    {
        WorkflowRunEvent: (0,),
        WorkflowRunRequest: (1,),
        WorkflowStepCompletion: (2,),
        WorkflowRunState: (3,),
    }
)
"""The message indexes in each frame: where the message stands in our schema text."""
