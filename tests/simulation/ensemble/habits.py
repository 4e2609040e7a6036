"""How the servers of a run work, where real ones differ with their machines, their load and their settings."""

from dataclasses import dataclass
from random import Random
from typing import Any, Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """Times in seconds.  Without any, all is done at once, and what takes long is left out.

    Arguments: `flush`, how long the disk takes for a transaction, see disk.py; `bucket`, how long at the most the
    leader ends the sessions of other clients before it ends the next one of ours, of those that are due together;
    `handover`, how long at the most a session that is being ended waits for the thread that closes it; `ordering`, how
    long at the most a request waits for the thread of the leader that orders it; `stall`, how
    long at the most an overloaded server keeps requests before it refuses some; `haste`, how likely a process that was
    stopped handles a timer first, and not what has come meanwhile; `idle`, the moments at which idle connections are
    closed, 0 for at once; `containers`, how often empty ones are deleted, 0 for never; `drift`, by how much the
    servers' clocks differ per second; `sleeps`, whether a server that is stopped is suspended, so that its clock stands
    still.
    """

    flush: float = 0.0
    bucket: float = 0.0
    handover: float = 0.0
    ordering: float = 0.0
    stall: float = 0.0
    haste: float = 1.0
    idle: float = 0.0
    containers: float = 0.0
    drift: float = 0.0
    sleeps: bool = False

    @property
    def ending(self) -> float:
        """How long at the most a session that is due waits until others are ended, which broken connections left."""
        return _MOST_LEFT * self.bucket


_MOST_LEFT: Final = 40  # sessions
_IDLE: Final = 10.0  # NIOServerCnxnFactory: the interval of cnxnExpiryQueue is zookeeper.nio.sessionlessCnxnTimeout


def random_habits(rng: Random) -> dict[str, Any]:
    """Return the arguments of some habits."""
    return {
        "flush": rng.choice([0.0, 0.0, 0.001, 0.01, 0.05]),
        "bucket": rng.choice([0.0, 0.0001, 0.01, 0.2, 1.0, 3.0]),
        "handover": rng.choice([0.0, 0.0001, 0.005, 0.2, 1.0]),
        "ordering": rng.choice([0.0, 0.0, 0.0001, 0.005, 0.05]),
        "stall": rng.choice([0.0, 0.02, 0.3, 2.0]),
        "haste": rng.choice([1.0, 0.5, 0.1]),
        "idle": rng.choice([0.0, _IDLE, _IDLE]),
        "containers": rng.choice([0.0, 0.0, 0.2, 1.0, 10.0]),
        # The promise assumes clocks of one speed; so much is less than what the shortest way of a request takes.
        "drift": rng.choice([0.0, 1e-5]),
        "sleeps": rng.random() < 0.3,
    }
