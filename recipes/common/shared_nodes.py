"""Create and read nodes that several clients use."""

import contextlib
from collections.abc import Sequence

from recipes.common.retrying import until_answered
from zkwire import ACL, Client, Node, NodeExistsError, NoNodeError


async def make_container(zk: Client, path: str, acl: Sequence[ACL]) -> None:
    """Create the node as a container, and its missing ancestors."""
    await until_answered(zk, lambda: zk.ensure_path(path, container=True, acl=acl))


async def read_or_create(zk: Client, path: str, data: bytes, acl: Sequence[ACL]) -> Node:
    """Return the node; if it is missing, create it, persistent and with `data`, and its missing ancestors."""

    async def ask() -> Node:
        while True:
            with contextlib.suppress(NoNodeError):
                return await zk.get(path)
            with contextlib.suppress(NodeExistsError):
                await zk.create(path, data, acl=acl, make_parents=True)

    return await until_answered(zk, ask, repeats=True)


async def wait_for_session(zk: Client) -> int:
    """Return the id of the present session; between two sessions, wait for the next one.

    A request that is sent without an await in between is carried out in this session, or in none.

    Raises:
        SessionError: if no other session follows.
    """
    while not zk.session_id:
        await zk.sync("/")
    return zk.session_id
