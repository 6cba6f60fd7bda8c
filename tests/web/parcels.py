"""The parcel's workflow for tests over HTTP: one call, then a step that somebody answers with a whole parcel."""

import base64
import json
from typing import Any

from streams.workflow.descriptors import SchemaSet
from tests.web.conftest import Door
from tests.workflow.samples import DATA, descriptor_set

ACCEPT = "/depot.Intake/Accept"
REPLIES: dict[str, bytes] = {
    name: bytes.fromhex(reply) for name, reply in json.loads((DATA / "step_replies.json").read_text()).items()
}
SCHEMAS = SchemaSet.from_bytes(descriptor_set("parcel_full"))

_CALL = {"method": "depot.Intake/Accept", "target": "tokenizer"}


def parcels(*rules: str, **step: Any) -> dict[str, Any]:
    """Accept a parcel that *rules* build; then the desk is asked about what came back, and its answer is the result."""
    return {
        "name": "parcel-flow",
        "schema": {"descriptorSetBase64": base64.b64encode(descriptor_set("parcel_full")).decode()},
        "inputType": "depot.Parcel",
        "steps": [
            {"name": "accept", **_CALL, "rules": list(rules), **step},
            {
                "name": "desk",
                "method": "depot.Intake/Accept",
                "completion": "external",
                "rules": ["label = accept.label"],
            },
        ],
    }


async def submitted(door: Door, document: dict[str, Any], given: object) -> str:
    """The id of a run that was taken."""
    answer = await door.ok("submit-workflow", {"workflow": document, "input": given})
    assert answer["ok"], answer
    return str(answer["jobId"])


def parcel(data: bytes) -> Any:
    """The parcel of these bytes, without what the schema does not know."""
    message: Any = SCHEMAS.from_wire("depot.Parcel", data)
    message.DiscardUnknownFields()
    return message
