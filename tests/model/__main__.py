"""`python -m tests.model [more] [PART OF A NAME]`: the models of the waiting line and of certainty, setup by setup.

With `more` also those that take minutes.  It prints how many states were visited; the exit status is 1 where a promise
is broken, and the steps that lead there are printed.
"""

import sys
import time
from typing import Final

from tests.model.ensemble import Ensemble
from tests.model.line import Line
from tests.model.setups import MORE, MORE_TIMES, SETUPS, TIMES

MOST_STATES: Final = 3_000_000


def main(arguments: list[str]) -> int:
    """Return the exit status: 0 when no promise is broken."""
    setups, times = (SETUPS | MORE, TIMES | MORE_TIMES) if "more" in arguments else (SETUPS, TIMES)
    models: dict[str, Line | Ensemble] = {name: Line(setup) for name, setup in setups.items()}
    models |= {name: Ensemble(each) for name, each in times.items()}
    parts = [argument for argument in arguments if argument != "more"]
    broken = 0
    for name, model in models.items():
        if not all(part in name for part in parts):
            continue
        started = time.monotonic()
        try:
            said = f"{model.explore(MOST_STATES):>9,} states"
        except AssertionError as error:
            broken += 1
            said = f"BROKEN: {error}"
        print(f"{said}  {time.monotonic() - started:6.1f} s  {name}", flush=True)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
