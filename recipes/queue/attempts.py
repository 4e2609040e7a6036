"""How often each item was claimed, and the items that have failed for good.

A queue with `max_attempts` counts the claims of an item in the node `attempts/<item>`, a number as text.  The
transaction that claims the item writes the number too, so a consumer that dies in its body has used an attempt, and no
fault loses one.  A claim that ends before its body begins takes its attempt back, and so does one whose body was
cancelled, in the transaction that hands the item back; if its consumer dies, or its session ends, at that moment, the
attempt stays counted.  The transaction that deletes a handled item deletes the number.

Names begin again only in another node `entries`: a number that was written before that node is another item's, and 0.

An item whose last attempt has failed moves to `failed/<item>-<attempts>-<number>` in one transaction: by its consumer
when the body fails, or, if that consumer has died, by the next one that would claim it.
"""

import contextlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

import zkwire
from recipes.common.numbers import in_order, next_number
from recipes.common.retrying import read, result, until_answered
from recipes.line.contenders import created_at
from recipes.queue.nodes import Nodes
from recipes.queue.quarantine import UnusableItemError, checked
from zkwire import ACL, GetChildrenAndStat, GetData, Node, Perms, Transaction, ZooKeeperError

_log = logging.getLogger(__name__)

# Without CREATE: a node below the number would keep the handled item from being deleted.
_ACL: Final = (ACL(Perms.READ | Perms.WRITE, "world", "anyone"),)
_MOST_DIGITS: Final = 9  # what has more was not written by a consumer
_MOVES: Final = 4  # the position of the operation that creates the item in `failed`, in `move_abandoned`
_BY_OTHERS: Final = (zkwire.NodeExistsError, zkwire.NoNodeError, zkwire.BadVersionError)  # the refusals of the others
_FORBIDDEN: Final = "failed for the last time, and cannot be moved to {}: {}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedItem:
    """An item that has failed as often as `max_attempts` allows and was never handled; listed by `Queue.failed`.

    Attributes:
        path: Its node, below `failed`.
        data: What was put.
        attempts: How often it has failed.
        name: The name that its node had among the items: the end of `Item.entry`.
        since: When it moved to `failed`, by the clock of the ensemble's leader.
    """

    path: str
    data: bytes
    attempts: int
    name: str
    since: datetime


class Number(NamedTuple):
    """How often an item was claimed, and the version of the node `attempts/<item>`."""

    attempts: int
    version: int


UNCOUNTED: Final = Number(0, -1)  # there is no such node


def add_attempt(transaction: Transaction, nodes: Nodes, name: str, number: Number) -> None:
    """Add to the transaction of a claim that it counts; refused if another client has claimed the item since.

    Args:
        number: What was read, or is believed to be UNCOUNTED.
    """
    path, data = nodes.number(name), b"%d" % (number.attempts + 1)
    if number == UNCOUNTED:
        transaction.create(path, data, acl=_ACL if nodes.asked_acl is None else nodes.asked_acl)
    else:
        transaction.set(path, data, number.version)


async def take_back(nodes: Nodes, name: str, attempt: int, version: int) -> None:
    """Undo `add_attempt`, whose write has left the number with this `version`, unless there is a later claim."""
    path, data = nodes.number(name), b"%d" % (attempt - 1)
    with contextlib.suppress(ZooKeeperError):
        await until_answered(nodes.zk, lambda: nodes.zk.set(path, data, version), repeats=True)


def add_move(transaction: Transaction, nodes: Nodes, name: str, data: bytes, attempts: int) -> None:
    """Add to a transaction that deletes the item that it creates the item in `failed`."""
    transaction.create(f"{nodes.failed}/{name}-{attempts}-", data, sequential=True, acl=nodes.fixed_acl)


def has_moved(nodes: Nodes, name: str, attempts: int) -> None:
    """Report that an item was moved to `failed`."""
    _log.warning("%s has failed %d times, and was moved to %s", nodes.entry(name), attempts, nodes.failed)


def uncountable(nodes: Nodes, name: str, why: object) -> UnusableItemError:
    """Return the error that the number of an item cannot be used: then the item must not be claimed."""
    return UnusableItemError(f"cannot be claimed: {nodes.number(name)}, which counts its claims, {why}")


async def read_number(nodes: Nodes, name: str) -> Number:
    """Return the number of an item.

    Raises:
        UnusableItemError: if it cannot be read, or not be deleted with the item.
    """
    entries, number = await read(nodes.zk, GetData(nodes.entries), GetData(nodes.number(name)))
    try:
        node, parent = checked(number), result(entries)
    except UnusableItemError as unusable:
        raise uncountable(nodes, name, unusable) from None
    if node is None:
        return UNCOUNTED
    is_former = parent is not None and node.stat.mzxid < parent.stat.czxid
    is_valid = not is_former and node.data.isdigit() and len(node.data) <= _MOST_DIGITS
    return Number(int(node.data) if is_valid else 0, node.stat.version)


async def move_abandoned(nodes: Nodes, name: str, number: Number) -> None:
    """Move an item to `failed` that no consumer has claimed, and none may claim any more.

    It is left if another client has claimed, moved or changed it meanwhile.

    Raises:
        UnusableItemError: if the item cannot be read, or the server refuses to move it.
    """
    item = checked((await read(nodes.zk, GetData(nodes.entry(name))))[0])
    if item is None:
        return

    async def move() -> None:
        while True:
            transaction = nodes.zk.transaction()
            transaction.create(nodes.taken_node(name), acl=nodes.fixed_acl)  # not if another consumer has claimed it
            transaction.delete(nodes.number(name), number.version)
            transaction.delete(nodes.entry(name), item.stat.version)
            transaction.delete(nodes.taken_node(name))
            add_move(transaction, nodes, name, item.data, number.attempts)
            try:
                await transaction.commit()
            except zkwire.TransactionError as refused:
                if not (isinstance(refused.cause, zkwire.NoNodeError) and refused.index == _MOVES):
                    raise
                await nodes.make()  # without `failed` the item would be the first for ever
            else:
                return

    try:
        await until_answered(nodes.zk, move, repeats=True)
    except (zkwire.ServerError, ValueError) as refused:  # ValueError: it is too large
        cause, index = refused, _MOVES
        if isinstance(refused, zkwire.TransactionError):
            cause, index = refused.cause, refused.index
        if index == _MOVES or not isinstance(cause, _BY_OTHERS):
            raise UnusableItemError(_FORBIDDEN.format(nodes.failed, cause)) from None
    else:
        has_moved(nodes, name, number.attempts)


async def failed(nodes: Nodes) -> list[FailedItem]:
    """Return the items in `failed`, in the order in which they came there; see Queue.failed."""
    listed: tuple[Sequence[str], zkwire.Stat] | None = result(
        (await read(nodes.zk, GetChildrenAndStat(nodes.failed)))[0]
    )
    names = in_order(listed[0], next_number(listed[1])) if listed else []
    answers = await read(nodes.zk, *(GetData(f"{nodes.failed}/{name}") for name in names)) if names else []
    found = []
    for name, node in zip(names, answers, strict=True):
        former, _, attempts = name.rpartition("-")[0].rpartition("-")
        # What this client must not read, or another one has made by hand, must not hide the others.
        is_ours = former and attempts.isdecimal() and len(attempts) <= _MOST_DIGITS
        if is_ours and not isinstance(node, zkwire.NoNodeError | zkwire.NoAuthError):
            item: Node = result(node)
            path, since = f"{nodes.failed}/{name}", created_at(item.stat)
            found.append(FailedItem(path=path, data=item.data, attempts=int(attempts), name=former, since=since))
    return found
