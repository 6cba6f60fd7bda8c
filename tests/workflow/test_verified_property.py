"""What verifies runs: a definition that is found sound fails on the values of its data alone, never on their types."""

import asyncio
import re
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemas.errors import DefinitionInvalid, GateFailed, MappingFailed, StepFailed
from streams.evaluator.protoc import ProtocChild
from streams.workflow.plan import Plan
from streams.workflow.runner import CallRequest, Completed, run_segment
from tests.workflow.samples import EVALUATOR, Clock, Log, plan_of, source

KIT = "kit.v1.Kit"
SCALARS = [
    "an_int32",
    "an_int64",
    "an_uint32",
    "an_uint64",
    "a_sint64",
    "a_fixed64",
    "a_float",
    "a_double",
    "a_bool",
    "a_string",
    "a_bytes",
    "color",
    "shade",
    "maybe",
    "left",
    "right",
    "null",
]
LISTS = ["strings", "ints", "longs", "doubles", "colors", "inners", "hints", "anys"]
MAPS = ["labels", "more_labels", "by_number", "by_truth", "counts"]
MESSAGES = [
    "inner",
    "third",
    "extras",
    "extras2",
    "hint",
    "list",
    "any",
    "at",
    "took",
    "mask",
    "wrapped_string",
    "wrapped_int",
    "nothing",
]
BELOW = ["inner.text", "inner.count", "inner.deeper", "inner.deeper.deeper.text", "third.count"]
PLACES = [*SCALARS, *LISTS, *MAPS, *MESSAGES, *BELOW]
KEYS = ["extras.k", "extras.k.l", "extras2.a.b", "any.text"]

# What only the data tells: a number that is too large, a text that is no number, a message without a JSON form.
OF_THE_DATA = re.compile(
    r"out of the range|is not an integer|is not a number|is neither true nor false|has no decimal form|has no name in"
    r"|is no value of|is null inside a list or a map|\w cannot become [\w.]+: |has no JSON form|without a JSON form"
    r"|the value |the map cannot become"
)
# What holds anything, so that even the type of a value is only told by the data.
FREE_FORM = re.compile(r"\b(extras2?|hints?|list|anys?|dyn)\b")

LITERALS = ["null", "true", "7", "-1", "1.5", '"7"', '"RED"', '""']
scopes = st.sampled_from(["input", "first"])
places = st.sampled_from(PLACES)
text_rules = st.one_of(
    st.builds(
        lambda target, operator, scope, path: f"{target} {operator} {scope}.{path}",
        st.sampled_from([*PLACES, *KEYS]),
        st.sampled_from(["=", "+="]),
        scopes,
        st.sampled_from([*PLACES, *KEYS]),
    ),
    st.builds(
        lambda target, operator, literal: f"{target} {operator} {literal}",
        st.sampled_from([*PLACES, *KEYS]),
        st.sampled_from(["=", "+="]),
        st.sampled_from(LITERALS),
    ),
    places.map(lambda path: f"-{path}"),
)
truths = st.one_of(
    st.builds(lambda scope, path: f"has({scope}.{path})", scopes, places),
    st.builds(lambda scope, path: f"size({scope}.{path}) > 0", scopes, st.sampled_from([*LISTS, *MAPS])),
    st.builds(lambda scope, path: f"{scope}.{path} == {scope}.{path}", scopes, places),
    st.builds(lambda one, path, other: f"input.{one} < first.{other} || {path}", places, st.just("true"), places),
    scopes.map(lambda scope: f"{scope}.a_bool"),
    scopes.map(lambda scope: f"{scope}.color == 1 && 'a' in {scope}.labels"),
    scopes.map(lambda scope: f"{scope}.strings.exists(text, text.startsWith('a'))"),
    scopes.map(lambda scope: f"{scope}.at > timestamp('2020-01-01T00:00:00Z') || {scope}.took < duration('1s')"),
)
values = st.one_of(
    st.builds(lambda scope, path: f"{scope}.{path}", scopes, places),
    st.builds(lambda scope, path: f"[{scope}.{path}]", scopes, places),
    st.builds(lambda scope, path: f"{{'k': {scope}.{path}}}", scopes, places),
    st.builds(lambda path, truth: f"{truth} ? input.{path} : first.{path}", places, truths),
    st.builds(lambda path: f"target.{path}", places),
    st.builds(lambda path: f"input.{path}.map(x, x)", st.sampled_from([*LISTS, *MAPS])),
    st.builds(lambda path: f"input.{path}.filter(x, true)", st.sampled_from([*LISTS, *MAPS])),
    st.builds(
        lambda path: f"string(input.{path})", st.sampled_from(["an_int32", "an_uint64", "a_bool", "a_string", "at"])
    ),
    st.sampled_from(
        ["null", "1", "1u", "1.5", "'7'", "b'7'", "true", "[]", "{}", "[1, 2]", "['a']", "dyn(input.a_string)"]
    ),
    st.sampled_from(
        ["kit.v1.Inner{text: input.a_string}", "[kit.v1.Inner{count: 1}]", "input", "first", "duration('1s')"]
    ),
)
cel_rules = st.fixed_dictionaries(
    {"target": st.sampled_from([*PLACES, *KEYS]), "selector": values}, optional={"filter": truths}
) | st.fixed_dictionaries(
    {"target": places, "filter": truths, "fallback": st.lists(text_rules, min_size=1, max_size=2)}
)
mappings = {"rules": st.lists(text_rules, max_size=6), "celRules": st.lists(cel_rules, max_size=4)}

