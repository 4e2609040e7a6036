"""Types: results typed by what was asked for, immutable and hashable values, and bytes-like arguments."""

import dataclasses
from array import array
from typing import Any, assert_type

import pytest

import zkwire
from tests.support.everywhere import scene
from zkwire import ACL, Create, GetChildren, GetData, Node, Perms, ServerError, Stat, Sync, WatchEvent, ZooKeeperError
from zkwire.session.credentials import Identity, checked


async def test_operations_of_one_class_have_results_of_its_type() -> None:
    async with scene() as stage:
        zk = stage.zk
        assert_type(await zk.get_many([GetData("/")]), list[Node | ServerError])
        assert_type(await zk.get_many([GetChildren("/")]), list[list[str] | ServerError])
        assert_type(await zk.get_many([GetData("/"), GetChildren("/")]), list[Any])
        assert_type(await zk.pipeline([GetData("/")]), list[Node | ZooKeeperError])
        assert_type(await zk.pipeline((GetChildren("/"),)), list[list[str] | ZooKeeperError])
        assert_type(await zk.pipeline([Create("/a")]), list[tuple[str, Stat] | ZooKeeperError])
        assert_type(await zk.pipeline([Sync("/")]), list[ZooKeeperError | None])
        node, names = await zk.pipeline([GetData("/a"), GetChildren("/")])
        assert (node.data, "a" in names) == (b"", True)


async def test_acls_and_events_are_immutable_and_hashable_and_stats_hashable() -> None:
    async with scene() as stage:
        acl = [ACL(Perms.ALL, "world", "anyone"), ACL(31, "world", "anyone")]
        assert len({*acl, *zkwire.OPEN_ACL}) == 1
        stat, watch = await stage.zk.exists_and_watch("/a")
        assert stat is None
        await stage.zk.create("/a", acl=acl[:1])
        event = await watch
        assert len({event, WatchEvent(*event)}) == 1
        node = await stage.zk.get("/a")
        assert len({node.stat, await stage.zk.exists("/a")}) == 1
        assert len({node, await stage.zk.get("/a")}) == 1
        (given,), _ = await stage.zk.get_acl("/a")
        for value, name in ((given, "id"), (event, "path"), (zkwire.OPEN_ACL[0], "perms")):
            with pytest.raises(AttributeError):
                setattr(value, name, "other")


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, lambda data: memoryview(array("B", data))])
async def test_bytes_like_objects_are_taken_wherever_the_types_allow_them(kind: Any) -> None:
    async with scene() as stage:
        zk = stage.zk
        await zk.create("/a", kind(b"1"))
        await zk.set("/a", kind(b"22"))
        assert (await zk.get("/a")).data == b"22"
        await zk.pipeline((Create("/b", kind(b"3")),))
        async with zk.transaction() as tx:
            tx.create("/c", kind(b"4"))
            tx.create_and_stat("/d", kind(b"5"))
            tx.set("/b", kind(b"6"))
        *nodes, _ = await zk.get_many((GetData("/b"), GetData("/c"), GetData("/d"), GetChildren("/")))
        assert [node.data for node in nodes] == [b"6", b"4", b"5"]
        await zk.add_auth("digest", kind(b"bob:secret"))
        assert zkwire.ClientInfo("digest", "bob") in await zk.whoami()
        assert checked("digest", kind(b"bob:secret"), request_limit=2000) == Identity("digest", b"bob:secret")
        first = await zkwire.connect(stage.server.hosts, auth=(("digest", kind(b"bob:secret")),))
        await first.close(keep_session=True)
        password = kind(first.session_password)
        async with zkwire.connect(stage.server.hosts, session_id=first.session_id, session_password=password) as again:
            assert again.session_id == first.session_id


def test_operations_are_compared_and_printed_by_their_fields_and_a_secret_is_not_printed() -> None:
    assert GetData("/a") == GetData("/a") != GetChildren("/a") != GetData("/b")
    assert dataclasses.replace(Create("/a"), ttl=1.0) == Create("/a", ttl=1.0) != Create("/a")
    assert repr(GetData("/a")) == "GetData(path='/a', into=None)"
    with pytest.raises(TypeError, match="unhashable"):
        hash(GetData("/a"))
    assert repr(Identity("digest", b"secret")) == "Identity(scheme='digest')"


class Number(int):
    """An int of another class, as some libraries have it."""


class Names(tuple[ACL, ...]):
    """A sequence that is no list."""


async def test_subclasses_of_int_and_other_sequences_are_taken() -> None:
    async with scene() as stage:
        zk = stage.zk
        await zk.create("/a", acl=Names([ACL(Number(31), "world", "anyone")]))
        await zk.set("/a", b"", Number(0))
        await zk.set_acl("/a", Names(zkwire.OPEN_ACL), Number(0))
        await zk.delete("/a", Number(1))
        limits: Any = dict.fromkeys(("max_in_flight", "request_limit", "reply_limit"), Number(5000))
        async with zkwire.connect(stage.server.hosts, Number(10), **limits) as other:
            await other.events("/", backlog=Number(1)).__aenter__()
