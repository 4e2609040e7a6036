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
    transaction, requests = _answered(reply, reply)
    transaction.create_and_stat("/a")
    transaction.create("/a")
    assert await transaction.commit() == [result, "/a"]
    assert [type(each) for each in requests[0].operations] == [wire.Create2Request, wire.CreateRequest]


OTHERS: list[Record] = [wire.StatReply(STAT), ErrorResult(0)]  # an error of 0 comes only before the one that refuses


@pytest.mark.parametrize("results", [[], [wire.Nothing()], [wire.Nothing()] * 3, *([each] * 2 for each in OTHERS)])
async def test_an_answer_with_other_results_breaks_the_protocol(results: list[Record]) -> None:
    transaction, _ = _answered(*results)
    transaction.delete("/a")
    transaction.delete("/b")
    with pytest.raises(zkwire.ProtocolError, match=f"^{len(results)} results for 2 operations"):
        await transaction.commit()