INNER = st.fixed_dictionaries(
    {}, optional={"text": st.text("aé7 ", max_size=3), "count": st.integers(-9, 9), "deeper": st.just({})}
)
FREE = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("aé7 ", max_size=2),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=4,
)
COLOR = st.sampled_from(["RED", "BLUE", 99])
NAMES = st.sampled_from(["a", "b"])
WORDS = st.sampled_from(["", "7", "-1", "1.5", "RED", "true", "x"])
PACKED = st.just({"@type": "type.googleapis.com/kit.v1.Inner", "text": "7"})
inputs = st.fixed_dictionaries(
    {},
    optional={
        "anInt32": st.integers(-(2**31), 2**31 - 1),
        "anInt64": st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 2),
        "anUint32": st.integers(0, 2**32 - 1),
        "anUint64": st.integers(0, 2**64 - 1) | st.integers(0, 2),
        "aSint64": st.integers(-2, 2),
        "aFixed64": st.integers(0, 2),
        "aFloat": st.floats(-9, 9, width=32) | st.just("NaN"),
        "aDouble": st.floats(-9, 9) | st.sampled_from(["NaN", "Infinity", 1e300]),
        "aBool": st.booleans(),
        "aString": WORDS,
        "aBytes": st.sampled_from(["", "AA=="]),
        "color": COLOR,
        "shade": st.sampled_from(["DARK", 7]),
        "inner": INNER,
        "maybe": st.integers(-1, 1),
        "right": st.integers(-1, 1),
        "strings": st.lists(WORDS, max_size=2),
        "ints": st.lists(st.integers(-2, 2), max_size=2),
        "longs": st.lists(st.integers(-(2**63), 2**63 - 1), max_size=2),
        "doubles": st.lists(st.floats(-2, 2), max_size=2),
        "colors": st.lists(COLOR, max_size=2),
        "inners": st.lists(INNER, max_size=2),
        "labels": st.dictionaries(NAMES, WORDS, max_size=2),
        "moreLabels": st.dictionaries(NAMES, WORDS, max_size=2),
        "byNumber": st.dictionaries(st.sampled_from(["1", "-2"]), INNER, max_size=2),
        "byTruth": st.dictionaries(st.sampled_from(["true", "false"]), st.integers(-2, 2), max_size=2),
        "counts": st.dictionaries(NAMES, st.integers(-2, 2), max_size=2),
        "extras": st.dictionaries(NAMES, FREE, max_size=2),
        "hint": FREE,
        "list": st.lists(FREE, max_size=2),
        "any": PACKED,
        "anys": st.lists(PACKED, max_size=1),
        "hints": st.lists(FREE, max_size=2),
        "at": st.sampled_from(["2026-01-01T00:00:00Z", "0001-01-01T00:00:00Z"]),
        "took": st.sampled_from(["1s", "-0.5s"]),
        "mask": st.just("a,b"),
        "wrappedString": WORDS,
        "wrappedInt": st.integers(-2, 2),
        "nothing": st.just({}),
        "extras2": st.dictionaries(NAMES, FREE, max_size=2),
    },
)


