"""Quotas: the server counts a subtree's nodes and bytes in a node that clients read; by default it enforces nothing."""

from tests.captures import build
from tests.captures.play import Client, Player
from tests.captures.script.tools import EPHEMERAL, NO_NODE, stat
from zkwire.wire.multi import ErrorResult, MultiReply
from zkwire.wire.requests import CreateReply, GetDataReply, Nothing, StatReply

PLACE = "/zookeeper/quota/quotas"
STATS = f"{PLACE}/zookeeper_stats"
LIMITS = f"{PLACE}/zookeeper_limits"


def quotas(play: Player) -> None:
    a = play.start()
    node = "/quotas"
    numbers = iter(range(1, 100))

    def make(client: Client, path: str, data: bytes = b"", flags: int = 0) -> None:
        name = f"{next(numbers)}: create {path.rpartition('/')[2]}"
        client.create(name, "", path, data, flags=flags)

    def counted(text: bytes, *, version: int = 0, changed: int | None = None) -> None:
        meant = GetDataReply(text, stat(made, length=len(text), version=version, changed=changed))
        a.ask(f"{next(numbers)}: {text.decode()}", "by the server, without a new version", build.get_data(STATS), meant)

    make(a, f"{node}/n", b"12")
    make(a, PLACE)
    make(a, LIMITS, b"count=2,bytes=3")
    make(a, STATS, b"count=77,bytes=77")
    made = play.last
    counted(b"count=2,bytes=2")
    a.ask("watch", "does not see the counting", build.exists(STATS, True), StatReply(stat(made, length=15)))
    make(a, f"{node}/m", b"333")
    counted(b"count=3,bytes=5")
    make(a, f"{node}/m/below", b"1")
    counted(b"count=4,bytes=6")
    a.set("set n", "to nothing", f"{node}/n", None, made=made - 3)
    counted(b"count=4,bytes=4")
    a.ask("delete below", "", build.delete(f"{node}/m/below"))
    counted(b"count=3,bytes=3")
    b = play.session("b", "another session", "with ephemerals")
    make(b, f"{node}/e", b"4444", EPHEMERAL)
    counted(b"count=4,bytes=7")
    b.ask("close", "takes its node along", build.close_session(), closes={"b"})
    counted(b"count=3,bytes=3")
    a.ask(
        "multi",
        "each part counts",
        build.multi(build.create(f"{node}/x", b"55555"), build.delete(f"{node}/m")),
        MultiReply([CreateReply(f"{node}/x"), Nothing()], [1, 2]),
    )
    counted(b"count=3,bytes=5")
    a.ask(
        "refused multi",
        "counts nothing",
        build.multi(build.create(f"{node}/y", b"1"), build.delete(f"{node}/none")),
        MultiReply([ErrorResult(0), ErrorResult(NO_NODE)], [-1, -1]),
    )
    counted(b"count=3,bytes=5")
    a.set("set stats", "a client may", STATS, b"count=10,bytes=100", made=made, events=[f"a changed {STATS}"])
    changed = play.last
    make(a, f"{node}/z", b"1")
    counted(b"count=11,bytes=101", version=1, changed=changed)
    make(a, "/quotas-elsewhere", b"1")
    counted(b"count=11,bytes=101", version=1, changed=changed)
    a.ask("delete limits", "ends it", build.delete(LIMITS))
    make(a, f"{node}/zz", b"1")
    counted(b"count=11,bytes=101", version=1, changed=changed)
