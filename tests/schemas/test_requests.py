import json
from collections.abc import Mapping
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import limits, strict_json
from schemas.errors import ContractError
from schemas.messages import INDEXES, WorkflowRunEvent, WorkflowRunRequest
from schemas.requests import UNKNOWN_NAME, Request, Unusable, decode_json, decode_protobuf

ID = "3f0c7c1e-6a55-4f0e-9d7d-0d5a4c1b2a01"
INDEX = INDEXES[WorkflowRunRequest]


def record(**members: object) -> bytes:
    return json.dumps({"job_id": ID, "workflow_name": "embed-text", "input": {}, **members}).encode()


def record_with(input_text: str) -> bytes:
    return f'{{"job_id": "{ID}", "workflow_name": "embed-text", "input": {input_text}}}'.encode()


def payload(**fields: str) -> bytes:
    given_fields = {"job_id": ID, "workflow_name": "embed-text", "input": "{}", **fields}
    return WorkflowRunRequest(**given_fields).SerializeToString()


def both(**fields: str) -> list[Request | Unusable]:
    """The same request in both formats, `input` and `labels` as texts in each."""
    return [decode_json(record(**fields)), decode_protobuf(payload(**fields), INDEX)]


def usable(decoded: Request | Unusable) -> Request:
    assert isinstance(decoded, Request), decoded
    return decoded


def unusable(decoded: Request | Unusable, code: str) -> Unusable:
    """A run born FAILED: everything about it can be stored, and it cannot be run by mistake."""
    assert isinstance(decoded, Unusable), decoded
    assert decoded.code == code
    assert decoded.job_id == UUID(ID)
    assert isinstance(strict_json.parse(decoded.input), str)
    for text in (decoded.input, decoded.reason, decoded.workflow_name):
        assert "\0" not in text
        text.encode()
    assert 0 < len(decoded.workflow_name) <= limits.NAME
    return decoded


def refused(value: bytes | None, code: str) -> None:
    """A dead letter: no run can be named."""
    with pytest.raises(ContractError) as raised:
        decode_json(value)
    assert raised.value.code == code
    assert len(str(raised.value)) < 300
    assert "\0" not in str(raised.value)


@pytest.mark.parametrize(
    "value",
    [
        record(input={"text": "a"}, business_key="o 1", labels={"a": "b"}),
        record(input='{"text": "a"}', business_key="o 1", labels='{"a": "b"}'),
        json.dumps(
            {
                "labels": {"a": "b"},
                "businessKey": "o 1",
                "input": {"text": "a"},
                "workflowName": "embed-text",
                "jobId": ID.upper(),
            },
            indent=2,
        ).encode(),
    ],
    ids=["objects", "texts", "camel case, other order"],
)
def test_a_json_request_is_read_in_either_spelling(value: bytes) -> None:
    read = usable(decode_json(value))
    assert (read.job_id, read.workflow_name, read.business_key, read.labels) == (
        UUID(ID),
        "embed-text",
        "o 1",
        {"a": "b"},
    )
    assert json.loads(read.input) == {"text": "a"}


def test_a_protobuf_request_is_read() -> None:
    value = payload(input='{"text": "a"}', business_key="o 1", labels='{"a": "b"}')
    assert decode_protobuf(value, INDEX) == Request(
        UUID(ID), "embed-text", '{"text": "a"}', business_key="o 1", labels={"a": "b"}
    )


@pytest.mark.parametrize("members", [{}, {"business_key": None, "labels": None}, {"business_key": "", "labels": {}}])
def test_null_and_empty_are_absent(members: Mapping[str, object]) -> None:
    assert decode_json(record(**members)) == Request(UUID(ID), "embed-text", "{}")
    assert decode_protobuf(payload(business_key="", labels=""), INDEX) == Request(UUID(ID), "embed-text", "{}")


@pytest.mark.parametrize(
    "sent",
    [
        '{"serial": 9007199254740993, "checksum": 18446744073709551615, "counts": {"a": -9223372036854775808}}',
        '{ "b" : 1.50,\n\t"a":[ 1e2 ,{"x":"\\u00e9\\\\u0000\\"}{"}] }',
        '{"ratio": "NaN", "tare": "-Infinity"}',
        '{"label": "left\\\\u0000right"}',
    ],
)
def test_an_input_is_kept_as_the_very_text_that_was_sent(sent: str) -> None:
    assert usable(decode_json(record_with(sent))).input == sent
    assert [usable(each).input for each in both(input=sent)] == [sent, sent]