@st.composite
def candidates(draw: st.DrawFn) -> dict[str, Any]:
    """Two steps and an output with rules of which some make sense."""
    first = draw(st.fixed_dictionaries(mappings).map(lambda written: _without(written, "first")))
    second = draw(st.fixed_dictionaries(mappings, optional={"when": truths}))
    call = {"target": "kits", "method": "kit.v1.Kits/Make"}
    return {
        "schema": {"sources": {"kit.proto": source("kit.proto")}},
        "inputType": KIT,
        "steps": [{"name": "first", **call, **first}, {"name": "second", **call, **second}],
        "output": {"type": KIT, **draw(st.fixed_dictionaries(mappings))},
    }


def _without(written: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: [rule for rule in rules if name not in str(rule)] for key, rules in written.items()}


@settings(max_examples=100, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(document=candidates(), values=st.lists(inputs, min_size=1, max_size=3))
def test_what_verifies_fails_on_no_type(
    document: dict[str, Any], values: list[dict[str, Any]], protoc: ProtocChild
) -> None:
    asyncio.run(_runs(document, values, protoc))


async def _runs(document: dict[str, Any], values: list[dict[str, Any]], protoc: ProtocChild) -> None:
    plan = await _sound(document, protoc)
    for value in values:
        try:
            ended: object = await _run(plan, value)
        except StepFailed as error:
            ended = error
        assert isinstance(ended, Completed) or _fails_for_its_data(ended), str(ended)


def _fails_for_its_data(error: object) -> bool:
    text = str(error)
    match error:
        case MappingFailed():
            return (FREE_FORM.search(text) or OF_THE_DATA.search(text)) is not None
        case GateFailed():
            return FREE_FORM.search(text) is not None
        case _:  # NaN in a Struct, say, which a response may hold
            return "cannot be kept as JSON" in text


async def _sound(document: dict[str, Any], protoc: ProtocChild) -> Plan:
    """The plan of the document without what does not verify."""
    for _ in range(3):
        try:
            return await plan_of(document, protoc)
        except DefinitionInvalid as error:
            for pointer in sorted({finding.pointer for finding in error.findings}, reverse=True):
                _drop(document, pointer.split("/")[1:])
    raise AssertionError("what its findings named was taken out, and it does not verify")


def _drop(document: Any, path: list[str]) -> None:
    """Take out the rule or gate at that path."""
    last = max((at for at, part in enumerate(path) if part in ("rules", "celRules")), default=None)
    path = path if last is None else path[: last + 2]
    for part in path[:-1]:
        document = document[int(part) if isinstance(document, list) else part]
    if isinstance(document, list):
        document[int(path[-1])] = {"target": "inner", "filter": "false"} if path[-2] == "celRules" else "-inner"
    else:
        del document[path[-1]]


async def _run(plan: Plan, value: dict[str, Any]) -> object:
    async def echo(request: CallRequest) -> bytes:
        return request.payload

    given = plan.parse_input(value)
    return await run_segment(plan, given, [], call=echo, checkpoint=Log(), clock=Clock(), evaluator=EVALUATOR)
