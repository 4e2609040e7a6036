"""One ticket: which data is its own, and what giving it up leaves behind."""

import asyncio
from typing import Any, cast

import pytest

from recipes.line.ticket import ASKED, Ticket, TicketNode
from tests.support.everywhere import nothing_stays, scene
from tests.support.recipes import no_task_stays, until_armed
from zkwire import Client, GuaranteedDelete, Node, Stat, WatchSet

NODE = TicketNode("/line/lock-0000000001", "lock-0000000001", 5, 7)


def read(data: bytes, version: int) -> Node:
    return Node(data, Stat(5, 5, 0, 0, version, 0, 0, 7, len(data), 0, 5))


@pytest.mark.parametrize(
    ("known", "unanswered", "data", "version", "is_own", "after"),
    [
        (0, None, b"", 0, True, (0, None)),
        (0, None, b"", 1, False, (0, None)),
        (2, None, b"", 1, True, (2, None)),
        (2, None, b"", 2, True, (2, None)),
        (2, None, b"", 3, False, (2, None)),
        (2, b"new", b"old", 2, True, (2, b"new")),  # the write is not carried out yet
        (2, b"new", b"new", 2, True, (2, b"new")),
        (2, b"new", b"new", 3, True, (3, None)),
        (2, b"new", b"theirs", 3, False, (2, b"new")),
        (2, b"new", b"new", 4, False, (2, b"new")),
        (2, None, ASKED, 2, True, (2, None)),
        (2, b"new", ASKED, 4, True, (4, None)),
    ],
)
async def test_data_is_our_own_up_to_the_last_version_that_this_client_has_written(
    known: int, unanswered: bytes | None, data: bytes, version: int, is_own: bool, after: tuple[int, bytes | None]
) -> None:
    ticket = Ticket(NODE, cast(GuaranteedDelete, None))
    if (known, unanswered) != (0, None):  # a new ticket: its node has the data of its create
        ticket.version, ticket.unanswered = known, unanswered
        ticket.until_asked()  # a task waits for it
    assert ticket.is_own_data(read(data, version)) is is_own
    assert (ticket.version, ticket.unanswered) == after
    assert ticket.is_asked is (ticket.asked_version == version) is (data == ASKED and version > known)
    assert ticket.is_own_data(read(ASKED, 5))  # asked once more, or for the first time
    assert ticket.until_asked().done()


async def a_ticket(zk: Client, path: str) -> Ticket:
    """Return a ticket of `zk` that watches the line's node, and has a request for a watch on its own node under way."""
    await zk.ensure_path(path)
    node, stat = await zk.create_and_stat(f"{path}/lock-", ephemeral=True, sequential=True)
    ticket = Ticket(TicketNode(node, node.rpartition("/")[2], stat.czxid, zk.session_id), zk.guaranteed_delete(node))
    ticket.watches = WatchSet()
    await zk.get_and_watch(path, into=ticket.watches)
    asked: Any = zk.get_and_watch(node, into=ticket.watches)
    ticket.watch_request = asyncio.create_task(asked)
    return ticket


@pytest.mark.parametrize("is_answered", [False, True])
async def test_a_ticket_that_is_given_up_leaves_no_node_no_watch_and_no_request(is_answered: bool) -> None:
    async with scene() as stage, no_task_stays():
        ticket = await a_ticket(stage.zk, stage.path)
        request = ticket.watch_request
        assert request is not None
        if is_answered:
            await request
            await until_armed(2, stage.zk)
        else:
            await asyncio.sleep(0)
        ticket.give_up()
        assert ticket.watch_request is None
        await asyncio.wait([request])
        assert request.cancelled() is not is_answered
        await until_armed(0, stage.zk)
        await nothing_stays(stage)
