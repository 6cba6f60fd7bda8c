"""Schemas in their forms, and descriptor sets as people make them."""

import base64
import gzip
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, timestamp_pb2

from schemas.errors import InputInvalid
from streams.evaluator.protoc import ProtocChild
from streams.workflow.descriptors import SchemaSet, resolve_schema
from streams.workflow.limits import MAX_DESCRIPTOR_SET_BYTES
from tests.workflow.samples import descriptor_set, source

LOAN = {"loan.proto": source("loan.proto")}


async def refused(schema: object, protoc: ProtocChild) -> InputInvalid:
    with pytest.raises(InputInvalid) as caught:
        await resolve_schema(schema, protoc=protoc)
    return caught.value


@pytest.mark.spec(6)
@pytest.mark.parametrize(
    "schema",
    [
        None,
        [],
        "x",
        {},
        {"root": "loan.proto"},
        {"sources": LOAN, "descriptorSetBase64": ""},
        {"sources": LOAN, "type": "loan.v1.Score"},
        {"sources": LOAN, "git": "x"},
    ],
)
async def test_a_schema_has_exactly_one_form(schema: object, protoc: ProtocChild) -> None:
    error = await refused(schema, protoc)

    assert (error.code, error.pointer) == ("invalid-input", "/schema")


async def test_a_schema_by_registered_type_is_refused_where_no_types_are_registered(protoc: ProtocChild) -> None:
    error = await refused({"type": "loan.v1.Score"}, protoc)

    assert (error.code, error.pointer) == ("unknown-type", "/schema/type")
    assert "TYPES_DIR" in str(error)


@pytest.mark.parametrize("name", [5, None, "", ".loan.v1.Score", "loan.v1.", "a b"])
async def test_a_registered_type_is_named_by_its_full_name(name: object, protoc: ProtocChild) -> None:
    error = await refused({"type": name}, protoc)

    assert (error.code, error.pointer) == ("invalid-input", "/schema/type")


@pytest.mark.spec(7)
@pytest.mark.parametrize("root", ["other.proto", "", 5, ["loan.proto"]])
async def test_a_root_must_be_among_the_sources(root: object, protoc: ProtocChild) -> None:
    error = await refused({"sources": LOAN, "root": root}, protoc)

    assert (error.code, error.pointer) == ("invalid-input", "/schema/root")


async def test_a_root_goes_with_sources_only(protoc: ProtocChild) -> None:
    text = base64.b64encode(descriptor_set("text_v1")).decode()

    assert (await refused({"descriptorSetBase64": text, "root": "flow/text.proto"}, protoc)).pointer == "/schema/root"


@pytest.mark.spec(8)
async def test_a_root_leaves_out_what_it_does_not_import(protoc: ProtocChild) -> None:
    sources = {
        "a.proto": 'syntax = "proto3"; package p; import "b.proto"; message A { B b = 1; }',
        "b.proto": 'syntax = "proto3"; package p; message B {}',
        "c.proto": 'syntax = "proto3"; package p; message C {}',
    }

    narrowed = await resolve_schema({"sources": sources, "root": "a.proto"}, protoc=protoc)
    whole = await resolve_schema({"sources": sources}, protoc=protoc)

    assert narrowed.message("p.A").full_name == "p.A"
    assert narrowed.message("p.B").full_name == "p.B"
    with pytest.raises(InputInvalid, match=r"unknown message type \"p\.C\""):
        narrowed.message("p.C")
    assert whole.message("p.C").full_name == "p.C"


@pytest.mark.spec(9)
async def test_broken_sources_are_refused_with_the_compilers_text(protoc: ProtocChild) -> None:
    error = await refused({"sources": {"flow/x.proto": 'syntax = "proto3"; mesage A {}'}}, protoc)

    assert (error.code, error.pointer) == ("compile-failed", "/schema/sources")
    assert "flow/x.proto:1:20: Expected top-level statement" in str(error)


@pytest.mark.parametrize("sources", [None, {}, [], {"a.proto": 5}, "x"])
async def test_sources_are_texts_by_path(sources: object, protoc: ProtocChild) -> None:
    assert (await refused({"sources": sources}, protoc)).pointer == "/schema/sources"


