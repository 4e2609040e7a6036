"""Find out whether a write was carried out although the connection broke before its answer arrived.

Reading the written node is often not enough: when two clients add 1 to a counter that holds 7, both find 8 afterwards,
one version further; and an item of a queue may have been taken before its producer looks for it.  So the write goes
into one transaction with a write of a *trace*: an ephemeral node that only this client uses.  The server carries out
both or none.  If the answer is lost, the version of the trace says whether the transaction was carried out, whatever
other clients have written since.  The whole is still one request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import zkwire
from recipes.common import lost_answers
from recipes.common.own_acl import own_acl, was_refused
from zkwire import (
    ACL,
    Client,
    ConnectionLostError,
    GetData,
    InvalidACLError,
    NoAuthError,
    NoChildrenForEphemeralsError,
    Node,
    NoNodeError,
    Transaction,
    TransactionError,
)

# Traces that were not used for so many seconds are deleted.  A busy writer so uses the same trace again and again, and
# an idle one leaves no node behind.
_KEPT_FOR: Final = 0.1

_NOT_CREATED: Final = -1

_TRACE_HINT: Final = (
    "the client needs the permissions CREATE and DELETE on {parent}: together with each write it creates an ephemeral"
    " node there, its trace, which shows whether the write was carried out if the answer is lost"
)
_EPHEMERAL_HINT: Final = (
    "{parent} is an ephemeral node, which another client must have created by hand: it goes with that client's session;"
    " delete it, and it is created again as it should be"
)


@dataclass(slots=True)
class _Trace:
    """A trace node.

    Attributes: `session_id` of its owner, 0 while there is no session (the former one expired, and the write waits for
    the next one); `version` of the node before the write under way; `used_at`, when its last write was answered, on
    the loop's clock.
    """

    path: str
    session_id: int
    version: int = _NOT_CREATED
    used_at: float = 0.0


class Traces:
    """The traces of one writer.  Each commit under way has a trace of its own; an answered one is used again.

    Arguments: `prefix` of the trace nodes' paths, to which a unique id is added; `acl` of the trace nodes, None for
    `own_acl`.
    """

    def __init__(self, zk: Client, prefix: str, *, acl: Sequence[ACL] | None) -> None:
        self._zk = zk
        self._prefix = prefix
        self._parent = prefix.rpartition("/")[0] or "/"
        self._acl = acl
        self._unused: list[_Trace] = []  # the one that was used last is at the end
        self._timer: asyncio.TimerHandle | None = None

    async def commit(self, transaction: Transaction) -> bool:
        """Add a write of a trace to `transaction` and commit it; return whether it was carried out.

        If it returns False nothing was carried out, and the same writes may be tried again in a new transaction.
        Raises: TransactionError when the server refuses one of the caller's operations, or does not allow this client
        to create the trace; ConnectionLostError with
        `maybe_applied` when the answer was lost and the session ended before the trace could be read;
        SessionExpiredError when nothing was sent; ValueError when the transaction is too large.
        Cancellation: the transaction may have been carried out; its trace is deleted.
        """
        trace = self._reuse_or_new()
        acl: Sequence[ACL] = ()
        if trace.version == _NOT_CREATED:
            acl = own_acl(self._zk, trace.path) if self._acl is None else self._acl
            transaction.create(trace.path, ephemeral=True, acl=acl)
        else:
            transaction.set(trace.path, b"")
        try:
            try:
                await transaction.commit()
            except ConnectionLostError as lost:
                # A trace sent without a session was sent in the one that has begun since.
                trace.session_id = trace.session_id or self._zk.session_id
                was_carried_out = await self._look_up(trace, lost)
            else:
                trace.session_id = trace.session_id or self._zk.session_id
                trace.version += 1
                was_carried_out = True
        except TransactionError as refused:
            if isinstance(refused.cause, NoNodeError) and refused.cause.path == trace.path:
                return False  # the trace was deleted by hand: the next try creates another one
            if isinstance(refused.cause, InvalidACLError) and was_refused(self._zk, acl):
                return False  # the next try creates the trace with another ACL
            if isinstance(refused.cause, NoAuthError) and refused.cause.path == trace.path:
                refused.cause.hint = _TRACE_HINT.format(parent=self._parent)
            if isinstance(refused.cause, NoChildrenForEphemeralsError):
                refused.cause.hint = _EPHEMERAL_HINT.format(parent=self._parent)
            self._keep(trace)
            raise
        except ValueError:
            self._keep(trace)
            raise
        except BaseException:
            self._delete(trace)
            raise
        self._keep(trace)
        return was_carried_out

    async def _look_up(self, trace: _Trace, lost: ConnectionLostError) -> bool:
        """Read `trace` and return whether the transaction was carried out.

        Raises: `lost` when the trace is missing for another reason than that it was not created.
        """
        try:
            (answer,) = await lost_answers.read(self._zk, trace.path, GetData(trace.path))
        except zkwire.SessionExpiredError:
            raise lost from None
        node: Node | None = lost_answers.result(answer)
        if node is None:
            # A missing trace means "not carried out" only if the transaction would have created it, and if it cannot
            # have been deleted with its session since.
            if trace.version == _NOT_CREATED and trace.session_id == self._zk.session_id:
                return False
            raise lost
        if node.stat.ephemeral_owner != trace.session_id:
            raise lost  # another client has deleted our trace and created its own
        was_carried_out = node.stat.version > trace.version
        trace.version = node.stat.version
        return was_carried_out

    def _reuse_or_new(self) -> _Trace:
        while self._unused:
            trace = self._unused.pop()
            if trace.session_id == self._zk.session_id:  # traces of former sessions are gone
                return trace
        return _Trace(self._prefix + self._zk.unique_id(), self._zk.session_id)

    def _keep(self, trace: _Trace) -> None:
        """Keep `trace` for a later commit, if its node exists."""
        if trace.version == _NOT_CREATED:
            return
        loop = asyncio.get_running_loop()
        trace.used_at = loop.time()
        self._unused.append(trace)
        if self._timer is None:
            self._timer = loop.call_later(_KEPT_FOR, self._delete_idle)

    def _delete_idle(self) -> None:
        loop = asyncio.get_running_loop()
        idle_since = loop.time() - _KEPT_FOR
        idle = [trace for trace in self._unused if trace.used_at <= idle_since]
        self._unused = self._unused[len(idle) :]  # the longest unused are at the beginning
        for trace in idle:
            self._delete(trace)
        self._timer = None
        if self._unused:
            self._timer = loop.call_at(self._unused[0].used_at + _KEPT_FOR, self._delete_idle)

    def _delete(self, trace: _Trace) -> None:
        """Delete the node for certain, unless its session has ended: then the server has deleted it."""
        if trace.session_id in (0, self._zk.session_id):
            self._zk.discard(trace.path)
