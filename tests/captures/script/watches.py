"""Watches of every kind, what fires them, and how they come back after a reconnect."""

from collections.abc import Callable

from tests.captures import build
from tests.captures.play import Meant, Player
from tests.captures.script.tools import (
    AUTH_XID,
    BOB,
    EPHEMERAL,
    MARSHALLING,
    NO_AUTH,
    NO_NODE,
    NO_WATCHER,
    SET_WATCHES_XID,
    stat,
)
from zkwire.wire.jute import Record
from zkwire.wire.requests import (
    AddWatchReply,
    Create2Reply,
    CreateReply,
    GetChildren2Reply,
    GetChildrenReply,
    GetDataReply,
    StatReply,
)

CHILDREN, DATA, ANY, PERSISTENT, RECURSIVE = 1, 2, 3, 4, 5
DONE = AddWatchReply(0)


def set_once(made: int, length: int = 0) -> Callable[[int], Record]:
    """The reply to the first setData of a node."""
    return lambda zxid: StatReply(stat(made, changed=zxid, version=1, length=length))


def one_shot(play: Player) -> None:
    a = play.start()
    b = play.session("b", "writer", "changes what a watches")
    node = "/one_shot"
    a.ask("watch by exists of no node", "is set although refused", build.exists(f"{node}/n", True), err=NO_NODE)
    a.ask("watch by getData of no node", "is not set", build.get_data(f"{node}/m", True), err=NO_NODE)
    b.create("create", "fires the watch of exists", f"{node}/n", events=[f"a created {node}/n"])
    made = play.last
    b.set("set unwatched", "the watch was used up", f"{node}/n", b"1", made=made)
    b.create("create unwatched", "where getData set nothing", f"{node}/m")
    now = stat(made, changed=made + 1, version=1, length=1)
    a.ask("watch by getData", "", build.get_data(f"{node}/n", True), GetDataReply(b"1", now))
    b.set(
        "set",
        "fires it, even with the same data",
        f"{node}/n",
        b"1",
        made=made,
        version=2,
        events=[f"a changed {node}/n"],
    )
    now = stat(made, changed=play.last, version=2, length=1)
    a.ask("watch by exists", "of a node that is there", build.exists(f"{node}/n", True), StatReply(now))
    a.ask("watch by getChildren", "of the same node", build.get_children(f"{node}/n", True), GetChildrenReply([]))
    a.ask(
        "watch by getChildren2",
        "of its parent",
        build.get_children2(node, True),
        lambda _: GetChildren2Reply(["m", "n"], stat(play.base + 2, child_at=made + 2, cversion=2, children=2)),
    )
    b.ask(
        "setACL",
        "fires nothing",
        build.set_acl(f"{node}/n", build.OPEN),
        StatReply(stat(made, changed=now.mzxid, version=2, length=1, aversion=1)),
    )
    b.ask("refused delete", "fires nothing", build.delete(f"{node}/n", 7), err=-103)
    b.ask(
        "delete",
        "one frame for two watches on the node, one for the parent",
        build.delete(f"{node}/n"),
        events=[f"a deleted {node}/n", f"a children {node}"],
    )
    a.ask("own watch", "", build.get_data(f"{node}/m", True), GetDataReply(b"", stat(made + 2)))
    a.set(
        "own set", "the event comes before the reply", f"{node}/m", b"2", made=made + 2, events=[f"a changed {node}/m"]
    )
    a.ask("child watch", "", build.get_children(f"{node}/m", True), GetChildrenReply([]))
    b.create("create below", "", f"{node}/m/x", events=[f"a children {node}/m"])
    a.ask("child watch on a leaf", "", build.get_children(f"{node}/m/x", True), GetChildrenReply([]))
    b.ask(
        "delete of the leaf", "its child watch tells so", build.delete(f"{node}/m/x"), events=[f"a deleted {node}/m/x"]
    )


