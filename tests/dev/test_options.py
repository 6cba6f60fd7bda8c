"""The options that choose the servers, and the line that says what was not run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = """
import pytest

@pytest.mark.apache
def test_marked():
    pass

@pytest.mark.apache
@pytest.mark.skipif(True, reason="for another reason")
def test_marked_and_skipped():
    pass

def test_plain(kafka):
    assert kafka.kind == "embedded"
"""


class Run:
    """One run of pytest over the examples, with our plug-ins."""

    def __init__(self, folder: Path, *options: str, java: bool = True) -> None:
        (folder / "test_examples.py").write_text(EXAMPLES)
        plugins = [part for name in ("not_run_here", "kafka", "postgres") for part in ("-p", f"tests.fixtures.{name}")]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        if not java:
            environment |= {"PATH": "", "JAVA_HOME": ""}
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-rN", "--strict-markers", *plugins, *options, "test_examples.py"],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        self.code = done.returncode
        self.output = done.stdout + done.stderr


@pytest.mark.parametrize("options", [(), ("-n", "2")], ids=["in one process", "in two"])
def test_tests_on_apache_are_skipped_where_it_cannot_run_and_one_line_says_so(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    run = Run(tmp_path, *options, java=False)
    assert run.code == 0, run.output
    assert "1 passed, 2 skipped" in run.output
    assert run.output.count("not run here: tests on Apache Kafka (no Java)") == 1


def test_nothing_is_said_when_nothing_was_left_out(tmp_path: Path) -> None:
    run = Run(tmp_path, "--kafka=embedded", "-k", "plain and not plain")
    assert "not run here" not in run.output


@pytest.mark.parametrize(
    ("options", "java", "reason"),
    [
        (["--require-apache"], False, "--require-apache: Apache Kafka cannot run here: no Java"),
        (["--require-apache", "--kafka=embedded"], True, "--require-apache contradicts --kafka=embedded"),
        (["--kafka=apache", "-k", "plain"], False, "--kafka=apache: Apache Kafka cannot run here: no Java"),
        (["--postgres=9"], True, "--postgres=9: no such Postgres is installed on this machine"),
    ],
)
def test_what_was_asked_for_and_cannot_be_had_fails_the_run(
    tmp_path: Path, options: list[str], java: bool, reason: str
) -> None:
    run = Run(tmp_path, *options, java=java)
    assert run.code == pytest.ExitCode.USAGE_ERROR, run.output
    assert reason in run.output


@pytest.mark.apache
def test_a_skipped_test_fails_a_run_that_requires_apache(tmp_path: Path) -> None:
    run = Run(tmp_path, "--require-apache", "-k", "marked")
    assert "1 passed, 1 skipped" in run.output
    assert "--require-apache: 1 tests on Apache Kafka were skipped" in run.output
    assert run.code == pytest.ExitCode.TESTS_FAILED
