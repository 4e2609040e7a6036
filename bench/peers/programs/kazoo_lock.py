"""kazoo's Lock as a program, run with the Python of an environment that has kazoo."""

import time
from importlib import import_module
from typing import Any

from bench.peers.lines import READY
from bench.peers.worker import serve
from bench.racing import Starter
from bench.turns import SESSION_TIMEOUT, Order, Turn

# Imported by name, because the type checker has no kazoo.
kazoo_client: Any = import_module("kazoo.client")


def race(order: Order, starter: Starter) -> list[Turn]:
    """Run one worker's turns of ``kazoo``."""
    turns = []
    zk = kazoo_client.KazooClient(f"{order.host}:{order.port}", timeout=SESSION_TIMEOUT)
    zk.start(SESSION_TIMEOUT)
    starter.send(READY)
    starter.recv()
    lock = zk.Lock(order.lock)
    for _ in range(order.turns):
        acquire_called = time.monotonic_ns()
        lock.acquire()
        acquired = time.monotonic_ns()
        if order.hold:
            time.sleep(order.hold)
        release_called = time.monotonic_ns()
        lock.release()
        turns.append(Turn(acquire_called, acquired, release_called, time.monotonic_ns(), 0))
    zk.stop()
    zk.close()
    return turns


if __name__ == "__main__":
    serve("kazoo", race)
