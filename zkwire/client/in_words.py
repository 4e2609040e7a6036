"""The repr of a Client: what a person with a debugger wants to know, and no secrets."""

from __future__ import annotations

from typing import Protocol

from zkwire.session.observer import SessionState


class Describable(Protocol):
    """A Client, as far as its repr knows it."""

    @property
    def state(self) -> SessionState: ...
    @property
    def server(self) -> str: ...
    @property
    def chroot(self) -> str: ...
    @property
    def session_id(self) -> int: ...
    @property
    def session_timeout(self) -> float: ...
    def certain_for(self, session_id: int, /) -> float: ...


def in_words(client: Describable) -> str:
    """Return the state, the server with the chroot, the session id as servers print it, and how certain it is."""
    session = f"session {client.session_id % 2**64:#x} of {client.session_timeout:g} s"
    certain = f"certain for {client.certain_for(client.session_id):.1f} s"
    return f"<Client {client.state.name} {client.server}{client.chroot}, {session}, {certain}>"
