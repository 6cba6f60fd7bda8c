"""Whatever comes in, the engine answers with one of its own errors, and soon."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemas.errors import DefinitionInvalid, InputInvalid
from streams.workflow.compiler import Compiled
from streams.workflow.definition import parse_definition
from streams.workflow.descriptors import SchemaSet
from tests.workflow.samples import descriptor_set, loan

KIT = "kit.v1.Kit"
FULL = descriptor_set("parcel_full")

quick = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
ANYTHING = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4)
)


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths to every part of a document."""
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(inner for key, member in members for inner in paths(member, (*path, key)))]


PATHS = [path for path in paths(loan()) if path]


@given(st.sampled_from(PATHS), ANYTHING)
@quick
def test_any_part_of_a_definition_may_be_anything(
    compiled: Callable[[object], Compiled], path: tuple[Any, ...], value: object
) -> None:
    document: Any = loan()
    place = document
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = value

    try:
        parse_definition(document)
        if path[:2] != ("schema", "sources"):  # other sources would start the compiler each time
            compiled(document)
    except DefinitionInvalid:
        return
    assert path not in (("schema",), ("steps",))


FIELD_NAMES = st.sampled_from(
    """
    anInt32 anUint64 aDouble aString aBytes color inner strings inners labels byNumber byTruth extras hint list any anys
    at took mask wrappedInt nothing null x
    """.split()  # noqa: SIM905  a list of this length would take a page
)
ANYS = st.dictionaries(st.sampled_from(["@type", "value", "text", "a"]), ANYTHING | st.just("x/kit.v1.Kit"), max_size=3)


@given(st.dictionaries(FIELD_NAMES, ANYTHING | ANYS, max_size=4))
@quick
def test_any_json_becomes_a_message_or_is_refused_and_what_was_taken_can_be_kept(
    kit: SchemaSet, value: dict[str, object]
) -> None:
    try:
        message = kit.parse_json(KIT, value)
    except InputInvalid:
        return
    assert kit.to_json(kit.parse_json(KIT, json.loads(json.dumps(kit.to_json(message))))) == kit.to_json(message)


@st.composite
def altered(draw: st.DrawFn, data: bytes) -> bytes:
    """*data* with a few bytes changed, cut out or put in."""
    changed = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(changed) - 1)))
        length = draw(st.integers(0, 8))
        changed[at : at + length] = draw(st.binary(max_size=8))
    return bytes(changed)


@given(altered(FULL) | st.binary(max_size=60))
@quick
def test_any_bytes_are_a_schema_or_are_refused(data: bytes) -> None:
    try:
        schemas = SchemaSet.from_bytes(data)
    except InputInvalid:
        return
    assert SchemaSet.from_bytes(schemas.to_bytes()).to_bytes() == schemas.to_bytes()


@pytest.fixture(scope="module")
def whole(kit: SchemaSet) -> bytes:
    value = {
        "aString": "é",
        "inner": {"deeper": {"text": "x"}},
        "extras": {"a": [1, {"b": None}]},
        "any": {"@type": "x/kit.v1.Kit", "strings": ["a"], "at": "2026-01-01T00:00:00Z"},
        "byNumber": {"1": {"text": "x"}},
        "took": "1s",
        "mask": "a.b",
    }
    return kit.parse_json(KIT, value).SerializeToString()


@given(st.data())
@quick
def test_any_bytes_of_a_response_are_kept_or_refused(kit: SchemaSet, whole: bytes, data: st.DataObject) -> None:
    sent = data.draw(altered(whole) | st.binary(max_size=40))
    try:
        kept = kit.to_json(kit.from_wire(KIT, sent))
    except InputInvalid:
        return
    assert kit.to_json(kit.parse_json(KIT, json.loads(json.dumps(kept)))) == kept
