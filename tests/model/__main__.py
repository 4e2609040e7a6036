"""`python -m tests.model [more] [PART OF A NAME]`: the model check of the waiting line, setup by setup.

With `more` also those that take minutes.  It prints how many states were visited; the exit status is 1 where a promise
is broken, and the steps that lead there are printed.
"""

import sys
import time
from typing import Final

from tests.model.line import Line
from tests.model.setups import MORE, SETUPS

MOST_STATES: Final = 3_000_000


def main(arguments: list[str]) -> int:
    """Return the exit status: 0 when no promise is broken."""
    chosen = SETUPS | MORE if "more" in arguments else SETUPS
    parts = [argument for argument in arguments if argument != "more"]
    broken = 0
    for name, setup in chosen.items():
        if not all(part in name for part in parts):
            continue
        started = time.monotonic()
        try:
            said = f"{Line(setup).explore(MOST_STATES):>9,} states"
        except AssertionError as error:
            broken += 1
            said = f"BROKEN: {error}"
        print(f"{said}  {time.monotonic() - started:6.1f} s  {name}", flush=True)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
