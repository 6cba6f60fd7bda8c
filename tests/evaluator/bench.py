"""Expressions evaluated and messages validated in a second, in a child and in this process, beside bare exchanges.

python -m tests.evaluator.bench
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from streams.evaluator.channel import Channel
from streams.evaluator.child_evaluator import ChildEvaluator
from streams.evaluator.evaluators import InProcessEvaluator, OperationsEvaluator
from streams.evaluator.frames import READY
from streams.evaluator.protoc import ProtocChild
from streams.workflow.descriptors import SchemaSet
from tests.evaluator.test_rules import DATA, SOUND
from tests.workflow.samples import source

SECONDS = 2.0
GATE = "input.an_int64 > 100 && input.strings.exists(s, s == 'x')"
BROKEN = {**SOUND, "name": "", "count": 0, "even": 1, "odd": "bad", "inner": {"code": "x"}}
SELECTOR = "input.strings.map(s, s + '!')"


async def rate(work: Callable[[], Awaitable[object]]) -> float:
    """How often *work* is done in a second."""
    await work()
    done, began = 0, time.perf_counter()
    while (took := time.perf_counter() - began) < SECONDS:
        await work()
        done += 1
    return done / took


async def measure() -> None:
    kit = SchemaSet.from_bytes(await ProtocChild()({"kit.proto": source("kit.proto")}, None))
    sources = {name: (DATA / name).read_text() for name in ("ruled.proto", "even.proto")}
    ruled = SchemaSet.from_bytes(await ProtocChild()(sources, None))
    small = kit.parse_json("kit.v1.Kit", {"anInt64": 200, "strings": ["a", "b", "x"]})
    large = kit.parse_json(
        "kit.v1.Kit", {"anInt64": 200, "strings": [f"t{n}" for n in range(100)], "aString": "n" * 4_000}
    )

    began = time.perf_counter()
    channel = await Channel.start()
    print(f"start of a child                   {1_000 * (time.perf_counter() - began):8,.0f} ms")
    print(f"bare exchanges                     {await rate(lambda: channel.call({'operation': READY})):8,.0f} /s")
    await channel.close()

    evaluators: dict[str, OperationsEvaluator] = {"child": ChildEvaluator(), "in process": InProcessEvaluator()}
    for name, evaluator in evaluators.items():
        for what, expression, given in (("gates", GATE, small), ("selectors of 100", SELECTOR, large)):
            done = await rate(lambda e=evaluator, x=expression, g=given: e.evaluate(kit, x, {"input": g}))  # type: ignore[misc]
            print(f"{what + ', ' + name:35}{done:8,.0f} /s")
        for pid in Path("/proc/self/task").glob("*/children"):
            for child in pid.read_text().split():
                pages = int(Path(f"/proc/{child}/statm").read_text().split()[1])
                print(f"memory of a child                  {pages * 4 // 1024:8,} MiB")
        for what, values in (("valid messages", SOUND), ("messages that break 5", BROKEN)):
            message = ruled.parse_json("ruled.v1.Rules", values)
            done = await rate(lambda e=evaluator, m=message: e.rejections(ruled, m))  # type: ignore[misc]
            print(f"{what + ', ' + name:35}{done:8,.0f} /s")
        await evaluator.close()


if __name__ == "__main__":
    asyncio.run(measure())