def test_a_record_without_a_value_names_no_run() -> None:
    refused(None, "null-value")


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (b"", "not-json"),
        (b"hello", "not-json"),
        (b"[]", "not-json"),
        (b'"text"', "not-json"),
        (b"\xef\xbb\xbf{}", "not-json"),
        (b"\x00\x00\x00\x00\x01\x02\x02", "not-json"),
        (b"\x00" * 1_000_000, "not-json"),
        (b'{"job_id": "\xc3\x28"}', "bad-utf8"),
        (record()[:-1], "bad-json"),
        (record() + b"}", "bad-json"),
        (record_with("[1"), "bad-json"),
        (record_with("{'a': 1}"), "bad-json"),
        (record_with('{"a": tru}'), "bad-json"),
        (record_with('{}, "x": nope'), "bad-json"),
        (record_with('{}, "x": 1, "y": nope'), "bad-json"),
        (record_with("{}").replace(b"}}", b'}, "labels": {x}}'), "bad-json"),
        (b"{}", "job-id"),
        (record(job_id=None), "job-id"),
        (record(job_id=17), "job-id"),
        (record(job_id=""), "job-id"),
        (record(job_id="not-a-uuid"), "job-id"),
        (record(job_id=f" {ID}"), "job-id"),
        (record(job_id="x" * 10_000), "job-id"),
        (record(job_id="\0" * 36), "job-id"),
        (record(jobId=ID), "duplicate-key"),
        (record(workflowName="x"), "duplicate-key"),
        (record()[:-1] + b', "input": {}}', "duplicate-key"),
        (b'{"job_id": ' + b"[" * 1_000_000, "bad-json"),
        (b'{"job_id": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "too-deep"),
    ],
    ids=lambda value: value[:30] if isinstance(value, bytes) else None,
)
def test_a_record_that_names_no_run_is_a_dead_letter(value: bytes, code: str) -> None:
    refused(value, code)


@pytest.mark.parametrize(
    ("value", "indexes", "code"),
    [
        (b"", INDEX, "job-id"),
        (bytes.fromhex("0a0161"), INDEX, "job-id"),
        (bytes.fromhex("0a24616263"), INDEX, "bad-protobuf"),  # cut short
        (bytes.fromhex("0a02c328"), INDEX, "bad-protobuf"),  # not UTF-8
        (bytes.fromhex("0805"), INDEX, "job-id"),  # another wire type: an unknown field, and no job id
        (payload(), INDEXES[WorkflowRunEvent], "bad-index"),
        (payload(), (1, 0), "bad-index"),
        (payload(), (), "bad-index"),
    ],
)
def test_a_framed_record_that_names_no_run_is_a_dead_letter(value: bytes, indexes: tuple[int, ...], code: str) -> None:
    with pytest.raises(ContractError) as raised:
        decode_protobuf(value, indexes)
    assert raised.value.code == code


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        ('{"label": "left\\u0000right"}', "nul"),
        ('{"extras": {"k\\u0000ey": "v"}}', "nul"),
        ('{"a": "\\ud800"}', "surrogate"),
        ('{"a": NaN}', "not-finite"),
        ('{"ratio": -Infinity}', "not-finite"),
        ('{"ratio": 1e400}', "not-finite"),
        ('{"a": 1, "a": 2}', "duplicate-key"),
        ('{"a": ' + "[" * 64 + "]" * 64 + "}", "too-deep"),
        ('{"a":' * 100_000 + "1" + "}" * 100_000, "too-deep"),
        ('{"a": ' + "9" * 4301 + "}", "number-too-long"),
        ('{"a": "' + "x" * limits.INPUT_BYTES + '"}', "input-too-large"),
        ("[]", "input"),
        ("17", "input"),
        ("true", "input"),
    ],
    ids=lambda value: value[:30],
)
def test_an_input_that_cannot_be_run_is_a_run_born_failed(sent: str, code: str) -> None:
    for decoded in (decode_json(record_with(sent)), *both(input=sent)):
        run = unusable(decoded, code)
        assert run.reason.startswith("input")
        assert run.workflow_name == "embed-text"
        if code != "input-too-large":
            assert json.loads(run.input) == sent


@pytest.mark.parametrize("text", ["hello", "{", '{"a": tru}', "", "\ufeff{}"])
def test_an_input_text_that_is_not_json_is_a_run_born_failed(text: str) -> None:
    for decoded in both(input=text):
        assert "input" in unusable(decoded, "input").reason


def test_an_input_that_was_left_out_is_a_run_born_failed() -> None:
    for value in (record(input=None), json.dumps({"job_id": ID, "workflow_name": "x"}).encode()):
        run = unusable(decode_json(value), "input")
        assert run.reason == "input is missing"


