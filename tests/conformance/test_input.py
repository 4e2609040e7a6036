"""Bad input: a clear error with the value in it, and nothing is sent."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import zkwire
from tests.support.client import Server
from tests.support.proxy import Proxy
from zkwire import ACL, Client

LIMIT = 1_048_575  # of a request, without its length
HEADER, LENGTH, VERSION, FLAGS, OPEN_ACL = 8, 4, 4, 4, 27

BAD_PATHS: list[Any] = [
    "",
    "a",
    "a/b",
    "/a/",
    "//",
    "/a//b",
    "/a/../b",
    "/a/./b",
    "/..",
    "/a\x00b",
    "/a\x1f",
    "/a\x7f",
    "/\ud800",
    "/a/\udfff/b",
    "/\ue000",
    "/\uffff",
    "/\U0001f512",
    None,
    5,
    b"/a",
    ["/a"],
]

Verb = Callable[[Client, Any], Awaitable[object]]

VERBS: dict[str, Verb] = {
    "create": lambda zk, path: zk.create(path),
    "create ephemeral": lambda zk, path: zk.create(path, ephemeral=True),
    "create container": lambda zk, path: zk.create(path, container=True),
    "create with parents": lambda zk, path: zk.create(path, make_parents=True),
    "create_and_stat": lambda zk, path: zk.create_and_stat(path),
    "ensure_path": lambda zk, path: zk.ensure_path(path),
    "exists": lambda zk, path: zk.exists(path),
    "exists_and_watch": lambda zk, path: zk.exists_and_watch(path),
    "get": lambda zk, path: zk.get(path),
    "get_and_watch": lambda zk, path: zk.get_and_watch(path),
    "get_children": lambda zk, path: zk.get_children(path),
    "get_children_and_stat": lambda zk, path: zk.get_children_and_stat(path),
    "get_children_and_watch": lambda zk, path: zk.get_children_and_watch(path),
    "set": lambda zk, path: zk.set(path, b""),
    "delete": lambda zk, path: zk.delete(path),
    "sync": lambda zk, path: zk.sync(path),
    "create ttl": lambda zk, path: zk.create(path, ttl=5.0),
    "get_acl": lambda zk, path: zk.get_acl(path),
    "set_acl": lambda zk, path: zk.set_acl(path, zkwire.OPEN_ACL),
    "get_many": lambda zk, path: zk.get_many([zkwire.GetData(path)]),
    "get_many children": lambda zk, path: zk.get_many([zkwire.GetChildren(path)]),
    "pipeline": lambda zk, path: zk.pipeline([zkwire.Sync(path)]),
    "delete_tree": lambda zk, path: zk.delete_tree(path),
    "count_descendants": lambda zk, path: zk.count_descendants(path),
}


def plain(call: Callable[[], object]) -> Awaitable[None]:
    """Make a verb that is not awaited awaitable like the others."""

    async def run() -> None:
        call()

    return run()


# These raise at once, without being awaited, and send nothing before a commit.
NOT_AWAITED: dict[str, Verb] = {
    "discard": lambda zk, path: plain(lambda: zk.discard(path)),
    "data": lambda zk, path: plain(lambda: zk.data(path)),
    "children": lambda zk, path: plain(lambda: zk.children(path)),
    "events": lambda zk, path: plain(lambda: zk.events(path)),
    "transaction create": lambda zk, path: plain(lambda: zk.transaction().create(path)),
    "transaction set": lambda zk, path: plain(lambda: zk.transaction().set(path, b"")),
    "transaction delete": lambda zk, path: plain(lambda: zk.transaction().delete(path)),
    "transaction check": lambda zk, path: plain(lambda: zk.transaction().check(path)),
}

TAKES_DATA: dict[str, Verb] = {
    "create": lambda zk, data: zk.create("/a", data),
    "create_and_stat": lambda zk, data: zk.create_and_stat("/a", data),
    "set": lambda zk, data: zk.set("/a", data),
    "transaction create": lambda zk, data: plain(lambda: zk.transaction().create("/a", data)),
    "transaction set": lambda zk, data: plain(lambda: zk.transaction().set("/a", data)),
}

TAKES_VERSION: dict[str, Verb] = {
    "set": lambda zk, version: zk.set("/a", b"", version),
    "delete": lambda zk, version: zk.delete("/a", version),
    "set_acl": lambda zk, version: zk.set_acl("/a", zkwire.OPEN_ACL, version),
    "transaction set": lambda zk, version: plain(lambda: zk.transaction().set("/a", b"", version)),
    "transaction delete": lambda zk, version: plain(lambda: zk.transaction().delete("/a", version)),
    "transaction check": lambda zk, version: plain(lambda: zk.transaction().check("/a", version)),
}

TAKES_ACL: dict[str, Verb] = {
    "create": lambda zk, acl: zk.create("/a", acl=acl),
    "create_and_stat": lambda zk, acl: zk.create_and_stat("/a", acl=acl),
    "ensure_path": lambda zk, acl: zk.ensure_path("/a", acl=acl),
    "create ttl": lambda zk, acl: zk.create("/a", ttl=5.0, acl=acl),
    "set_acl": lambda zk, acl: zk.set_acl("/a", acl),
    "transaction create": lambda zk, acl: plain(lambda: zk.transaction().create("/a", acl=acl)),
}


async def refuses(proxy: Proxy, zk: Client, call: Awaitable[object], *shown: str) -> None:
    """Check that `call` raises a ValueError or TypeError that shows `shown`, and sends nothing."""
    mark = proxy.mark()
    with pytest.raises((ValueError, TypeError)) as refused:
        await call
    assert [each for each in shown if each not in str(refused.value)] == []
    await zk.ping()
    assert proxy.requests(mark) == []


@pytest.mark.parametrize("verb", VERBS | NOT_AWAITED)
async def test_a_bad_path_is_refused_by_every_verb(proxy: Proxy, zk: Client, verb: str) -> None:
    for path in BAD_PATHS:
        await refuses(proxy, zk, (VERBS | NOT_AWAITED)[verb](zk, path), repr(path))


@pytest.mark.parametrize("verb", VERBS)
async def test_every_verb_of_a_closed_client_raises_session_closed(server: Server, verb: str) -> None:
    async with zkwire.connect(server.hosts) as zk:
        pass
    with pytest.raises(zkwire.SessionClosedError):
        await VERBS[verb](zk, "/a")


@pytest.mark.parametrize("path", ["", "a", "/a//", "//", "/../", "/a\x00"])
async def test_a_bad_sequential_path_is_refused(proxy: Proxy, zk: Client, path: str) -> None:
    await refuses(proxy, zk, zk.create(path, sequential=True), repr(path))


@pytest.mark.parametrize("verb", TAKES_DATA)
async def test_data_that_is_not_bytes_is_refused(proxy: Proxy, zk: Client, verb: str) -> None:
    data: Any
    for data in ("text", 5, [1, 2], 1.5, {}):
        await refuses(proxy, zk, TAKES_DATA[verb](zk, data), type(data).__name__)


@pytest.mark.parametrize("verb", TAKES_VERSION)
async def test_a_version_that_is_no_32_bit_integer_is_refused(proxy: Proxy, zk: Client, verb: str) -> None:
    version: Any
    for version in ("1", 1.5, None, b"1", 2**31, -(2**31) - 1, 2**70):
        await refuses(proxy, zk, TAKES_VERSION[verb](zk, version), repr(version))


@pytest.mark.parametrize("verb", TAKES_ACL)
async def test_an_acl_that_cannot_be_sent_is_refused(proxy: Proxy, zk: Client, verb: str) -> None:
    strange: Any = ACL  # its fields are not checked when it is made
    bad: list[Any] = [
        None,
        5,
        "world:anyone",
        ["world:anyone"],
        [(31, "world", "anyone")],
        ACL(31, "world", "anyone"),
        [strange("all", "world", "anyone")],
        [strange(2**31, "world", "anyone")],
        [strange(31, None, "anyone")],
        [strange(31, "world", 5)],
        [ACL(31, "world", "\ud800")],
    ]
    for acl in bad:
        # Not the value: a password may stand in it.
        await refuses(proxy, zk, TAKES_ACL[verb](zk, acl), "acl ")


@pytest.mark.parametrize("kind", ["ephemeral", "sequential"])
async def test_a_container_cannot_be_of_another_kind_too(proxy: Proxy, zk: Client, kind: str) -> None:
    options: dict[str, Any] = {kind: True}
    await refuses(proxy, zk, zk.create("/a", container=True, **options), "/a")
    await refuses(proxy, zk, zk.create_and_stat("/a", container=True, **options), "/a")
    await refuses(proxy, zk, plain(lambda: zk.transaction().create("/a", container=True, **options)), "/a")


# Sizes


async def test_data_up_to_the_limit_is_taken_and_one_byte_more_is_refused(proxy: Proxy, zk: Client, path: str) -> None:
    most = LIMIT - HEADER - LENGTH - len(path) - LENGTH - OPEN_ACL - FLAGS
    await refuses(proxy, zk, zk.create(path, bytes(most + 1)), "1048576 bytes")
    await zk.create(path, b"x" * most)
    assert (await zk.get(path)).data == b"x" * most
    most = LIMIT - HEADER - LENGTH - len(path) - LENGTH - VERSION
    await refuses(proxy, zk, zk.set(path, bytes(most + 1)), "1048576 bytes")
    await zk.set(path, b"y" * most)
    assert (await zk.get(path)).data == b"y" * most


async def test_a_transaction_that_is_too_large_is_refused_as_a_whole(proxy: Proxy, zk: Client, path: str) -> None:
    tx = zk.transaction()
    tx.create(path, bytes(600_000))
    tx.create(f"{path}-2", bytes(600_000))
    await refuses(proxy, zk, tx.commit(), "a transaction of 2 operations is too large, make several", "1048575")


@pytest.mark.parametrize("verb", [verb for verb in VERBS if not verb.startswith(("transaction", "discard"))])
async def test_a_path_that_is_too_long_is_refused_as_a_whole(proxy: Proxy, zk: Client, verb: str) -> None:
    await refuses(proxy, zk, VERBS[verb](zk, "/a/b/" + "c" * LIMIT), "1048575")


async def test_a_refused_call_leaves_the_session_and_other_calls_alone(zk: Client, path: str) -> None:
    outcomes = await asyncio.gather(
        zk.create(path), zk.create(path, bytes(LIMIT)), zk.set(path, b"1"), return_exceptions=True
    )
    assert outcomes[0] == path
    assert isinstance(outcomes[1], ValueError)
    assert isinstance(outcomes[2], zkwire.Stat)
