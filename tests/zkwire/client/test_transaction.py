"""The results of a transaction's creates; with a server, transactions are tested for conformance."""

import asyncio

import pytest

from zkwire import ServerError, Stat, Transaction
from zkwire.wire.jute import Record
from zkwire.wire.multi import MultiReply, MultiRequest
from zkwire.wire.requests import Create2Reply, CreateReply, Request

STAT = Stat(7, 7, 1, 1, 0, 0, 0, 0, 0, 0, 7)
EMPTY = Stat(*[0] * 11)


def _refusal(code: int, request: Request[object]) -> ServerError:  # type: ignore[type-var]
    raise AssertionError


@pytest.mark.parametrize(
    ("reply", "result"),
    [
        (Create2Reply("/app/a", STAT), ("/a", STAT)),
        (Create2Reply("/app/a", EMPTY), ("/a", None)),
        (CreateReply("/app/a"), ("/a", None)),
    ],
    ids=["valid", "empty", "none"],
)
async def test_the_stat_of_a_create_is_none_where_the_server_sends_no_valid_one(reply: Record, result: object) -> None:
    """Pitfall 67: servers before 3.7.2 and 3.8.2 send no Stat or an empty one."""

    async def commit(request: MultiRequest) -> MultiReply:
        return MultiReply([reply, reply])

    transaction = Transaction(commit, "/app", _refusal, asyncio.get_running_loop())
    transaction.create_and_stat("/a")
    transaction.create("/a")
    assert await transaction.commit() == [result, "/a"]
