"""Nodes: every create mode, the other writes, the reads, and each error that they give."""

from tests.captures import build
from tests.captures.play import Meant, Player
from tests.captures.script.tools import (
    BAD_ARGUMENTS,
    BAD_VERSION,
    EPHEMERAL,
    EPHEMERAL_SEQUENTIAL,
    INVALID_ACL,
    MARSHALLING,
    NO_CHILDREN_FOR_EPHEMERALS,
    NO_NODE,
    NODE_EXISTS,
    NOT_EMPTY,
    SEQUENTIAL,
    TTL_SEQUENTIAL,
    stat,
)
from zkwire.wire.records import ACL
from zkwire.wire.requests import ClientInfoRecord as Identity
from zkwire.wire.requests import (
    Create2Reply,
    CreateReply,
    GetACLReply,
    GetAllChildrenNumberReply,
    GetChildren2Reply,
    GetChildrenReply,
    GetDataReply,
    GetEphemeralsReply,
    StatReply,
    SyncReply,
    WhoAmIReply,
)

OPEN = [ACL(31, "world", "anyone")]


def creates(play: Player) -> None:
    a = play.start()

    def made(path: str, **more: int) -> Meant:
        return lambda zxid: Create2Reply(path, stat(zxid, **more))

    a.create("persistent", "the reply is the path", "/creates/p", b"data")
    a.ask(
        "persistent with Stat",
        "create2 gives the Stat as well",
        build.create2("/creates/p2", b"data"),
        made("/creates/p2", length=4),
    )
    a.ask("null data", "counts as length 0", build.create2("/creates/null", None), made("/creates/null"))
    a.create("ephemeral", "", "/creates/e", flags=EPHEMERAL)
    a.ask(
        "ephemeral with Stat",
        "its owner is the session",
        build.create2("/creates/e2", flags=EPHEMERAL),
        made("/creates/e2", owner=a.session_id),
    )
    a.ask(
        "sequential",
        "the sixth child of its parent",
        build.create("/creates/s-", flags=SEQUENTIAL),
        CreateReply("/creates/s-0000000005"),
    )
    a.ask(
        "sequential with Stat",
        "the counter is the parent's, whatever the names",
        build.create2("/creates/t-", flags=SEQUENTIAL),
        made("/creates/t-0000000006"),
    )
    a.ask(
        "ephemeral sequential",
        "",
        build.create("/creates/es-", flags=EPHEMERAL_SEQUENTIAL),
        CreateReply("/creates/es-0000000007"),
    )
    a.ask(
        "ephemeral sequential with Stat",
        "",
        build.create2("/creates/es-", flags=EPHEMERAL_SEQUENTIAL),
        made("/creates/es-0000000008", owner=a.session_id),
    )
    a.ask(
        "sequential without a name",
        "a path that ends in / is allowed with a sequence",
        build.create("/creates/", flags=SEQUENTIAL),
        CreateReply("/creates/0000000009"),
    )
    a.ask(
        "container",
        "has its own opcode; its owner shows as 0",
        build.create_container("/creates/c"),
        made("/creates/c"),
    )
    a.ask(
        "container with flags 0", "is one all the same", build.create_container("/creates/c0", 0), made("/creates/c0")
    )
    a.ask("container with flags 1", "is not ephemeral", build.create_container("/creates/c1", 1), made("/creates/c1"))
    a.ask(
        "container with flags 2",
        "takes a sequence number",
        build.create_container("/creates/c-", 2),
        made("/creates/c-0000000013"),
    )
    a.create("create with flags 4", "makes a node, though no container", "/creates/f4", flags=4)
    a.ask("create2 with flags 4", "likewise", build.create2("/creates/f42", flags=4), made("/creates/f42"))
    a.ask("TTL", "its owner shows as 0", build.create_ttl("/creates/ttl", 3_600_000), made("/creates/ttl"))
    a.ask(
        "TTL sequential",
        "",
        build.create_ttl("/creates/ttl-", 3_600_000, TTL_SEQUENTIAL),
        made("/creates/ttl-0000000017"),
    )
    a.ask(
        "TTL of the greatest length",
        "2 ** 40 - 1 ms",
        build.create_ttl("/creates/ttlmax", 2**40 - 1),
        made("/creates/ttlmax"),
    )
    a.create("a name of many kinds of characters", "counts bytes of UTF-8", "/creates/äöü 漢字")
    a.ask(
        "the parent afterwards",
        "20 children, 20 changes",
        build.exists("/creates"),
        lambda _: StatReply(stat(play.base + 2, child_at=play.last, cversion=20, children=20)),
    )