def lasting(play: Player) -> None:
    a = play.start()
    b = play.session("b", "writer", "changes what a watches")
    node = "/lasting"
    a.ask("persistent", "on a node that is not there yet", build.add_watch(f"{node}/p", 0), DONE)
    a.ask("recursive", "likewise", build.add_watch(f"{node}/r", 1), DONE)
    a.ask("mode 2", "does not exist", build.add_watch(f"{node}/r", 2), err=MARSHALLING)
    a.ask("mode -1", "nor does this", build.add_watch(f"{node}/r", -1), err=MARSHALLING)
    a.ask("null path", "is watched like any other", build.add_watch(None, 0), DONE)

    def write(name: str, request: bytes, *events: str, reply: Meant = None) -> None:
        b.ask(name, "", request, reply, events=events)

    for kind, below in (("p", [f"a children {node}/p"]), ("r", [f"a created {node}/r/x"])):
        path = f"{node}/{kind}"
        write(f"create {kind}", build.create(path), f"a created {path}", reply=CreateReply(path))
        write(f"set {kind}", build.set_data(path, b"1"), f"a changed {path}", reply=set_once(play.last, length=1))
        write(f"create below {kind}", build.create(f"{path}/x"), *below, reply=CreateReply(f"{path}/x"))
        events = [f"a changed {path}/x"] if kind == "r" else []
        write(f"set below {kind}", build.set_data(f"{path}/x"), *events, reply=set_once(play.last))
        events = [f"a created {path}/x/y"] if kind == "r" else []
        write(f"create two below {kind}", build.create(f"{path}/x/y"), *events, reply=CreateReply(f"{path}/x/y"))
        events = [f"a deleted {path}/x/y"] if kind == "r" else []
        write(f"delete two below {kind}", build.delete(f"{path}/x/y"), *events)
        events = [f"a deleted {path}/x"] if kind == "r" else [f"a children {path}"]
        write(f"delete below {kind}", build.delete(f"{path}/x"), *events)
    a.ask(
        "one-shot beside persistent",
        "the kinds do not disturb each other",
        build.get_children(f"{node}/p", True),
        GetChildrenReply([]),
    )
    a.ask("recursive above it", "", build.add_watch(node, 1), DONE)
    write("delete p", build.delete(f"{node}/p"), f"a deleted {node}/p")
    write("create p again", build.create(f"{node}/p"), f"a created {node}/p", reply=CreateReply(f"{node}/p"))
    a.ask("child watch under a recursive one", "", build.get_children(node, True), GetChildrenReply(["p", "r"]))
    write("delete r", build.delete(f"{node}/r"), f"a deleted {node}/r", f"a children {node}")
    a.ask("recursive on the root", "sees all", build.add_watch("/", 1), DONE)
    write(
        "create elsewhere",
        build.create("/lasting-elsewhere"),
        "a created /lasting-elsewhere",
        reply=CreateReply("/lasting-elsewhere"),
    )
    write("delete elsewhere", build.delete("/lasting-elsewhere"), "a deleted /lasting-elsewhere")


def removal(play: Player) -> None:
    a = play.start()
    b = play.session("b", "another", "whose watches are its own")
    node = "/removal"
    for kind in (CHILDREN, DATA, ANY, PERSISTENT, RECURSIVE):
        a.ask(f"check {kind} of none", "NoWatcher", build.check_watches(node, kind), err=NO_WATCHER)
        a.ask(f"remove {kind} of none", "NoWatcher", build.remove_watches(node, kind), err=NO_WATCHER)
    for kind in (0, 6, -1):
        a.ask(f"check {kind}", "is no kind", build.check_watches(node, kind), err=MARSHALLING)
        a.ask(f"remove {kind}", "is no kind", build.remove_watches(node, kind), err=MARSHALLING)
    here = stat(play.base + 2)
    a.ask("data watch", "", build.exists(node, True), StatReply(here))
    a.ask("child watch", "", build.get_children(node, True), GetChildrenReply([]))
    a.ask("check of both", "", build.check_watches(node, ANY))
    a.ask("check of data", "", build.check_watches(node, DATA))
    a.ask("check of children", "", build.check_watches(node, CHILDREN))
    a.ask("check of persistent", "there is none", build.check_watches(node, PERSISTENT), err=NO_WATCHER)
    b.ask("check by another", "who has none", build.check_watches(node, DATA), err=NO_WATCHER)
    b.ask("removal by another", "who has none", build.remove_watches(node, DATA), err=NO_WATCHER)
    a.ask("remove data", "", build.remove_watches(node, DATA))
    a.ask("check of data again", "", build.check_watches(node, DATA), err=NO_WATCHER)
    a.ask("check of any", "the child watch is left", build.check_watches(node, ANY))
    a.ask("remove any", "takes it", build.remove_watches(node, ANY))
    a.set("set unwatched", "no event", node, made=play.base + 2)
    a.ask("persistent", "", build.add_watch(node, 0), DONE)
    a.ask("recursive", "beside it", build.add_watch(node, 1), DONE)
    for kind, err in ((DATA, NO_WATCHER), (CHILDREN, NO_WATCHER), (PERSISTENT, 0), (RECURSIVE, 0), (ANY, 0)):
        a.ask(f"check {kind} of the lasting", "", build.check_watches(node, kind), err=err)
    a.ask("remove children of the lasting", "", build.remove_watches(node, CHILDREN), err=NO_WATCHER)
    a.ask("remove persistent", "", build.remove_watches(node, PERSISTENT))
    a.ask("check recursive", "stays", build.check_watches(node, RECURSIVE))
    a.ask("remove recursive", "", build.remove_watches(node, RECURSIVE))
    a.ask("check any", "nothing is left", build.check_watches(node, ANY), err=NO_WATCHER)
    a.ask("null path", "is not watched", build.remove_watches(None, ANY), err=NO_WATCHER)
    a.ask("null path watched", "is accepted", build.add_watch(None, 0), DONE)
    a.ask("null path removed", "is found", build.remove_watches(None, ANY))


