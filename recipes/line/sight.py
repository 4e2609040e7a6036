"""What a bounded wait has seen of the tickets before its own, for the message of its TimeoutError.

Sends nothing: it keeps what the wait has read anyway.
"""

from __future__ import annotations

from typing import Final, Protocol

from recipes.line.contenders import session_in_words
from recipes.line.ticket_data import without_line
from zkwire import Node, join_path

_LONGEST: Final = 100  # characters of another client's data that an error message shows


class Place(Protocol):
    """A place in a line: the tickets before it."""

    @property
    def before(self) -> list[str]:
        """The tickets before it that may remain, in their order."""

    def is_blocked_by(self, name: str, /) -> bool:
        """Return whether `name` may still be one of them."""


class Sight:
    """What is seen from one place in a line."""

    __slots__ = ("_path", "_position", "_read")

    def __init__(self) -> None:
        self._path = ""
        self._position: Place | None = None
        self._read: dict[str, Node] = {}

    def begin(self, path: str, position: Place) -> None:
        """Take note that a ticket stands at `position` of the line at `path`."""
        self._path, self._position, self._read = path, position, {}

    def saw(self, name: str, node: Node) -> None:
        """Take note that the blocker `name` was read as `node`."""
        if self._position is not None:
            # Those that have left are forgotten: a long wait sees many.
            self._read = {known: its for known, its in self._read.items() if self._position.is_blocked_by(known)}
            self._read[name] = node

    def in_words(self) -> str:
        """Return the end of an error message: how many tickets are ahead, and the first one; "" if none is known."""
        if self._position is None or not self._position.before:
            return ""
        before = self._position.before
        count = "1 ticket is ahead" if len(before) == 1 else f"{len(before)} tickets are ahead, the first of them"
        return f"; {count}: {join_path(self._path, before[0])}{self._details(before[0])}"

    def _details(self, name: str) -> str:
        node = self._read.get(name)
        if node is None:
            return ""
        data = without_line(name, node.data, node.stat.version).decode(errors="replace")
        shown = data if len(data) <= _LONGEST else f"{data[:_LONGEST]}..."
        session = f", of session {session_in_words(node.stat.ephemeral_owner)}"
        return f"{session}, {shown!r}" if shown else session
