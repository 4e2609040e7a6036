"""`python -m tests.fuzz --minutes 5 [--seed N] [--target NAME]`: fuzz what decodes bytes and texts of others.

The promise: only documented errors, bounded memory, always progress, and nothing that a plain decoding and encoding
contradicts.  An input that breaks it is printed as a line for tests/fuzz/kept.py, and the exit status is 1.
"""

import argparse
import random
import sys
import time
from typing import Final

from tests.fuzz.engine import Failure, Fuzzer
from tests.fuzz.targets import TARGETS

_TURN: Final = 10.0  # seconds that each target gets at a time


def main(arguments: list[str]) -> int:
    """Return the exit status: 0 when no input has broken a promise."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="fuzz the decoders")
    parser.add_argument("--minutes", type=float, default=5.0, help="for how long, all targets together (default: 5)")
    parser.add_argument("--seed", type=int, default=None, help="the same inputs again; without it, others each time")
    parser.add_argument("--target", choices=TARGETS, action="append", help="only this one; may be given several times")
    options = parser.parse_args(arguments)
    seed = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    every = [Fuzzer(TARGETS[name](), random.Random(f"{seed} {name}")) for name in options.target or TARGETS]
    fuzzers = list(every)
    failures: list[Failure] = []
    started = time.monotonic()
    end = started + options.minutes * 60
    turn = min(_TURN, options.minutes * 60 / len(fuzzers))
    while fuzzers and time.monotonic() < end:
        for fuzzer in list(fuzzers):
            failure = fuzzer.run(seconds=max(0.0, min(turn, end - time.monotonic())))
            if failure is not None:
                fuzzers.remove(fuzzer)  # its other failures may be the same one
                failures.append(failure)
                print(failure, flush=True)
    for fuzzer in every:
        print(f"{fuzzer.target.name:20} {fuzzer.count:>9,} inputs, {fuzzer.kept} kept")
    count, seconds = sum(fuzzer.count for fuzzer in every), time.monotonic() - started
    print(f"{count:,} inputs, {len(failures)} failures in {seconds:.0f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
