"""Processes of handlers: what they see, how long they stay, and how they end with their worker."""

import asyncio
import logging
import os
import signal
import sys
import textwrap
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest

from schemas.errors import HandlerDied, WorkflowBroken
from streams.evaluator.protoc import ProtocChild
from streams.handlers.children import Children
from streams.handlers.context import Context
from streams.handlers.registry import load_registry
from streams.handlers.values import Given, Served
from streams.workflow.descriptors import SchemaSet
from tests.handlers.steps import SOURCE, Ask, Reply


@pytest.fixture(scope="module")
def schemas() -> SchemaSet:
    return SchemaSet.from_bytes(asyncio.run(ProtocChild()({"steps.proto": SOURCE}, None)))


@pytest.fixture
async def children() -> AsyncIterator[Children]:
    children = Children()
    yield children
    await children.close()


def served() -> Served:
    found = load_registry(["tests.handlers.steps"]).find("local:steps.v1.Steps/Child")
    assert found is not None
    return found


async def answer(children: Children, schemas: SchemaSet, does: str) -> str:
    given = Given(Ask(text=does).SerializeToString(), "steps.v1.Ask", "steps.v1.Reply", lambda: schemas)
    context = Context(
        job_id=UUID(int=1),
        tenant_id="default",
        step="work",
        attempt=1,
        deadline=datetime.now(UTC),
        log=logging.getLogger("handlers.test"),
    )
    return str(Reply.FromString(await children.call(served(), given, context)).text)


async def test_a_process_stays_for_the_next_call_also_behind_a_failure(children: Children, schemas: SchemaSet) -> None:
    first = await answer(children, schemas, "pid")
    with pytest.raises(WorkflowBroken):
        await answer(children, schemas, "error")
    with pytest.raises(HandlerDied):
        await answer(children, schemas, "sys.exit")

    assert await answer(children, schemas, "pid") == first
    assert int(first) != os.getpid()


async def test_a_dead_process_is_followed_by_another(children: Children, schemas: SchemaSet) -> None:
    first = await answer(children, schemas, "pid")
    with pytest.raises(HandlerDied, match="ended with exit code 137, in try 1"):
        await answer(children, schemas, "_exit")

    assert await answer(children, schemas, "pid") != first


async def test_a_process_has_the_environment_but_no_setting_and_its_prints_harm_nothing(
    children: Children, schemas: SchemaSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKFLOW_RUNS_DATABASE_URL", "postgresql://secret")
    monkeypatch.setenv("SOMETHING_OF_ITS_OWN", "1")

    names = (await answer(children, schemas, "environment")).split()

    assert "SOMETHING_OF_ITS_OWN" in names
    assert [name for name in names if name.startswith("WORKFLOW_RUNS_")] == []
    assert await answer(children, schemas, "prints") == "printed"


async def test_a_cancelled_call_kills_its_process(children: Children, schemas: SchemaSet) -> None:
    pid = int(await answer(children, schemas, "pid"))
    call = asyncio.create_task(answer(children, schemas, "forever"))
    await asyncio.sleep(0.1)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call

    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_a_process_ends_with_its_worker_whatever_it_is_at(tmp_path: Path) -> None:
    """The worker is killed while the handler spins."""
    program = f"""
        import asyncio, sys
        sys.path[:] = {sys.path!r}
        from tests.handlers import test_children as here
        from streams.evaluator.protoc import ProtocChild
        async def main():
            children = here.Children()
            schemas = here.SchemaSet.from_bytes(await ProtocChild()({{"steps.proto": here.SOURCE}}, None))
            print(await here.answer(children, schemas, "pid"), flush=True)
            await here.answer(children, schemas, "forever")
        asyncio.run(main())
    """
    file = tmp_path / "worker.py"
    file.write_text(textwrap.dedent(program))
    worker = await asyncio.create_subprocess_exec(sys.executable, str(file), stdout=asyncio.subprocess.PIPE)
    assert worker.stdout is not None
    pid = int(await worker.stdout.readline())
    worker.send_signal(signal.SIGKILL)
    await worker.wait()

    async with asyncio.timeout(10):
        while is_running(pid):  # noqa: ASYNC110  # it is no child of this process
            await asyncio.sleep(0.01)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
