"""Every field onto every field: a rule is refused when it is compiled, or it moves the value, or says why not."""

import itertools
from typing import Any

import pytest
from google.protobuf.message import Message

from schemas.errors import MappingFailed
from streams.workflow.descriptors import SchemaSet
from streams.workflow.mapping import CompiledMapping, compile_rule
from streams.workflow.rule_text import RuleInvalid

KIT = "kit.v1.Kit"

SAMPLES: list[dict[str, object]] = [
    {
        "anInt32": 7,
        "anInt64": 7,
        "anUint32": 7,
        "anUint64": 7,
        "aSint64": 7,
        "aFixed64": 7,
        "aFloat": 7.0,
        "aDouble": 7.0,
        "aBool": True,
        "aString": "7",
        "aBytes": "AA==",
        "color": "RED",
        "shade": "DARK",
        "inner": {"text": "7", "deeper": {}},
        "maybe": 1,
        "right": 1,
        "strings": ["1"],
        "ints": [1],
        "longs": [1],
        "doubles": [1],
        "colors": [1],
        "inners": [{}],
        "labels": {"a": "1"},
        "moreLabels": {"a": "1"},
        "byNumber": {"1": {}},
        "byTruth": {"true": 1},
        "counts": {"a": 1},
        "extras": {"text": "1"},
        "hint": 1,
        "list": [1],
        "any": {"@type": "type.googleapis.com/kit.v1.Inner"},
        "anys": [{"@type": "type.googleapis.com/google.protobuf.Value", "value": "1"}],
        "hints": [1, "1"],
        "at": "2026-01-01T00:00:00Z",
        "took": "1s",
        "mask": "a",
        "wrappedString": "1",
        "wrappedInt": "1",
        "nothing": {},
        "extras2": {"a": {"b": [1, None, {"c": []}]}},
        "null": None,
    },
    {
        "anInt64": -(2**63),
        "anUint64": 2**64 - 1,
        "aFloat": "NaN",
        "aDouble": "Infinity",
        "aString": "é",
        "color": 99,
        "third": {},
        "strings": [],
        "doubles": ["NaN"],
        "hint": {"a": [None]},
        "list": [[], {}, None],
        "hints": [None, [], {}],
        "any": {"@type": "type.googleapis.com/google.protobuf.ListValue", "value": [1]},
        "anys": [{}, {"@type": "type.googleapis.com/google.protobuf.Struct", "value": {"a": 1}}],
        "extras": {"count": 1.5},
    },
    {},
]


def test_a_rule_between_any_two_places_ends_as_a_rule_may_end(kit: SchemaSet) -> None:
    descriptor = kit.message(KIT)
    names = [field.name for field in descriptor.fields]
    sources = ["", *(f".{name}" for name in names), ".inner.deeper.text", ".extras.text", ".extras2.a.b", ".any.text"]
    targets = [*names, "inner.text", "extras.k", "extras2.a.b"]
    inputs = [kit.parse_json(KIT, sample) for sample in SAMPLES]
    ended = {"compiled": 0, "refused": 0, "moved": 0, "failed": 0}

    for target, operator, source in itertools.product(targets, ("=", "+="), sources):
        try:
            rule = compile_rule(f"{target} {operator} input{source}", descriptor, {"input": descriptor}, kit)
        except RuleInvalid:
            ended["refused"] += 1
            continue
        ended["compiled"] += 1
        for given in inputs:
            ended["moved" if _moves(CompiledMapping.into(descriptor, [rule]), given) else "failed"] += 1

    assert min(ended.values()) > 100
    assert [kit.to_json(given) for given in inputs] == [kit.to_json(kit.parse_json(KIT, sample)) for sample in SAMPLES]


def _moves(mapping: CompiledMapping, given: Message) -> bool:
    try:
        built: Any = mapping.build({"input": given}, step="s")
    except MappingFailed:
        return False
    assert built.FromString(built.SerializeToString()) is not None
    return True


LITERALS = ["1", "-1", "1.5", '"7"', '"x"', '""', "true", "null", "99999999999"]


@pytest.mark.parametrize("operator", ["=", "+="])
def test_a_literal_that_compiles_never_fails(operator: str, kit: SchemaSet) -> None:
    descriptor = kit.message(KIT)
    empty = kit.new(KIT)
    compiled = 0

    for field, literal in itertools.product([f.name for f in descriptor.fields] + ["extras.k"], LITERALS):
        try:
            rule = compile_rule(f"{field} {operator} {literal}", descriptor, {"input": descriptor}, kit)
        except RuleInvalid:
            continue
        compiled += 1
        assert _moves(CompiledMapping.into(descriptor, [rule]), empty)

    assert compiled > 50
