"""Distributed locks and their relatives, on top of `zkwire`."""

from recipes.lease import Lease, LockLostError
from recipes.lock import Lock, ReentrantLock
from recipes.locking import Hold

__all__ = ["Hold", "Lease", "Lock", "LockLostError", "ReentrantLock"]
