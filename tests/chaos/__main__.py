"""`python -m tests.chaos`: does every recipe keep its promises while a real ensemble and its clients are disturbed?

Three servers and an observer, eight client processes on all recipes at once; servers and clients are killed, stopped
and restarted, links are cut, stalled and delayed.  Afterwards the history is checked.  docs/reliability.md says what is
promised.  The exit status is 0 without a violation, 1 with one, 2 when the run itself has failed.

With `--broken NAME` the recipes are broken on purpose, and the run must find a violation.
"""

import argparse
import asyncio
import logging
import math
import random
import signal
import sys
import time
from pathlib import Path
from typing import Final

from tests.chaos.arena import in_memory
from tests.chaos.broken import BROKEN
from tests.chaos.report import report
from tests.chaos.run import Plan, play
from zkwire.testing import ServerFailedError

ROOT: Final = Path(__file__).resolve().parents[2]
ROUND: Final = 300.0  # seconds; a longer run consists of rounds, each with an ensemble and a history of its own


def main() -> int:
    """Return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="for how long to play faults (default: 5)")
    parser.add_argument("--seed", help="play the faults of this seed; a run prints its seed")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--broken", choices=sorted(BROKEN), help="break the recipes on purpose")
    parser.add_argument("--in-memory", action="store_true", help="one server in memory, which has no faults itself")
    parser.add_argument("--logs", type=Path, default=ROOT / "build" / "chaos", help="the folder of the logs")
    options = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)
    try:
        return asyncio.run(_main(options))
    except (KeyboardInterrupt, asyncio.CancelledError):  # the latter by SIGTERM
        return 2


async def _main(options: argparse.Namespace) -> int:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    seed = options.seed or f"{random.randrange(1 << 32):08x}"
    seconds = 60 * options.minutes
    try:
        status = 0
        for number in range(math.ceil(seconds / ROUND)):
            if not status:
                its_seed = seed if number == 0 else f"{seed}-{number + 1}"
                status = await _round(options, its_seed, min(seconds - number * ROUND, ROUND))
        return status
    except* ServerFailedError as group:  # of the tasks that play faults
        print(f"a server has failed: {group.exceptions[0]}", file=sys.stderr)
    return 2


async def _round(options: argparse.Namespace, seed: str, seconds: float) -> int:
    broken = (options.broken,) if options.broken else ()
    folder = options.logs / time.strftime(f"%m%d-%H%M%S-{seed}")
    print(f"seed {seed}: {seconds:g} s of faults; the log will be {folder}/history.log", flush=True)
    plan = Plan(seed, seconds, folder, options.clients, broken)
    outcome = await play(plan, in_memory() if options.in_memory else None)
    for line in report(outcome):
        print(line, flush=True)
    return 1 if outcome.violations else 0


if __name__ == "__main__":
    sys.exit(main())
