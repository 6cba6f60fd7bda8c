"""A worker that cannot work says so at its start, one sentence per reason, and leaves with 2."""

import asyncio
import socket
import sys
from pathlib import Path

import pytest

from streams.dev.ports import LOOPBACK
from tests.acceptance.processes import environment

pytestmark = pytest.mark.embedded

ROOT = Path(__file__).parents[2]
SECONDS = 40


async def refused(**settings: str) -> list[str]:
    """Start a worker that does not get far, and return the lines of its standard error."""
    worker = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "streams.cli", "worker"),
        cwd=ROOT,
        env=environment(settings),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(SECONDS):
        output, errors = await worker.communicate()
    assert (worker.returncode, output) == (2, b"")
    return errors.decode().splitlines()


async def test_every_broken_setting_is_told_at_once_in_a_sentence_of_its_own() -> None:
    sentences = await refused(lease_seconds="soon", roles="intake,runner", lease_second="4", http_bind="0.0.0.0:8080")
    assert len(sentences) == 4
    told = dict(sentence.removeprefix("error: WORKFLOW_RUNS_").partition(" ")[::2] for sentence in sentences)
    assert set(told) == {"LEASE_SECONDS:", "ROLES:", "LEASE_SECOND", "HTTP_BIND:"}
    assert "did you mean WORKFLOW_RUNS_LEASE_SECONDS?" in told["LEASE_SECOND"]
    assert "0.0.0.0:8080 is not loopback" in told["HTTP_BIND:"]


async def test_a_setting_that_a_role_needs_is_named() -> None:
    [sentence] = await refused(roles="runs")
    assert sentence.startswith("error: WORKFLOW_RUNS_DATABASE_URL is not set")


async def test_an_address_that_is_taken_is_named() -> None:
    with socket.create_server((LOOPBACK, 0)) as taken:
        address = f"{LOOPBACK}:{taken.getsockname()[1]}"
        sentences = await refused(roles="web", http_bind=address, health_bind="")
    assert any(sentence.startswith("error:") and address in sentence for sentence in sentences), sentences


async def test_a_database_without_tables_is_refused_with_the_command_that_makes_them(blank_database_url: str) -> None:
    settings = {"roles": "runs", "database_url": blank_database_url, "http_bind": "", "health_bind": ""}
    sentences = await refused(**settings)
    assert any(s.startswith("error:") and "workflow-runs migrate" in s for s in sentences), sentences
