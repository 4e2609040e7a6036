"""Distributed locks and their relatives, on top of `zkwire`."""

from recipes.barrier import Barrier, DoubleBarrier
from recipes.counter import Counter
from recipes.group import Group, Member
from recipes.lease import Lease, LockLostError
from recipes.lock import Lock, ReentrantLock
from recipes.locking import Hold
from recipes.partitioner import Partitioner
from recipes.persistent_ephemeral import PersistentEphemeral
from recipes.shared_value import SharedValue

__all__ = [
    "Barrier",
    "Counter",
    "DoubleBarrier",
    "Group",
    "Hold",
    "Lease",
    "Lock",
    "LockLostError",
    "Member",
    "Partitioner",
    "PersistentEphemeral",
    "ReentrantLock",
    "SharedValue",
]
