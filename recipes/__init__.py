"""Distributed locks and their relatives, on top of `zkwire`."""

from recipes.lease import Lease, LockLostError
from recipes.lock import Lock, ReentrantLock
from recipes.locking import Hold
from recipes.queue import Queue
from recipes.queue_claims import Item

__all__ = ["Hold", "Item", "Lease", "Lock", "LockLostError", "Queue", "ReentrantLock"]