async def test_one_message_outside_google_is_the_default_one(protoc: ProtocChild) -> None:
    one = {"a.proto": 'syntax = "proto3"; import "google/protobuf/struct.proto"; message A { message B {} }'}
    other = {**one, "b.proto": 'syntax = "proto3"; import "a.proto"; message C {}'}

    assert (await resolve_schema({"sources": one}, protoc=protoc)).default_message() == "A"
    assert (await resolve_schema({"sources": other}, protoc=protoc)).default_message() is None
    assert (await resolve_schema({"sources": other, "root": "b.proto"}, protoc=protoc)).default_message() == "C"
    assert (await resolve_schema({"sources": LOAN, "root": "loan.proto"}, protoc=protoc)).default_message() is None


def test_types_are_found_by_full_name_nested_ones_too_and_map_entries_not(kit: SchemaSet) -> None:
    assert kit.message("kit.v1.Inner").full_name == "kit.v1.Inner"
    assert kit.message("google.protobuf.Timestamp").full_name == "google.protobuf.Timestamp"
    for name, hint in [
        ("kit.v1.Kit.LabelsEntry", "unknown"),
        (".kit.v1.Kit", "without a leading dot"),
        ("kit.v1.Kits", "a service"),
        ("kit.v1.Color", "unknown"),
        ("kit.v2.Kit", "did you mean kit.v1.Kit"),
        ("", "unknown"),
        ("kit.v1.\ud800", "unknown"),
        ("a" * 100_000, "unknown"),
    ]:
        with pytest.raises(InputInvalid, match=hint):
            kit.message(name)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("kit.v1.Kits", "not of the form"),
        ("/kit.v1.Kits/Make", "not of the form"),
        ("kit.v1.Kits/Make/", "not of the form"),
        ("kit.v1.Kits.Make", "not of the form"),
        ("kit.v1.Other/Make", "unknown service"),
        ("kit.v1.Kits/Mke", r"unknown method \"Mke\" of kit.v1.Kits \(it has: Make\)"),
    ],
)
def test_a_method_is_found_by_service_and_name_or_refused_with_a_text_of_its_own(
    name: str, reason: str, kit: SchemaSet
) -> None:
    assert kit.method("kit.v1.Kits/Make").input_type.full_name == "kit.v1.Kit"
    with pytest.raises(InputInvalid, match=reason):
        kit.method(name)


def test_files_come_in_any_order_and_twice_and_give_one_pinned_form() -> None:
    full = SchemaSet.from_bytes(descriptor_set("parcel_full"))

    for name in ("parcel_dependants_first", "parcel_same_file_twice", "parcel_no_well_known"):
        assert SchemaSet.from_bytes(descriptor_set(name)).to_bytes() == full.to_bytes()
    assert SchemaSet.from_bytes(full.to_bytes()).to_bytes() == full.to_bytes()
    assert full.message("depot.Parcel").full_name == "depot.Parcel"


def test_the_pinned_form_is_whole_without_this_library() -> None:
    pinned = SchemaSet.from_bytes(descriptor_set("parcel_no_well_known")).to_bytes()

    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(pinned).file:
        pool.AddSerializedFile(file.SerializeToString())

    assert pool.FindMessageTypeByName("depot.Parcel").fields_by_name["packed_at"].message_type is not None


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (
            "parcel_no_imports",
            r"\"depot/parcel.proto\" imports \"depot/base.proto\", which is not in the descriptor set",
        ),
        ("parcel_altered_timestamp", "altered google/protobuf/timestamp.proto"),
        ("text_conflict_inside_set", r"two different editions of \"flow/text.proto\""),
        ("import_cycle", "in a circle: loop/a.proto -> loop/b.proto -> loop/a.proto"),
        ("not_a_descriptor_set", "not a serialized FileDescriptorSet"),
        ("empty", "no files"),
    ],
)
def test_a_set_that_cannot_be_used_is_refused_naming_the_file(name: str, reason: str) -> None:
    with pytest.raises(InputInvalid, match=reason) as caught:
        SchemaSet.from_bytes(descriptor_set(name))

    assert caught.value.code == "invalid-input"


@pytest.mark.parametrize(
    "text",
    [
        5,
        None,
        "not base64!",
        "CgVoZWxsbw",  # no padding
        base64.encodebytes(descriptor_set("parcel_full")).decode(),  # line breaks
        base64.urlsafe_b64encode(descriptor_set("text_v1") + b"\xff\xfe").decode(),
        base64.b64encode(gzip.compress(descriptor_set("text_v1"))).decode(),
        base64.b64encode(descriptor_set("import_cycle")).decode(),
        "é",
    ],
)
async def test_a_set_in_base64_is_read_strictly(text: object, protoc: ProtocChild) -> None:
    error = await refused({"descriptorSetBase64": text}, protoc)

    assert (error.code, error.pointer) == ("invalid-input", "/schema/descriptorSetBase64")


