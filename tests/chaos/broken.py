"""Recipes that are broken on purpose: `put_in(NAME)` puts one fault into the product, in this process only.

A run with such a fault must find a violation.  Each fault is one that a lock in use has had, or is easy to make.
"""

from collections.abc import Callable
from typing import Any, Final

import zkwire
from recipes import Lease, Semaphore, read_write_lock
from recipes.common.receipts import Receipts
from recipes.line.position import Position
from recipes.queue.nodes import Nodes
from zkwire.session.guaranteed_delete import GuaranteedDelete
from zkwire.session.keepalive import Keepalive
from zkwire.wire.certainty import AckLevel
from zkwire.wire.certainty import Certainty as ConnectionCertainty


def certainty_never_ends() -> None:
    """A lease is certain until a server says that its session has expired."""

    def certain_for(self: zkwire.Client, session_id: int) -> float:
        return self.session_timeout if self.session_id == session_id else 0.0

    _replace(zkwire.Client, "certain_for", certain_for)


def pings_certify() -> None:
    """A holder sends plain pings, and any answer of its own server makes the session certain for a whole timeout."""
    answered = ConnectionCertainty.answered

    def believe(self: ConnectionCertainty, sent: float, now: float, ack_level: AckLevel, zxid: int = 0) -> None:
        answered(self, sent, now, ack_level, zxid)
        self.until = max(self.until, sent + self.least)

    _replace(ConnectionCertainty, "answered", believe)
    _replace(Keepalive, "need", lambda self, **_: None)
    _replace(Keepalive, "release", lambda self, **_: None)


def second_in_line_owns() -> None:
    """A ticket owns although another one is before it."""

    def owns(self: Position) -> bool:
        return self._is_listed and self._knows_slots and not self.is_gone and self._count <= self._slots

    _replace(Position, "owns", property(owns))


def release_is_sent_once() -> None:
    """A release does not wait until its own node is known to be gone: after a lost connection the node may stay."""

    def set_exception(self: GuaranteedDelete, error: BaseException) -> None:
        self._deletes.finished(self)

    _replace(GuaranteedDelete, "set_exception", set_exception)


def tokens_do_not_grow() -> None:
    """The fencing token is the session's id."""
    init = Lease.__init__

    def with_session(self: Lease, *args: Any, **options: Any) -> None:
        init(self, *args, **options)
        self.token = self.ticket.node.session_id

    _replace(Lease, "__init__", with_session)


def readers_pass_writers() -> None:
    """A reader does not see that a ticket before it is a writer's."""
    _replace(read_write_lock, "is_writer", lambda name: False)


def one_permit_too_many() -> None:
    """A semaphore counts one permit more than its node says."""
    agreed = Semaphore._agreed_permits

    def one_more(self: Semaphore, data: bytes) -> int:
        permits = agreed(self, data)
        return permits + 1

    _replace(Semaphore, "_agreed_permits", one_more)


def additions_are_repeated() -> None:
    """An addition whose answer was lost is made again."""

    async def commit(self: Receipts, transaction: zkwire.Transaction) -> bool:
        try:
            await transaction.commit()
        except zkwire.ConnectionLostError:
            return False
        return True

    _replace(Receipts, "commit", commit)


def takes_are_forgotten() -> None:
    """A queue's item whose take lost its answer is left to another consumer, although it may have been taken."""

    async def read_after_loss(self: Nodes, *paths: str) -> tuple[int, list[zkwire.Node | None]]:
        return self.zk.session_id, [None] * len(paths)

    _replace(Nodes, "read_after_loss", read_after_loss)


BROKEN: Final[dict[str, Callable[[], None]]] = {
    function.__name__.replace("_", "-"): function
    for function in (
        certainty_never_ends,
        pings_certify,
        second_in_line_owns,
        release_is_sent_once,
        tokens_do_not_grow,
        readers_pass_writers,
        one_permit_too_many,
        additions_are_repeated,
        takes_are_forgotten,
    )
}


def put_in(name: str) -> None:
    """Put the fault `name` into this process."""
    BROKEN[name]()


def _replace(where: object, name: str, new: object) -> None:
    """Replace an attribute that is there: a fault must not miss its place when the product changes."""
    assert hasattr(where, name)
    setattr(where, name, new)
