"""`python -m tests.partition`: is a lease ever certain while another client owns, however an ensemble is split?

Plays every topology on real ensembles of three servers and an observer, with stalled links, prints a line for each and
exits with 1 if two leases were certain at a time, or a body was still running when the next client owned.
"""

import argparse
import asyncio
import itertools
import logging
import sys
from typing import Final, get_args

from tests.support.partition import Fault, Home, Outcome, Trial
from tests.support.split import SplitEnsemble
from zkwire.testing import ServerFailedError

TIMEOUTS: Final = (4.0, 7.0, 10.0)


def main() -> int:
    """Return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.partition", description=__doc__)
    parser.add_argument("--timeouts", type=float, nargs="+", default=TIMEOUTS, help="session timeouts, in seconds")
    parser.add_argument("--homes", nargs="+", default=get_args(Home), choices=get_args(Home))
    parser.add_argument("--faults", nargs="+", default=get_args(Fault), choices=get_args(Fault))
    parser.add_argument("--observers", type=int, default=1)
    options = parser.parse_args()
    logging.disable()  # what clients say of lost connections would tear the table apart
    trials = [
        Trial(timeout, home, fault, knows_all)
        for timeout, home, fault, knows_all in itertools.product(
            options.timeouts, options.homes, options.faults, (False, True)
        )
        if home != "leader" or fault != "both"  # the same as "leader cut off"
    ]
    return asyncio.run(play(trials, options.observers))


async def play(trials: list[Trial], observers: int) -> int:
    """Play all trials, each on an ensemble of its own; return the exit status."""
    print("T     home      fault           knows   overlap  body ended  next owned", flush=True)
    failed = 0
    for number, trial in enumerate(trials):
        try:
            outcome = await play_one(trial, number, observers)
        except ServerFailedError as error:  # on a busy machine a server may take too long to start: no fault of a lock
            print(f"this ensemble did not start, here is another one: {str(error).splitlines()[0]}")
            outcome = await play_one(trial, number, observers)
        bad = outcome.overlap > 0 or outcome.was_running
        failed += bad
        print(line(trial, outcome), "<- FAILED" if bad else "", flush=True)
    print(f"{len(trials) - failed} passed, {failed} failed")
    return 1 if failed else 0


async def play_one(trial: Trial, number: int, observers: int) -> Outcome:
    """Play `trial` on an ensemble of its own."""
    async with SplitEnsemble(observers=observers if trial.home == "observer" else 0) as ensemble:
        return await trial.run(ensemble, f"/partition-{number}")


def line(trial: Trial, outcome: Outcome) -> str:
    """Return the line of the table for a trial."""
    ended, owned = ("-" if moment is None else f"{moment:.1f} s" for moment in (outcome.body_ended, outcome.next_owned))
    knows = "all" if trial.knows_all else "one"
    return (
        f"{trial.timeout:<5g} {trial.home:<9} {trial.fault:<15} {knows:<7} {outcome.overlap:>5.2f} s"
        f" {ended:>11} {owned:>11}"
    )


if __name__ == "__main__":
    sys.exit(main())
