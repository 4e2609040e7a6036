"""`python -m tests.chaos`: does every recipe keep its promises while a real ensemble and its clients are disturbed?

Three servers and an observer, eight client processes on all recipes at once; servers and clients are killed, stopped
and restarted, links are cut, stalled and delayed.  Afterwards the history is checked.  docs/reliability.md says what is
promised.  The exit status is 0 without a violation, 1 with one, 2 when the run itself has failed.

With `--broken NAME` the recipes are broken on purpose, and the run must find a violation; with `--broken all` each
fault is put in, one after the other, and the exit status is 0 when each was caught.
"""

import argparse
import asyncio
import logging
import random
import signal
import sys
import time
from pathlib import Path
from typing import Final

from tests.chaos.arena import in_memory
from tests.chaos.broken import BROKEN
from tests.chaos.report import report
from tests.chaos.run import Outcome, Plan, play
from zkwire.testing import ServerFailedError

ROOT: Final = Path(__file__).resolve().parents[2]
ROUND: Final = 300.0  # seconds; a longer run consists of rounds, each with an ensemble and a history of its own


def main() -> int:
    """Return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="for how long to play faults (default: 5)")
    parser.add_argument("--seed", help="play the faults of this seed; a run prints its seed")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--broken", choices=[*sorted(BROKEN), "all"], help="break the recipes on purpose")
    parser.add_argument("--in-memory", action="store_true", help="one server in memory, which has no faults itself")
    parser.add_argument("--logs", type=Path, default=ROOT / "build" / "chaos", help="the folder of the logs")
    options = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)
    try:
        return asyncio.run(_main(options))
    except KeyboardInterrupt:
        return 2
    except asyncio.CancelledError:
        return 2  # by SIGTERM


async def _main(options: argparse.Namespace) -> int:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    if options.broken == "all":
        return await _each_broken(options)
    left, status = 60 * options.minutes, 0
    first = seed = options.seed or f"{random.randrange(1 << 32):08x}"
    number = 1
    while left > 0 and not status:
        seconds = min(left, ROUND)
        status = await _round(options, seed, seconds)
        left -= seconds
        number += 1
        seed = f"{first}-{number}"
    return status


async def _each_broken(options: argparse.Namespace) -> int:
    """Put in one fault after the other, each for the minutes given; return 1 if one was not caught."""
    missed = []
    for name in BROKEN:
        seed = options.seed or f"{random.randrange(1 << 32):08x}"
        plan = Plan(seed, 60 * options.minutes, _folder(options, f"{seed}-{name}"), options.clients, (name,))
        try:
            found = (await _played(options, plan)).violations
        except ServerFailedError as failure:
            print(f"{name}: a server has failed: {failure}", file=sys.stderr)
            return 2
        if not found:
            missed.append(name)
        verdict = f"caught, {len(found)} violations; the first: {found[0].name}: {found[0].text}" if found else "MISSED"
        print(f"{name}, seed {seed}: {verdict}", flush=True)
    print(f"{len(BROKEN) - len(missed)} of {len(BROKEN)} caught")
    return 1 if missed else 0


async def _round(options: argparse.Namespace, seed: str, seconds: float) -> int:
    folder = _folder(options, seed)
    print(f"seed {seed}: {seconds:g} s of faults; the log will be {folder}/history.log", flush=True)
    broken = (options.broken,) if options.broken else ()
    plan = Plan(seed, seconds, folder, options.clients, broken)
    try:
        outcome = await _played(options, plan)
    except ServerFailedError as failure:
        print(f"a server has failed: {failure}", file=sys.stderr)
        return 2
    for line in report(outcome):
        print(line, flush=True)
    return 1 if outcome.violations else 0


def _folder(options: argparse.Namespace, name: str) -> Path:
    logs: Path = options.logs
    return logs / time.strftime(f"%m%d-%H%M%S-{name}")


async def _played(options: argparse.Namespace, plan: Plan) -> Outcome:
    """Play a run.

    Raises:
        ServerFailedError: if a server does not start.
    """
    try:
        return await play(plan, in_memory() if options.in_memory else None)
    except ExceptionGroup as group:  # of the tasks that play faults
        cause: Exception = group
        while isinstance(cause, ExceptionGroup):
            cause = cause.exceptions[0]
        raise cause from None


if __name__ == "__main__":
    sys.exit(main())
