import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import ContractError
from schemas.fingerprint import fingerprint
from schemas.framing import frame, unframe
from schemas.messages import INDEXES, WorkflowRunRequest
from schemas.requests import Request, Unusable, decode_json, decode_protobuf

ID = "3f0c7c1e-6a55-4f0e-9d7d-0d5a4c1b2a01"
BODIES = json.loads((Path(__file__).parent / "data" / "requests.json").read_text())

STORABLE = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | STORABLE,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(STORABLE, inner, max_size=3),
    max_leaves=8,
)
INPUTS = st.dictionaries(STORABLE, VALUES, max_size=4)
LABELS = st.dictionaries(
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=9), STORABLE, max_size=3
)


def of(request: Request | Unusable, tenant_id: str = "default") -> bytes:
    return fingerprint(
        tenant_id=tenant_id,
        workflow_name=request.workflow_name,
        definition_hash=None,
        business_key=request.business_key,
        labels=request.labels,
        input=request.input,
    )


def of_input(text: str) -> bytes:
    return of(Request(UUID(ID), "w", text))


def reordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: reordered(member) for key, member in reversed(value.items())}
    return [reordered(element) for element in value] if isinstance(value, list) else value


def test_a_fingerprint_is_this_one_for_ever() -> None:
    assert (
        fingerprint(
            tenant_id="default",
            workflow_name="embed-text",
            definition_hash=None,
            business_key="order 17",
            labels={"team": "search", "a": "ö"},
            input='{"text": "a", "n": [1, 1.5, 9007199254740993]}',
        ).hex()
        == "ae447907146436a4dffb2e34885c633e5a3f84b98ff360614046c8f7f9cdaf55"
    )
    assert (
        fingerprint(
            tenant_id="default",
            workflow_name=None,
            definition_hash=bytes(32),
            business_key=None,
            labels=None,
            input="{}",
        ).hex()
        == "df221665c6b0b7551ec574ce08a1146928e6c053b578c8bf5fbe370c5a1e3cd8"
    )


@given(INPUTS, LABELS, STORABLE)
def test_key_order_and_white_space_never_matter(value: dict[str, object], labels: dict[str, str], key: str) -> None:
    members = {"job_id": ID, "workflow_name": "w", "input": value, "business_key": key, "labels": labels}
    texts = [json.dumps(members), json.dumps(reordered(members), indent=1), json.dumps(members, ensure_ascii=False)]
    assert len({of(decode_json(text.encode())) for text in texts}) == 1


@given(INPUTS, LABELS, STORABLE)
def test_framed_protobuf_and_json_of_one_request_are_the_same(
    value: dict[str, object], labels: dict[str, str], key: str
) -> None:
    members = {"jobId": ID, "workflowName": "w", "input": value, "businessKey": key, "labels": labels}
    message = WorkflowRunRequest(
        job_id=ID, workflow_name="w", input=json.dumps(value), business_key=key, labels=json.dumps(labels)
    )
    framed = unframe(frame(7, message.SerializeToString(), INDEXES[WorkflowRunRequest]))
    sent_as_text = members | {"input": json.dumps(value), "labels": json.dumps(labels)}
    requests = [
        decode_json(json.dumps(members).encode()),
        decode_json(json.dumps(sent_as_text).encode()),
        decode_protobuf(framed.payload, framed.indexes),
    ]
    assert all(isinstance(request, Request) for request in requests)
    assert len({of(request) for request in requests}) == 1


@pytest.mark.parametrize("sent", ["[1]", "17", '{"a": 1, "a": 2}', '{"a": "\\u0000"}'])
def test_an_unusable_request_is_the_same_in_every_format(sent: str) -> None:
    value = f'{{"job_id": "{ID}", "workflow_name": "w", "input": {sent}}}'.encode()
    text = json.dumps({"job_id": ID, "workflow_name": "w", "input": sent}).encode()
    message = WorkflowRunRequest(job_id=ID, workflow_name="w", input=sent).SerializeToString()
    requests = [decode_json(value), decode_json(text), decode_protobuf(message, INDEXES[WorkflowRunRequest])]
    assert all(isinstance(request, Unusable) for request in requests)
    assert len({of(request) for request in requests}) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"n": 7}', '{"n": "7"}'),
        ('{"n": 7}', '{"n": 7, "fragile": false}'),
        ('{"n": 7}', '{"n": null}'),
        ('{"n": 9007199254740992}', '{"n": 9007199254740993}'),
        ('{"n": 18446744073709551615}', '{"n": 18446744073709551616}'),
        ('{"n": true}', '{"n": 1}'),
        ('{"n": ""}', '{"n": null}'),
        ('{"n": [1, 2]}', '{"n": [2, 1]}'),
        ('{"n": "a"}', '{"n": "a "}'),
        ('{"n": "\\u00e9"}', '{"n": "e\\u0301"}'),
        ('{"n": {}}', '{"n": []}'),
    ],
)
def test_another_meaning_is_another_request(one: str, other: str) -> None:
    assert of_input(one) != of_input(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"n": 1.0}', '{"n": 1}'),
        ('{"n": 1e2}', '{"n": 100}'),
        ('{"n": -0}', '{"n": 0}'),
        ('{"n": -0.0}', '{"n": 0}'),
        ('{"n": 0.10}', '{"n": 1e-1}'),
        ('{"n": "\\u0061\\/"}', '{"n": "a/"}'),
    ],
)
def test_another_spelling_is_the_same_request(one: str, other: str) -> None:
    assert of_input(one) == of_input(other)


@pytest.mark.parametrize(
    "change",
    [
        {"tenant_id": "other"},
        {"workflow_name": "other"},
        {"workflow_name": None, "definition_hash": bytes(32)},
        {"business_key": "k"},
        {"labels": {"a": "b"}},
        {"input": '{"a": 1}'},
    ],
)
def test_every_part_of_a_request_counts(change: dict[str, Any]) -> None:
    parts: dict[str, Any] = {
        "tenant_id": "default",
        "workflow_name": "w",
        "definition_hash": None,
        "business_key": None,
        "labels": None,
        "input": "{}",
    }
    assert fingerprint(**(parts | change)) != fingerprint(**parts)


def test_no_labels_and_empty_labels_are_the_same() -> None:
    assert of(Request(UUID(ID), "w", "{}", labels={})) == of(Request(UUID(ID), "w", "{}"))


def body_fingerprint(body: str) -> bytes:
    return of(decode_json(json.dumps(json.loads(body) | {"jobId": ID}).encode()))


def test_bodies_of_one_meaning_are_the_same_and_all_others_differ() -> None:
    assert len({body_fingerprint(body) for body in BODIES["same"]}) == 1
    assert len({body_fingerprint(body) for body in BODIES["different"]}) == len(BODIES["different"])


def test_a_request_is_by_name_or_by_definition() -> None:
    for name, definition_hash in ((None, None), ("w", bytes(32))):
        with pytest.raises(ValueError, match="exactly one"):
            fingerprint(
                tenant_id="t",
                workflow_name=name,
                definition_hash=definition_hash,
                business_key=None,
                labels=None,
                input="{}",
            )


def test_an_input_that_is_not_json_has_no_fingerprint() -> None:
    with pytest.raises(ContractError):
        of_input('{"a": NaN}')
