"""Distributed locks and their relatives, on top of `zkwire`."""

from recipes.election import Election, LeaderStream, Term, Terms
from recipes.lease import Lease, LockLostError
from recipes.lock import Lock, ReentrantLock
from recipes.locking import Hold
from recipes.multilock import MultiLease, MultiLock
from recipes.queue import Queue
from recipes.queue_claims import Item
from recipes.rwlock import ReadWriteLock, WriteLease
from recipes.semaphore import PermitsError, Semaphore
from recipes.timed import TimedLease, TimedLock
from recipes.trylock import LockTakenError, TryLock

__all__ = [
    "Election",
    "Hold",
    "Item",
    "LeaderStream",
    "Lease",
    "Lock",
    "LockLostError",
    "LockTakenError",
    "MultiLease",
    "MultiLock",
    "PermitsError",
    "Queue",
    "ReadWriteLock",
    "ReentrantLock",
    "Semaphore",
    "Term",
    "Terms",
    "TimedLease",
    "TimedLock",
    "TryLock",
    "WriteLease",
]