def test_a_set_over_the_limit_is_refused() -> None:
    with pytest.raises(InputInvalid, match="over the limit"):
        SchemaSet.from_bytes(b"\0" * (MAX_DESCRIPTOR_SET_BYTES + 1))


def one_file(**fields: Any) -> bytes:
    file = descriptor_pb2.FileDescriptorProto(**{"name": "x.proto", "syntax": "proto3", **fields})
    return descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()


def message(message_name: str, /, **field: Any) -> descriptor_pb2.DescriptorProto:
    fields = [descriptor_pb2.FieldDescriptorProto(**{"name": "a", "number": 1, "type": 9, "label": 1, **field})]
    return descriptor_pb2.DescriptorProto(name=message_name, field=fields)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (one_file(message_type=[message("A", type=11, type_name=".no.Such")]), "x.proto.*cannot be linked"),
        (one_file(message_type=[message("A"), message("A")]), "x.proto.*cannot be linked"),
        (one_file(name=""), "without a name"),
        (one_file(dependency=["x.proto"]), "in a circle: x.proto -> x.proto"),
        (one_file(package="google.protobuf", message_type=[message("Timestamp")]), "x.proto.*cannot be linked"),
        (one_file(message_type=[message("A", name="SerializeToString")]), "every message reserves"),
    ],
)
def test_files_that_do_not_link_or_would_hide_what_every_message_has_are_refused(data: bytes, reason: str) -> None:
    with pytest.raises(InputInvalid, match=reason):
        SchemaSet.from_bytes(data)


def test_a_newer_descriptor_proto_is_taken_and_an_altered_one_refused() -> None:
    theirs = descriptor_pb2.FileDescriptorProto.FromString(descriptor_pb2.DESCRIPTOR.serialized_pb)
    theirs.message_type[0].field.add(name="from_the_future", number=5000, type=9, label=1)
    user = descriptor_pb2.FileDescriptorProto(name="x.proto", dependency=[theirs.name], message_type=[message("A")])

    newer = descriptor_pb2.FileDescriptorSet(file=[theirs, user]).SerializeToString()
    assert SchemaSet.from_bytes(newer).message("A").full_name == "A"

    theirs.message_type[0].field[0].number = 4999
    altered = descriptor_pb2.FileDescriptorSet(file=[theirs, user]).SerializeToString()
    with pytest.raises(InputInvalid, match=r"altered google/protobuf/descriptor\.proto"):
        SchemaSet.from_bytes(altered)


def test_a_long_chain_of_imports_needs_no_deep_stack() -> None:
    files = [
        descriptor_pb2.FileDescriptorProto(
            name=f"{index}.proto", dependency=[f"{index + 1}.proto"] if index < 1900 else []
        )
        for index in range(1901)
    ]
    data = descriptor_pb2.FileDescriptorSet(file=files).SerializeToString()

    assert len(SchemaSet.from_bytes(data).to_bytes()) == len(data)


def test_two_editions_of_one_file_live_side_by_side_and_the_process_sees_neither() -> None:
    first, second = (SchemaSet.from_bytes(descriptor_set(name)) for name in ("text_v1", "text_v2"))

    assert first.to_json(first.parse_json("harbor.flow.Text", {"text": "a"})) == {"text": "a"}
    assert second.to_json(second.parse_json("harbor.flow.Text", {"body": "b"})) == {"body": "b", "language": ""}
    with pytest.raises(InputInvalid):
        first.parse_json("harbor.flow.Text", {"body": "b"})
    with pytest.raises(KeyError):
        descriptor_pool.Default().FindMessageTypeByName("harbor.flow.Text")


def test_a_file_named_like_one_of_the_process_touches_nothing_of_it() -> None:
    data = one_file(name="google/protobuf/source_context.proto", package="mine", message_type=[message("Mine")])

    assert SchemaSet.from_bytes(data).message("mine.Mine").full_name == "mine.Mine"
    assert timestamp_pb2.Timestamp.DESCRIPTOR.file.pool is descriptor_pool.Default()


def test_schemas_are_let_go_with_their_last_user() -> None:
    # Pools live outside Python's heap, so what counts is the memory of the process.
    full = descriptor_set("parcel_full")

    def churn(times: int) -> int:
        for _ in range(times):
            schemas = SchemaSet.from_bytes(full)
            schemas.to_json(schemas.parse_json("depot.Parcel", {"label": "x"}))
        status = Path("/proc/self/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))

    settled = churn(200)

    assert churn(600) - settled < 20_000  # kB; 600 kept ones would be over 100 MB
