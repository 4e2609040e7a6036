"""Distributed locks and their relatives, on top of `zkwire`."""

from recipes.lease import Lease, LockLostError
from recipes.lock import Lock, ReentrantLock
from recipes.locking import Hold
from recipes.rwlock import ReadWriteLock, WriteLease
from recipes.semaphore import PermitsError, Semaphore
from recipes.timed import TimedLease, TimedLock

__all__ = [
    "Hold",
    "Lease",
    "Lock",
    "LockLostError",
    "PermitsError",
    "ReadWriteLock",
    "ReentrantLock",
    "Semaphore",
    "TimedLease",
    "TimedLock",
    "WriteLease",
]
