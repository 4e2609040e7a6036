"""The share of the processors' time that the host of a virtual machine took, where the kernel reports it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

_STAT: Final = Path("/proc/stat")
_STEAL: Final = 7  # index after user, nice, system, idle, iowait, irq and softirq
_KINDS: Final = 8  # the columns after these are already counted as user time


def processor_times() -> list[int]:
    """Return the times of all processors together by kind, since the start of the machine; [] if there are none."""
    if not _STAT.exists():
        return []
    first, *_ = _STAT.read_text(encoding="ascii").splitlines()
    return [int(number) for number in first.split()[1 : 1 + _KINDS]]


def stolen(before: Sequence[int], after: Sequence[int]) -> float | None:
    """Return the share, 0 to 1, that the host took between two `processor_times`; None if unknown."""
    spent = [late - early for early, late in zip(before, after, strict=True)]
    if len(spent) < _KINDS or not sum(spent):
        return None
    return spent[_STEAL] / sum(spent)
