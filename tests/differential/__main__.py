"""`python -m tests.differential --minutes N`: compare the in-memory server with a real one for N minutes."""

import argparse
import random
import sys
import time

from tests.differential.play import Different
from tests.differential.trial import Trial, real_side

SCRIPTS_A_ROUND = 250  # then a fresh real server is started: the nodes of old scripts stay on it


def main() -> int:
    """Return the exit status: 1 when a difference was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="how long to search (default: 5)")
    parser.add_argument("--seed", type=int, default=None, help="play one round from the seed that a failed one printed")
    options = parser.parse_args()
    end = time.monotonic() + options.minutes * 60
    operations = rounds = 0
    while rounds == 0 or (options.seed is None and time.monotonic() < end):
        number = random.randrange(1 << 32) if options.seed is None else options.seed
        with real_side() as real:
            trial = Trial(real)
            try:
                trial.search(SCRIPTS_A_ROUND, number)
            except Different:
                print(f"a difference, from --seed {number}:", file=sys.stderr)
                raise
        operations += trial.operations
        rounds += 1
        print(f"round {rounds}, seed {number}: {trial.operations} operations, {operations} in all", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
