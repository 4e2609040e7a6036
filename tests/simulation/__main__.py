"""`python -m tests.simulation`: play many schedules, print those that fail, and shorten them.

    python -m tests.simulation --seeds 10000                     each scenario in turn, 10,000 schedules in all
    python -m tests.simulation --scenario lock --first 4711 --seeds 1
    python -m tests.simulation --play tests/simulation/kept/some.json

The exit status is 1 if a schedule has failed.  A failing schedule is printed as it was and shortened, and last as the
JSON text that `--play` reads: keep it in tests/simulation/kept/, under a name that says what was wrong.

How to add a scenario: a module in tests/simulation/scenarios/ with a subclass of Scenario (see scenario.py).  The class
says what steps are drawn for one player (`kinds` and what follows it), what it needs (`equip`), how a step is done (a
method `do_...` for each kind), which nodes must be gone at the end (`left`), and what is checked: `Guard` in checks.py
for all that is held, and anything else by `self.stage.fail(...)`.  Everything runs in the players' event loops and in
virtual time: no real clock, no thread, no randomness but from `player.rng`.  scenarios/lock.py is the pattern for what
is held, scenarios/client.py for checks of another kind.  Run it alone by `--scenario NAME`.

How to add a fault: see faults.py.  How to add a siege, in which faults come together at the worst time: see sieges.py.
"""

import argparse
import gc
import itertools
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Final

from tests.simulation.play import Outcome, make, play, shortened
from tests.simulation.scenarios.all import SCENARIOS
from tests.simulation.schedule import Schedule, from_json
from tests.simulation.stage import simulated

_CHUNK: Final = 50
_MOST_SHOWN: Final = 5  # failures that are shortened and printed in full


def main() -> int:
    """Return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=1000, help="how many schedules to play")
    parser.add_argument("--first", type=int, default=0, help="the number of the first schedule of each scenario")
    parser.add_argument("--scenario", nargs="+", default=list(SCENARIOS), choices=list(SCENARIOS))
    parser.add_argument(
        "--processes", type=int, default=os.cpu_count() or 1, help="how many (default: one for each CPU)"
    )
    parser.add_argument("--play", type=Path, metavar="FILE", help="play the schedule in this file instead")
    options = parser.parse_args()
    if options.play is not None:
        return _play_file(options.play)
    started = time.monotonic()
    each, more = divmod(options.seeds, len(options.scenario))
    jobs = [
        (name, options.first + start, min(_CHUNK, count - start))
        for name, count in zip(
            options.scenario, itertools.chain([each + 1] * more, itertools.repeat(each)), strict=False
        )
        for start in range(0, count, _CHUNK)
    ]
    jobs.sort(key=lambda job: job[1])  # all scenarios side by side, so that a run that is stopped has tried each
    failed: list[tuple[str, int, str]] = []
    cpu: dict[str, float] = dict.fromkeys(options.scenario, 0.0)
    counts = Counter(dict.fromkeys(options.scenario, 0))
    rare: Counter[str] = Counter()
    with ProcessPoolExecutor(options.processes) as pool:
        for (chunk, _, count), (found, seen, took) in zip(
            jobs, pool.map(_play_chunk, *zip(*jobs, strict=True)), strict=True
        ):
            cpu[chunk] += took
            counts[chunk] += count
            rare += seen
            for name, number, failure in found:
                failed.append((name, number, failure))
                print(f"FAILED: {name} {number}: {failure}", flush=True)
    seconds = time.monotonic() - started
    for name, count in counts.items():
        if count:
            print(f"{name:16} {count:7} schedules, {count / cpu[name]:5.1f} in each second of CPU")
    print("rare and dangerous, with the share of schedules that had it:")
    for what, count in sorted(rare.items(), key=lambda each: -each[1]):
        print(f"{100 * count / options.seeds:6.2f} %  {what}")
    print(
        f"{options.seeds} schedules in {seconds:.1f} s, {options.seeds / seconds:.0f} each second, "
        f"{options.seeds / sum(cpu.values()):.1f} in each second of CPU: {len(failed)} failed"
    )
    for name, number, _ in failed[:_MOST_SHOWN]:
        _show(make(name, number))
    return 1 if failed else 0


def _play_chunk(name: str, first: int, count: int) -> tuple[list[tuple[str, int, str]], Counter[str], float]:
    """Return what has failed, in how many schedules each rare thing happened, and how many seconds of CPU it took."""
    seen: Counter[str] = Counter()
    started = time.process_time()
    gc.collect()
    gc.freeze()  # the modules need not be visited each time
    with simulated():
        found = list(failures(name, range(first, first + count), seen))
    return found, seen, time.process_time() - started


def failures(name: str, numbers: Iterable[int], seen: Counter[str] | None = None) -> Iterable[tuple[str, int, str]]:
    """Play the schedules of these numbers; yield the scenario, the number and the failure of each that fails.

    Arguments: `seen`, which counts the schedules in which each rare thing happened.
    """
    for number in numbers:
        outcome = play(make(name, number), collect=True)
        if seen is not None:
            seen.update(outcome.seen)
        if outcome.failure is not None:
            yield name, number, outcome.failure


def _show(schedule: Schedule) -> None:
    with simulated():
        print(f"\n{schedule}\n-> {play(schedule).failure}\n\nshortened:")
        short = shortened(schedule)
        print(f"{short}\n-> {play(short).failure}\n{short.to_json()}", flush=True)


def _play_file(path: Path) -> int:
    schedule = from_json(path.read_text(encoding="utf-8"))
    with simulated():
        outcome: Outcome = play(schedule)
    print(f"{schedule}\n-> {outcome.failure or 'passed'}")
    return 1 if outcome.failure else 0


if __name__ == "__main__":
    sys.exit(main())
