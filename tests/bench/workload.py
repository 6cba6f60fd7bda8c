"""The work that is measured: a workflow of three calls with requests to run it, and one of a thousand items."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final
from uuid import UUID, uuid4

from google.protobuf.wrappers_pb2 import BytesValue, StringValue

from schemas.framing import frame
from schemas.messages import INDEXES, WorkflowRunRequest

TARGET: Final = "noop"
METHOD: Final = "bench.v1.Noop/Do"
NAME: Final = "three-steps"
STEPS: Final = ("first", "second", "third")

FAN_OUT_NAME: Final = "thousand-items"
ITEMS: Final = 1_000
ITEM_BYTES: Final = 10_000
ITEMS_IN_FLIGHT: Final = 32
MANY: Final = "bench.v1.Noop/Many"

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


FAN_OUT_WORKFLOW: Final[dict[str, object]] = {
    "name": FAN_OUT_NAME,
    "schema": {
        "sources": {
            "bench.proto": """
                syntax = "proto3";
                package bench.v1;
                message Text { string text = 1; }
                message Texts { repeated Text texts = 1; }
                service Noop { rpc Do(Text) returns (Text); rpc Many(Text) returns (Texts); }
            """
        },
        "root": "bench.proto",
    },
    "inputType": "bench.v1.Text",
    "steps": [
        {"name": "many", "target": TARGET, "method": MANY, "rules": ["text = input.text"]},
        {
            "name": "each",
            "target": TARGET,
            "method": METHOD,
            "edge": {"sources": ["many"], "produceType": "bench.v1.Texts", "rules": ["texts = many.texts"]},
            "fanOut": {
                "items": "texts",
                "maxItems": ITEMS,
                "maxConcurrency": ITEMS_IN_FLIGHT,
                "failurePolicy": "FAIL_FAST",
                "collectType": "bench.v1.Texts",
                "collectInto": "texts",
            },
        },
    ],
    "output": {"type": "bench.v1.Text", "rules": ["text = input.text"]},
}
"""The first call gives the items: no request need be as large as they are together."""

ITEM: Final = StringValue(value=Random(1).randbytes(ITEM_BYTES // 2).hex()).SerializeToString()
"""One item as it goes over the wire: a message with one text in field 1, of which compression saves a half at most."""


def many_items() -> bytes:
    """What `Many` answers: a message with all items in field 1."""
    return BytesValue(value=ITEM).SerializeToString() * ITEMS


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
