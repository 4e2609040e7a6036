"""Distributed locks and their relatives, on top of `zkwire`."""

from recipes.barrier import Barrier, DoubleBarrier
from recipes.cache import Cache, ChangeStream
from recipes.counter import Counter
from recipes.election import Election, LeaderStream, Term, Terms
from recipes.group import Group, Member
from recipes.lease import Lease, LockLostError
from recipes.lock import Lock, ReentrantLock
from recipes.locking import Hold
from recipes.mirror import CacheChange
from recipes.multilock import MultiLease, MultiLock
from recipes.partitioner import Partitioner
from recipes.persistent_ephemeral import PersistentEphemeral
from recipes.queue import Queue
from recipes.queue_claims import Item
from recipes.rwlock import ReadWriteLock, WriteLease
from recipes.semaphore import PermitsError, Semaphore
from recipes.shared_value import SharedValue
from recipes.timed import TimedLease, TimedLock
from recipes.trylock import LockTakenError, TryLock

__all__ = [
    "Barrier",
    "Cache",
    "CacheChange",
    "ChangeStream",
    "Counter",
    "DoubleBarrier",
    "Election",
    "Group",
    "Hold",
    "Item",
    "LeaderStream",
    "Lease",
    "Lock",
    "LockLostError",
    "LockTakenError",
    "Member",
    "MultiLease",
    "MultiLock",
    "Partitioner",
    "PermitsError",
    "PersistentEphemeral",
    "Queue",
    "ReadWriteLock",
    "ReentrantLock",
    "Semaphore",
    "SharedValue",
    "Term",
    "Terms",
    "TimedLease",
    "TimedLock",
    "TryLock",
    "WriteLease",
]
