"""The work that is measured: a workflow of three calls, and requests to run it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID, uuid4

from schemas.framing import frame
from schemas.messages import INDEXES, WorkflowRunRequest

TARGET: Final = "noop"
METHOD: Final = "bench.v1.Noop/Do"
NAME: Final = "three-steps"
STEPS: Final = ("first", "second", "third")

_TEXT_CHARACTERS: Final = 190

WORKFLOW: Final[dict[str, object]] = {
    "name": NAME,
    "schema": {
        "sources": {
            "bench.proto": """
                syntax = "proto3";
                package bench.v1;
                message Text { string text = 1; }
                service Noop { rpc Do(Text) returns (Text); }
            """
        },
        "root": "bench.proto",
    },
    "inputType": "bench.v1.Text",
    "steps": [
        {"name": name, "target": TARGET, "method": METHOD, "rules": [f"text = {before}.text"]}
        for before, name in zip(("input", *STEPS), STEPS, strict=False)
    ],
    "output": {"type": "bench.v1.Text", "rules": [f"text = {STEPS[-1]}.text"]},
}


@dataclass(frozen=True, slots=True)
class WorkRequest:
    """One request: what a producer sends, and what the row of its run holds."""

    job_id: UUID
    text: str
    business_key: str

    @property
    def input(self) -> str:
        return json.dumps({"text": self.text}, separators=(",", ":"))

    def json_value(self) -> bytes:
        """The record in plain JSON."""
        document = {
            "job_id": str(self.job_id),
            "workflow_name": NAME,
            "input": {"text": self.text},
            "business_key": self.business_key,
        }
        return json.dumps(document, separators=(",", ":")).encode()

    def protobuf_value(self, schema_id: int) -> bytes:
        """The record in Protobuf, framed."""
        message = WorkflowRunRequest(
            job_id=str(self.job_id), workflow_name=NAME, input=self.input, business_key=self.business_key
        )
        return frame(schema_id, message.SerializeToString(), INDEXES[WorkflowRunRequest])


def requests(count: int) -> Sequence[WorkRequest]:
    """Make *count* requests, about 300 bytes each."""
    return [_request(number) for number in range(count)]


def _request(number: int) -> WorkRequest:
    words = "".join(uuid4().hex for _ in range(6))
    return WorkRequest(uuid4(), words[:_TEXT_CHARACTERS], f"order-{number:06}")
