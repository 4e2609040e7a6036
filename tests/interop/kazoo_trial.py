"""kazoo's client on the server that the first argument names: run by `python -m tests.interop` with kazoo's Python.

It knows kazoo and nothing of zkwire. Each function is a trial with a client of its own; the first that fails ends it.
Requests, watches, transactions and access control are compared with a real server, frame by frame, by
tests/differential.
"""

import queue
import sys
import threading
from importlib import import_module
from typing import Any

# Imported by name, because the type checker has no kazoo.
kazoo_client: Any = import_module("kazoo.client")
states: Any = import_module("kazoo.protocol.states")
caches: Any = import_module("kazoo.recipe.cache")

LIMIT = 20.0

Client = Any


def set_within(event: Any, what: str) -> None:
    assert event.wait(LIMIT), f"{what} did not happen within {LIMIT:g} s"


def cache(zk: Client, hosts: str) -> None:
    zk.create("/t/a/b", b"1", makepath=True)
    ready, seen = threading.Event(), threading.Event()

    def notice(event: Any) -> None:
        if event.event_type == caches.TreeEvent.INITIALIZED:
            ready.set()
        elif event.event_type == caches.TreeEvent.NODE_ADDED and event.event_data.path == "/t/a/c":
            seen.set()

    tree = caches.TreeCache(zk, "/t")
    tree.listen(notice)
    tree.start()
    set_within(ready, "the first fill of the cache")
    assert tree.get_data("/t/a/b").data == b"1"
    zk.create("/t/a/c")
    set_within(seen, "an event of the cache")
    tree.close()


def locks(zk: Client, hosts: str) -> None:
    other = client(hosts)
    holds = threading.Event()

    def contend() -> None:
        with other.Lock("/lock", "other"):
            holds.set()

    lock = zk.Lock("/lock", "one")
    with lock:
        thread = threading.Thread(target=contend)
        thread.start()
        while len(lock.contenders()) < 2:
            assert not holds.is_set()
        assert lock.contenders() == ["one", "other"]
        assert not other.Lock("/lock", "third").acquire(blocking=False)
    set_within(holds, "the other one's turn")
    thread.join(LIMIT)
    with zk.ReadLock("/rw"), other.ReadLock("/rw"):
        assert not zk.WriteLock("/rw").acquire(blocking=False)
    with zk.Semaphore("/sem", max_leases=2), other.Semaphore("/sem", max_leases=2):
        assert not zk.Semaphore("/sem", max_leases=2).acquire(blocking=False)
    stop(other)


def recipes(zk: Client, hosts: str) -> None:
    other = client(hosts)
    counters = zk.Counter("/count"), other.Counter("/count")
    for counter in counters:
        counter += 2
    assert counters[0].value == 4
    things = zk.Queue("/queue")
    things.put(b"later", priority=200)
    things.put(b"now", priority=10)
    assert [things.get(), things.get(), things.get()] == [b"now", b"later", None]
    claims = zk.LockingQueue("/claims")
    claims.put(b"thing")
    assert claims.get(timeout=LIMIT) == b"thing"
    assert claims.consume()
    barrier = zk.Barrier("/barrier")
    barrier.create()
    threading.Timer(0.05, barrier.remove).start()
    assert other.Barrier("/barrier").wait(LIMIT)
    parties = zk.Party("/party", "one"), other.Party("/party", "two")
    for party in parties:
        party.join()
    assert sorted(parties[0]) == ["one", "two"]
    led = threading.Event()
    zk.Election("/election", "one").run(led.set)
    assert led.is_set()
    stop(other)


def sessions(zk: Client, hosts: str) -> None:
    states_seen: queue.Queue[str] = queue.Queue()
    zk.add_listener(states_seen.put)
    zk.create("/session-e", ephemeral=True)
    first, password = zk.client_id

    thief = kazoo_client.KazooClient(hosts, client_id=(first, password), timeout=10.0)
    thief.start(LIMIT)
    assert thief.client_id[0] == first
    stop(thief)  # which ends the session of both
    while states_seen.get(timeout=LIMIT) != states.KazooState.LOST:
        pass
    while states_seen.get(timeout=LIMIT) != states.KazooState.CONNECTED:
        pass
    assert zk.client_id[0] != first
    assert zk.exists("/session-e") is None
    zk.create("/session-e", ephemeral=True)
    zk.restart()  # a new session, and the end of the old one
    assert zk.exists("/session-e") is None


def words(zk: Client, hosts: str) -> None:
    assert zk.command(b"ruok") == "imok"
    assert zk.server_version()[:2] == (3, 9)


def client(hosts: str) -> Client:
    zk = kazoo_client.KazooClient(hosts, timeout=10.0)
    zk.start(LIMIT)
    return zk


def stop(zk: Client) -> None:
    zk.stop()
    zk.close()


def main() -> None:
    hosts = sys.argv[1]
    for trial in (cache, locks, recipes, sessions, words):
        zk = client(hosts)
        trial(zk, hosts)
        stop(zk)
        print(f"  kazoo: {trial.__name__}")


if __name__ == "__main__":
    main()
