"""ACLs, identities, authentication; reconfig, which the standalone server refuses."""

from tests.captures import build
from tests.captures.play import Player
from tests.captures.script.tools import (
    ANN,
    AUTH_FAILED,
    AUTH_XID,
    BAD_ARGUMENTS,
    BAD_VERSION,
    BOB,
    INVALID_ACL,
    NO_AUTH,
    NO_NODE,
    RECONFIG_DISABLED,
    stat,
)
from zkwire.wire.records import ACL
from zkwire.wire.requests import (
    ClientInfoRecord,
    GetACLReply,
    GetAllChildrenNumberReply,
    GetChildrenReply,
    GetDataReply,
    SaslReply,
    StatReply,
    WhoAmIReply,
)

ALL = 31
READ, WRITE, CREATE, DELETE, ADMIN = 1, 2, 4, 8, 16
WORLD = (ALL, "world", "anyone")


def acls(play: Player) -> None:
    a = play.start()
    node = "/acls"
    a.create(
        "an ACL of every scheme",
        "is kept as sent, in its order",
        f"{node}/n",
        acl=[(ALL, "digest", BOB), (READ, "world", "anyone"), (3, "ip", "127.0.0.0/8")],
    )
    made = play.last
    a.ask(
        "getACL",
        "the hash is masked for who has no ADMIN right",
        build.get_acl(f"{node}/n"),
        GetACLReply(
            [ACL(ALL, "digest", "bob:x"), ACL(READ, "world", "anyone"), ACL(3, "ip", "127.0.0.0/8")], stat(made)
        ),
    )
    a.set("what the address may", "is written in the third entry", f"{node}/n", b"1", made=made)
    a.ask("what nobody but bob may", "is to create below it", build.create(f"{node}/n/x"), err=NO_AUTH)
    a.ask("setACL without ADMIN", "", build.set_acl(f"{node}/n", [WORLD]), err=NO_AUTH)
    a.create("duplicates", "are dropped", f"{node}/twice", acl=[WORLD, WORLD, (READ, "world", "anyone")])
    a.ask(
        "getACL of duplicates",
        "the order is kept",
        build.get_acl(f"{node}/twice"),
        GetACLReply([ACL(ALL, "world", "anyone"), ACL(READ, "world", "anyone")], stat(play.last)),
    )
    a.create("permissions that do not exist", "are kept", f"{node}/bits", acl=[(255, "world", "anyone")])
    made = play.last
    a.ask(
        "getACL of such permissions",
        "",
        build.get_acl(f"{node}/bits"),
        GetACLReply([ACL(255, "world", "anyone")], stat(made)),
    )
    a.ask(
        "setACL",
        "counts in aversion and nowhere else",
        build.set_acl(f"{node}/bits", [(ADMIN, "world", "anyone")]),
        StatReply(stat(made, aversion=1)),
    )
    a.ask(
        "setACL with the right version",
        "",
        build.set_acl(f"{node}/bits", [WORLD], 1),
        StatReply(stat(made, aversion=2)),
    )
    a.ask("setACL with a wrong version", "", build.set_acl(f"{node}/bits", [WORLD], 1), err=BAD_VERSION)
    a.ask("setACL of no node", "", build.set_acl(f"{node}/none", [WORLD]), err=NO_NODE)
    a.ask("setACL of a bad path", "", build.set_acl(f"{node}//n", [WORLD]), err=BAD_ARGUMENTS)
    a.ask(
        "setACL of a bad ACL on no node",
        "the ACL comes first",
        build.set_acl(f"{node}/none", [(ALL, "world", "me")]),
        err=INVALID_ACL,
    )
    bad: dict[str, list[build.Entry] | None] = {
        "empty": [],
        "null": None,
        "world with another id": [(ALL, "world", "everyone")],
        "unknown scheme": [(ALL, "foo", "bar")],
        "scheme super": [(ALL, "super", "")],
        "null scheme": [(ALL, None, "anyone")],
        "auth without an identity": [(ALL, "auth", "")],
        "digest without a colon": [(ALL, "digest", "bob")],
        "digest with three parts": [(ALL, "digest", "bob:x:y")],
        "digest without a hash": [(ALL, "digest", "bob:")],
        "ip that is none": [(ALL, "ip", "localhost")],
        "ip with 33 bits": [(ALL, "ip", "10.0.0.0/33")],
        "ip with three parts": [(ALL, "ip", "10.0.0")],
        "ip out of range": [(ALL, "ip", "10.0.0.256")],
        "sasl that is not configured": [(ALL, "sasl", "bob")],
        "a bad one behind a good one": [WORLD, (ALL, "foo", "bar")],
    }
    for name, entries in bad.items():
        a.ask(f"bad ACL: {name}", "is refused", build.create(f"{node}/bad", acl=entries), err=INVALID_ACL)
    a.ask(
        "an ACL with a null id",
        "can be decoded, and so takes a zxid",
        build.create(f"{node}/bad", acl=[(ALL, "world", None)]),
        err=-5,
        takes=1,
    )
    for name, id in {"IPv6": "::1", "IPv6 with bits": "fe80::/10", "no bits": "10.0.0.1", "bits": "10.0.0.0/8"}.items():
        a.create(f"good ip ACL: {name}", "is accepted", f"{node}/ip {name}", acl=[(ALL, "ip", id)])


