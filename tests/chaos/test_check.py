"""The checker of histories sees each broken promise; that it sees none in a good history, each run shows."""

from typing import Any

import pytest

from tests.chaos.check import Expected, check
from tests.chaos.journal import PARENT, Record

EXPECTED = Expected({"semaphore": 2}, frozenset({"queue"}), frozenset({"claims"}))


def record(at: float, author: str, what: str, **details: Any) -> Record:
    return Record(at, author, what, details)


def acquired(at: float, author: str, until: float, *, token: int = 1, name: str = "lock", **more: Any) -> Record:
    return record(at, author, "acquired", name=name, lease=1, token=token, until=until, **more)


def released(at: float, author: str, name: str = "lock") -> Record:
    return record(at, author, "released", name=name, lease=1)


def texts(*history: Record) -> list[str]:
    return [f"{violation.name}: {violation.text}" for violation in check(history, EXPECTED)]


def added(begun: float, ended: float, author: str, value: int) -> list[Record]:
    return [adding(begun, author), record(ended, author, "added", name="counter", value=value)]


def adding(at: float, author: str) -> Record:
    return record(at, author, "adding", name="counter")


def counted(value: int) -> Record:
    return record(9, PARENT, "count at the end", name="counter", value=value)


def item(at: float, author: str, what: str, queue: str = "queue", name: str = "a") -> Record:
    return record(at, author, what, name=queue, item=name)


def claimed(at: float, author: str, until: float, token: int = 1) -> Record:
    return acquired(at, author, until, name="claims/a", token=token, queue="claims", item="a")


def handled(at: float, author: str) -> Record:
    return record(at, author, "handled", name="claims/a", queue="claims", item="a")


def lost(at: float, author: str) -> Record:
    return record(at, author, "lost", lease=1, name="lock")


def read(value: int) -> Record:
    return record(1, "1.1", "read", name="rw", lease=1, value=value, certain=True)


def stored(at: float, value: int, token: int) -> Record:
    return record(at, "1.1", "stored", name="lock", token=token, value=value)


def guarded(value: int, version: int) -> Record:
    return record(1, "1.1", "guarded", name="lock", value=value, version=version)


def guard_at_the_end(value: int, version: int) -> Record:
    return record(2, PARENT, "guard at the end", name="lock", value=value, version=version)


def error(name: str) -> Record:
    return record(1, "1.1", "error", name="lock", error=name, text="...", transient=False)


DRAINED = [record(9, PARENT, "drained", name="queue"), record(9, PARENT, "drained", name="claims")]
PUT = [item(1, "1.1", "putting"), item(2, "1.1", "put")]
GETTING, GOT_NONE = record(3, "2.1", "getting", name="queue"), record(4, "2.1", "got none", name="queue")
TO_CLAIM = [item(0, "1.1", "putting", "claims"), item(0.5, "1.1", "put", "claims")]
HANDLED = [*TO_CLAIM, claimed(1, "2.1", 9), released(2, "2.1", "claims/a"), handled(2.1, "2.1")]
TWO_PERMITS = [acquired(1, "1.1", 9, name="semaphore"), acquired(2, "2.1", 9, name="semaphore")]
READER = acquired(1, "1.1", 9, token=2, mode="read")

# Histories with one broken promise, and a part of what is said of it.
BAD: dict[str, tuple[str, list[Record]]] = {
    "two owners, one of which releases": (
        "lock: two owners for certain: client 1.1 (token 0x1) and client 2.1 (token 0x2)",
        [acquired(1, "1.1", 4), acquired(2, "2.1", 6, token=2), released(3, "1.1")],
    ),
    "two owners, one of which loses it": (
        "two owners",
        [acquired(1, "1.1", 4), acquired(2, "2.1", 6, token=2), lost(2.9, "1.1")],
    ),
    "the same token again": ("is not greater", [acquired(1, "1.1", 2, token=2), acquired(3, "2.1", 4, token=2)]),
    "a writer beside a reader": ("two owners", [READER, acquired(2, "2.1", 9, token=3)]),
    "a reader beside a writer": ("two owners", [acquired(1, "1.1", 4), acquired(2, "2.1", 9, token=2, mode="read")]),
    "more holders than permits": (
        "semaphore: 3 holders of 2 permits",
        [*TWO_PERMITS, acquired(3, "3.1", 9, name="semaphore")],
    ),
    "a write refused to a certain holder": ("was refused", [record(1, "1.1", "refused", name="lock", certain=True)]),
    "a guarded write refused": ("was refused", [record(1, "1.1", "guard refused", name="lock", certain=True)]),
    "a stale token in the store": (
        "lock: the store has accepted the stale token 0x1",
        [record(1, "1.1", "seen", name="lock", token=2), stored(2, 1, 1)],
    ),
    "an update lost in the store": (
        "lock: an update was lost: 2 was written over 2",
        [stored(1, 1, 1), stored(2, 2, 2), stored(3, 2, 3)],
    ),
    "an update lost in a guarded node": ("after 2 writes", [guarded(1, 2)]),
    "an acknowledged write that is gone": ("were acknowledged", [guarded(1, 1), guard_at_the_end(0, 0)]),
    "a change under a certain reader": ("1 became 2", [read(1), read(2)]),
    "an addition that was lost": ("counter holds 1", [*added(1, 2, "1.1", 1), *added(1, 2, "2.1", 2), counted(1)]),
    "an addition from nowhere": ("counter holds 3", [*added(1, 2, "1.1", 1), *added(1, 2, "2.1", 2), counted(3)]),
    "two additions with one value": ("both got the value", [*added(1, 2, "1.1", 1), *added(1, 2, "2.1", 1)]),
    "a smaller value after a greater one": (
        "got 1 after 2 had been returned",
        [adding(0, "3.1"), *added(1, 2, "1.1", 2), *added(3, 4, "2.1", 1)],
    ),
    "an item taken twice": ("both took the item", [*PUT, item(3, "2.1", "got"), item(4, "3.1", "got"), *DRAINED]),
    "an item lost": ("items are lost", [*PUT, *DRAINED]),
    "an item lost though the take had ended": ("items are lost", [*PUT, GETTING, GOT_NONE, *DRAINED]),
    "an item that was never put": ("was never put", [item(3, "2.1", "got")]),
    "an item claimed by two at a time": (
        "two owners",
        [*TO_CLAIM, claimed(1, "2.1", 9), claimed(3, "3.1", 9, 2), *DRAINED],
    ),
    "a handled item claimed": ("had handled", [*HANDLED, claimed(3, "3.1", 9, 2), *DRAINED]),
    "an item handled twice": ("both handled", [*HANDLED, handled(3, "3.1"), *DRAINED]),
    "an item never claimed": ("were never claimed", [*TO_CLAIM, *DRAINED]),
    "a claim of an item that was never put": ("was never put", [claimed(1, "2.1", 9)]),
    "no progress": ("no progress within 60 s", [record(1, PARENT, "stuck", name="lock", seconds=60.0)]),
    "nodes left": ("/lock/a", [record(1, PARENT, "left", name="", nodes=["/lock/a"])]),
    "a client that failed": ("it ended", [record(1, PARENT, "failed", name="", client="1.1", why="it ended with 1")]),
    "an error that no fault explains": ("BadVersionError: ...", [error("BadVersionError")]),
}


@pytest.mark.parametrize(("said", "history"), BAD.values(), ids=BAD)
def test_a_broken_promise_is_seen(said: str, history: list[Record]) -> None:
    (found,) = texts(*history)
    assert said in found
