"""Distributed locks and their relatives, on top of `zkwire`."""

from recipes.barrier import Barrier
from recipes.cache.cache import Cache, ChangeStream
from recipes.cache.mirror import CacheChange
from recipes.counter import Counter, CounterStream
from recipes.double_barrier.double_barrier import DoubleBarrier
from recipes.election import Election, LeaderStream, Term, Terms
from recipes.group import Group, Member, MembersStream
from recipes.line.contenders import Contender
from recipes.line.lease import Lease, LockLostError
from recipes.line.locking import Hold
from recipes.lock import Lock, ReentrantLock
from recipes.multi_lock import MultiLease, MultiLock
from recipes.only_one import only_one
from recipes.partitioner import Partitioner
from recipes.persistent_ephemeral import PersistentEphemeral
from recipes.queue.attempts import FailedItem
from recipes.queue.claims import Item
from recipes.queue.queue import Queue
from recipes.read_write_lock import ReadWriteLock, WriteLease
from recipes.semaphore import PermitsError, Semaphore
from recipes.shared_value import SharedValue, SharedValueStream
from recipes.timed_lock import TimedLease, TimedLock
from recipes.try_lock import LockTakenError, TryLock

__all__ = [
    "Barrier",
    "Cache",
    "CacheChange",
    "ChangeStream",
    "Contender",
    "Counter",
    "CounterStream",
    "DoubleBarrier",
    "Election",
    "FailedItem",
    "Group",
    "Hold",
    "Item",
    "LeaderStream",
    "Lease",
    "Lock",
    "LockLostError",
    "LockTakenError",
    "Member",
    "MembersStream",
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
    "SharedValueStream",
    "Term",
    "Terms",
    "TimedLease",
    "TimedLock",
    "TryLock",
    "WriteLease",
    "only_one",
]
