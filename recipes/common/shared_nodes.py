"""Create and read nodes that several clients use."""

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
    """Create the node as a container, and its missing ancestors; try again when the connection is lost."""
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
    zk: Client,
    path: str,
    data: bytes = b"",
    *,
    acl: Sequence[ACL],
    make_parents: bool = False,
    parents_acl: Sequence[ACL] | None = None,
) -> None:
    """Create a persistent node that other clients use too.

    Arguments, Raises: as Client.create; `parents_acl`, the ACL of the missing parents, None for `acl`.
    Cancellation: the node may exist afterwards.
    Requests: multi; with `make_parents`, if they are missing, also their creates and another multi.
    """
    while True:
        # When a plain create is cancelled, the client deletes the node that it made.  That is wrong here: another
        # client may have begun to use the node.  The nodes of a transaction are left alone, so this is one.
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
        await zk.ensure_path(path.rpartition("/")[0] or "/", acl=acl if parents_acl is None else parents_acl)


async def read_or_create(zk: Client, path: str, data: bytes, acl: Sequence[ACL]) -> Node:
    """Return the node; if it is missing, create it, persistent and with `data`, and its missing ancestors."""
    while True:
        try:
            return await zk.get(path)
        except NoNodeError:
            pass
        except zkwire.SessionExpiredError:
            raise_unless_renewed(zk)
            continue
        # After each of these errors the node may exist, created by another client or by us: the loop reads it again.
        with contextlib.suppress(zkwire.NodeExistsError, ConnectionLostError, zkwire.SessionExpiredError):
            await create_shared(zk, path, data, acl=acl, make_parents=True)
