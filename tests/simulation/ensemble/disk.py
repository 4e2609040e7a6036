"""A server's disk: what is written is on it after a flush, and what comes during a flush is flushed together.

After SyncRequestProcessor.run and flush of the real server.
"""

from collections.abc import Callable
from typing import Final

from tests.simulation.ensemble.process import Process

_STALLS: Final = 0.01  # how often a flush takes much longer
LONGEST: Final = 80  # and so many times the usual time at most


class Disk:
    """The log of a server in one role.

    Arguments: `process`; `seconds`, how long a flush takes, 0 for no time; `flushed`, called with each zxid whose
    transaction is on the disk.
    """

    def __init__(self, process: Process, seconds: float, flushed: Callable[[int], None]) -> None:
        self._process = process
        self._seconds = seconds
        self._flushed = flushed
        self._waiting: list[int] = []
        self._is_flushing = False

    def write(self, zxid: int) -> None:
        """Write the transaction of that number."""
        if not self._seconds:
            self._flushed(zxid)
            return
        self._waiting.append(zxid)
        if not self._is_flushing:
            self._flush()

    def _flush(self) -> None:
        rng = self._process.world.rng
        seconds = 2 * self._seconds * rng.random()
        if rng.random() < _STALLS:
            seconds *= LONGEST / 2
        batch, self._waiting = self._waiting, []
        self._is_flushing = True
        self._process.after(seconds, self._done, batch)

    def _done(self, batch: list[int]) -> None:
        self._is_flushing = False
        for zxid in batch:
            self._flushed(zxid)
        if self._waiting and not self._is_flushing:
            self._flush()
