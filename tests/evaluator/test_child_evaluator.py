"""The child that evaluates: what it is kept from, what it is ended for, and that nobody else is harmed by it."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import uvloop

from schemas.errors import EvaluatorUnavailable
from streams.evaluator.child_evaluator import ChildEvaluator
from streams.evaluator.operations import SCHEMAS_KEPT
from streams.evaluator.protoc import ProtocChild
from streams.workflow.descriptors import SchemaSet
from streams.workflow.evaluation import ExpressionFailed
from tests.fixtures.eventually import wait_until

KIT = "kit.v1.Kit"
SLOW = "input.strings.all(s, !input.a_string.matches('(x+x+)+y'))"


def children(of: int | None = None) -> set[int]:
    """Live evaluators whose parent is this process, or *of*."""
    found = set()
    for entry in Path("/proc").iterdir():
        try:
            stat = (entry / "stat").read_text().rpartition(")")[2].split()
            command = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if int(stat[1]) == (of or os.getpid()) and stat[0] != "Z" and b"streams.evaluator.child" in command:
            found.add(int(entry.name))
    return found


async def evaluated(evaluator: ChildEvaluator, kit: SchemaSet, source: str, **given: object) -> object:
    return await evaluator.evaluate(kit, source, {"input": kit.parse_json(KIT, given)})


async def works(evaluator: ChildEvaluator, kit: SchemaSet) -> bool:
    return await evaluated(evaluator, kit, "input.an_int32 + 1", anInt32=6) == 7


async def test_a_child_is_started_at_the_first_use_knows_no_secrets_and_is_gone_after_the_last(
    kit: SchemaSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKFLOW_RUNS_DATABASE_URL", "postgres://secret")
    before = children()
    evaluator = ChildEvaluator()
    assert children() == before

    assert await works(evaluator, kit)
    [pid] = children() - before
    assert Path(f"/proc/{pid}/environ").read_bytes() == b""
    assert await works(evaluator, kit)
    assert children() - before == {pid}

    await evaluator.close()
    assert children() == before
    with pytest.raises(EvaluatorUnavailable, match="closed"):
        await works(evaluator, kit)


async def test_an_expression_that_takes_too_long_is_ended_and_the_next_one_works(kit: SchemaSet) -> None:
    evaluator = ChildEvaluator(seconds=0.2)
    lag = asyncio.create_task(longest_lag())

    for _ in range(2):
        with pytest.raises(ExpressionFailed, match=r"it takes over 0\.2 s of processor time"):
            await evaluated(evaluator, kit, SLOW, aString="x" * 1_000_000, strings=["s"] * 9_000)
        assert await works(evaluator, kit)

    lag.cancel()
    assert await lag < 0.5
    await evaluator.close()


async def longest_lag() -> float:
    longest = 0.0
    try:
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.01)
            longest = max(longest, time.monotonic() - before - 0.01)
    except asyncio.CancelledError:
        return longest


async def test_time_in_which_the_machine_does_something_else_does_not_count(kit: SchemaSet) -> None:
    evaluator = ChildEvaluator(seconds=0.2)
    assert await works(evaluator, kit)
    [pid] = children()

    os.kill(pid, signal.SIGSTOP)
    held = asyncio.create_task(works(evaluator, kit))
    await asyncio.sleep(0.5)
    assert not held.done()
    os.kill(pid, signal.SIGCONT)

    assert await held
    assert children() == {pid}
    await evaluator.close()


async def test_an_expression_that_needs_too_much_memory_fails_and_the_next_one_works(kit: SchemaSet) -> None:
    evaluator = ChildEvaluator(seconds=20, memory_bytes=300 << 20)
    doubled = " + ".join(["input.a_string"] * 28)

    for _ in range(2):
        with pytest.raises(ExpressionFailed, match=r"more memory than it is given|does not survive it"):
            await evaluated(evaluator, kit, f"[1, 2, 3, 4, 5].map(n, {doubled} + string(n))", aString="x" * (2 << 20))
        assert await works(evaluator, kit)
    await evaluator.close()


async def test_an_answer_that_is_too_long_to_send_is_a_failure(child: ChildEvaluator, kit: SchemaSet) -> None:
    with pytest.raises(ExpressionFailed, match="the answer is too long"):
        await evaluated(child, kit, "[1, 2, 3, 4, 5, 6, 7, 8, 9].map(n, input.a_string)", aString="x" * 8_000_000)
    assert await works(child, kit)


async def test_a_child_that_somebody_kills_costs_no_caller_anything(child: ChildEvaluator, kit: SchemaSet) -> None:
    for _ in range(3):
        assert await works(child, kit)
        for pid in children():
            os.kill(pid, signal.SIGKILL)
    assert await works(child, kit)


async def test_an_expression_that_no_child_survives_fails(kit: SchemaSet) -> None:
    evaluator = ChildEvaluator(seconds=60)
    assert await works(evaluator, kit)
    slow = asyncio.create_task(evaluated(evaluator, kit, SLOW, aString="x" * 1_000_000, strings=["s"] * 9_000))

    async def killed() -> None:
        killed: set[int] = set()
        while not slow.done():
            for pid in children() - killed:
                if _worked(pid) > 0.3:
                    os.kill(pid, signal.SIGKILL)
                    killed.add(pid)
            await asyncio.sleep(0.02)
        assert len(killed) == 2

    with pytest.raises(ExpressionFailed, match="does not survive it: it ended with status -9"):
        await asyncio.gather(slow, killed())
    assert await works(evaluator, kit)
    await evaluator.close()


def _worked(pid: int) -> float:
    """Seconds of processor time that a process has used."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")


