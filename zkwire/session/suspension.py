"""How long the machine was suspended: time that the event loop's clock leaves out and the servers' clocks do not.

The one place outside of the event loop where zkwire reads a clock, so that a simulation can replace it.
"""

from __future__ import annotations

import time
from typing import Final

_BOOT_CLOCK: Final[int | None] = getattr(time, "CLOCK_BOOTTIME", None)


def suspended() -> float:
    """Return for how many seconds the machine has been suspended since it was started.

    Only differences between two calls mean anything.  Always 0 where the system has no such clock: on Linux it has.
    """
    if _BOOT_CLOCK is None:
        return 0.0
    return time.clock_gettime(_BOOT_CLOCK) - time.monotonic()
