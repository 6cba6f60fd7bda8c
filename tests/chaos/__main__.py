"""`python -m tests.chaos [--minutes 2] [--seed N]`: prints its seed, a line of progress, and the ledger at the end."""

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tests.chaos.run import Outcome, Plan, run_chaos


def main() -> int:
    """Run and return the exit code: 0 when every promise held and the ledger adds up."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description="Kills and outages under load.")
    parser.add_argument("--minutes", type=float, default=2.0, help="how long it lasts (default: 2)")
    parser.add_argument("--seed", type=int, help="the choices of an earlier run (default: new ones)")
    parser.add_argument("--workers", type=int, default=3, help="how many workers (default: 3)")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    print(f"seed {seed}", flush=True)
    plan = Plan(seed, options.minutes * 60, workers=options.workers)
    folder = Path(tempfile.mkdtemp(prefix="workflow-runs-chaos-"))
    outcome = asyncio.run(run_chaos(plan, folder, lambda line: print(line, flush=True)))
    _print(outcome, seed)
    if outcome.problems:
        print(f"the logs of the workers are in {folder}")
    else:
        shutil.rmtree(folder)
    return 1 if outcome.problems else 0


def _print(outcome: Outcome, seed: int) -> None:
    for name, figure in outcome.figures.items():
        print(f"{figure:8d} {name}")
    for problem in outcome.problems:
        print(f"PROBLEM {problem}")
    print(f"seed {seed}: {'it does not add up' if outcome.problems else 'every promise held, and the ledger adds up'}")


if __name__ == "__main__":
    sys.exit(main())
