"""Whatever a field holds, an expression that reads it and a rule that writes it give the same again."""

import asyncio
import base64
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.workflow.descriptors import SchemaSet
from tests.workflow.test_cel_rules import composed, rule

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1).map(str)
UINT64 = st.integers(0, 2**64 - 1).map(str)
DOUBLE = st.floats(allow_nan=False, allow_infinity=False)
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
BASE64 = st.binary(max_size=20).map(lambda data: base64.b64encode(data).decode())
INNER = st.fixed_dictionaries({}, optional={"text": TEXT, "count": INT64})
JSON = st.recursive(
    st.none() | st.booleans() | DOUBLE | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
TIMES = st.datetimes().map(lambda at: at.isoformat() + "Z")
SECONDS = st.integers(-315_576_000_000, 315_576_000_000).map(lambda seconds: f"{seconds}s")
NANOS = st.integers(1, 999_999_999)

FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "an_int32": INT32,
    "an_int64": INT64,
    "an_uint32": st.integers(0, 2**32 - 1),
    "an_uint64": UINT64,
    "a_sint64": INT64,
    "a_fixed64": UINT64,
    "a_float": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "a_double": DOUBLE,
    "a_bool": st.booleans(),
    "a_string": TEXT,
    "a_bytes": BASE64,
    "color": st.sampled_from(["RED", "BLUE"]),
    "inner": INNER,
    "strings": st.lists(TEXT, max_size=5),
    "longs": st.lists(INT64, max_size=5),
    "doubles": st.lists(DOUBLE, max_size=5),
    "colors": st.lists(st.sampled_from(["RED", "BLUE"]), max_size=5),
    "inners": st.lists(INNER, max_size=3),
    "labels": st.dictionaries(TEXT, TEXT, max_size=5),
    "by_number": st.dictionaries(INT32.map(str), INNER, max_size=3),
    "by_truth": st.dictionaries(st.sampled_from(["true", "false"]), INT64, max_size=2),
    "counts": st.dictionaries(TEXT, INT64, max_size=5),
    "extras": st.dictionaries(TEXT, JSON, max_size=4),
    "hint": JSON.filter(lambda value: value is not None),
    "list": st.lists(JSON, max_size=4),
    "hints": st.lists(JSON, max_size=4),
    "at": TIMES,
    "took": st.one_of(SECONDS, NANOS.map(lambda nanos: f"-1.{nanos:09}s"), NANOS.map(lambda nanos: f"5.{nanos:09}s")),
    "wrapped_string": TEXT,
    "wrapped_int": INT64,
}


@pytest.mark.parametrize("name", FIELDS)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_a_field_that_is_copied_through_an_expression_is_the_same(
    name: str, data: st.DataObject, kit: SchemaSet
) -> None:
    held = data.draw(FIELDS[name])
    given_message = kit.parse_json("kit.v1.Kit", {name: held})

    built = asyncio.run(composed(kit, rule(name, f"input.{name}"), given={name: held}))

    assert built.SerializeToString(deterministic=True) == given_message.SerializeToString(deterministic=True)
