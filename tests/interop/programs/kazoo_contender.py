"""kazoo's recipes, as a contender of tests/interop/lines.py; contenders.py describes the orders and answers.

Run with kazoo's Python.  With `--named-as-curator` its tickets of a lock have a name that Curator reads.
"""

import sys
import time
from importlib import import_module
from typing import Any

# Imported by name, because the type checker has no kazoo.
kazoo_client: Any = import_module("kazoo.client")
kazoo_lock: Any = import_module("kazoo.recipe.lock")

LIMIT = 20.0

# A lock with ticket names that clients understand which know only Curator's names.
NamedAsCurator: Any = type("NamedAsCurator", (kazoo_lock.Lock,), {"_NODE_NAME": "-lock-"})


def lock_for(recipe: str, zk: Any, path: str) -> Any:
    """Return a lock that sees the tickets of the other clients."""
    if recipe == "lead":
        election = zk.Election(path)
        election.lock = zk.Lock(path, extra_lock_patterns=["latch-"])  # an Election has no such argument
        return election.lock
    if recipe == "read":
        return zk.ReadLock(path, extra_lock_patterns=["__WRIT__"])
    if recipe == "write":
        return zk.WriteLock(path, extra_lock_patterns=["__WRIT__", "__READ__"])
    kind = NamedAsCurator if "--named-as-curator" in sys.argv else kazoo_lock.Lock
    return kind(zk, path, extra_lock_patterns=["lock-"])


def turn(zk: Any, recipe: str, path: str, notes: str, item: str, name: str) -> None:
    """Carry out one round of an order."""
    if recipe == "add":
        counter = zk.Counter(path, support_curator=True)
        counter += 1
    elif recipe == "put":
        zk.LockingQueue(path).put(item.encode())
    elif recipe == "take":
        queue = zk.LockingQueue(path)
        zk.create(f"{notes}/{queue.get().decode()}")
        assert queue.consume()
    else:
        with lock_for(recipe, zk, path):
            before, _ = zk.get(notes)
            if recipe == "read":
                time.sleep(0.002)
                assert zk.get(notes)[0] == before, "another client has written while we held the lock for reading"
            else:
                zk.set(notes, before + f"{name}\n".encode())


def main() -> None:
    zk = kazoo_client.KazooClient(sys.argv[-1], timeout=10.0)
    zk.start(LIMIT)
    print("ready", flush=True)
    for line in sys.stdin:
        recipe, path, notes, rounds, name = line.split()
        for number in range(int(rounds)):
            turn(zk, recipe, path, notes, f"{name}-{number}", name)
        print("lacking" if recipe == "add8" else "done", flush=True)
    zk.stop()
    zk.close()


if __name__ == "__main__":
    main()
