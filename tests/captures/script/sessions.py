"""Handshakes, the end of sessions, and frames that are no requests."""

from tests.captures import build
from tests.captures.play import Player
from tests.captures.script.tools import EPHEMERAL, MARSHALLING, PING_XID, UNIMPLEMENTED, stat
from zkwire.wire.requests import AddWatchReply, GetChildrenReply, GetDataReply, GetEphemeralsReply, StatReply


def fresh(play: Player) -> None:
    """Must be the first theme of a fresh server."""
    a = play.session("a", "start", "the first session of this server takes zxid 1")
    play.base, play.last = 0, 1
    a.ask(
        "exists /",
        "the root of a fresh server: /zookeeper was never counted, hence the cversion",
        build.exists("/"),
        StatReply(stat(0, cversion=-1, children=1)),
    )
    a.ask(
        "exists empty path",
        "for reads the empty path is another name of the root",
        build.exists(""),
        StatReply(stat(0, cversion=-1, children=1)),
    )
    a.ask(
        "exists /zookeeper",
        "two children that were never counted",
        build.exists("/zookeeper"),
        StatReply(stat(0, cversion=-2, children=2)),
    )
    a.ask(
        "getData config",
        "empty on a standalone server, with an aversion of its own",
        build.get_data("/zookeeper/config"),
        GetDataReply(b"", stat(0, aversion=-1)),
    )
    a.ask(
        "getData quota", "an empty node, not a null one", build.get_data("/zookeeper/quota"), GetDataReply(b"", stat(0))
    )


def handshake(play: Player) -> None:
    a = play.start()
    wrong = bytes(range(16))
    play.handshake(
        "b",
        "no readOnly byte",
        "a request of 44 bytes, as before 3.4, is answered without that byte",
        build.connect(read_only=None),
        timeout=300_000,
        flag=False,
    )
    play.handshake(
        "c",
        "readOnly true",
        "a client that would take a read-only server gets this one, which is not",
        build.connect(read_only=True),
        timeout=300_000,
    )
    for name, wished in {"timeout too short": 10, "timeout 0": 0, "timeout negative": -5}.items():
        d = play.handshake("d", name, "clamped to two ticks of 500 ms", build.connect(wished), timeout=1000)
        assert d is not None
        d.ask(
            f"{name}, closed", "so that it does not expire in the middle of this", build.close_session(), closes={"d"}
        )
    play.handshake(
        "f", "timeout too long", "clamped to the server's longest", build.connect(2_000_000_000), timeout=600_000
    )
    play.handshake("g", "protocol version 7", "is not looked at", build.connect(version=7), timeout=300_000)
    play.handshake(
        "h", "null password", "is not looked at for a new session", build.connect(password=None), timeout=300_000
    )
    play.handshake("i", "long password", "nor is one of 40 bytes", build.connect(password=bytes(40)), timeout=300_000)
    play.handshake("j", "bytes behind the request", "are ignored", build.connect() + b"more", timeout=300_000)
    play.handshake(
        "k",
        "a zxid that the server has not reached",
        "is closed without an answer",
        build.connect(last_zxid=play.last + 1000),
        timeout=None,
    )
    play.handshake(
        "k", "the zxid that the server has reached", "is accepted", build.connect(last_zxid=play.last), timeout=300_000
    )
    play.handshake("l", "too short a request", "is closed without an answer", build.connect()[:20], timeout=None)
    play.handshake("l", "an empty first frame", "is closed without an answer", b"", timeout=None)
    play.handshake(
        "l",
        "a password longer than its frame",
        "is closed without an answer",
        build.connect()[:24] + build.i32(17) + bytes(16),
        timeout=None,
    )
    play.handshake(
        "l",
        "a password of negative length",
        "is closed without an answer",
        build.connect()[:24] + build.i32(-2) + bytes(16),
        timeout=None,
    )
    play.handshake(
        "l",
        "an unknown session",
        "is refused: timeout, id and password are 0, and the connection ends",
        build.connect(session_id=77, password=wrong),
        timeout=0,
    )
    play.handshake(
        "l",
        "an unknown session, without the readOnly byte",
        "is refused in kind",
        build.connect(session_id=77, password=wrong, read_only=None),
        timeout=0,
        flag=False,
    )
    a.create("a node to find again", "belongs to the session", "/handshake/mine", b"1", flags=EPHEMERAL)
    again = a.resume(
        "resume",
        "the right password, while the old connection stands: that one is closed, no zxid is taken",
        on="m",
        timeout=5000,
        closes={"a"},
    )
    again.ask(
        "the node is still there",
        "and its owner is the session",
        build.get_ephemerals("/"),
        GetEphemeralsReply(["/handshake/mine"]),
    )
    play.handshake(
        "n",
        "wrong password",
        "is refused, and the rightful owner loses its connection all the same",
        build.connect(5000, a.session_id, wrong),
        timeout=0,
        closes={"m"},
    )
    last = a.resume(
        "resume after that", "the session itself is unharmed; its timeout is agreed anew", on="o", timeout=7000
    )
    last.drop("drop", "the TCP connection ends, the session does not")
    last = a.resume("resume after a drop", "without the readOnly byte this time", on="o", timeout=7000, read_only=None)
    last.ask("close", "closeSession is answered, then the connection ends", build.close_session(), closes={"o"})
    play.handshake(
        "p",
        "resume of a closed session",
        "is refused, with the right password too",
        build.connect(7000, a.session_id, a.password),
        timeout=0,
    )