def permissions(play: Player) -> None:
    a = play.start()
    node = "/permissions"
    a.create("closed to all", "nobody may do anything with it", f"{node}/closed", acl=[(0, "world", "anyone")])
    closed = f"{node}/closed"
    for name, request in {
        "exists": build.exists(closed),
        "getData": build.get_data(closed),
        "getChildren": build.get_children(closed),
        "getChildren2": build.get_children2(closed),
        "getAllChildrenNumber": build.get_all_children_number(closed),
        "getACL": build.get_acl(closed),
        "setData": build.set_data(closed, b"x"),
        "setData with a wrong version": build.set_data(closed, b"x", 7),
        "setACL": build.set_acl(closed, [WORLD]),
        "create below it": build.create(f"{closed}/x"),
        "delete of nothing below it": build.delete(f"{closed}/x"),
    }.items():
        a.ask(f"{name}, not allowed", "NoAuth", request, err=NO_AUTH)
    a.ask("delete", "is a matter of the parent's ACL", build.delete(closed))
    a.create("only READ", "a node to be seen", f"{node}/read", acl=[(READ, "world", "anyone")])
    made = play.last
    a.ask(
        "getACL with READ",
        "is enough",
        build.get_acl(f"{node}/read"),
        GetACLReply([ACL(READ, "world", "anyone")], stat(made)),
    )
    a.create("only ADMIN", "a node to be governed", f"{node}/admin", acl=[(ADMIN, "world", "anyone")])
    made = play.last
    a.ask(
        "getACL with ADMIN",
        "is enough too",
        build.get_acl(f"{node}/admin"),
        GetACLReply([ACL(ADMIN, "world", "anyone")], stat(made)),
    )
    a.ask("getData with ADMIN only", "is not allowed", build.get_data(f"{node}/admin"), err=NO_AUTH)
    a.ask(
        "getChildren of the parent",
        "shows what may not be read",
        build.get_children(node),
        GetChildrenReply(["admin", "read"]),
    )
    a.ask(
        "getAllChildrenNumber of the parent",
        "counts what may not be read",
        build.get_all_children_number(node),
        GetAllChildrenNumberReply(2),
    )
    a.create(
        "no DELETE", "a parent of which nothing may be deleted", f"{node}/keep", acl=[(ALL - DELETE, "world", "anyone")]
    )
    a.create("a child to keep", "", f"{node}/keep/x")
    a.ask("delete of it", "is not allowed", build.delete(f"{node}/keep/x"), err=NO_AUTH)
    a.ask("create of it again", "CREATE is checked first, but is there", build.create(f"{node}/keep/x"), err=-110)


