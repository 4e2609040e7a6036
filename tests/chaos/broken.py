"""Recipes that are broken on purpose: `put_in(NAME)` puts one fault into the product, in this process only.

A run with such a fault must find a violation.  Each fault is one that a lock in use has had, or is easy to make.
"""

from collections.abc import Callable
from typing import Final

import zkwire
from recipes import Semaphore, read_write_lock
from recipes.line.position import Position
from zkwire import Node


def certainty_never_ends() -> None:
    """A lease is certain until a server says that its session has expired."""

    def certain_for(self: zkwire.Client, session_id: int) -> float:
        return self.session_timeout if self.session_id == session_id else 0.0

    _replace(zkwire.Client, "certain_for", certain_for)


def second_in_line_owns() -> None:
    """A ticket owns although another one is before it."""

    def owns(self: Position) -> bool:
        return self._is_listed and self._knows_slots and not self.is_gone and self._count <= self._slots

    _replace(Position, "owns", property(owns))


def readers_pass_writers() -> None:
    """A reader does not see that a ticket before it is a writer's."""
    _replace(read_write_lock, "is_writer", lambda name: False)


def one_permit_too_many() -> None:
    """A semaphore counts one permit more than its node says."""
    agreed = Semaphore._agreed_permits

    def one_more(self: Semaphore, node: Node) -> int:
        permits = agreed(self, node)
        return permits + 1

    _replace(Semaphore, "_agreed_permits", one_more)


BROKEN: Final[dict[str, Callable[[], None]]] = {
    function.__name__.replace("_", "-"): function
    for function in (certainty_never_ends, second_in_line_owns, readers_pass_writers, one_permit_too_many)
}


def put_in(name: str) -> None:
    """Put the fault `name` into this process."""
    BROKEN[name]()


def _replace(where: object, name: str, new: object) -> None:
    """Replace an attribute that is there: a fault must not miss its place when the product changes."""
    assert hasattr(where, name)
    setattr(where, name, new)
