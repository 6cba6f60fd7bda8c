"""The Makefile's targets run what they say, by their dry run."""

import os
import re
import shutil
import subprocess

import pytest

from tests.docs.markdown import ROOT

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")

TARGETS = set(re.findall(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)[0].split())
RECIPES = {
    "dev": ".venv/bin/workflow-runs dev",
    "demo": ".venv/bin/workflow-runs demo",
    "test": ".venv/bin/python -m pytest",
    "check": ".venv/bin/python -m mypy",
    "bench": ".venv/bin/python -m tests.bench",
    "format": ".venv/bin/python -m ruff format",
    "clean": "rm -rf .venv",
}


# These tests may themselves be run by make, which passes its flags and variables on to every make below it.
PASSED_ON = {"MAKEFLAGS", "MAKELEVEL", "MFLAGS", "ARGS", "JOBS", "KAFKA", "HOLD"}
OUTSIDE_OF_MAKE = {name: value for name, value in os.environ.items() if name not in PASSED_ON}


def make(*arguments: str) -> str:
    done = subprocess.run(
        ["make", *arguments], cwd=ROOT, env=OUTSIDE_OF_MAKE, capture_output=True, text=True, timeout=30, check=True
    )
    return done.stdout


def dry_run(*arguments: str, installed: bool = True) -> str:
    """What make would do, in a checkout that is installed or that was changed since."""
    stamp = ["-o", ".venv/installed"] if installed else ["-W", "pyproject.toml"]
    return make("-n", *stamp, *arguments)


@pytest.mark.parametrize(("target", "recipe"), RECIPES.items())
def test_a_target_runs_its_command(target: str, recipe: str) -> None:
    assert recipe in dry_run(target)


@pytest.mark.parametrize("target", sorted(TARGETS - {"help", "clean"}))
def test_what_runs_the_product_installs_it_first(target: str) -> None:
    remade = dry_run(target, installed=False)
    assert "-m venv .venv" not in dry_run(target)
    assert remade.index("-m venv .venv") < remade.index(dry_run(target))


def test_hold_and_args_are_passed_on() -> None:
    assert dry_run("demo", "HOLD=1").split() == [".venv/bin/workflow-runs", "demo", "--hold"]
    assert dry_run("test", "ARGS=-k intake", "JOBS=3").split()[:5] == [".venv/bin/python", "-m", "pytest", "-n", "3"]
    assert dry_run("test", "ARGS=-k intake").split()[-2:] == ["-k", "intake"]


def test_help_lists_every_target() -> None:
    assert set(re.findall(r"^make ([a-z]+) ", make("help"), re.MULTILINE)) == TARGETS
