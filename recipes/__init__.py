"""Distributed locks and their relatives, on top of `zkwire`."""

from recipes.election import Election, LeaderStream, Term, Terms
from recipes.lease import Lease, LockLostError
from recipes.lock import Lock, ReentrantLock
from recipes.locking import Hold
from recipes.multilock import MultiLease, MultiLock
from recipes.trylock import LockTakenError, TryLock

__all__ = [
    "Election",
    "Hold",
    "LeaderStream",
    "Lease",
    "Lock",
    "LockLostError",
    "LockTakenError",
    "MultiLease",
    "MultiLock",
    "ReentrantLock",
    "Term",
    "Terms",
    "TryLock",
]
