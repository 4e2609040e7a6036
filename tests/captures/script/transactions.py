"""multi and multiRead."""

from tests.captures import build
from tests.captures.play import Player
from tests.captures.script.tools import (
    BAD_ARGUMENTS,
    BAD_VERSION,
    EPHEMERAL,
    INCONSISTENCY,
    INVALID_ACL,
    MARSHALLING,
    NO_AUTH,
    NO_NODE,
    NODE_EXISTS,
    NOT_EMPTY,
    SEQUENTIAL,
    stat,
)
from zkwire.wire.multi import ErrorResult, MultiReply
from zkwire.wire.requests import (
    AddWatchReply,
    Create2Reply,
    CreateReply,
    GetChildrenReply,
    GetDataReply,
    Nothing,
    StatReply,
)


def failed(*codes: int) -> MultiReply:
    return MultiReply([ErrorResult(code) for code in codes], [-1] * len(codes))


def multi(play: Player) -> None:
    a = play.start()
    node = "/multi"
    a.ask(
        "all kinds",
        "one zxid for all; each Stat is as of its part",
        build.multi(
            build.create(f"{node}/a", b"1"),
            build.create2(f"{node}/a/b", b"22"),
            build.create_container(f"{node}/c"),
            build.create_ttl(f"{node}/t", 3_600_000),
            build.create(f"{node}/f4", flags=4),
            build.set_data(f"{node}/a", b"333"),
            build.check(f"{node}/a", 1),
            build.delete(f"{node}/a/b"),
        ),
        lambda zxid: MultiReply(
            [
                CreateReply(f"{node}/a"),
                Create2Reply(f"{node}/a/b", stat(zxid, length=2)),
                Create2Reply(f"{node}/c", stat(zxid)),
                Create2Reply(f"{node}/t", stat(zxid)),
                Create2Reply(f"{node}/f4", stat(zxid)),
                StatReply(stat(zxid, version=1, length=3, cversion=1, children=1)),
                Nothing(),
                Nothing(),
            ],
            [1, 15, 15, 15, 15, 5, 13, 2],
        ),
    )
    made = play.last
    a.ask("the node afterwards", "", build.exists(f"{node}/a"), StatReply(stat(made, version=1, length=3, cversion=2)))
    a.ask(
        "sequential",
        "numbers follow each other",
        build.multi(build.create(f"{node}/s-", flags=SEQUENTIAL), build.create(f"{node}/s-", flags=SEQUENTIAL)),
        MultiReply([CreateReply(f"{node}/s-0000000004"), CreateReply(f"{node}/s-0000000005")], [1, 1]),
    )
    a.ask(
        "ephemeral",
        "",
        build.multi(build.create2(f"{node}/e", flags=EPHEMERAL)),
        lambda zxid: MultiReply([Create2Reply(f"{node}/e", stat(zxid, owner=a.session_id))], [15]),
    )
    a.ask(
        "create and delete",
        "of the same node",
        build.multi(build.create(f"{node}/x"), build.delete(f"{node}/x")),
        MultiReply([CreateReply(f"{node}/x"), Nothing()], [1, 2]),
    )
    a.ask("empty", "takes a zxid", build.multi(), MultiReply([], []))
    a.ask("bytes behind the end", "are ignored", build.multi() + b"behind", MultiReply([], []))
    a.ask("only a check", "", build.multi(build.check(f"{node}/a", 1)), MultiReply([Nothing()], [13]))
    a.ask(
        "version by version",
        "",
        build.multi(build.set_data(f"{node}/c", b"", 0), build.set_data(f"{node}/c", b"", 1)),
        lambda zxid: MultiReply(
            [StatReply(stat(made, changed=zxid, version=1)), StatReply(stat(made, changed=zxid, version=2))], [5, 5]
        ),
    )
    a.ask("recursive watch", "", build.add_watch(node, 1), AddWatchReply(0))
    a.ask("child watch", "", build.get_children(f"{node}/c", True), GetChildrenReply([]))
    a.ask(
        "events",
        "in the order of the parts",
        build.multi(
            build.set_data(f"{node}/a", b""),
            build.create(f"{node}/c/x"),
            build.delete(f"{node}/f4"),
            build.create(f"{node}/y"),
            build.delete(f"{node}/y"),
        ),
        lambda zxid: MultiReply(
            [
                StatReply(stat(made, changed=zxid, version=2, cversion=2)),
                CreateReply(f"{node}/c/x"),
                Nothing(),
                CreateReply(f"{node}/y"),
                Nothing(),
            ],
            [5, 1, 2, 1, 2],
        ),
        events=[
            f"a changed {node}/a",
            f"a created {node}/c/x",
            f"a children {node}/c",
            f"a deleted {node}/f4",
            f"a created {node}/y",
            f"a deleted {node}/y",
        ],
    )