async def test_signals_to_the_whole_group_are_the_parents_to_answer(child: ChildEvaluator, kit: SchemaSet) -> None:
    assert await works(child, kit)
    before = children()
    for pid in before:
        os.kill(pid, signal.SIGINT)
        os.kill(pid, signal.SIGTERM)
    assert await works(child, kit)
    assert children() == before


async def test_a_caller_who_gives_up_leaves_nothing_behind_for_the_next(child: ChildEvaluator, kit: SchemaSet) -> None:
    assert await works(child, kit)
    before = children()
    for number in range(60):
        given_up = asyncio.create_task(evaluated(child, kit, "input.an_int32", anInt32=-number))
        others = [asyncio.create_task(evaluated(child, kit, "input.an_int32", anInt32=number + n)) for n in range(2)]
        for _ in range(number % 6):
            await asyncio.sleep(0)
        given_up.cancel()
        assert await asyncio.gather(*others) == [number, number + 1]
    assert children() == before


async def test_a_workflow_with_slow_expressions_holds_up_the_others_by_one_at_a_time(kit: SchemaSet) -> None:
    evaluator = ChildEvaluator(seconds=10)
    other = SchemaSet.from_bytes(
        await ProtocChild()({"a.proto": 'syntax = "proto3"; message A { int32 a = 1; }'}, None)
    )
    given = other.parse_json("A", {"a": 6})
    assert await works(evaluator, kit)
    ended: list[str] = []

    async def noted(name: str, work: asyncio.Future[object]) -> None:
        await work
        ended.append(name)

    slow = [evaluated(evaluator, kit, SLOW, aString="x" * 2_000, strings=["s"] * 2_000) for _ in range(8)]
    tasks = [asyncio.create_task(noted("slow", asyncio.ensure_future(work))) for work in slow]
    await asyncio.sleep(0)
    await noted("other", asyncio.ensure_future(evaluator.evaluate(other, "input.a", {"input": given})))
    await asyncio.gather(*tasks)

    assert ended.index("other") <= 2
    await evaluator.close()