def identities(play: Player) -> None:
    a = play.start()
    node = "/identities"
    a.create("bob's own", "nobody else may see it", f"{node}/bob", b"1", [(ALL, "digest", BOB)])
    made = play.last
    a.ask("before auth", "", build.get_data(f"{node}/bob"), err=NO_AUTH)
    a.ask("auth digest", "answered with the zxid 0", build.auth("digest", b"bob:pw"), xid=AUTH_XID, zxid=0)
    a.ask("after auth", "", build.get_data(f"{node}/bob"), GetDataReply(b"1", stat(made, length=1)))
    a.ask(
        "getACL as bob",
        "with ADMIN the hash is shown",
        build.get_acl(f"{node}/bob"),
        GetACLReply([ACL(ALL, "digest", BOB)], stat(made, length=1)),
    )
    a.ask("auth again", "is harmless", build.auth("digest", b"bob:pw"), xid=AUTH_XID, zxid=0)
    a.ask("whoAmI as bob", "the name without the hash", build.whoami(), AS_BOB)
    a.ask("auth ip", "is there already", build.auth("ip", b""), xid=AUTH_XID, zxid=0)
    a.create("ACL auth", "becomes bob's", f"{node}/mine", acl=[(3, "auth", "")])
    made = play.last
    a.ask(
        "getACL of auth",
        "is stored expanded; ADMIN is missing, so the hash is masked",
        build.get_acl(f"{node}/mine"),
        GetACLReply([ACL(3, "digest", "bob:x")], stat(made)),
    )
    b = play.session("b", "another session", "with an identity of its own")
    b.ask("auth under an ordinary xid", "which is echoed", build.auth("digest", b"ann:secret"), xid=55, zxid=0)
    b.create("ann's ACL", "she is ann", f"{node}/ann", acl=[(ALL, "digest", ANN)])
    b.ask("ann at bob's", "", build.get_data(f"{node}/bob"), err=NO_AUTH)
    b.ask("auth digest without a colon", "is a user too", build.auth("digest", b"carl"), xid=AUTH_XID, zxid=0)
    for name, request in {
        "unknown scheme": build.auth("foo", b"bar"),
        "scheme world": build.auth("world", b"anyone"),
        "scheme auth": build.auth("auth", b""),
        "scheme super": build.auth("super", b"super:admin"),
        "scheme sasl": build.auth("sasl", b"x"),
        "null scheme": build.auth(None, b"bob:pw"),
        "null data": build.auth("digest", None),
    }.items():
        c = play.session("c", f"session for {name}", "which loses its connection")
        c.ask(
            f"auth with {name}",
            "fails, and the connection is closed",
            request,
            err=AUTH_FAILED,
            xid=AUTH_XID,
            zxid=0,
            closes={"c"},
        )
        again = c.resume(f"resume after {name}", "the session survives")
        again.drop(f"drop after {name}", "one connection less")
    d = play.session("d", "session for a truncated auth", "which loses its connection")
    d.send_raw(
        "truncated auth",
        "is not answered: the connection is closed",
        build.frame(build.i32(-4) + build.auth("digest", b"bob:pw")[:-1]),
        closes={"d"},
    )
    e = play.session("e", "session of the superuser", "")
    e.ask("auth as super", "", build.auth("digest", b"super:admin"), xid=AUTH_XID, zxid=0)
    e.ask(
        "super at bob's",
        "is allowed everything",
        build.get_data(f"{node}/bob"),
        GetDataReply(b"1", stat(play.base + 3, length=1)),
    )
    e.ask("close", "", build.close_session(), closes={"e"})


AS_BOB = WhoAmIReply([ClientInfoRecord("digest", "bob"), ClientInfoRecord("ip", "127.0.0.1")])


def administration(play: Player) -> None:
    a = play.start()
    a.ask("reconfig", "is switched off", build.reconfig("server.2=h:1:2;3"), err=RECONFIG_DISABLED)
    a.ask(
        "reconfig of everything", "likewise", build.reconfig(None, None, "server.1=h:1:2;3", 5), err=RECONFIG_DISABLED
    )
    a.ask("truncated reconfig", "", build.reconfig("server.2=h:1:2;3")[:-1], err=-5)
    a.ask("sasl", "without SASL set up: a null token and no error", build.sasl(b""), SaslReply(None), zxid=0)
    a.ask("sasl with a token", "likewise", build.sasl(b"token"), SaslReply(None), zxid=0)
    a.ask(
        "write to /zookeeper/config", "only the superuser may", build.set_data("/zookeeper/config", b"x"), err=NO_AUTH
    )
