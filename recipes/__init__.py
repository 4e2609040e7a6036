"""Distributed locks and their relatives, on top of `zkwire`."""

from recipes.cache import Cache, ChangeStream
from recipes.lease import Lease, LockLostError
from recipes.lock import Lock, ReentrantLock
from recipes.locking import Hold
from recipes.mirror import CacheChange

__all__ = ["Cache", "CacheChange", "ChangeStream", "Hold", "Lease", "Lock", "LockLostError", "ReentrantLock"]
