"""kazoo's Queue and LockingQueue as programs: `python -m bench.peers.programs.queue_kazoo LockingQueue get`.

Run with the Python of an environment that has kazoo; see bench/peers/queues.py.
"""

import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

from bench.peers.lines import READY
from bench.peers.worker import serve
from bench.racing import Starter
from bench.turns import ITEM, ITEMS_AT_ONCE, SESSION_TIMEOUT, Order, Turn

# Imported by name, because the type checker has no kazoo.
kazoo_client: Any = import_module("kazoo.client")


def _get(queue: Any) -> None:
    """Take an item; `get` returns None, too, when other clients took those that it knew."""
    while queue.get() is None:
        pass


def _get_and_consume(queue: Any) -> None:
    queue.get()
    queue.consume()


def _fill(queue: Any) -> None:
    """Put many items; kazoo's Queue has no method for it, so they are created as its `put` creates one."""
    creates = [queue.client.create_async(f"{queue.path}/entry-100-", ITEM, sequence=True) for _ in range(ITEMS_AT_ONCE)]
    for create in creates:
        create.get()


OPERATIONS: Final[dict[tuple[str, str], Callable[[Any], object]]] = {
    ("Queue", "fill"): _fill,
    ("Queue", "put"): lambda queue: queue.put(ITEM),
    ("Queue", "get"): _get,
    ("LockingQueue", "fill"): lambda queue: queue.put_all([ITEM] * ITEMS_AT_ONCE),
    ("LockingQueue", "put"): lambda queue: queue.put(ITEM),
    ("LockingQueue", "get"): _get_and_consume,
}


def race(order: Order, starter: Starter) -> list[Turn]:
    """Do the work of one process."""
    kind, verb = order.contestant.split()
    operation, turns = OPERATIONS[kind, verb], []
    zk = kazoo_client.KazooClient(f"{order.host}:{order.port}", timeout=SESSION_TIMEOUT)
    zk.start(SESSION_TIMEOUT)
    zk.ensure_path(order.lock)
    queue = getattr(zk, kind)(order.lock)
    starter.send(READY)
    starter.recv()
    for _ in range(order.turns):
        called = time.monotonic_ns()
        operation(queue)
        done = time.monotonic_ns()
        turns.append(Turn(called, done, done, done, 0))
    zk.stop()
    zk.close()
    return turns


if __name__ == "__main__":
    serve(" ".join(sys.argv[1:]), race)