@pytest.mark.parametrize(("bare", "escape"), [("\0", "\\u0000"), ("\ud83d", "\\ud83d")])
def test_a_bare_character_that_cannot_be_stored_is_kept_as_its_escape(bare: str, escape: str) -> None:
    runs = [decode_json(record(input=f'{{"a": "x{bare}y"}}'))]
    if bare == "\0":  # Protobuf text has no lone surrogates
        runs.append(decode_protobuf(payload(input=f'{{"a": "x{bare}y"}}'), INDEX))
    for run in runs:
        assert json.loads(unusable(run, "input" if bare == "\0" else "surrogate").input) == f'{{"a": "x{escape}y"}}'


def test_an_input_over_the_limit_is_cut_with_its_length_and_hash() -> None:
    sent = '{"a": "' + "ö" * limits.INPUT_BYTES + '"}'
    other = sent.replace('ö"}', 'ü"}')
    [kept, kept_other] = [
        json.loads(unusable(decode_json(record_with(text)), "input-too-large").input) for text in (sent, other)
    ]
    assert len(kept.encode()) < limits.INPUT_BYTES
    assert f"[cut, {len(sent.encode())} bytes with SHA-256 " in kept
    assert kept != kept_other


def test_an_input_of_just_the_limit_is_taken() -> None:
    sent = '{"a": "' + "ö" * ((limits.INPUT_BYTES - 10) // 2) + ' "}'
    assert len(sent.encode()) == limits.INPUT_BYTES
    assert usable(decode_json(record_with(sent))).input == sent
    assert usable(decode_protobuf(payload(input=sent), INDEX)).input == sent


@pytest.mark.parametrize("name", ["", "  ", "x" * 201, "a\0b"])
def test_a_name_that_cannot_be_a_workflows_is_a_run_born_failed_without_a_name(name: str) -> None:
    for decoded in both(workflow_name=name):
        run = unusable(decoded, "workflow-name")
        assert run.workflow_name == UNKNOWN_NAME


@pytest.mark.parametrize("value", [record(workflow_name=None), record(workflow_name=17), record(workflow_name=["x"])])
def test_a_name_that_is_not_a_text_is_a_run_born_failed_without_a_name(value: bytes) -> None:
    assert unusable(decode_json(value), "workflow-name").workflow_name == UNKNOWN_NAME


def test_an_unknown_key_is_refused_by_its_name() -> None:
    run = unusable(decode_json(record(bussiness_key="o 1")), "unknown-key")
    assert run.reason == "a request has no key 'bussiness_key'"


def test_an_unknown_protobuf_field_is_passed_over() -> None:
    assert usable(decode_protobuf(payload() + bytes.fromhex("e2120568656c6c6f"), INDEX))


@pytest.mark.parametrize(
    ("members", "code"),
    [
        ({"business_key": "x" * 201}, "business-key"),
        ({"business_key": 17}, "business-key"),
        ({"labels": ["a"]}, "labels"),
        ({"labels": {"a": 1}}, "labels"),
        ({"labels": {"": "x"}}, "labels"),
        ({"labels": {"a" * 64: "x"}}, "labels"),
        ({"labels": {"a": "x" * 256}}, "labels"),
        ({"labels": {str(number): "x" for number in range(33)}}, "labels"),
        ({"labels": "not json"}, "labels"),
    ],
)
def test_a_business_key_or_labels_out_of_bounds_make_a_run_born_failed(
    members: Mapping[str, object], code: str
) -> None:
    run = unusable(decode_json(record(input={"a": 1}, **members)), code)
    assert json.loads(run.input) == '{"a": 1}'


def test_what_is_usable_of_an_unusable_request_is_kept_and_every_fault_is_told() -> None:
    run = unusable(
        decode_json(record(workflow_name="", input=[], business_key="o 1", labels={"a": "b"})), "workflow-name"
    )
    assert (run.business_key, run.labels) == ("o 1", {"a": "b"})
    assert run.reason == "workflow_name is blank; input is an array, not an object"


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_any_value_is_a_request_or_a_dead_letter(value: bytes) -> None:
    for decode in (decode_json, lambda each: decode_protobuf(each, INDEX)):
        try:
            decode(value)
        except ContractError as error:
            str(error).encode()


@given(st.text(max_size=40), st.text(max_size=20))
def test_any_input_text_gives_a_run(text: str, name: str) -> None:
    for decoded in both(input=text, workflow_name=name):
        assert decoded.job_id == UUID(ID)
