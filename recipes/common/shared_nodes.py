"""How recipes make nodes that several clients use."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import zkwire
from recipes.common.waiting import raise_unless_renewed
from zkwire import (
    ACL,
    Client,
    ConnectionLostError,
    Node,
    NoNodeError,
    TransactionError,
)


async def make_container(zk: Client, path: str, acl: Sequence[ACL]) -> None:
    """Make the node as a container, and those above it, if they are missing, over lost connections."""
    while True:
        try:
            await zk.ensure_path(path, container=True, acl=acl)
        except ConnectionLostError:
            continue
        except zkwire.SessionExpiredError:
            raise_unless_renewed(zk)
            continue
        return


async def create_shared(
    zk: Client, path: str, data: bytes = b"", *, acl: Sequence[ACL], make_parents: bool = False
) -> None:
    """Create a persistent node that others use, too.

    What a cancelled create has made is removed, which is right for a node of our own, and wrong for one that others may
    have built upon by then.  What a transaction has made stays: so this is one, of a single create.
    Arguments, Raises: as Client.create.
    Cancellation: it may be there.
    Requests: multi; with `make_parents`, when they are missing, also their creates and another multi.
    """
    while True:
        transaction = zk.transaction()
        transaction.create(path, data, acl=acl)
        try:
            await transaction.commit()
        except TransactionError as refused:
            if not (make_parents and isinstance(refused.cause, NoNodeError)):
                raise refused.cause from None
        else:
            return
        make_parents = False
        await zk.ensure_path(path.rpartition("/")[0] or "/", acl=acl)


async def read_or_make(zk: Client, path: str, data: bytes, acl: Sequence[ACL]) -> Node:
    """Read the node; make it, persistent and with `data`, and the nodes above it, if it is missing."""
    while True:
        try:
            return await zk.get(path)
        except NoNodeError:
            pass
        except zkwire.SessionExpiredError:
            raise_unless_renewed(zk)
            continue
        # If somebody else has made it, or we may have: look again.
        with contextlib.suppress(zkwire.NodeExistsError, ConnectionLostError, zkwire.SessionExpiredError):
            await create_shared(zk, path, data, acl=acl, make_parents=True)
