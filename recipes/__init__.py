"""Distributed locks and their relatives, on top of `zkwire`."""

import importlib
import typing

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

if typing.TYPE_CHECKING:
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
    from recipes.one_worker import only_one
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
else:
    # A program uses few of the recipes: each is imported with the first use of its name.
    _HOMES = {
        "barrier": "Barrier",
        "cache.cache": "Cache ChangeStream",
        "cache.mirror": "CacheChange",
        "counter": "Counter CounterStream",
        "double_barrier.double_barrier": "DoubleBarrier",
        "election": "Election LeaderStream Term Terms",
        "group": "Group Member MembersStream",
        "line.contenders": "Contender",
        "line.lease": "Lease LockLostError",
        "line.locking": "Hold",
        "lock": "Lock ReentrantLock",
        "multi_lock": "MultiLease MultiLock",
        "one_worker": "only_one",
        "partitioner": "Partitioner",
        "persistent_ephemeral": "PersistentEphemeral",
        "queue.attempts": "FailedItem",
        "queue.claims": "Item",
        "queue.queue": "Queue",
        "read_write_lock": "ReadWriteLock WriteLease",
        "semaphore": "PermitsError Semaphore",
        "shared_value": "SharedValue SharedValueStream",
        "timed_lock": "TimedLease TimedLock",
        "try_lock": "LockTakenError TryLock",
    }

    def __getattr__(name):
        for module, names in _HOMES.items():
            if name in names.split():
                globals()[name] = found = getattr(importlib.import_module(f"recipes.{module}"), name)
                return found
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__():
        return sorted({*globals(), *__all__})