def refused_multi(play: Player) -> None:
    a = play.start()
    node = "/refused_multi"
    good = build.create(f"{node}/good")
    a.create("closed", "nobody may do anything", f"{node}/closed", acl=[(0, "world", "anyone")])
    for name, part, err in (
        ("NoNode", build.set_data(f"{node}/none"), NO_NODE),
        ("NoNode of a delete", build.delete(f"{node}/none"), NO_NODE),
        ("NoNode of a check", build.check(f"{node}/none"), NO_NODE),
        ("NodeExists", build.create(node), NODE_EXISTS),
        ("NodeExists by an earlier part", good, NODE_EXISTS),
        ("BadVersion", build.set_data(node, b"", 7), BAD_VERSION),
        ("BadVersion of a check", build.check(node, 7), BAD_VERSION),
        ("NotEmpty", build.delete(node), NOT_EMPTY),
        ("NoAuth", build.set_data(f"{node}/closed"), NO_AUTH),
        ("NoAuth of a check", build.check(f"{node}/closed"), NO_AUTH),
        ("InvalidACL", build.create(f"{node}/x", acl=[]), INVALID_ACL),
        ("BadArguments of a path", build.create("x"), BAD_ARGUMENTS),
        ("BadArguments of a check", build.check("x"), BAD_ARGUMENTS),
        ("BadArguments of a ttl", build.create_ttl(f"{node}/x", 0), BAD_ARGUMENTS),
        ("delete of the root", build.delete("/"), BAD_ARGUMENTS),
    ):
        a.ask(
            name,
            "0 before the part that is refused, -2 behind it; the header says no error",
            build.multi(good, part, build.delete(f"{node}/good")),
            failed(0, err, INCONSISTENCY),
        )
    a.ask("first of all", "", build.multi(build.check(node, 7), good), failed(BAD_VERSION, INCONSISTENCY))
    a.ask(
        "nothing was done",
        "no node, no count",
        build.create(f"{node}/s-", flags=SEQUENTIAL),
        CreateReply(f"{node}/s-0000000001"),
    )
    for name, request in {
        "setACL within": build.multi(good, build.set_acl(node, build.OPEN)),
        "exists within": build.multi(build.exists(node)),
        "getData within": build.multi(build.get_data(node)),
        "unknown opcode within": build.multi(build.opcode(77)),
        "invalid flags within": build.multi(build.create(f"{node}/x", flags=9)),
        "no end": build.multi(good)[:-9],
        "truncated part": build.multi(good)[:20],
        "no body": build.multi()[:4],
    }.items():
        a.ask(name, "the whole request is refused; it takes a zxid", request, err=MARSHALLING)


def multi_read(play: Player) -> None:
    a = play.start()
    node = "/multi_read"
    made = play.last
    a.ask(
        "both kinds",
        "the watch flags do nothing",
        build.multi_read(build.get_data(node, True), build.get_children(node, True)),
        MultiReply([GetDataReply(b"", stat(made)), GetChildrenReply([])], [4, 8]),
    )
    a.set("set", "no event", node, made=made)
    changed = play.last
    a.create("closed", "", f"{node}/closed", acl=[(0, "world", "anyone")])
    now = stat(made, changed=changed, child_at=play.last, version=1, cversion=1, children=1)
    a.ask(
        "each for itself",
        "what is refused stands in its place",
        build.multi_read(
            build.get_data(f"{node}/none"),
            build.get_data(node),
            build.get_children(f"{node}/closed"),
            build.get_children(f"{node}/none"),
            build.get_data(f"{node}/closed"),
        ),
        MultiReply(
            [
                ErrorResult(NO_NODE),
                GetDataReply(b"", now),
                ErrorResult(NO_AUTH),
                ErrorResult(NO_NODE),
                ErrorResult(NO_AUTH),
            ],
            [-1, 4, -1, -1, -1],
        ),
    )
    a.ask("empty", "takes no zxid", build.multi_read(), MultiReply([], []))
    a.ask(
        "exists within",
        "cannot be decoded: the whole is refused",
        build.multi_read(build.get_data(node), build.exists(node)),
        err=MARSHALLING,
    )
    a.ask(
        "a write behind a read",
        "cannot be decoded either",
        build.multi_read(build.get_data(node), build.delete(node)),
        err=MARSHALLING,
    )
    a.ask(
        "a write within",
        "can be decoded; an empty list of results follows the error",
        build.multi_read(build.create(f"{node}/x")),
        MultiReply([], []),
        err=MARSHALLING,
    )
    a.ask("no end", "", build.multi_read(build.get_data(node))[:-9], err=MARSHALLING)
    a.ask("reads in a multi", "", build.multi(build.get_data(node)), err=MARSHALLING)
