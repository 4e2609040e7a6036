"""Distributed locks and their relatives, on top of `zkwire`."""

from recipes.lease import Hold, Lease, LockLostError
from recipes.lock import Lock, ReentrantLock

__all__ = ["Hold", "Lease", "Lock", "LockLostError", "ReentrantLock"]
