"""kazoo's client on the server that the first argument names: run by `python -m tests.interop` with kazoo's Python.

It knows kazoo and nothing of zkwire. Each function is a trial with a client of its own; the first that fails ends it.
Transactions and access control are compared with a real server, frame by frame, by tests/differential.
"""

import queue
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from typing import Any

# Imported by name, because the type checker has no kazoo.
kazoo_client: Any = import_module("kazoo.client")
errors: Any = import_module("kazoo.exceptions")
states: Any = import_module("kazoo.protocol.states")
caches: Any = import_module("kazoo.recipe.cache")

LIMIT = 20.0

Client = Any


def raises(kind: type[Exception], call: Callable[..., object], *args: object, **kwargs: object) -> None:
    try:
        call(*args, **kwargs)
    except kind:
        return
    raise AssertionError(f"{call} did not raise {kind.__name__}")


def set_within(event: Any, what: str) -> None:
    assert event.wait(LIMIT), f"{what} did not happen within {LIMIT:g} s"


def nodes(zk: Client, hosts: str) -> None:
    assert zk.create("/n", b"one") == "/n"
    assert zk.create("/n/a/b/c", makepath=True) == "/n/a/b/c"
    path, stat = zk.create("/n/two", b"22", include_data=True)
    assert (path, stat.version, stat.dataLength) == ("/n/two", 0, 2)
    assert zk.create("/n/e", ephemeral=True) == "/n/e"
    assert zk.exists("/n/e").ephemeralOwner == zk.client_id[0]
    assert zk.create("/n/s-", sequence=True) == "/n/s-0000000003"
    assert zk.create("/n/es-", ephemeral=True, sequence=True) == "/n/es-0000000004"
    data, stat = zk.get("/n")
    assert (data, stat.numChildren, stat.cversion) == (b"one", 5, 5)
    assert zk.set("/n", b"three", version=0).version == 1
    assert sorted(zk.get_children("/n")) == ["a", "e", "es-0000000004", "s-0000000003", "two"]
    children, stat = zk.get_children("/n", include_data=True)
    assert len(children) == stat.numChildren
    assert zk.exists("/none") is None
    assert zk.ensure_path("/n/x/y")
    zk.sync("/n")
    raises(errors.NodeExistsError, zk.create, "/n")
    raises(errors.NoNodeError, zk.create, "/none/x")
    raises(errors.NoNodeError, zk.get, "/none")
    raises(errors.BadVersionError, zk.set, "/n", b"", version=7)
    raises(errors.NotEmptyError, zk.delete, "/n")
    raises(errors.NoChildrenForEphemeralsError, zk.create, "/n/e/x")
    zk.delete("/n", recursive=True)
    assert zk.exists("/n") is None


def watches(zk: Client, hosts: str) -> None:
    events: queue.Queue[Any] = queue.Queue()

    def next_event() -> tuple[str, str]:
        event = events.get(timeout=LIMIT)
        return event.type, event.path

    assert zk.exists("/w", watch=events.put) is None
    zk.create("/w")
    assert next_event() == (states.EventType.CREATED, "/w")
    zk.get("/w", watch=events.put)
    zk.set("/w", b"1")
    assert next_event() == (states.EventType.CHANGED, "/w")
    zk.get_children("/w", watch=events.put)
    zk.create("/w/x")
    assert next_event() == (states.EventType.CHILD, "/w")
    zk.get("/w/x", watch=events.put)
    zk.delete("/w/x")
    assert next_event() == (states.EventType.DELETED, "/w/x")
    assert events.empty()


def watchers(zk: Client, hosts: str) -> None:
    values: queue.Queue[bytes | None] = queue.Queue()
    names: queue.Queue[list[str]] = queue.Queue()

    zk.DataWatch("/d", lambda data, stat: values.put(data))
    assert values.get(timeout=LIMIT) is None
    zk.create("/d", b"0")
    assert values.get(timeout=LIMIT) == b"0"
    zk.set("/d", b"1")
    assert values.get(timeout=LIMIT) == b"1"

    zk.ChildrenWatch("/d", lambda children: names.put(sorted(children)))
    assert names.get(timeout=LIMIT) == []
    zk.create("/d/x")
    assert names.get(timeout=LIMIT) == ["x"]
    zk.create("/d/y")
    assert names.get(timeout=LIMIT) == ["x", "y"]
    zk.delete("/d", recursive=True)
    assert values.get(timeout=LIMIT) is None


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
    for trial in (nodes, watches, watchers, cache, locks, recipes, sessions, words):
        zk = client(hosts)
        trial(zk, hosts)
        stop(zk)
        print(f"  kazoo: {trial.__name__}")


if __name__ == "__main__":
    main()