def refused_creates(play: Player) -> None:
    a = play.start()
    node = "/refused_creates"
    bad_acl = [(31, "world", "nobody")]
    a.create("an ephemeral", "to create below", f"{node}/e", flags=EPHEMERAL)
    for flags in (-1, 7, 2**31 - 1):
        a.ask(f"flags {flags}", "no such mode", build.create(f"{node}/x", flags=flags), err=BAD_ARGUMENTS)
    a.ask(
        "create with flags 5",
        "TTL modes have an opcode of their own",
        build.create(f"{node}/x", flags=5),
        err=BAD_ARGUMENTS,
    )
    a.ask("create2 with flags 6", "likewise", build.create2(f"{node}/x", flags=6), err=BAD_ARGUMENTS)
    a.ask("createContainer with flags 5", "likewise", build.create_container(f"{node}/x", 5), err=BAD_ARGUMENTS)
    a.ask("createTTL with flags 0", "must be a TTL mode", build.create_ttl(f"{node}/x", 1000, 0), err=BAD_ARGUMENTS)
    for ttl in (0, -1, 2**40):
        a.ask(f"ttl {ttl}", "1 to 2 ** 40 - 1", build.create_ttl(f"{node}/x", ttl), err=BAD_ARGUMENTS)
    a.ask("path without slash", "", build.create("x"), err=BAD_ARGUMENTS)
    a.ask("path without slash, bad ACL", "the path comes first", build.create("x", acl=bad_acl), err=BAD_ARGUMENTS)
    a.ask("path with NUL", "", build.create(f"{node}/a\0b"), err=BAD_ARGUMENTS)
    a.ask("empty path", "", build.create(""), err=BAD_ARGUMENTS)
    a.ask("null path", "can be decoded, and so takes a zxid", build.create(None), err=MARSHALLING, takes=1)
    a.ask(
        "empty component, bad ACL",
        "the ACL comes before the full rules of paths",
        build.create(f"{node}//x", acl=bad_acl),
        err=INVALID_ACL,
    )
    a.ask("empty component", "the parent of /a//x is /a/, which is not there", build.create(f"{node}//x"), err=NO_NODE)
    a.ask("trailing slash", "not without a sequence", build.create(f"{node}/x/"), err=NO_NODE)
    a.ask(
        "trailing slash behind a node",
        "the rules of paths, as the parent is there",
        build.create(f"{node}/"),
        err=BAD_ARGUMENTS,
    )
    a.ask("component ..", "with a parent that is there", build.create(f"{node}/.."), err=BAD_ARGUMENTS)
    a.ask("component .. below nothing", "the parent comes first", build.create(f"{node}/none/.."), err=NO_NODE)
    a.ask("component .", "", build.create(f"{node}/."), err=BAD_ARGUMENTS)
    a.ask("control character", "", build.create(f"{node}/a\x07"), err=BAD_ARGUMENTS)
    a.ask("character above U+FFFF", "is two surrogates to the server", build.create(f"{node}/😀"), err=BAD_ARGUMENTS)
    a.ask(
        "bytes that are not UTF-8",
        "become U+FFFD, which no path may hold",
        build.opcode(1, build.buffer(b"/refused_creates/\xff") + build.create("", b"")[8:]),
        err=BAD_ARGUMENTS,
    )
    a.ask("missing parent", "", build.create(f"{node}/none/x"), err=NO_NODE)
    a.ask(
        "missing parent, bad ACL", "the ACL comes first", build.create(f"{node}/none/x", acl=bad_acl), err=INVALID_ACL
    )
    a.ask("exists already", "", build.create(node), err=NODE_EXISTS)
    a.ask("exists already, with Stat", "no Stat then", build.create2(node), err=NODE_EXISTS)
    a.ask("the root", "exists", build.create("/"), err=NODE_EXISTS)
    a.ask("exists already, bad ACL", "the ACL comes first", build.create(node, acl=bad_acl), err=INVALID_ACL)
    a.ask("below an ephemeral", "", build.create(f"{node}/e/x"), err=NO_CHILDREN_FOR_EPHEMERALS)
    a.ask("container below an ephemeral", "", build.create_container(f"{node}/e/x"), err=NO_CHILDREN_FOR_EPHEMERALS)
    a.ask(
        "the counter afterwards",
        "what was refused was not counted",
        build.create(f"{node}/s-", flags=SEQUENTIAL),
        CreateReply(f"{node}/s-0000000001"),
    )


