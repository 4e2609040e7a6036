"""The results of a transaction's creates; with a server, transactions are tested for conformance."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

import zkwire
from zkwire import Stat, Transaction
from zkwire.wire import requests as wire
from zkwire.wire.jute import Record
from zkwire.wire.multi import ErrorResult, MultiReply, MultiRequest
from zkwire.wire.records import OPEN_ACL

STAT = Stat(1, 7, 1, 1, 0, 0, 0, 0, 0, 0, 7)  # the smallest zxid that a node can have
EMPTY = Stat(*[0] * 11)


def _answered(*results: Record) -> tuple[Transaction, list[MultiRequest]]:
    """Return a transaction that will be answered with `results`, and the list of its requests."""
    requests: list[MultiRequest] = []

    async def ask(request: MultiRequest) -> MultiReply:
        requests.append(request)
        return MultiReply(list(results))

    requester: Any = SimpleNamespace(
        ask=ask,
        chroot="/app",
        server_path=lambda path: f"/app{path}",
        loop=asyncio.get_running_loop(),
        refusal=lambda code, request: request.refusal(code),
    )
    return Transaction(requester, None), requests


@pytest.mark.parametrize(
    ("reply", "result"),
    [
        (wire.Create2Reply("/app/a", STAT), ("/a", STAT)),
        (wire.Create2Reply("/app/a", EMPTY), ("/a", None)),
        (wire.CreateReply("/app/a"), ("/a", None)),
    ],
    ids=["valid", "empty", "none"],
)
async def test_the_stat_of_a_create_is_none_where_the_server_sends_no_valid_one(reply: Record, result: object) -> None:
    """Pitfall 67: servers before 3.7.2 and 3.8.2 send no Stat or an empty one."""
    transaction, _ = _answered(reply, reply)
    transaction.create_and_stat("/a")
    transaction.create("/a")
    assert await transaction.commit() == [result, "/a"]


async def test_operations_are_sent_as_they_were_added_and_each_result_is_of_its_kind() -> None:
    created, stat = wire.CreateReply("/app/a"), wire.StatReply(STAT)
    done = wire.Nothing()
    transaction, requests = _answered(created, wire.Create2Reply("/app/b", STAT), stat, stat, done, done, done, done)
    transaction.create("/a")
    transaction.create_and_stat("/b", b"1", ephemeral=True)
    transaction.set("/a", b"2")
    transaction.set("/a", b"3", 5)
    transaction.delete("/c")
    transaction.delete("/d", 6)
    transaction.check("/e")
    transaction.check("/f", 7)
    with pytest.raises(RuntimeError, match="the transaction is not committed: it has no results"):
        _ = transaction.results
    results = await transaction.commit()
    assert results == ["/a", ("/b", STAT), STAT, STAT, None, None, None, None]
    assert transaction.results == results
    (request,) = requests
    assert request.operations == [
        wire.CreateRequest("/app/a", b"", OPEN_ACL, wire.CreateFlags(0)),
        wire.Create2Request("/app/b", b"1", OPEN_ACL, wire.CreateFlags.EPHEMERAL),
        wire.SetDataRequest("/app/a", b"2", -1),
        wire.SetDataRequest("/app/a", b"3", 5),
        wire.DeleteRequest("/app/c", -1),
        wire.DeleteRequest("/app/d", 6),
        wire.CheckVersionRequest("/app/e", -1),
        wire.CheckVersionRequest("/app/f", 7),
    ]


async def test_a_refused_transaction_names_the_operation_and_the_error_of_each() -> None:
    transaction, _ = _answered(ErrorResult(0), ErrorResult(-101), ErrorResult(-2))
    for path in ("/a", "/b", "/c"):
        transaction.delete(path)
    with pytest.raises(zkwire.TransactionError) as refused:
        await transaction.commit()
    assert refused.value.index == 1
    assert [type(each) for each in refused.value.results] == [
        type(None),
        zkwire.NoNodeError,
        zkwire.RuntimeInconsistencyError,
    ]
    with pytest.raises(RuntimeError, match="not committed"):
        _ = transaction.results


@pytest.mark.parametrize("count", [0, 1, 3])
async def test_an_answer_with_another_number_of_results_breaks_the_protocol(count: int) -> None:
    transaction, _ = _answered(*[wire.Nothing()] * count)
    transaction.delete("/a")
    transaction.delete("/b")
    with pytest.raises(zkwire.ProtocolError, match=f"^{count} results for 2 operations"):
        await transaction.commit()