def closing(play: Player) -> None:
    a = play.start()
    b = play.session("b", "watcher", "it will watch from another session")
    b.ask("recursive watch", "on the theme's node", build.add_watch("/closing", 1), AddWatchReply(0))
    a.create(
        "one ephemeral",
        "and only one, as their order is not defined",
        "/closing/mine",
        flags=EPHEMERAL,
        events=["b created /closing/mine"],
    )
    a.ask(
        "own watch",
        "on the own node",
        build.exists("/closing/mine", True),
        lambda _: StatReply(stat(play.last, owner=a.session_id)),
    )
    a.ask("own child watch", "on its parent", build.get_children("/closing", True), GetChildrenReply(["mine"]))
    a.ask(
        "close with one ephemeral",
        "the session's own watches fire before the reply; both in one transaction",
        build.close_session(),
        events=["a deleted /closing/mine", "a children /closing", "b deleted /closing/mine"],
        closes={"a"},
    )
    b.ask(
        "the parent afterwards",
        "one child came and went, by two transactions",
        build.exists("/closing"),
        StatReply(stat(play.base + 2, child_at=play.last, cversion=2)),
    )
    c = play.session("c", "second session", "for several ephemerals")
    for name in ("x", "y", "z"):
        c.create(
            f"ephemeral {name}",
            "one of three",
            f"/closing/{name}",
            flags=EPHEMERAL,
            events=[f"b created /closing/{name}"],
        )
    c.ask(
        "close with three ephemerals (in any order)",
        "they are deleted in the order of a hash table",
        build.close_session(),
        events=[f"b deleted /closing/{name}" for name in "xyz"],
        closes={"c"},
        in_any_order=True,
    )
    b.ask(
        "the parent at last",
        "four came and went; the last transaction is the close",
        build.exists("/closing"),
        StatReply(stat(play.base + 2, child_at=play.last, cversion=8)),
    )


def framing(play: Player) -> None:
    a = play.start()

    def next_to(name: str) -> None:
        nonlocal a
        a = a.resume(name, "the session outlived its connection")

    a.ask("ping", "always answered under the xid -2", build.ping(), reply_xid=PING_XID, xid=PING_XID)
    a.ask("ping under another xid", "is answered under -2 as well", build.ping(), xid=12, reply_xid=PING_XID)
    a.ask("ping with bytes behind it", "they are ignored", build.ping() + b"behind", xid=13, reply_xid=PING_XID)
    a.ask("xid 0", "is echoed like any other", build.exists("/framing"), StatReply(stat(play.last)), xid=0)
    a.ask("a negative xid", "is echoed like any other", build.exists("/framing"), StatReply(stat(play.last)), xid=-77)
    a.ask("bytes behind a record", "are ignored", build.exists("/framing") + b"behind", StatReply(stat(play.last)))
    a.ask("boolean 02", "is true", build.exists("/framing")[:-1] + b"\x02", StatReply(stat(play.last)))
    a.set("which set a watch", "as a write shows", "/framing", b"1", made=play.base + 2, events=["a changed /framing"])
    a.ask("truncated read", "a record that ends too early", build.exists("/framing")[:-1], err=MARSHALLING)
    a.ask("truncated write", "the same; it takes no zxid", build.create("/framing/x")[:-1], err=MARSHALLING)
    a.ask("no body", "the header alone", build.opcode(4), err=MARSHALLING)
    a.ask("a string of negative length", "other than -1", build.opcode(4, build.i32(-2) + b"/\x00"), err=MARSHALLING)
    a.ask(
        "a string longer than its frame",
        "and longer than any frame",
        build.opcode(4, build.i32(2**31 - 1) + b"/\x00"),
        err=MARSHALLING,
    )
    a.ask(
        "too many ACLs for the frame",
        "a count without its elements",
        build.opcode(1, build.ustring("/framing/x") + build.buffer(b"") + build.i32(1000)),
        err=MARSHALLING,
    )
    for number in (0, -1, 10, 23, 108, 13):
        what = "check, which may only stand in a multi" if number == 13 else f"opcode {number}"
        body = build.check("/framing")[4:] if number == 13 else b""
        a.ask(
            f"unknown opcode {number}",
            f"{what}: refused with the zxid -1, then the connection is closed",
            build.opcode(number, body),
            err=UNIMPLEMENTED,
            zxid=-1,
            closes={"a"},
        )
        next_to(f"after opcode {number}")
    for size in (0, 4, 7):
        a.send_raw(
            f"a frame of {size} bytes", "is no header: the connection is closed", build.frame(bytes(size)), closes={"a"}
        )
        next_to(f"after a frame of {size} bytes")
    for size in (-1, 1_048_576, 2**31 - 1):
        a.send_raw(f"a length of {size}", "is not accepted: the connection is closed", build.i32(size), closes={"a"})
        next_to(f"after a length of {size}")
    a.send_raw("a four-letter word", "is taken for a length after the handshake", b"ruok", closes={"a"})
    next_to("after a four-letter word")
    a.ask(
        "a second ConnectRequest",
        "is read as xid 0 and opcode 0",
        build.connect()[4:],
        err=UNIMPLEMENTED,
        zxid=-1,
        xid=0,
        closes={"a"},
    )