def writes(play: Player) -> None:
    a = play.start()
    a.create("a node", "", "/writes/n", b"zero")
    made = play.last
    a.set("setData", "without looking at the version", "/writes/n", b"first", made=made)
    a.set("setData with the right version", "", "/writes/n", b"", 1, made=made, version=2)
    a.ask(
        "getData of empty data",
        "length 0",
        build.get_data("/writes/n"),
        lambda zxid: GetDataReply(b"", stat(made, changed=zxid, version=2)),
    )
    a.set("setData to null", "is not the same as empty", "/writes/n", None, 2, made=made, version=3)
    last = play.last
    a.ask(
        "getData of null data",
        "length -1",
        build.get_data("/writes/n"),
        GetDataReply(None, stat(made, changed=last, version=3)),
    )
    a.ask("setData with a wrong version", "takes a zxid", build.set_data("/writes/n", b"x", 2), err=BAD_VERSION)
    a.ask("setData with version -2", "matches nothing", build.set_data("/writes/n", b"x", -2), err=BAD_VERSION)
    a.ask("setData of no node", "", build.set_data("/writes/none", b"x"), err=NO_NODE)
    a.ask("setData of a bad path", "", build.set_data("/writes//n", b"x"), err=BAD_ARGUMENTS)
    a.ask("setData of the empty path", "which reads allow", build.set_data("", b"x"), err=BAD_ARGUMENTS)
    a.ask("setData of a null path", "", build.set_data(None, b"x"), err=BAD_ARGUMENTS)
    a.ask("setData with a trailing slash", "", build.set_data("/writes/n/", b"x"), err=BAD_ARGUMENTS)
    a.create("a child", "so that the node is not empty", "/writes/n/child")
    a.ask("delete of a node with a child", "", build.delete("/writes/n"), err=NOT_EMPTY)
    a.ask(
        "delete with a wrong version of a node with a child",
        "the version comes first",
        build.delete("/writes/n", 7),
        err=BAD_VERSION,
    )
    a.ask("delete", "the reply is only a header", build.delete("/writes/n/child", 0))
    gone = play.last
    a.ask(
        "the node afterwards",
        "one child came and went",
        build.exists("/writes/n"),
        StatReply(stat(made, changed=last, child_at=gone, version=3, cversion=2)),
    )
    a.ask("delete of no node", "", build.delete("/writes/n/child"), err=NO_NODE)
    a.ask("delete below no node", "", build.delete("/writes/none/child"), err=NO_NODE)
    a.ask("delete with a wrong version", "", build.delete("/writes/n", 0), err=BAD_VERSION)
    for path in ("/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"):
        a.ask(f"delete of {path}", "is protected", build.delete(path), err=BAD_ARGUMENTS)
    a.ask("delete of /zookeeper/", "is another path, and not there", build.delete("/zookeeper/"), err=NO_NODE)
    a.ask("delete without a slash", "", build.delete("n"), err=BAD_ARGUMENTS)
    a.ask("delete of a path with NUL", "", build.delete("/writes/\0"), err=BAD_ARGUMENTS)
    a.ask("delete of a null path", "can be decoded, and so takes a zxid", build.delete(None), err=MARSHALLING, takes=1)
    a.ask("delete of the node", "with its version", build.delete("/writes/n", 3))
    a.ask(
        "create again",
        "all counters start anew",
        build.create2("/writes/n"),
        lambda zxid: Create2Reply("/writes/n", stat(zxid)),
    )


def reads(play: Player) -> None:
    a = play.start()
    a.create("a node", "", "/reads/n", b"data")
    made = play.last
    a.create("two below it", "the first", "/reads/n/x")
    a.create("an ephemeral below it", "", "/reads/e", flags=EPHEMERAL)
    here = stat(made, length=4, cversion=1, children=1, child_at=made + 1)
    a.ask("exists", "", build.exists("/reads/n"), StatReply(here))
    a.ask("getData", "", build.get_data("/reads/n"), GetDataReply(b"data", here))
    a.ask("getChildren", "", build.get_children("/reads/n"), GetChildrenReply(["x"]))
    a.ask("getChildren2", "", build.get_children2("/reads/n"), GetChildren2Reply(["x"], here))
    a.ask("getChildren of a leaf", "an empty list", build.get_children("/reads/n/x"), GetChildrenReply([]))
    a.ask("getACL", "", build.get_acl("/reads/n"), GetACLReply(OPEN, here))
    a.ask(
        "getAllChildrenNumber",
        "counts all levels",
        build.get_all_children_number("/reads"),
        GetAllChildrenNumberReply(3),
    )
    a.ask("getEphemerals of a prefix", "full paths", build.get_ephemerals("/rea"), GetEphemeralsReply(["/reads/e"]))
    a.ask("getEphemerals of another prefix", "", build.get_ephemerals("/reads/x"), GetEphemeralsReply([]))
    a.ask("getEphemerals of a null prefix", "all", build.get_ephemerals(None), GetEphemeralsReply(["/reads/e"]))
    a.ask("getEphemerals of an empty prefix", "all", build.get_ephemerals(""), GetEphemeralsReply(["/reads/e"]))
    a.ask("whoAmI", "the address is an identity", build.whoami(), WhoAmIReply([Identity("ip", "127.0.0.1")]))
    a.ask("sync", "echoes the path", build.sync("/reads"), SyncReply("/reads"))
    a.ask("sync of no path at all", "is not looked at", build.sync("no path"), SyncReply("no path"))
    a.ask("sync of a null path", "is echoed as null", build.sync(None), SyncReply(""))
    for name, request in (
        ("exists", build.exists),
        ("getData", build.get_data),
        ("getChildren", build.get_children),
        ("getChildren2", build.get_children2),
        ("getACL", build.get_acl),
        ("getAllChildrenNumber", build.get_all_children_number),
    ):
        a.ask(f"{name} of no node", "", request("/reads/none"), err=NO_NODE)
        a.ask(f"{name} of a bad path", "is only not found", request("/reads//n/"), err=NO_NODE)
        a.ask(f"{name} of a null path", "", request(None), err=MARSHALLING)
    a.ask("exists of a path with NUL", "the one rule that exists has", build.exists("/\0"), err=BAD_ARGUMENTS)
    a.ask("getData of a path with NUL", "is only not found", build.get_data("/\0"), err=NO_NODE)
