"""Rules meant to do harm, and messages: each ends in time, and the next one is applied."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from streams.evaluator.child_evaluator import ChildEvaluator
from streams.evaluator.evaluators import InProcessEvaluator, OperationsEvaluator
from streams.workflow.evaluation import RuleFailed
from tests.evaluator.test_child_evaluator import longest_lag
from tests.evaluator.test_rules import schema_of

SECONDS = 0.3

BOMBS = [
    "this.s.map(a, this.s.map(b, a + b)).size() > 0",
    "this.s.all(a, this.s.all(b, this.s.all(c, a + b + c != '')))",
    "[[1, 1]].map(s, s + s).map(s, s + s).map(s, s + s).map(s, s + s) == []",
    "this.t.replace('x', this.t).replace('x', this.t) == ''",
    "this.t.matches('(x+x+)+y') || this.t.split('').join(this.t) == ''",
    "this.s.filter(a, this.s.filter(b, a == b) != []) == []",
]


@pytest.fixture
async def child() -> AsyncIterator[ChildEvaluator]:
    evaluator = ChildEvaluator(seconds=SECONDS)
    yield evaluator
    await evaluator.close()


def rule(expression: str) -> str:
    option = f'option (buf.validate.message).cel = {{id: "bomb", message: "no", expression: "{expression}"}};'
    return f"{option} repeated string s = 1; string t = 2;"


async def test_every_rule_ends_in_time_and_neither_the_loop_nor_the_next_rule_notices(child: ChildEvaluator) -> None:
    sound = await schema_of("string t = 2 [(buf.validate.field).string.min_len = 1];")
    hostile = await schema_of("".join(f"message B{n} {{ {rule(bomb)} }}" for n, bomb in enumerate(BOMBS)))
    lag = asyncio.create_task(longest_lag())
    ended = 0

    for number in range(len(BOMBS)):
        bomb = f"t.A.B{number}"
        assert await child.broken_rules(hostile, bomb) == []
        given = hostile.parse_json(bomb, {"s": [f"s{n}" for n in range(8_000)], "t": "x" * 1_000_000})
        try:
            await child.rejections(hostile, given)
        except RuleFailed:
            ended += 1
        assert (await child.rejections(sound, sound.new("t.A"))).keys() == {None}

    lag.cancel()
    assert await lag < 1.0
    assert ended >= 3


async def test_a_rule_that_takes_too_long_is_told_so(child: ChildEvaluator) -> None:
    schemas = await schema_of(rule(BOMBS[1]))
    given = schemas.parse_json("t.A", {"s": [f"s{n}" for n in range(8_000)]})

    with pytest.raises(RuleFailed, match=r"takes over 0.3 s of processor time|budget"):
        await child.rejections(schemas, given)


@pytest.mark.parametrize("build", [ChildEvaluator, InProcessEvaluator])
async def test_a_message_that_is_nested_too_deeply_gets_no_verdict(build: type[OperationsEvaluator]) -> None:
    evaluator = build()
    schemas = await schema_of("A self = 1; string t = 2 [(buf.validate.field).string.max_len = 1];")

    def nested(levels: int) -> bytes:
        data = b"\x12\x02xx"
        for _ in range(levels):
            data = b"\x0a" + _varint(len(data)) + data
        return data

    deep = schemas.from_wire("t.A", nested(90))
    assert (await evaluator.rejections(schemas, deep))[None].violations[0].path == "self." * 90 + "t"
    message = schemas.new("t.A")
    inner = message
    for _ in range(150):
        inner = inner.self  # type: ignore[attr-defined]
        inner.SetInParent()
    with pytest.raises(RuleFailed, match="cannot be read by the evaluator"):
        await evaluator.rejections(schemas, message)
    await evaluator.close()


def _varint(number: int) -> bytes:
    coded = b""
    while number > 0x7F:
        coded += bytes([number & 0x7F | 0x80])
        number >>= 7
    return coded + bytes([number])


async def test_loading_the_engine_is_not_counted_as_a_rule_s_time() -> None:
    """It takes a tenth of a second, and here a request has half of one."""
    evaluator = ChildEvaluator(seconds=0.05)
    schemas = await schema_of("string t = 2 [(buf.validate.field).string.min_len = 1];")

    assert (await evaluator.rejections(schemas, schemas.new("t.A"))).keys() == {None}
    await evaluator.close()
