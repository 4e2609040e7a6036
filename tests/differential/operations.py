"""The random scripts: what sessions may do, as plain data that hypothesis makes, shrinks and prints.

The names and numbers are few, so that operations affect one another: several sessions create, watch, change and delete
the same nodes again and again.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from tests.captures import build

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
ACLS: tuple[tuple[build.Entry, ...], ...] = (
    *([build.OPEN] * 12),
    ((31, "auth", ""),),
    ((31, "digest", BOB),),
    ((1, "world", "anyone"), (31, "digest", BOB)),
    ((30, "world", "anyone"),),
    ((27, "world", "anyone"),),
    ((15, "ip", "127.0.0.1"),),
    ((31, "ip", "10.0.0.0/8"),),
    ((31, "world", "anyone"), (31, "world", "anyone")),
    (),
    ((31, "world", "nobody"),),
)
CREDENTIALS = (b"bob:pw", b"ann:secret")
WATCHER_TYPES = (3, 3, 3, 2, 1, 4, 5, 6)
TTL = 3_600_000
UNKNOWN_OPCODE = 99


@dataclass(frozen=True)
class Step:
    """One step of a script.

    `slot` None: on the same connection as the step before. The numbers choose among the possibilities of `kind`.
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
        """Return the request without its xid; `last_zxid` is the highest that this connection has seen."""
        path = self.path if self.path == "relative" else root + self.path
        data, acl = DATA[self.two % len(DATA)], ACLS[self.three % len(ACLS)]
        version, watch = VERSIONS[self.one % len(VERSIONS)], self.one % 2 == 1
        zxid = (last_zxid, max(base, last_zxid - 3), base)[self.one % 3]
        lists = self._lists(root)
        match self.kind:
            case "create" | "create2":
                number = 1 if self.kind == "create" else 15
                flags = (0, 1, 0, 1, 0, 1, 0, 2, 2, 3, 3, 4, 5)[self.one % 13]
                return build.create(self._made(root, flags), data, acl, flags, number=number)
            case "container":
                return build.create_container(self._made(root, 4), 4, acl)
            case "ttl":
                flags = 5 + self.one % 2
                return build.create_ttl(self._made(root, flags), TTL, flags)
            case "delete":
                return build.delete(path, version)
            case "set":
                return build.set_data(path, data, version)
            case "set_acl":
                return build.set_acl(path, acl, version)
            case "check":
                return build.check(path, version)
            case "exists":
                return build.exists(path, watch)
            case "get":
                return build.get_data(path, watch)
            case "children":
                return build.get_children(path, watch)
            case "children2":
                return build.get_children2(path, watch)
            case "get_acl":
                return build.get_acl(path)
            case "count":
                return build.get_all_children_number(path)
            case "ephemerals":
                return build.get_ephemerals(path)
            case "sync":
                return build.sync(path)
            case "whoami":
                return build.whoami()
            case "add_watch":
                return build.add_watch("/" if self.two == 7 else path, self.one % 2 if self.three else 2)
            case "check_watches":
                return build.check_watches(path, WATCHER_TYPES[self.one % len(WATCHER_TYPES)])
            case "remove_watches":
                return build.remove_watches(path, WATCHER_TYPES[self.one % len(WATCHER_TYPES)])
            case "set_watches":
                return build.set_watches(zxid, *lists[:3])
            case "set_watches2":
                return build.set_watches2(zxid, *lists)
            case "multi":
                return build.multi(*(part.encode(root, last_zxid, base) for part in self.parts))
            case "multi_read":
                return build.multi_read(*(part.encode(root, last_zxid, base) for part in self.parts))
            case "auth":
                return build.auth("digest", CREDENTIALS[self.one % 2])
            case "bad_auth":
                return build.auth(("foo", "world", "auth")[self.one % 3], b"x")
            case "unknown":
                return build.opcode(UNKNOWN_OPCODE)
            case "truncated":
                return build.create(path)[: -1 - self.one]
            case "close":
                return build.close_session()
        raise ValueError(f"{self.kind} is no request")

    def _made(self, root: str, flags: int) -> str:
        """Return the path of a create: a prefix for a sequential node, otherwise a path that may not exist yet."""
        if flags in (2, 3, 6):
            return root + PARENTS[self.two % len(PARENTS)]
        return self.path if self.path == "relative" else root + self.path

    def _lists(self, root: str) -> list[list[str]]:
        """Return five lists of paths for setWatches2, chosen by the numbers."""
        start = PATHS.index(self.path) if self.path in PATHS else 0
        sizes = (self.one % 3, self.two % 3, self.three % 3, self.one // 3 % 2, self.two // 3 % 2)
        return [[root + PATHS[(start + at + number) % 14] for at in range(size)] for number, size in enumerate(sizes)]


WRITES = ["create"] * 6 + ["create2"] * 3 + ["delete"] * 4 + ["set"] * 4 + ["container", "ttl"]
READS = ["get"] * 3 + ["exists"] * 3 + ["children"] * 3 + ["children2"] * 2 + ["get_acl", "count", "ephemerals", "sync"]
WATCHES = ["add_watch"] * 4 + ["check_watches", "remove_watches", "remove_watches", "set_watches", "set_watches2"]
OTHERS = ["set_acl", "set_acl", "whoami", "truncated", "auth", "auth"]
# What is done to a connection or a session as a whole. A step that is not needed for a failure shrinks to "nothing".
CONNECTIONS = ["nothing", "drop", "resume", "wrong_password", "close", "close", "bad_auth", "unknown", "stranger"]
# Not pipelined with others, for the reasons that README.md gives.
ALONE = {"set_acl", "auth", *CONNECTIONS}

# A step shrinks towards the first kind. Multis have parts.
KINDS = (
    *CONNECTIONS,
    *[*WRITES, *READS, *WATCHES, *WATCHES, *OTHERS] * 2,
    *["multi"] * 12,
    *["multi_read"] * 3,
)
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