def rearming(play: Player) -> None:
    a = play.start()
    node = "/rearming"
    for name in ("data", "exist", "child", "p", "r"):
        a.create(f"node {name}", "", f"{node}/{name}")
    before = play.last
    b = play.session("b", "writer", "changes things while a is away")
    a.drop("drop", "a is away")
    b.set("set data", "", f"{node}/data", made=before - 4)
    b.create("create below child", "", f"{node}/child/x")
    b.create("set below r", "which is lost to a", f"{node}/r/x")

    a = a.resume("resume", "without any watch")
    a.ask(
        "setWatches with what changed",
        "each fires at once, in the order of the lists, with the zxid -1",
        build.set_watches(
            before, [f"{node}/data", f"{node}/none"], [f"{node}/exist"], [f"{node}/child", f"{node}/none"]
        ),
        events=[
            f"a changed {node}/data",
            f"a deleted {node}/none",
            f"a created {node}/exist",
            f"a children {node}/child",
            f"a deleted {node}/none",
        ],
        xid=SET_WATCHES_XID,
    )
    now = play.last
    a.ask(
        "setWatches with what did not change",
        "is set and answered with nothing",
        build.set_watches(now, [f"{node}/data"], [f"{node}/none"], [f"{node}/child"]),
        xid=SET_WATCHES_XID,
    )
    b.set(
        "set data again",
        "fires the watch",
        f"{node}/data",
        made=before - 4,
        version=2,
        events=[f"a changed {node}/data"],
    )
    b.create("create none", "fires the watch", f"{node}/none", events=[f"a created {node}/none"])
    b.ask("delete below child", "fires the watch", build.delete(f"{node}/child/x"), events=[f"a children {node}/child"])
    a.drop("drop again", "a is away")
    a = a.resume("resume again", "without any watch")
    a.ask(
        "setWatches2",
        "the lasting ones never fire at once",
        build.set_watches2(
            before, [f"{node}/exist"], [f"{node}/later"], [f"{node}/exist"], [f"{node}/p"], [f"{node}/r"]
        ),
    )
    b.set("set p", "", f"{node}/p", made=before - 1, events=[f"a changed {node}/p"])
    b.ask("delete below r", "", build.delete(f"{node}/r/x"), events=[f"a deleted {node}/r/x"])
    b.ask(
        "create later",
        "",
        build.create2(f"{node}/later"),
        lambda zxid: Create2Reply(f"{node}/later", stat(zxid)),
        events=[f"a created {node}/later"],
    )
    b.ask(
        "delete exist", "one frame for two watches", build.delete(f"{node}/exist"), events=[f"a deleted {node}/exist"]
    )
    a.ask("setWatches2 with empty lists", "", build.set_watches2(0))
    a.ask(
        "setWatches from zxid 0",
        "everything is newer",
        build.set_watches(0, [f"{node}/p"], [], [node]),
        events=[f"a changed {node}/p", f"a children {node}"],
    )
    a.ask("setWatches with a null list", "", build.opcode(101, build.i64(0) + build.i32(-1) * 3), err=MARSHALLING)
    a.ask("truncated setWatches2", "", build.set_watches2(0)[:-4], err=MARSHALLING)


def unreadable(play: Player) -> None:
    a = play.start()
    node = "/unreadable"
    b = play.session("b", "bob", "who may read what he makes")
    b.ask("auth", "", build.auth("digest", b"bob:pw"), xid=AUTH_XID, zxid=0)
    own = [(31, "digest", BOB)]
    a.ask("exist watch", "on what is not there yet", build.exists(f"{node}/n", True), err=NO_NODE)
    a.ask("recursive watch", "above it", build.add_watch(node, 1), DONE)
    b.create("create", "is not told to who may not read it", f"{node}/n", acl=own)
    made = play.last
    b.ask("opened", "", build.set_acl(f"{node}/n", build.OPEN), StatReply(stat(made, aversion=1)))
    b.set(
        "set",
        "the recursive watch is there; the other was used up unseen",
        f"{node}/n",
        made=made,
        aversion=1,
        events=[f"a changed {node}/n"],
    )
    changed = play.last
    a.ask(
        "data watch",
        "while it may be read",
        build.get_data(f"{node}/n", True),
        GetDataReply(b"", stat(made, changed=changed, version=1, aversion=1)),
    )
    b.ask("closed", "", build.set_acl(f"{node}/n", own), StatReply(stat(made, changed=changed, version=1, aversion=2)))
    a.ask("watch by exists", "is refused", build.exists(f"{node}/n", True), err=NO_AUTH)
    b.ask("delete", "is not told either", build.delete(f"{node}/n"))
    b.create("ephemeral", "readable by all", f"{node}/e", flags=EPHEMERAL, events=[f"a created {node}/e"])
