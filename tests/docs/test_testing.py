"""The README's test of a workflow is one that anybody's pytest runs, with no more than the package."""

import shutil
import subprocess
import sys
from pathlib import Path

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
