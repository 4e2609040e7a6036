"""Conditional writes of one node, each carried out exactly once although connections break."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import zkwire
from recipes.common import lost_answers
from recipes.common.parent_acl import warn_if_wider
from recipes.common.trace import Traces
from recipes.common.waiting import raise_unless_renewed
from zkwire import (
    ACL,
    BadVersionError,
    Client,
    ConnectionLostError,
    GetData,
    Node,
    NoNodeError,
    TransactionError,
    join_path,
)

ANY_VERSION: Final = -1


class ExactWriter:
    """Writes the node at `path`, each write together with a trace below that node.

    Arguments: `acl` of the traces, None for `own_acl`; if it is given, and the node's ACL allows more, a warning is
    logged.
    """

    def __init__(self, zk: Client, path: str, *, acl: Sequence[ACL] | None) -> None:
        self._zk = zk
        self._path = path
        self._acl = acl
        self._traces = Traces(zk, join_path(path, "writing-"), acl=acl)

    async def write(self, data: bytes, version: int) -> bool:
        """Write `data` if the node's version is `version` (ANY_VERSION: any); return whether it was written.

        Returns False also when the node is missing.
        Raises: ConnectionLostError with `maybe_applied` when the answer was lost, the session expired before the trace
        could be read, and the node itself does not show what happened; NoAuthError when this client may not write the
        node, or not create the trace below it; whatever else the client raises.
        Cancellation: the write may have been carried out; no trace stays.
        """
        while True:
            transaction = self._zk.transaction()
            transaction.set(self._path, data, version)
            try:
                if self._acl is not None:
                    await warn_if_wider(self._zk, self._path, self._acl)
                if await self._traces.commit(transaction):
                    return True
            except TransactionError as refused:
                # The trace is not refused in these ways: see Traces.commit.
                if isinstance(refused.cause, BadVersionError | NoNodeError):
                    return False
                raise refused.cause from None
            except ConnectionLostError as lost:
                if not await self._can_retry(data, version, lost):
                    return False
            except zkwire.SessionExpiredError:  # nothing was sent
                raise_unless_renewed(self._zk)

    async def _can_retry(self, data: bytes, version: int, lost: ConnectionLostError) -> bool:
        """Judge by the node itself, because the trace has gone with its session.

        Returns True if the write was not carried out and may be repeated, False if another client's write came first.
        Raises: `lost` when the node does not show it.
        """
        while True:
            try:
                (answer,) = await lost_answers.read(self._zk, self._path, GetData(self._path))
                break
            except zkwire.SessionExpiredError:
                if self._zk.state is zkwire.SessionState.EXPIRED:
                    raise lost from None
        if isinstance(answer, Node) and version != ANY_VERSION:
            if answer.stat.version == version:
                return True
            # The one write since is not ours: it wrote other data.
            if answer.stat.version == version + 1 and answer.data != data:
                return False
        raise lost
