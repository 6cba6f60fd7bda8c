"""A definition whose steps call no method: it publishes, asks by topic and waits."""

from typing import Any

SOURCE = """
syntax = "proto3";
package notice.v1;
import "google/protobuf/timestamp.proto";
message Order { string number = 1; google.protobuf.Timestamp ready_at = 2; }
message Notice { string text = 1; string number = 2; }
message Question { string number = 1; }
message Verdict { bool approved = 1; string note = 2; }
"""


def notices(*, steps: list[dict[str, Any]] | None = None, **envelope: Any) -> dict[str, Any]:
    """Tell a topic, ask another one, wait, and tell again. The caller's to change."""
    return {
        "name": "notices",
        "schema": {"sources": {"notice.proto": SOURCE}, "root": "notice.proto"},
        "inputType": "notice.v1.Order",
        "steps": [tell(), ask(), wait(), tell("again", rules=["text = ask.note"])] if steps is None else steps,
        "output": {"type": "notice.v1.Notice", "rules": ["number = input.number"]},
        **envelope,
    }


def tell(name: str = "tell", **members: Any) -> dict[str, Any]:
    publish = {"topic": "notices", "type": "notice.v1.Notice", **members.pop("publish", {})}
    return {"name": name, "publish": publish, "rules": ["number = input.number"], **members}


def ask(**members: Any) -> dict[str, Any]:
    asked = {"topic": "questions", "requestType": "notice.v1.Question", "responseType": "notice.v1.Verdict"}
    return {"name": "ask", "ask": asked, "rules": ["number = input.number"], **members}


def wait(**members: Any) -> dict[str, Any]:
    return {"name": "pause", "wait": {"forMs": 60_000}, **members}
