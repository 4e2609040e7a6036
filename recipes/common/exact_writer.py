"""Writes of one node that are carried out exactly once, though the connection may break before the answer comes; and
how nodes are made that many use.

A conditional write that has lost its answer cannot be told from somebody else's: two who add 1 to the same 7 both find
an 8, one version further.  So each write goes together with one of a node of our own, the *trace*, in a transaction:
afterwards the trace tells whether it was carried out, whatever others have written since.  That is one request, as the
write alone would be.  The trace is ephemeral and goes once it has not been needed for a moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

import zkwire
from recipes.common import lost_answers
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

# A trace that stays for this long, in seconds, costs a busy writer one delete in many writes, and an idle one no node.
_LINGER: Final = 0.1

ANY_VERSION: Final = -1


class _Trace(NamedTuple):
    """The trace: its path, its version when it was last known to stand, its session's id.

    The id is 0 while it waits for the session that is to follow an expired one.
    """

    path: str
    version: int
    session_id: int

    def at(self, version: int) -> _Trace:
        """Return the trace with another version."""
        return _Trace(self.path, version, self.session_id)

    def within(self, session_id: int) -> _Trace:
        """Return the trace once it was sent, in the session that there is now."""
        return _Trace(self.path, self.version, self.session_id or session_id)


class ExactWriter:
    """Writes the node at `path`; one write at a time, which the caller sees to.

    Arguments: `acl`, of the traces.
    """

    def __init__(self, zk: Client, path: str, *, acl: Sequence[ACL]) -> None:
        self._zk = zk
        self._path = path
        self._acl = acl
        self._loop = asyncio.get_running_loop()
        self._trace: _Trace | None = None
        self._is_writing = False
        self._used_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    async def write(self, data: bytes, version: int) -> bool:
        """Write `data` if the node's version is `version` (-1: any); return whether it was, False also without a node.

        Raises: ConnectionLostError with `maybe_applied` when the session expires before it could be found out what
        became of a write whose answer was lost, and the node does not tell; what the client raises.
        Cancellation: it may have been carried out; no trace stays.
        """
        self._is_writing = True
        try:
            while True:
                answer = await self._attempt(data, version)
                if answer is not None:
                    break
        except BaseException:
            self._drop_trace()
            raise
        finally:
            self._is_writing = False
        self._used_at = self._loop.time()
        if self._timer is None:
            self._timer = self._loop.call_later(_LINGER, self._look_whether_idle)
        return answer

    async def _attempt(self, data: bytes, version: int) -> bool | None:
        """Write once; return None if nothing came of it and it is to be tried again."""
        trace = self._trace
        transaction = self._zk.transaction()
        transaction.set(self._path, data, version)
        if trace is None or trace.session_id != self._zk.session_id:
            path = join_path(self._path, f"writing-{self._zk.unique_id()}")
            trace = _Trace(path, 0, self._zk.session_id)
            transaction.create(trace.path, ephemeral=True, acl=self._acl)
        else:
            trace = trace.at(trace.version + 1)
            transaction.set(trace.path, b"")
        self._trace = trace
        try:
            await transaction.commit()
        except TransactionError as error:
            self._trace = None if trace.version == 0 else trace.at(trace.version - 1)
            if error.index == 0 and isinstance(error.cause, BadVersionError | NoNodeError):
                return False
            if error.index == 1 and isinstance(error.cause, NoNodeError):
                self._trace = None  # somebody has deleted it
                return None
            raise
        except ConnectionLostError as lost:
            self._trace = trace = trace.within(self._zk.session_id)
            return await self._find_out(trace, data, version, lost) if lost.maybe_applied else None
        except zkwire.SessionExpiredError:  # it was never sent
            raise_unless_renewed(self._zk)
            return None
        self._trace = trace.within(self._zk.session_id)
        return True

    async def _find_out(self, trace: _Trace, data: bytes, version: int, lost: ConnectionLostError) -> bool | None:
        """Tell what became of a write whose answer was lost; None: it was not carried out, try again."""
        while True:
            try:
                reads = GetData(self._path), GetData(trace.path)
                node, traced = await lost_answers.read(self._zk, self._path, *reads)
            except zkwire.SessionExpiredError:
                if self._zk.state is zkwire.SessionState.EXPIRED:
                    raise lost from None
            else:
                break
        mine: Node | None = lost_answers.result(traced)
        if mine is not None:
            self._trace = trace.at(mine.stat.version)
            return True if mine.stat.version == trace.version else None
        self._trace = None
        if trace.session_id == self._zk.session_id and trace.version == 0:
            return None
        # The trace has gone with its session: the node itself may tell.
        if isinstance(node, Node) and version != ANY_VERSION:
            if node.stat.version == version:
                return None
            if node.stat.version == version + 1 and node.data != data:
                return False
        raise lost

    def _look_whether_idle(self) -> None:
        self._timer = None
        idle = self._loop.time() - self._used_at
        if self._is_writing or idle < _LINGER:
            self._timer = self._loop.call_later(_LINGER - min(idle, _LINGER / 2), self._look_whether_idle)
        else:
            self._drop_trace()

    def _drop_trace(self) -> None:
        trace, self._trace = self._trace, None
        if trace is not None:
            self._zk.discard(trace.path)
