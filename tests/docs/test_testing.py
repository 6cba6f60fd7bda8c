"""The README's test of a workflow is one that anybody's pytest runs, with no more than the package."""

import contextlib
import inspect
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from streams.testing import Run, Workflow
from tests.docs.markdown import README, ROOT, blocks

LINES = 10


def test_the_test_of_a_workflow_passes_where_nothing_else_is(tmp_path: Path) -> None:
    [text] = blocks(README.read_text("utf-8"), "python test")
    body = [line for line in text.splitlines() if line and not line.startswith(("from ", "import "))]
    assert len(body) <= LINES
    (tmp_path / "test_embed_text.py").write_text(text)
    shutil.copy(ROOT / "streams/dev/workflows/embed-text.json", tmp_path)

    # Warnings are errors, so what the kit leaves open would be seen.
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:asyncio", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1].split(" in ")[0]) == (0, "1 passed"), (
        done.stdout + done.stderr
    )


def test_the_tests_of_the_guide_pass_and_its_tables_are_complete(tmp_path: Path) -> None:
    text = (ROOT / "docs/workflows.md").read_text("utf-8")
    [tests], [workflow], [schema, *_] = (blocks(text, info) for info in ("python testing", "yaml workflow", "proto"))
    for name, content in {"test_order.py": tests, "quote-order.yaml": workflow, "shop.proto": schema}.items():
        (tmp_path / name).write_text(content)
    found: dict[str, Any] = {}
    with contextlib.chdir(tmp_path):
        exec(compile(tests, "test_order.py", "exec"), found)
    ran = [test() for name, test in found.items() if name.startswith("test_")]
    assert len(ran) == 2

    section = text[text.index("## Testing") :]
    named = set(re.findall(r"`(\w+)(?:\(step\))?`", section))
    arguments = set(inspect.signature(Workflow.run).parameters) - {"self"}
    hidden = {"asked", "tried", "called", "steps"}
    told = {name for name in vars(Run)["__slots__"] if name not in hidden} | {"calls", "requests", "items"}
    assert arguments | told <= named
