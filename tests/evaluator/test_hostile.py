"""Expressions meant to do harm: each ends as a refusal or a failure in time, and the next one works."""

import asyncio
import contextlib
import resource
import time

from hypothesis import given, settings
from hypothesis import strategies as st

from streams.evaluator.child_evaluator import ChildEvaluator
from streams.evaluator.evaluators import InProcessEvaluator
from streams.workflow.descriptors import SchemaSet
from streams.workflow.evaluation import ExpressionFailed, ExpressionRefused
from tests.evaluator.test_child_evaluator import KIT, children, longest_lag, works

SECONDS = 0.15
MEGABYTE = "x" * 1_000_000

# What is too large or too deep to be checked at all.
TOO_LARGE = [
    "(" * 40_000 + "1" + ")" * 40_000,
    " + ".join(["1"] * 20_000),
    "[" * 90_000,
    "-" * 90_000 + "1",
    "!" * 90_000 + "true",
    "input" + ".inner" * 15_000,
    "'" + "x" * 1_000_000 + "'",
    "[" + "1," * 40_000 + "1]",
    "{" + ",".join(f"{n}:{n}" for n in range(8_000)) + "}",
    "[1]" + ".map(n, [n, n])" * 1_000,
    "true ? " * 8_000 + "1" + " : 2" * 8_000,
]

# What compiles within the bounds, over an input of 8,000 strings and one of a megabyte.
HEAVY = [
    "[[1, 1]].map(s, s + s).map(s, s + s).map(s, s + s).map(s, s + s) == []",
    "input.a_string.replace('x', input.a_string).replace('x', input.a_string) == ''",
    "input.a_string.split('').join(input.a_string) == ''",
    "input.strings.all(s, !input.a_string.matches('(x+x+)+y'))",
    "input.strings.all(s, input.a_string.replace('x', 'yy') != s)",
    "input.strings.all(a, size(input.strings + input.strings + input.strings) > 0)",
    "input.strings.map(a, input.strings.map(b, a + b)) == []",
    "input.strings.filter(a, input.strings.filter(b, a == b) != []) == []",
    "input.strings.all(a, size(kit.v1.Kit{strings: input.strings, a_string: input.a_string}.strings) > 0)",
    "[1, 2, 3, 4, 5, 6, 7, 8, 9].map(n, [1, 2, 3].map(m, " + " + ".join(["input.a_string"] * 25) + ")) == []",
    "input.strings.all(a, input == input && input.strings == input.strings)",
    "'%s%s%s'.format([input.strings, input.strings, input.strings]) == ''",
    "'%.1000000000f'.format([1.0]) == ''",
    "'((a{1,1000}){1,1000}){1,1000}' == '' || 'a'.matches('((a{1,1000}){1,1000}){1,1000}')",
    "timestamp('9999-12-31T23:59:59Z') + duration('1h') > timestamp('0001-01-01T00:00:00Z') - duration('1h')",
]


async def test_every_bomb_ends_in_time_and_the_loop_and_the_next_call_never_notice(kit: SchemaSet) -> None:
    evaluator = ChildEvaluator(seconds=SECONDS)
    given = kit.parse_json(KIT, {"strings": [f"s{number}" for number in range(8_000)], "aString": MEGABYTE})
    assert await works(evaluator, kit)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    lag = asyncio.create_task(longest_lag())
    began = time.process_time()

    for bomb in TOO_LARGE:
        with contextlib.suppress(ExpressionRefused):
            await evaluator.check(kit, bomb, {"input": KIT})
        assert await works(evaluator, kit), bomb[:80]
    for bomb in HEAVY:
        with contextlib.suppress(ExpressionRefused, ExpressionFailed):
            await evaluator.check(kit, bomb, {"input": KIT})
            await evaluator.evaluate(kit, bomb, {"input": given})
        assert await works(evaluator, kit), bomb
        assert len(children()) == 1

    assert time.process_time() - began < 10
    lag.cancel()
    assert await lag < 1.0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 300_000  # kilobytes, here
    await evaluator.close()


_PARTS = st.sampled_from(
    [
        *"()[]{}.,?:+-*/%<>=!&|'\"\\ \n\t0129eu",
        *("input", ".a_string", ".strings", ".map(", "n", "true", "null", "has(", "size(", "dyn(", "type(", "in"),
        *("'x'", "1u", "1.5", "\ud800", "\0", "é", "🦊", "b'", "r'", "'''", "//", "kit.v1.Kit{"),
    ]
)


@settings(max_examples=300, deadline=None)
@given(source=st.lists(_PARTS, max_size=30).map("".join))
def test_no_text_at_all_raises_anything_but_a_refusal_or_a_failure(source: str, kit: SchemaSet) -> None:
    evaluator = InProcessEvaluator()
    said: list[str] = []

    async def tried() -> None:
        try:
            await evaluator.check(kit, source, {"input": KIT})
            await evaluator.evaluate(kit, source, {"input": kit.new(KIT)})
        except (ExpressionRefused, ExpressionFailed) as error:
            said.append(str(error))

    asyncio.run(tried())
    assert all(said)
