"""The random scripts: what sessions may do, as plain data that hypothesis makes, shrinks and prints.

The names and numbers are few, so that operations affect one another: several sessions create, watch, change and delete
the same nodes again and again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from zkwire.wire import requests
from zkwire.wire.multi import MultiReadRequest, MultiRequest
from zkwire.wire.primitives import INT
from zkwire.wire.records import ACL, OPEN_ACL
from zkwire.wire.requests import Request

SLOTS = 3  # connections at a time; each has a session of its own, a new one after it was closed
LENGTH = 100  # steps of one script

BORN = ("/a", "/b", "/a/a", "/a/b")  # these nodes exist when a script begins

# Below the script's own root. The last two are not valid, one of them not even below the root.
PATHS = (
    *("/a", "/a/a", "/a/b", "/b", "/b/a", "/a/a/a", "/a/a/b", "/c", "", "/a/s0000000000", "/a/s0000000001"),
    *("/s0000000002", "/b/s0000000000", "/a/a/s0000000000", "/a//b", "relative"),
)
PARENTS = ("/a/s", "/s", "/b/s", "/a/a/s", "/c/")  # for sequential names
CHOICE_PATHS = (*BORN * 5, *("/a/a/a", "/c", "") * 3, *PATHS)
DATA = (b"", b"1", b"22", None)
VERSIONS = (-1, -1, -1, -1, -1, 0, 0, 1, 2, -2)
BOB = "bob:ikIaKsbtGweaHnb/jKn7OHqbunM="
ACLS: tuple[tuple[ACL, ...], ...] = (
    *([OPEN_ACL] * 12),
    (ACL(31, "auth", ""),),
    (ACL(31, "digest", BOB),),
    (ACL(1, "world", "anyone"), ACL(31, "digest", BOB)),
    (ACL(30, "world", "anyone"),),
    (ACL(27, "world", "anyone"),),
    (ACL(15, "ip", "127.0.0.1"),),
    (ACL(31, "ip", "10.0.0.0/8"),),
    (*OPEN_ACL, *OPEN_ACL),
    (),
    (ACL(31, "world", "nobody"),),
)
CREDENTIALS = (b"bob:pw", b"ann:secret")
WATCHER_TYPES = (3, 3, 3, 2, 1, 4, 5, 6)
TTL = 3_600_000
UNKNOWN_OPCODE = 99


@dataclass(frozen=True)
class Step:
    """One step of a script.

    With `slot` None it is on the connection of the step before. The numbers choose among the possibilities of `kind`.
    """

    slot: int | None
    kind: str
    path: str
    one: int
    two: int
    three: int
    parts: Sequence["Step"] = ()

    def __repr__(self) -> str:
        numbers = f"{self.one}, {self.two}, {self.three}"
        parts = f", {list(self.parts)}" if self.parts else ""
        return f"Step({self.slot}, {self.kind!r}, {self.path!r}, {numbers}{parts})"

    def encode(self, root: str, last_zxid: int, base: int) -> bytes:
        """Return the request without its xid.

        Args:
            root: The node below which the script works.
            last_zxid: The highest that this connection has seen.
            base: The last one before the script.
        """
        if self.kind == "unknown":
            return INT.pack(UNKNOWN_OPCODE)
        request = self.request(Place(root, last_zxid, base))
        encoded = INT.pack(request.opcode) + request.encode()
        return encoded[: -1 - self.one] if self.kind == "truncated" else encoded

    def request(self, place: "Place") -> Request[Any]:
        """Return the request that `kind` and the numbers choose."""
        return _MADE[self.kind](self, place)

    def path_below(self, root: str) -> str:
        return self.path if self.path == "relative" else root + self.path

    def created(self, root: str, flags: int) -> str:
        """Return the path of a create: a prefix for a sequential node, otherwise a path that may not exist yet."""
        return root + PARENTS[self.two % len(PARENTS)] if flags in (2, 3, 6) else self.path_below(root)

    def lists(self, root: str) -> list[list[str]]:
        """Return five lists of paths for setWatches2, chosen by the numbers."""
        start = PATHS.index(self.path) if self.path in PATHS else 0
        sizes = (self.one % 3, self.two % 3, self.three % 3, self.one // 3 % 2, self.two // 3 % 2)
        return [[root + PATHS[(start + at + number) % 14] for at in range(size)] for number, size in enumerate(sizes)]

    @property
    def data(self) -> bytes | None:
        return DATA[self.two % len(DATA)]

    @property
    def acl(self) -> tuple[ACL, ...]:
        return ACLS[self.three % len(ACLS)]

    @property
    def version(self) -> int:
        return VERSIONS[self.one % len(VERSIONS)]

    @property
    def watch(self) -> bool:
        return self.one % 2 == 1

    @property
    def watcher_type(self) -> int:
        return WATCHER_TYPES[self.one % len(WATCHER_TYPES)]


@dataclass(frozen=True)
class Place:
    """Where a request is made: below which root, by a connection that has seen which zxids."""

    root: str
    last_zxid: int
    base: int

    def zxid(self, number: int) -> int:
        """Return a zxid that a client may have seen last."""
        return (self.last_zxid, max(self.base, self.last_zxid - 3), self.base)[number % 3]


def _create(kind: type[Any], step: Step, place: Place, flags: int, *more: int) -> Request[Any]:
    data = step.data if kind in (requests.CreateRequest, requests.Create2Request) else b""
    acl = OPEN_ACL if kind is requests.CreateTTLRequest else step.acl
    made: Request[Any] = kind(step.created(place.root, flags), data, acl, flags, *more)
    return made


def _on_path(kind: type[Any], *names: str) -> Callable[[Step, Place], Request[Any]]:
    """Return a maker of requests with the path of the step and, in this order, more of its attributes."""
    return lambda step, place: kind(step.path_below(place.root), *(getattr(step, name) for name in names))


def _create_flags(step: Step) -> int:
    return (0, 1, 0, 1, 0, 1, 0, 2, 2, 3, 3, 4, 5)[step.one % 13]


def _add_watch(step: Step, place: Place) -> Request[Any]:
    path = "/" if step.two == 7 else step.path_below(place.root)
    return requests.AddWatchRequest(path, step.one % 2 if step.three else 2)


def _parts(step: Step, place: Place) -> list[Request[Any]]:
    return [part.request(place) for part in step.parts]


_MADE: dict[str, Callable[[Step, Place], Request[Any]]] = {
    "create": lambda step, place: _create(requests.CreateRequest, step, place, _create_flags(step)),
    "create2": lambda step, place: _create(requests.Create2Request, step, place, _create_flags(step)),
    "container": lambda step, place: _create(requests.CreateContainerRequest, step, place, 4),
    "ttl": lambda step, place: _create(requests.CreateTTLRequest, step, place, 5 + step.one % 2, TTL),
    "truncated": lambda step, place: requests.CreateRequest(step.path_below(place.root), b"", OPEN_ACL, 0),
    "delete": _on_path(requests.DeleteRequest, "version"),
    "set": _on_path(requests.SetDataRequest, "data", "version"),
    "set_acl": _on_path(requests.SetACLRequest, "acl", "version"),
    "check": _on_path(requests.CheckVersionRequest, "version"),
    "exists": _on_path(requests.ExistsRequest, "watch"),
    "get": _on_path(requests.GetDataRequest, "watch"),
    "children": _on_path(requests.GetChildrenRequest, "watch"),
    "children2": _on_path(requests.GetChildren2Request, "watch"),
    "get_acl": _on_path(requests.GetACLRequest),
    "count": _on_path(requests.GetAllChildrenNumberRequest),
    "ephemerals": _on_path(requests.GetEphemeralsRequest),
    "sync": _on_path(requests.SyncRequest),
    "check_watches": _on_path(requests.CheckWatchesRequest, "watcher_type"),
    "remove_watches": _on_path(requests.RemoveWatchesRequest, "watcher_type"),
    "add_watch": _add_watch,
    "whoami": lambda step, place: requests.WhoAmIRequest(),
    "set_watches": lambda step, place: requests.SetWatchesRequest(place.zxid(step.one), *step.lists(place.root)[:3]),
    "set_watches2": lambda step, place: requests.SetWatches2Request(place.zxid(step.one), *step.lists(place.root)),
    "multi": lambda step, place: MultiRequest(_parts(step, place)),
    "multi_read": lambda step, place: MultiReadRequest(_parts(step, place)),
    "auth": lambda step, place: requests.AuthRequest(0, "digest", CREDENTIALS[step.one % 2]),
    "bad_auth": lambda step, place: requests.AuthRequest(0, ("foo", "world", "auth")[step.one % 3], b"x"),
    "close": lambda step, place: requests.CloseSessionRequest(),
}


WRITES = ["create"] * 6 + ["create2"] * 3 + ["delete"] * 4 + ["set"] * 4 + ["container", "ttl"]
READS = ["get"] * 3 + ["exists"] * 3 + ["children"] * 3 + ["children2"] * 2 + ["get_acl", "count", "ephemerals", "sync"]
WATCHES = ["add_watch"] * 4 + ["check_watches", "remove_watches", "remove_watches", "set_watches", "set_watches2"]
OTHERS = ["set_acl", "set_acl", "whoami", "truncated", "auth", "auth"]
# What is done to a connection or a session as a whole. A step that is not needed for a failure shrinks to "nothing".
CONNECTIONS = ["nothing", "drop", "resume", "wrong_password", "close", "close", "bad_auth", "unknown", "stranger"]
# Not pipelined with others, for the reasons that README.md gives.
ALONE = {"set_acl", "auth", *CONNECTIONS}

# A step shrinks towards the first kind. Multis have parts.
KINDS = (*CONNECTIONS, *[*WRITES, *READS, *WATCHES, *WATCHES, *OTHERS] * 2, *["multi"] * 12, *["multi_read"] * 3)
PART_KINDS = (*WRITES, *WRITES, "check", "check", "check", "set_acl")
READ_KINDS = (*["get", "children"] * 5, "exists")
SLOT_CHOICES = (*[None] * 12, *range(SLOTS))
NUMBERS = 24

# hypothesis prefers small numbers. A factor that is prime to the number of choices spreads them evenly. 0, the number
# that hypothesis shrinks to, still chooses "nothing".
SPREAD = 104_729

_numbers = st.integers(0, NUMBERS**3 - 1)
_choices = {
    kinds: st.integers(0, len(kinds) * len(CHOICE_PATHS) * len(SLOT_CHOICES) - 1)
    for kinds in (KINDS, PART_KINDS, READ_KINDS)
}


@st.composite
def scripts(draw: st.DrawFn) -> list[Step]:
    """Draw LENGTH random steps."""
    return [_step(draw, KINDS) for _ in range(LENGTH)]


def _step(draw: st.DrawFn, kinds: tuple[str, ...]) -> Step:
    """Draw a step; with two draws only, because drawing takes most of the time."""
    choice = draw(_choices[kinds]) * SPREAD % (len(kinds) * len(CHOICE_PATHS) * len(SLOT_CHOICES))
    rest, slot = divmod(choice, len(SLOT_CHOICES))
    kind, path = divmod(rest, len(CHOICE_PATHS))
    if kinds[kind] == "nothing":
        return Step(None, "nothing", "", 0, 0, 0)
    rest, three = divmod(draw(_numbers) * SPREAD % NUMBERS**3, NUMBERS)
    one, two = divmod(rest, NUMBERS)
    parts: list[Step] = []
    if kinds[kind] == "multi":
        parts = [_step(draw, PART_KINDS) for _ in range(one % 6)]
    elif kinds[kind] == "multi_read":
        parts = [_step(draw, READ_KINDS) for _ in range(one % 5)]
    return Step(SLOT_CHOICES[slot], kinds[kind], CHOICE_PATHS[path], one, two, three, parts)
