"""Transactions: all or nothing, results in order, and the contents of a TransactionError."""

import asyncio
from collections.abc import Callable

import pytest

import zkwire
from tests.support.client import Server, sending_nothing
from tests.support.proxy import Proxy
from zkwire import Client, Stat, Transaction


async def test_a_commit_returns_one_result_for_each_operation_in_their_order(zk: Client, path: str) -> None:
    tx = zk.transaction()
    tx.create(path, b"a")
    tx.check(path, 0)
    tx.set(path, b"bb", 0)
    tx.create(f"{path}/child")
    tx.delete(f"{path}/child", 0)
    results = await tx.commit()
    assert tx.results == results
    assert results[0] == path
    assert results[1] is None
    assert isinstance(results[2], Stat)
    assert (results[2].version, results[2].data_length) == (1, 2)
    assert results[3:] == [f"{path}/child", None]
    _, stat = await zk.get(path)
    assert stat.czxid == stat.mzxid == stat.pzxid == zk.last_zxid


async def test_the_result_of_a_sequential_create_is_the_real_path_pitfall_66(zk: Client, path: str) -> None:
    await zk.create(path)
    async with zk.transaction() as tx:
        tx.create(f"{path}/n-", sequential=True)
        tx.create(f"{path}/n-", sequential=True, ephemeral=True)
        tx.create(f"{path}/", sequential=True)
    assert tx.results == [f"{path}/n-0000000000", f"{path}/n-0000000001", f"{path}/0000000002"]
    stat = await zk.exists(f"{path}/n-0000000001")
    assert stat is not None
    assert stat.ephemeral_owner == zk.session_id


async def test_a_refused_operation_undoes_all_and_raises_its_error(server: Server, zk: Client, path: str) -> None:
    await zk.create(path)
    tx = zk.transaction()
    tx.create(f"{path}/a")
    tx.set(path, b"never")
    tx.check(path, 7)
    tx.delete(path)
    with pytest.raises(zkwire.TransactionError) as refused:
        await tx.commit()
    error = refused.value
    assert (error.index, error.code, error.path) == (2, -103, path)
    assert isinstance(error.__cause__, zkwire.BadVersionError)
    assert error.results[:2] == [None, None]
    assert isinstance(error.results[2], zkwire.BadVersionError)
    assert isinstance(error.results[3], zkwire.RuntimeInconsistencyError)
    assert len(error.results) == 4
    assert all(part in str(error) for part in ("operation 2", path, "-103", zk.server))
    assert error.server == error.results[3].server == zk.server
    data, stat = await zk.get(path)
    assert (data, stat.version, stat.num_children, stat.cversion) == (b"", 0, 0, 0)


async def test_the_error_of_each_refused_operation_has_its_class(zk: Client, path: str) -> None:
    await zk.create(f"{path}/child", make_parents=True)
    await zk.create(f"{path}/ephemeral", ephemeral=True)
    await zk.create(f"{path}/locked", acl=zkwire.READ_ONLY_ACL)
    refusals: list[tuple[Callable[[Transaction], None], int]] = [
        (lambda tx: tx.create(path), -110),
        (lambda tx: tx.create(f"{path}/no/parent"), -101),
        (lambda tx: tx.create(f"{path}/ephemeral/a"), -108),
        (lambda tx: tx.create(f"{path}/x", acl=[]), -114),
        (lambda tx: tx.create(f"{path}/locked/x"), -102),
        (lambda tx: tx.set(f"{path}/missing", b""), -101),
        (lambda tx: tx.set(path, b"", 9), -103),
        (lambda tx: tx.set(f"{path}/locked", b""), -102),
        (lambda tx: tx.delete(f"{path}/missing"), -101),
        (lambda tx: tx.delete(path, 9), -103),
        (lambda tx: tx.delete(path), -111),
        (lambda tx: tx.check(f"{path}/missing"), -101),
        (lambda tx: tx.check(path, 9), -103),
    ]
    for add, code in refusals:
        tx = zk.transaction()
        add(tx)
        with pytest.raises(zkwire.TransactionError) as refused:
            await tx.commit()
        assert (refused.value.index, refused.value.code) == (0, code)


async def test_an_empty_transaction_sends_nothing_and_has_no_results(server: Server) -> None:
    async with sending_nothing(server) as zk:
        assert await zk.transaction().commit() == []
        async with zk.transaction() as tx:
            pass
        assert tx.results == []


async def test_a_block_that_raises_does_not_commit(zk: Client, path: str) -> None:
    tx = zk.transaction()

    async def block() -> None:
        async with tx:
            tx.create(path)
            raise LookupError

    with pytest.raises(LookupError):
        await block()
    assert await zk.exists(path) is None
    with pytest.raises(RuntimeError, match="not committed"):
        _ = tx.results


async def test_a_transaction_can_be_committed_once_only_pitfall_60(proxy: Proxy, zk: Client, path: str) -> None:
    async with zk.transaction() as tx:
        tx.create(path)
        await tx.commit()
    with pytest.raises(RuntimeError, match="already"):
        await tx.commit()
    adds: list[Callable[[], None]] = [
        lambda: tx.create(path),
        lambda: tx.set(path, b""),
        lambda: tx.delete(path),
        lambda: tx.check(path),
    ]
    for add in adds:
        with pytest.raises(RuntimeError, match="already"):
            add()
    assert proxy.requests().count("multi") == 1
    async with zk.transaction() as refused:
        refused.delete(f"{path}/a")
        with pytest.raises(zkwire.TransactionError):
            await refused.commit()
    assert proxy.requests().count("multi") == 2
    both = zk.transaction()
    both.create(f"{path}/n-", sequential=True)
    outcomes = await asyncio.gather(both.commit(), both.commit(), return_exceptions=True)
    assert outcomes[0] == [f"{path}/n-0000000000"]
    assert isinstance(outcomes[1], RuntimeError)
    assert proxy.requests().count("multi") == 3


async def test_a_transaction_may_be_as_large_as_the_servers_limit(zk: Client, path: str) -> None:
    head, end, part = 8, 9, 9 + 4 + len(path) + 4 + 27 + 4  # of a create without data
    async with zk.transaction() as tx:
        tx.create(path, bytes(1_048_575 - head - part - end))
    tx = zk.transaction()
    tx.create(path, bytes(1_048_576 - head - part - end))
    with pytest.raises(ValueError, match="1048576 bytes"):
        await tx.commit()
    assert await zk.exists(path) is not None


async def test_a_create_with_stat_has_the_path_and_the_stat_as_its_result(zk: Client, path: str, app: Client) -> None:
    """Pitfall 67: servers may send no Stat, or an empty one, and the result is then None."""
    await zk.create(path)
    async with app.transaction() as tx:
        tx.create_and_stat("/a", b"12345")
        tx.create_and_stat("/n-", sequential=True, ephemeral=True)
        tx.create_and_stat("/c", container=True)
        tx.create("/plain")
    *made, plain = tx.results
    assert plain == "/plain"
    for result, name in zip(made, ["/a", "/n-0000000001", "/c"], strict=True):
        assert isinstance(result, tuple)
        assert result[0] == name
        assert result[1] in (None, await app.exists(name))