@pytest.mark.parametrize(
    ("python", "memory_bytes", "said"),
    [
        ("/nowhere/python", 1 << 30, "No such file"),
        ("/bin/false", 1 << 30, "it ended with status 1"),
    ],
)
async def test_a_machine_that_cannot_start_a_child_is_our_trouble_and_not_the_expressions(
    python: str, memory_bytes: int, said: str, kit: SchemaSet
) -> None:
    evaluator = ChildEvaluator(python=python, memory_bytes=memory_bytes)
    for _ in range(2):
        with pytest.raises(EvaluatorUnavailable, match=said) as caught:
            await works(evaluator, kit)
        assert caught.value.retryable
        with pytest.raises(EvaluatorUnavailable):
            await evaluator.check(kit, "1", {})
    await evaluator.close()


async def test_closing_ends_what_is_in_flight(kit: SchemaSet) -> None:
    evaluator = ChildEvaluator(seconds=60)
    assert await works(evaluator, kit)
    slow = asyncio.create_task(evaluated(evaluator, kit, SLOW, aString="x" * 1_000_000, strings=["s"] * 9_000))
    await asyncio.sleep(0.05)

    await evaluator.close()

    with pytest.raises(EvaluatorUnavailable, match="closed"):
        await slow
    assert children() == set()


async def test_a_schema_that_made_room_for_others_is_sent_again(child: ChildEvaluator) -> None:
    protoc = ProtocChild()
    first = SchemaSet.from_bytes(await protoc({"a.proto": 'syntax = "proto3"; message A { int32 a = 1; }'}, None))
    data = first.to_bytes()
    others = [
        SchemaSet.from_bytes(data.replace(b"a.proto", b"%c.proto" % (ord("b") + number % 20))) for number in range(20)
    ]
    assert len({schemas.to_bytes() for schemas in others}) == 20 < SCHEMAS_KEPT

    for schemas in (first, *others, first):
        given = schemas.parse_json("A", {"a": 6})
        assert await child.evaluate(schemas, "input.a", {"input": given}) == 6


def test_a_child_ends_with_its_parent(tmp_path: Path) -> None:
    program = """
import asyncio, sys
from streams.evaluator.child_evaluator import ChildEvaluator
from streams.workflow.descriptors import SchemaSet
async def main():
    evaluator = ChildEvaluator()
    await evaluator.check(SchemaSet.from_bytes(sys.stdin.buffer.read()), "1", {})
    print("ready", flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""
    parent = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        parent.stdin.write(_empty_set())
        parent.stdin.close()
        assert parent.stdout.readline() == b"ready\n"
        [pid] = children(parent.pid)
        parent.kill()
    wait_until(lambda: not Path(f"/proc/{pid}").exists())


def _empty_set() -> bytes:
    return SchemaSet.from_bytes(asyncio.run(ProtocChild()({"a.proto": 'syntax = "proto3";'}, None))).to_bytes()


def test_all_of_it_holds_under_the_loop_that_workers_use(kit: SchemaSet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKFLOW_RUNS_DATABASE_URL", "postgres://secret")

    async def told() -> None:
        evaluator = ChildEvaluator(seconds=0.1)
        assert await works(evaluator, kit)
        [pid] = children()
        assert Path(f"/proc/{pid}/environ").read_bytes() == b""
        with pytest.raises(ExpressionFailed, match=r"it takes over 0\.1 s of processor time"):
            await evaluated(evaluator, kit, SLOW, aString="x" * 1_000_000, strings=["s"] * 9_000)
        for _ in range(2):
            assert await works(evaluator, kit)
            [pid] = children()
            os.kill(pid, signal.SIGKILL)
        assert await works(evaluator, kit)
        await evaluator.close()
        assert children() == set()
        with pytest.raises(EvaluatorUnavailable, match="ended with status 1"):
            await works(ChildEvaluator(python="/bin/false"), kit)
        with pytest.raises(EvaluatorUnavailable, match="No such file"):
            await works(ChildEvaluator(python="/nowhere/python"), kit)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(told())
