"""Types by name: from a folder that may change, and from generated modules."""

import logging
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2

from schemas.errors import DefinitionInvalid, InputInvalid, SettingsInvalid
from streams.evaluator.evaluators import InProcessEvaluator
from streams.evaluator.protoc import ProtocChild
from streams.sources.registered_types import RegisteredTypes
from streams.workflow.compiler import compile_definition, load_plan
from streams.workflow.descriptors import SchemaSet, resolve_schema
from tests.workflow.samples import descriptor_set


def file(name: str, package: str, *messages: str, field: str = "a", imports: tuple[str, ...] = ()) -> Any:
    made = descriptor_pb2.FileDescriptorProto(name=name, package=package, syntax="proto3", dependency=imports)
    for message in messages:
        made.message_type.add(name=message).field.add(name=field, number=1, type=9, label=1, json_name=field)
    return made


def write(folder: Path, name: str, *files: Any) -> None:
    (folder / name).write_bytes(descriptor_pb2.FileDescriptorSet(file=files).SerializeToString())


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


async def resolved(types: RegisteredTypes, name: str) -> SchemaSet:
    return await resolve_schema({"type": name}, protoc=ProtocChild(), types=types)


async def test_a_type_brings_its_file_and_all_that_it_imports_and_nothing_else(tmp_path: Path) -> None:
    base, shop = file("base.proto", "base", "Money"), file("shop.proto", "shop", "Order", imports=("base.proto",))
    shop.service.add(name="Pricing").method.add(name="Quote", input_type=".shop.Order", output_type=".base.Money")
    write(tmp_path, "all.binpb", shop, base, file("other.proto", "other", "Other"))
    (tmp_path / "README").write_text("not a set")

    types = RegisteredTypes(tmp_path)
    schemas = await resolved(types, "shop.Order")

    assert schemas.message("base.Money").full_name == "base.Money"
    assert schemas.method("shop.Pricing/Quote").name == "Quote"
    with pytest.raises(InputInvalid):
        schemas.message("other.Other")
    assert (await resolved(types, "shop.Pricing")).to_bytes() == schemas.to_bytes()
    assert (await resolved(types, "base.Money")).default_message() == "base.Money"


@pytest.mark.spec(10)
async def test_an_unknown_type_suggests_those_of_the_same_simple_name(tmp_path: Path) -> None:
    write(tmp_path, "a.pb", file("a.proto", "shop.v1", "Order"), file("b.proto", "depot.v2", "Order", "Parcel"))
    types = RegisteredTypes(tmp_path)

    with pytest.raises(InputInvalid) as caught:
        await resolved(types, "shop.v2.Order")

    assert (caught.value.code, caught.value.pointer) == ("unknown-type", "/schema/type")
    assert "unknown type shop.v2.Order" in str(caught.value)
    assert "did you mean depot.v2.Order or shop.v1.Order?" in str(caught.value)
    with pytest.raises(InputInvalid, match=r"did you mean depot\.v2\.Parcel or"):
        await resolved(types, "depot.v2.Parcels")


async def test_a_set_that_is_put_there_later_is_found_a_second_later(tmp_path: Path) -> None:
    clock = Clock()
    types = RegisteredTypes(tmp_path, clock=clock)
    with pytest.raises(InputInvalid, match="no types are registered here"):
        types.descriptor_set("shop.v1.Order")

    write(tmp_path, "a.desc", file("a.proto", "shop.v1", "Order"))
    clock.now = 0.5
    with pytest.raises(InputInvalid):
        types.descriptor_set("shop.v1.Order")
    clock.now = 1.5

    assert types.descriptor_set("shop.v1.Order")


async def test_a_change_that_cannot_be_used_is_logged_and_leaves_the_types_as_they_were(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    write(tmp_path, "a.pb", file("a.proto", "shop.v1", "Order"))
    types = RegisteredTypes(tmp_path, clock=clock)
    types.open()
    (tmp_path / "b.pb").write_bytes(b"nonsense")

    with caplog.at_level(logging.ERROR):
        for now in (2.0, 4.0, 6.0):
            clock.now = now
            assert types.descriptor_set("shop.v1.Order")

    assert [str(tmp_path / "b.pb") in record.getMessage() for record in caplog.records] == [True]


def test_what_cannot_be_used_at_the_start_stops_it(tmp_path: Path) -> None:
    for given, fault in [
        ({"folder": tmp_path / "nowhere"}, "TYPES_DIR: .* is not a folder"),
        ({"modules": ["no.such.module"]}, "TYPES_MODULES: no.such.module cannot be imported"),
        ({"modules": ["json"]}, "TYPES_MODULES: json is not a module that the Protobuf compiler made"),
    ]:
        with pytest.raises(SettingsInvalid, match=fault):
            RegisteredTypes(**given).open()  # type: ignore[arg-type]
    for name in ("not_a_descriptor_set", "import_cycle"):
        (tmp_path / f"{name}.pb").write_bytes(descriptor_set(name))
    with pytest.raises(SettingsInvalid) as refused:
        RegisteredTypes(tmp_path).open()
    assert len(refused.value.problems) == 2


def test_two_editions_of_a_type_are_refused_naming_both_sets_and_one_edition_twice_is_fine(tmp_path: Path) -> None:
    same = file("a.proto", "shop.v1", "Order")
    write(tmp_path, "one.pb", same)
    write(tmp_path, "two.pb", same)
    assert RegisteredTypes(tmp_path).descriptor_set("shop.v1.Order")

    write(tmp_path, "two.pb", file("a.proto", "shop.v1", "Order", field="b"))
    with pytest.raises(InputInvalid, match=r"one\.pb and .*two\.pb have different editions") as caught:
        RegisteredTypes(tmp_path).descriptor_set("shop.v1.Order")
    assert caught.value.code == "ambiguous-type"


async def test_generated_modules_bring_their_types() -> None:
    types = RegisteredTypes(modules=["google.protobuf.api_pb2"])

    schemas = await resolved(types, "google.protobuf.Api")

    assert schemas.message("google.protobuf.Method").full_name == "google.protobuf.Method"
    assert schemas.message("google.protobuf.SourceContext") is not None  # imported by what it imports


@pytest.mark.spec(14)
async def test_what_a_name_stood_for_is_pinned_and_a_changed_registry_changes_nothing(tmp_path: Path) -> None:
    clock = Clock()
    old, new = file("a.proto", "shop.v1", "Order", field="old"), file("a.proto", "shop.v1", "Order", field="new")
    for one in (old, new):
        one.service.add(name="Desk").method.add(name="Show", input_type=".shop.v1.Order", output_type=".shop.v1.Order")
    write(tmp_path, "a.pb", old)
    types = RegisteredTypes(tmp_path, clock=clock)
    step = {"name": "show", "target": "desk", "method": "shop.v1.Desk/Show", "rules": ["old = input.old"]}
    document = {"schema": {"type": "shop.v1.Order"}, "steps": [step]}

    async def compiled() -> Any:
        return await compile_definition(document, protoc=ProtocChild(), evaluator=InProcessEvaluator(), types=types)

    pinned = await compiled()
    write(tmp_path, "a.pb", new)
    clock.now = 2.0

    with pytest.raises(DefinitionInvalid, match="old"):
        await compiled()
    plan = await load_plan(pinned.document, pinned.descriptor_set, evaluator=InProcessEvaluator())
    assert plan.render(plan.parse_input({"old": "kept"})) == {"old": "kept"}
