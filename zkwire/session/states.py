"""The states of a session, and the listeners to their changes."""

from __future__ import annotations

import enum
from collections.abc import Callable


class SessionState(enum.Enum):
    """The state of a session."""

    CONNECTING = "no session yet, looking for a server"
    CONNECTED = "connected"
    READ_ONLY = "connected to a server that has no quorum"
    SUSPENDED = "the connection is lost, the session may still live"
    EXPIRED = "the session is gone, and its ephemeral nodes with it"
    AUTH_FAILED = "the server refused the credentials"
    CLOSED = "closed by its owner"


class States:
    """A session's present state, `now`, and the listeners to its changes."""

    def __init__(self) -> None:
        self.now = SessionState.CONNECTING
        self._listeners: list[Callable[[SessionState], None]] = []

    def enter(self, state: SessionState) -> None:
        """Change to `state` and call every listener."""
        self.now = state
        for listener in list(self._listeners):  # a copy: a listener may remove itself
            listener(state)

    def listen(self, listener: Callable[[SessionState], None]) -> None:
        """Have `listener` called with the new state, in the step in which it changes."""
        self._listeners.append(listener)

    def unlisten(self, listener: Callable[[SessionState], None]) -> None:
        """Undo `listen`; a listener that was never added is ignored."""
        if listener in self._listeners:
            self._listeners.remove(listener)
